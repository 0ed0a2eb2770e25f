"""Federations that hardly are any: one client, one image, one class, an empty domain, more asked for than there is.

Every method trains on them with every client and every image, or is refused in one line before anything is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import mostly_slow, undrawn
from PIL import Image

from fdgpriv.audit import main
from fdgpriv.method import Method
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run

Counts = Mapping[str, Mapping[str, int]]  # images by domain and class
pytestmark = pytest.mark.filterwarnings("ignore:attention over a 2 x 2 map")
METHODS = tuple(name for name in Method.names() if Method.named(name).federated)
QUICKLY = ("stablefdg",)  # the others only among the slow tests
STYLED = ("stablefdg", "ccst", "pardon")  # of which there is something to attack
SHORT = {
    "ccst": ["augmentation=2"],
    "hfedf": ["hidden=2"],
    "pfedhn": ["hidden=2"],
    "lsi": ["latent_dim=4", "inversion_steps=1", "inversion_batches=1", "translator_steps=2"],
}
TARGET = {"p": 2, "q": 2}
EVEN: Counts = {"a": {"p": 4, "q": 4}, "b": {"p": 4, "q": 4}, "t": TARGET}
ONE_IMAGE: Counts = {"a": {"p": 1, "q": 1}, "b": {"p": 1, "q": 1}, "t": TARGET}  # one to train on, one held out
SKEWED: Counts = {"a": {"p": 9, "q": 1}, "b": {"p": 1, "q": 5}, "t": TARGET}


@pytest.fixture(autouse=True)
def _no_picture() -> Iterator[None]:
    with undrawn():
        yield


def folder(root: Path, counts: Counts) -> Path:
    """A folder dataset of noise, 16 px."""
    draws = np.random.default_rng(0)
    for domain, classes in counts.items():
        (root / domain).mkdir(parents=True)
        for name, count in classes.items():
            (root / domain / name).mkdir()
            for i in range(count):
                Image.fromarray(draws.integers(256, size=(16, 16, 3), dtype=np.uint8)).save(
                    root / domain / name / f"{i}.png"
                )
    return root


def words(method: str, *more: str, attacks: Sequence[str] = ("none",), settings: Sequence[str] = ()) -> list[str]:
    last = {item.partition("=")[0]: item for item in ("rounds=1", "local_epochs=1", *SHORT.get(method, ()), *settings)}
    return ["--method", method, "--preset", "quick", *more, "--set", *last.values(), "--attack", *attacks]


def of_folder(root: Path) -> list[str]:
    return ["--dataset", "folder", "--data-root", str(root), "--image-size", "16"]


def audited(tmp_path: Path, counts: Counts, given: Sequence[str]) -> Run:
    """The run of an audit that goes through."""
    out = tmp_path / "out"
    assert main([*of_folder(folder(tmp_path / "images", counts)), *given, "--out", str(out)]) == 0
    (run,) = Results.load(out / "results.json").runs
    return run


def senders(run: Run) -> int:
    """How many clients sent the server their model, or an update of it, over all rounds."""
    kinds = ("model_state", "model_update")
    sent = [row for row in run.artifacts if row.sender == "client" and row.to == "server" and row.kind in kinds]
    return sum(row.times for row in sent)


@pytest.mark.parametrize("method", mostly_slow(METHODS, QUICKLY))
def test_one_client_trains_alone(method: str, tmp_path: Path) -> None:
    alone = ("--clients", "1", "--partition", "domains:2")
    attacks = ("domain_inference:simulations=4",) if method in STYLED else ("none",)
    settings = ["augmentation=1", "keep_original=false"] if method == "ccst" else []
    run = audited(tmp_path, EVEN, words(method, *alone, attacks=attacks, settings=settings))
    assert run.utility is not None
    assert senders(run) == 1
    assert not any("in no round" in said for said in run.not_measured)
    for row in run.attacks:
        assert not row.leakage
        assert row.reason
    assert {question.verdict for question in run.questions} <= {"not_applicable"}


@pytest.mark.parametrize("method", mostly_slow(METHODS, QUICKLY))
def test_clients_with_one_image_take_part(method: str, tmp_path: Path) -> None:
    """So does a class that a client lacks, and a batch that is not full."""
    each = ("--clients", "2", "--partition", "domains:1")
    attacks = ("class_probe", "identification:simulations=4") if method in STYLED else ("none",)
    run = audited(tmp_path, ONE_IMAGE, words(method, *each, attacks=attacks))
    assert run.utility is not None
    assert senders(run) == 2
    assert {row.samples_behind for row in run.artifacts if row.sender == "client" and row.level == "client"} <= {1, 2}
    for row in run.attacks:
        assert not row.leakage
        assert "more public images of a than there are classes (2); there are 0" in (row.reason or "")


@pytest.mark.parametrize("method", mostly_slow(METHODS, QUICKLY))
def test_clients_of_nearly_one_class_take_part(method: str, tmp_path: Path) -> None:
    """More participants than clients are all clients."""
    run = audited(
        tmp_path, SKEWED, words(method, "--clients", "4", "--partition", "domains:1", settings=("participants=9",))
    )
    assert run.utility is not None
    assert senders(run) == 4


@pytest.mark.parametrize("method", sorted({*Method.names()} - {*METHODS}))
def test_no_federation_trains_on_one_image_too(method: str, tmp_path: Path) -> None:
    run = audited(tmp_path, ONE_IMAGE, words(method, "--clients", "2", "--partition", "domains:1"))
    assert run.utility is not None
    assert senders(run) == (0 if run.shares_nothing else 1)
    assert not any("in no round" in said for said in run.not_measured)


def test_who_is_in_no_round_is_named(tmp_path: Path) -> None:
    given = words("fedavg", "--clients", "3", "--partition", "domains:1", settings=("participants=2",))
    (said,) = (line for line in audited(tmp_path, EVEN, given).not_measured if "in no round" in line)
    assert said.count("client-") == 1


EACH = ("--clients", "2", "--partition", "domains:1")
REFUSED: tuple[tuple[str, Counts, list[str]], ...] = (
    # one would be held out, and none be left to train on
    ("want at least 2 images per client, got 1 for", ONE_IMAGE, words("fedavg", "--clients", "4", *EACH[2:])),
    ("want at least one image", {**EVEN, "a": {"p": 4, "q": 0}}, words("fedavg", *EACH[:2])),
    ("want the class p in", {**EVEN, "a": {}}, words("fedavg", *EACH[:2])),
    (
        "ccst.augmentation: want at most as many as clients (2), got 3",
        EVEN,
        words("ccst", *EACH, settings=["augmentation=3"]),
    ),
    (
        "want at most as many as other clients (1), got 2",
        EVEN,
        words("ccst", *EACH, settings=["augmentation=2", "own=false", "keep_original=false"]),
    ),
    (
        "stablefdg.code_compat: want batches of at least 17, got 7 at client-00",
        EVEN,
        words("stablefdg", *EACH, settings=["code_compat=true"]),
    ),
)


@pytest.mark.parametrize(("told", "counts", "given"), REFUSED, ids=[told for told, *_ in REFUSED])
def test_too_few_images_are_refused(
    told: str, counts: Counts, given: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before anything is written."""
    root = folder(tmp_path / "images", counts)
    before = sorted(tmp_path.rglob("*"))
    assert main([*of_folder(root), *given, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_small_images_can_be_attacked(tmp_path: Path) -> None:
    """The extractor's 32 px are not everybody's; a probe of as many artifacts as labels says how common each label is."""
    counts = {**EVEN, "a": {"p": 16, "q": 16}, "b": {"p": 16, "q": 16}}
    attacks = ("gan:steps=1,generator=fastgan", "domain_inference:simulations=2")
    rows = audited(tmp_path, counts, words("ccst", "--clients", "2", attacks=attacks)).attacks
    gan = next(row for row in rows if row.attack.startswith("gan"))
    inferred = [row for row in rows if row.attack.startswith("domain_inference")]
    assert any(name.startswith("single_image kid[") for name in gan.metrics)
    assert [row.metrics["accuracy"].value for row in inferred] == pytest.approx([0.5] * 3)


def test_all_domains_are_not_a_domain_called_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = folder(tmp_path / "images", {name: {"p": 8, "q": 8} for name in ("a", "b", "All")})
    assert main([*words("fedavg", *of_folder(images)), "--target", "all", "--out", str(tmp_path / "out")]) == 2
    assert "has a domain called All" in capsys.readouterr().err
