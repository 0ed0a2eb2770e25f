"""A run is continued only by the versions and the code that began it; otherwise one line says what changed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from factories import refused
from test_audit_recording import Net, given, record, train
from torch import Tensor, nn

from fdgpriv.config import AuditConfig
from fdgpriv.external.recorded_basis import code_digests, recorded_basis
from fdgpriv.external.recorded_federation import GivenTraining, recorded_federation
from fdgpriv.utils import environment, run_folder
from fdgpriv.utils.environment import versions


def basis(parts: dict[str, str], **changed: str) -> run_folder.Basis:
    return {"versions": {**versions(), **changed}, "parts": parts}


def begun(out: Path, of: run_folder.Basis) -> None:
    with run_folder.new(out, run_folder.settings({"seeds": [0]}, None, of)):
        pass


def go_on(out: Path, of: run_folder.Basis) -> None:
    with run_folder.resumed(out, run_folder.settings({"seeds": [0]}, None, of)):
        pass


def test_another_version_is_refused(tmp_path: Path) -> None:
    begun(tmp_path / "run", basis({}, fdgpriv="0.0.1", torch="1.0.0"))
    now = versions()
    with refused(
        f"^--resume: want fdgpriv 0.0.1 and torch 1.0.0, with which .*run was started; got fdgpriv {now['fdgpriv']} and "
        f"torch {now['torch'].replace('+', '.')}; .* into a new --out, or continue with those versions$"
    ):
        go_on(tmp_path / "run", basis({}))


def test_a_run_without_versions_is_refused(tmp_path: Path) -> None:
    begun(tmp_path / "run", {})
    with refused("want a run of this version of fdgpriv, got .*run, whose config.json names none; .* new --out$"):
        go_on(tmp_path / "run", basis({}))


def test_changed_parts_are_named(tmp_path: Path) -> None:
    begun(tmp_path / "run", basis({"normalize": "0" * 16 + " of its code", "train": "1" * 16, "more": "2"}))
    go_on(tmp_path / "run", basis({"normalize": "0" * 16 + " of its code", "train": "1" * 16, "new": "2"}))
    with refused(r"got a changed normalize \(by its code\) and train; "):
        go_on(tmp_path / "run", basis({"normalize": "3" * 16 + " of its code", "train": "4" * 16}))


def test_every_version_that_numbers_rest_on_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = AuditConfig(methods=("fedavg",), attacks=("client_size",)).basis()
    assert set(before["versions"]) > {"fdgpriv", "python", "torch", "numpy", "scipy", "scikit-learn", "opacus"}
    assert list(before["parts"]) == ["method fedavg", "attack client_size", "defense none"]
    monkeypatch.setattr(environment, "installed_version", lambda package: "0")
    assert AuditConfig(methods=("fedavg",)).basis()["versions"]["numpy"] == "0"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("record") / "rec")


def of_given(recording: Path, **changes: Any) -> dict[str, str]:
    training = GivenTraining(**given(**changes))
    code = code_digests(training)
    return recorded_basis(code, training, recorded_federation(recording, training, 0))


def slower(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator) -> None:
    train(model, images, labels, round, rng)
    train(model, images, labels, round, rng)


class Doubled(Net):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * 2


def swapped() -> dict[str, Any]:
    """The clients of the recording, where two of one domain have exchanged their images."""
    clients = given()["clients"]
    return {**clients, "a": clients["c"], "c": clients["a"]}


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({}, []),
        ({"normalize": lambda images: (images - 0.5) / 0.5}, ["normalize"]),
        ({"train": slower}, ["train"]),
        ({"network": Doubled}, ["network"]),
        ({"network": Net()}, []),  # built as before, only not by a function
        ({"encoder": "body.1"}, ["encoder"]),
        ({"clients": swapped()}, ["images of clients"]),
    ],
)
def test_the_basis_follows_what_is_given(recording: Path, changes: dict[str, Any], changed: list[str]) -> None:
    before, after = of_given(recording), of_given(recording, **changes)
    assert [name for name in before if before[name] != after[name] and name != "public images"] == changed


def test_outputs_stand_for_code_that_cannot_be_read(recording: Path) -> None:
    """Of two compiled functions with one form, what they compute differs; one that draws has no outputs to compare."""
    compiled = [
        of_given(recording, normalize=torch.jit.script(nn.Softshrink(amount)))["normalize"]
        for amount in (0.1, 0.1, 0.2)
    ]
    assert compiled[0] == compiled[1] != compiled[2]
    assert "of its outputs on fixed images; not of a compiled function" in compiled[0]
    drawing = of_given(recording, normalize=lambda images: images + torch.randn(()))["normalize"]
    assert drawing.endswith(" of its code")
