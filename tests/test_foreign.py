"""Artifacts made elsewhere: what is read, what is refused in one line, and the leave-one-out nearest centroid by hand."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fdgpriv import foreign
from fdgpriv.audit import main
from fdgpriv.finding import Results
from fdgpriv.foreign_audit import domain_marks, nearest_centroid


def made(n: int = 12, channels: int = 3, apart: float = 6.0, seed: int = 0) -> dict[str, Any]:
    """Two domains of n / 2 clients, their styles `apart` standard deviations from each other."""
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal((n, channels)).astype(np.float32)
    mean[n // 2 :] += apart
    return {"mean": mean, "std": np.abs(rng.standard_normal((n, channels))).astype(np.float32)}


def written(folder: Path, kind: str, arrays: dict[str, Any]) -> list[Path]:
    if kind == "npy":
        for name in ("mean", "std"):
            np.save(folder / f"x_{name}.npy", arrays[name])
        return [folder / "x_mean.npy", folder / "x_std.npy"]
    path = folder / f"x.{kind}"
    if kind == "npz":
        np.savez(path, **arrays)
    else:
        save_file(arrays, path)
    return [path]


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
@pytest.mark.parametrize("axes", [(), (1, 1)])
def test_every_form_holds_the_same_styles(kind: str, axes: tuple[int, ...], tmp_path: Path) -> None:
    plain = made()
    arrays = {name: value.reshape(*value.shape, *axes) for name, value in plain.items()}
    styles = foreign.read(written(tmp_path, kind, arrays), [6, 6])
    assert styles.name == "x"
    np.testing.assert_array_equal(styles.vectors, np.concatenate([plain["mean"], plain["std"]], axis=1))
    assert styles.groups is not None
    assert styles.groups.tolist() == [0] * 6 + [1] * 6


def test_the_file_may_name_the_domains(tmp_path: Path) -> None:
    groups = np.array(["photo", "art"] * 6)
    styles = foreign.read(written(tmp_path, "npz", {**made(), "groups": groups}))
    assert styles.groups is not None
    assert styles.groups.tolist() == [1, 0] * 6


def test_nearest_centroid_is_a_loop_that_leaves_each_client_out() -> None:
    rng = np.random.default_rng(3)
    vectors, groups = rng.standard_normal((9, 2)), np.array([0, 1, 2] * 3)
    found = nearest_centroid(vectors, groups)
    for i in range(9):
        distance = {}
        for group in range(3):
            rest = [vectors[j] for j in range(9) if groups[j] == group and j != i]
            center = [sum(v[d] for v in rest) / len(rest) for d in range(2)]
            distance[group] = math.dist(vectors[i], center)
        assert found[i] == min(distance, key=lambda g: distance[g])


def test_its_own_vector_does_not_name_a_client_that_is_alone_in_its_domain() -> None:
    vectors, groups = np.array([[0.0], [0.1], [9.0]]), np.array([0, 0, 1])
    assert nearest_centroid(vectors, groups).tolist() == [0, 0, 0]


def test_controls_know_nothing(tmp_path: Path) -> None:
    styles = foreign.read(written(tmp_path, "npz", made(60, apart=8.0)), [30, 30])
    marks = {name: float(np.mean(values)) for name, values in domain_marks(styles, 0).headline.items()}
    assert marks["attack"] == 1
    assert marks["other_domain"] == 0
    assert marks["mean_image"] == 0.5
    assert marks["noise"] == pytest.approx(0.5, abs=0.06)
    assert marks["random_style"] == pytest.approx(0.5, abs=0.06)


def audited(folder: Path, arrays: dict[str, Any], *more: str) -> Results:
    files = written(folder, "npz", arrays)
    assert main(["--artifact", *map(str, files), *more, "--out", str(folder / "out")]) == 0
    return Results.load(folder / "out" / "results.json")


@pytest.mark.parametrize(("apart", "verdict"), [(8.0, "leak"), (0.0, "inconclusive")])
def test_a_domain_that_shows_is_a_leak_and_one_that_does_not_is_none(
    apart: float, verdict: str, tmp_path: Path
) -> None:
    results = audited(tmp_path, made(60, apart=apart), "--groups", "30+30")
    (run,) = results.runs
    rows = {row.attack: row for row in run.attacks}
    assert rows["domain_inference"].verdict_domain == verdict
    assert {row.verdict for row in run.attacks} == {"not_applicable"}
    assert (tmp_path / "out" / "report.html").is_file()


def test_without_domains_it_says_what_is_wanted(tmp_path: Path) -> None:
    (run,) = audited(tmp_path, made()).runs
    reasons = {row.attack: row.reason for row in run.attacks}
    assert "--groups" in (reasons["domain_inference"] or "")
    assert "encoder" in (reasons["gan"] or "")


@pytest.mark.parametrize(
    ("change", "more", "told"),
    [
        ({"mean": None}, [], "want arrays mean and std"),
        ({"std": np.ones((12, 4), np.float32)}, [], "one shape"),
        ({"std": -np.ones((12, 3), np.float32)}, [], "at least 0"),
        ({"mean": np.full((12, 3), np.nan, np.float32)}, [], "finite"),
        ({"mean": np.ones(12, np.float32)}, [], "(n, C)"),
        ({"groups": np.arange(5)}, [], "one of groups for each of 12"),
        ({}, ["--groups", "6+7"], "add up to 12"),
        ({}, ["--groups", "6,6"], "joined by +"),
        ({}, ["--groups", "12+0"], "positive sizes"),
        ({"mean": np.array([[{}] * 3] * 12, dtype=object)}, [], "damaged"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_nothing_is_written(
    change: dict[str, Any], more: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = {name: value for name, value in {**made(), **change}.items() if value is not None}
    files = written(tmp_path, "npz", arrays)
    assert main(["--artifact", *map(str, files), *more, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert told in said[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["missing.npz", "x.txt", "x.npy"])
def test_other_files_are_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.txt").write_text("mean")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    assert main(["--artifact", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
