"""Artifacts made elsewhere: what is read, what is refused in one line, and the leave-one-out nearest centroid by hand."""

import io
import json
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fdgpriv.audit import main
from fdgpriv.external import styles as external_styles
from fdgpriv.external.audit import domain_scores, nearest_centroid
from fdgpriv.results.finding import Results


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
def test_every_form_holds_the_same_styles(kind: str, tmp_path: Path) -> None:
    plain = made()
    for axes in ((), (1, 1)):
        arrays = {name: value.reshape(*value.shape, *axes) for name, value in plain.items()}
        styles = external_styles.read(written(tmp_path, kind, arrays), [6, 6])
        assert styles.name == "x"
        np.testing.assert_array_equal(styles.vectors, np.concatenate([plain["mean"], plain["std"]], axis=1))
        assert styles.groups is not None
        assert styles.groups.tolist() == [0] * 6 + [1] * 6


def test_a_file_may_name_domains_in_any_byte_order(tmp_path: Path) -> None:
    plain, groups = made(), np.array(["photo", "caf\u00e9"] * 3 + ["photo", "cafe\u0301"] * 3)  # é in both forms
    turned = {"mean": np.asfortranarray(plain["mean"]), "std": plain["std"].astype(">f4"), "groups": groups}
    styles = external_styles.read(written(tmp_path, "npz", turned))
    assert styles.groups is not None
    assert styles.groups.tolist() == [1, 0] * 6
    np.testing.assert_array_equal(styles.vectors, np.concatenate([plain["mean"], plain["std"]], axis=1))


def test_nearest_centroid_is_a_leave_one_out_loop() -> None:
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
    alone, groups = np.array([[0.0], [0.1], [9.0]]), np.array([0, 0, 1])  # its own vector does not name who is alone
    assert nearest_centroid(alone, groups).tolist() == [0, 0, 0]


def test_controls_know_nothing(tmp_path: Path) -> None:
    styles = external_styles.read(written(tmp_path, "npz", made(60, apart=8.0)), [30, 30])
    scores = {name: float(np.mean(values)) for name, values in domain_scores(styles, 0).headline.items()}
    assert scores["attack"] == 1
    assert scores["other_domain"] == 0
    assert scores["mean_image"] == 0.5
    assert scores["noise"] == pytest.approx(0.5, abs=0.06)
    assert scores["random_style"] == pytest.approx(0.5, abs=0.06)


def audited(folder: Path, arrays: dict[str, Any], *more: str) -> Results:
    files = written(folder, "npz", arrays)
    assert main(["--artifact", *map(str, files), *more, "--out", str(folder / "out")]) == 0
    return Results.load(folder / "out" / "results.json")


@pytest.mark.parametrize(("apart", "verdict"), [(8.0, "leak"), (0.0, "inconclusive")])
def test_a_visible_domain_is_a_leak(apart: float, verdict: str, tmp_path: Path) -> None:
    results = audited(tmp_path, made(60, apart=apart), "--groups", "30+30")
    (run,) = results.runs
    rows = {row.attack: row for row in run.attacks}
    assert [name for name, row in rows.items() if row.leakage] == ["domain_inference"]
    (asked,) = (question for question in run.questions if question.secret == "domain")
    assert (asked.verdict, asked.scope) == (verdict, "domain")
    assert {question.verdict for question in run.questions if question is not asked} == {"not_applicable"}
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
        ({"mean": np.ones((12, 3), complex)}, [], "complex128"),
        ({"mean": np.ones((12, 0)), "std": np.ones((12, 0))}, [], "at least 1 channel"),
        ({"mean": np.ones((0, 3)), "std": np.ones((0, 3))}, [], "2 to 10,000 clients"),
        ({"mean": np.full((12, 3), 1e200)}, [], "at most 1e+100"),
        ({"std": np.full((12, 3), np.longdouble("1e4000"))}, [], "at most 1e+100"),
        ({"groups": np.full(12, np.nan)}, [], "NaN"),
        ({}, ["--groups", "²+10"], "joined by +"),
        ({}, ["--groups", "9" * 5000], "joined by +"),
        ({"groups": np.arange(5)}, [], "one group for each of 12"),
        ({}, ["--groups", "6+7"], "add up to 12"),
        ({}, ["--groups", "6,6"], "joined by +"),
        ({}, ["--groups", "12+0"], "positive sizes"),
        ({}, ["--groups", "2", "--groups", "4"], "add up to 12 clients, got 2+4"),
        ({"mean": np.array([[{}] * 3] * 12, dtype=object)}, [], "Python objects"),
    ],
)
def test_unreadable_arrays_are_one_line(
    change: dict[str, Any], more: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = {name: value for name, value in {**made(), **change}.items() if value is not None}
    files = written(tmp_path, "npz", arrays)
    assert main(["--artifact", *map(str, files), *more, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert not (tmp_path / "out").exists()


def npy(array: Any, **header: Any) -> bytes:
    """A .npy file whose header may say something else than is true."""
    file = io.BytesIO()
    true = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_2_0(file, {**true, **header})
    return file.getvalue() + array.tobytes()


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # that a name is there twice
        for name, data in members.items():
            archive.writestr(f"{name.rstrip('_')}.npy", data)
    return file.getvalue()


def tensors(header: Mapping[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def bfloat16() -> bytes:
    entry = {"dtype": "BF16", "shape": [12, 3]}
    entries = {name: {**entry, "data_offsets": [72 * i, 72 * i + 72]} for i, name in enumerate(("mean", "std"))}
    return tensors(entries, bytes(144))


STYLE = np.ones((12, 3), np.float32)
GOOD = zipped(mean=npy(STYLE), std=npy(STYLE))
HUGE = (2**40, 1024)  # 8 PB of float64
NEVER = b"\x80\x04\x8c\x08builtins\x8c\x04exit\x93)R."  # a pickle that would end the process


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("x.npz", None, "no file"),
        ("x.npz", b"", "BadZipFile"),
        ("x.npz", GOOD[:-30], "BadZipFile"),
        ("x.npz", GOOD[:60] + bytes([GOOD[60] ^ 1]) + GOOD[61:], "cannot be read"),
        ("x.npz", zipped(mean=NEVER, std=npy(STYLE)), "numpy's format"),
        ("x.npz", zipped(mean=npy(STYLE), mean_=npy(STYLE), std=npy(STYLE)), "got 2"),
        ("x.npz", zipped(mean=npy(STYLE, shape=HUGE, descr="<f8"), std=npy(STYLE)), "9007199254740992 bytes"),
        ("x.npz", zipped(mean=npy(STYLE, shape=(-12, -3)), std=npy(STYLE)), "(-12, -3)"),
        ("x.npz", zipped(mean=npy(STYLE, descr="|O"), std=npy(STYLE)), "Python objects"),
        ("x.npz", zipped(), "neither"),
        ("x.npz", "pipe", "a pipe"),
        ("x.npz", "folder", "a folder"),
        ("x.npz", "large", "at most 1073741824 bytes"),
        ("x.npy", npy(STYLE), "or mean.npy and std.npy"),
        ("mean.npy std.npy", b"\x93NUMPY", "cannot be read"),
        ("mean.npy std.npy", b"\x93NUMPY\x09\x00", "version"),
        ("mean.npy std.npy", npy(STYLE)[:-1], "got 143"),
        ("mean.npy std.npy", npy(STYLE, shape=HUGE, descr="<f8"), "9007199254740992 bytes"),
        ("mean.npy std.npy", npy(STYLE, descr="|O") + NEVER, "Python objects"),
        ("x.safetensors", b"", "SafetensorError"),
        ("x.safetensors", tensors({}), "neither"),
        ("x.safetensors", bfloat16(), "got BF16: convert it to F32"),
        ("x.safetensors", bfloat16()[:-1], "SafetensorError"),
        ("x.safetensors", struct.pack("<Q", 2**53) + b"{}", "SafetensorError"),
        (
            "x.safetensors",
            tensors({"mean": {"dtype": "F64", "shape": HUGE, "data_offsets": [0, 2**53]}}),
            "SafetensorError",
        ),
        ("x.safetensors", "pipe", "a pipe"),
        ("x.txt", b"mean", "want one .npz or .safetensors"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_misnamed_file_is_one_line(
    name: str, data: bytes | str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / one for one in name.split()]
    for file in files:
        if data == "pipe":
            os.mkfifo(file)
        elif data == "folder":
            file.mkdir()
        elif data == "large":
            with file.open("wb") as sparse:
                sparse.truncate(2**30 + 1)
        elif isinstance(data, bytes):
            file.write_bytes(data)
    before = sorted(tmp_path.iterdir())
    assert main(["--artifact", *map(str, files), "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fdgpriv audit: --artifact: want ")
    assert told in line
    assert str(tmp_path) in line
    assert sorted(tmp_path.iterdir()) == before


def test_large_arrays_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = npy(np.zeros((1000, 3), np.float32))
    (tmp_path / "x.npz").write_bytes(zipped(mean=zeros, std=zeros, other=NEVER))  # which nobody asked for
    assert external_styles.read([tmp_path / "x.npz"]).mean.shape == (1000, 3)
    monkeypatch.setattr("fdgpriv.utils.arrays.LARGEST", 2000)
    with pytest.raises(ValueError, match=r"at most 2000 bytes, got more in mean\.npy"):
        external_styles.read([tmp_path / "x.npz"])
