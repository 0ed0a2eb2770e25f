"""Whole audits on a GPU: `make test-gpu`, skipped where torch finds none."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fdgpriv.audit import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU that torch finds"),
]


@pytest.mark.parametrize("method", ["stablefdg", "ccst", "pardon", "lsi", "hfedf", "pfedhn"])
def test_every_attack_on_every_artifact_runs_there(method: str, tmp_path: Path) -> None:
    found = _audited(tmp_path, method, "cuda")
    assert found["environment"]["device"] == torch.cuda.get_device_name()
    assert all(run["failed"] is None and run["attacks"] for run in found["runs"])


def test_a_gpu_answers_the_same_questions(tmp_path: Path) -> None:
    gpu, cpu = (_audited(tmp_path, "fedavg", device) for device in ("cuda", "cpu"))
    assert _asked(gpu) == _asked(cpu)
    (there,), (here,) = ([run["utility"]["source_accuracy"] for run in found["runs"]] for found in (gpu, cpu))
    assert there["ci95"][0] <= here["value"] <= there["ci95"][1]


def _audited(folder: Path, method: str, device: str) -> dict[str, Any]:
    out = folder / device
    assert main(["--method", method, "--preset", "quick", "--device", device, "--out", str(out)]) == 0
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


def _asked(results: dict[str, Any]) -> set[tuple[str, ...]]:
    facts = ("artifact", "adversary", "secret", "scope")
    return {tuple(row[fact] for fact in facts) for run in results["runs"] for row in run["questions"]}
