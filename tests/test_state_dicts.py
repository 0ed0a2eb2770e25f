"""Weights are read from the files that people save, and what cannot be read is one line that says what to do."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from fdgpriv.models.architectures import SmallResNet, architecture
from fdgpriv.models.backbone import backbone
from fdgpriv.utils.seeds import generator

State = dict[str, Tensor]


class Network(nn.Module):
    """The small network as part of a user's own, with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = SmallResNet().build()
        self.head = nn.Linear(96, 3)

    def forward(self, images: Tensor) -> Tensor:
        return images


def loaded(path: Path) -> State:
    network = backbone("small_resnet", mean=(0.5,) * 3, std=(0.5,) * 3, rng=generator(1), weights=path)
    return {name.removeprefix("body."): tensor for name, tensor in network.state_dict().items()}


@pytest.fixture(scope="module")
def state() -> State:
    torch.manual_seed(3)
    return SmallResNet().build().state_dict()


def before(prefix: str, state: State) -> State:
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def with_optimiser(state: State) -> dict[str, Any]:
    network = SmallResNet().build()
    network.load_state_dict(state)
    optimiser = torch.optim.Adam(network.parameters())
    sum(parameter.sum() for parameter in network.parameters()).backward()  # type: ignore[union-attr]
    optimiser.step()
    return {"epoch": 3, "model_state_dict": state, "optimizer_state_dict": optimiser.state_dict(), "loss": 0.5}


def of_lightning(state: State) -> dict[str, Any]:
    return {
        "state_dict": before("model.", state) | {"criterion.weight": torch.ones(3)},
        "pytorch-lightning_version": "2.2.0",
        "optimizer_states": [with_optimiser(state)["optimizer_state_dict"]],
        "hyper_parameters": {"lr": 0.1},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.5)}},
    }


FORMS: dict[str, Callable[[State], object]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 3},
    "model": lambda state: {"model": state, "optimizer": {}},
    "nested": lambda state: {"checkpoint": {"net": {"params": state}}},
    "optimiser": with_optimiser,
    "lightning": of_lightning,
    "parallel": lambda state: before("module.", state),
    "compiled": lambda state: {"model": before("module._orig_mod.", state)},
    "compiled layers": lambda state: {name.replace("layer1.", "layer1._orig_mod."): t for name, t in state.items()},
    "part of another": lambda state: before("encoder.backbone.", state) | {"decoder.weight": torch.ones(3)},
    "averaged": lambda state: before("module.", state) | {"n_averaged": torch.tensor(7)},
    "twice the same": lambda state: before("model.", state) | before("backbone.", state),
    "head": lambda state: state | {"fc.weight": torch.ones(5, 96), "projector.0.weight": torch.ones(2, 2)},
    "arguments": lambda state: {
        "state_dict": state,
        "args": argparse.Namespace(lr=0.1, output=Path("out")),
        "best": np.float64(0.75),
        "count": np.int64(3),
    },
    "parameters": lambda state: {n: nn.Parameter(t) if t.is_floating_point() else t for n, t in state.items()},
    "double": lambda state: {n: t.double() if t.is_floating_point() else t for n, t in state.items()},
    "no counters": lambda state: {n: t for n, t in state.items() if "num_batches" not in n},
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_read_in_all_saved_forms(form: str, state: State, tmp_path: Path) -> None:
    torch.save(FORMS[form](state), tmp_path / "weights.ckpt")
    tensors = loaded(tmp_path / "weights.ckpt")
    assert tensors.keys() == state.keys()
    assert all(torch.equal(tensors[name], state[name]) for name in state)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth"])
def test_safetensors_are_known_by_their_content(name: str, state: State, tmp_path: Path) -> None:
    half = {n: t.half() if t.is_floating_point() else t for n, t in state.items()}
    safetensors.torch.save_file(before("model.", half), tmp_path / name)
    tensors = loaded(tmp_path / name)
    assert all(torch.equal(tensors[n], half[n].to(state[n].dtype)) for n in state)


def test_what_a_run_of_ours_leaves_is_read(state: State, tmp_path: Path) -> None:
    safetensors.torch.save_file(
        before("backbone.body.", state) | {"head.weight": torch.ones(3, 96)}, tmp_path / "model.safetensors"
    )
    assert torch.equal(loaded(tmp_path / "model.safetensors")["stem.0.weight"], state["stem.0.weight"])


def test_wrapped_networks_and_old_names_are_understood(tmp_path: Path) -> None:
    """As torch's ImageNet example saves AlexNet, and an old DenseNet from several GPUs."""
    alexnet = architecture("alexnet").build()
    torch.save(
        {"state_dict": {n.replace("features.", "features.module."): t for n, t in alexnet.state_dict().items()}},
        tmp_path / "alexnet.pth.tar",
    )
    again = architecture("alexnet").build()
    architecture("alexnet").load(again, tmp_path / "alexnet.pth.tar")
    assert all(torch.equal(t, alexnet.state_dict()[n]) for n, t in again.state_dict().items())


FIRST = "stem.0.weight"
REFUSED: dict[str, tuple[Callable[[State, Path], object], str]] = {
    "a whole network": (
        lambda state, path: torch.save(Network(), path),
        r"got a pickled test_state_dicts\.Network, which is not read, .*torch\.save\(model\.state_dict\(\), FILE\)$",
    ),
    "an object beside it": (
        lambda state, path: torch.save({"state_dict": state, "network": Network()}, path),
        r"got a pickled test_state_dicts\.Network, which is not read",
    ),
    "torchscript": (
        lambda state, path: torch.jit.save(torch.jit.trace(nn.ReLU(), torch.ones(1)), path),
        r"got a TorchScript archive; save the tensors alone: torch\.save",
    ),
    "cut": (
        lambda state, path: (torch.save(state, path), path.write_bytes(path.read_bytes()[:9999])),
        "want a state dict in .*; save the tensors alone",
    ),
    "text": (lambda state, path: path.write_text("weights"), "want a state dict in .*; save the tensors alone"),
    "a list": (lambda state, path: torch.save([1, 2], path), "got no tensor with a name; save the tensors alone"),
    "NaN": (
        lambda state, path: torch.save(state | {FIRST: state[FIRST] * float("nan")}, path),
        r"want finite numbers in stem\.0\.weight, got NaN",
    ),
    "overflow": (
        lambda state, path: torch.save(state | {FIRST: torch.full_like(state[FIRST], 1e300, dtype=torch.double)}, path),
        r"want finite numbers in stem\.0\.weight, got NaN, infinities",
    ),
    "a negative variance": (
        lambda state, path: torch.save(state | {"stem.1.running_var": -torch.ones(32)}, path),
        r"want finite numbers in stem\.1\.running_var, got NaN, infinities or negative variances",
    ),
    "whole numbers": (
        lambda state, path: torch.save(state | {FIRST: state[FIRST].to(torch.int8)}, path),
        r"want finite numbers in stem\.0\.weight, got torch\.int8",
    ),
    "other shapes": (
        lambda state, path: torch.save(state | {FIRST: torch.ones(32, 1, 3, 3)}, path),
        r"want stem\.0\.weight \(32, 3, 3, 3\), got \(32, 1, 3, 3\)$",
    ),
    "other names": (
        lambda state, path: torch.save({"conv1.weight": torch.ones(3)}, path),
        r"missing: stem\.0\.weight, stem\.1\.weight, stem\.1\.bias and 57 more; save the tensors alone",
    ),
    "a deeper network": (
        lambda state, path: torch.save(state | {"layer1.conv3.weight": torch.ones(3)}, path),
        r"of no layer of it: layer1\.conv3\.weight; is it another network's\?",
    ),
    "two networks": (
        lambda state, path: torch.save({"state_dict": state, "ema": {n: t + 1 for n, t in state.items()}}, path),
        "want one network in .*, got several: ema, state_dict; save the tensors of one alone",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_one_line(case: str, state: State, tmp_path: Path) -> None:
    save, told = REFUSED[case]
    path = tmp_path / "weights.pth"
    save(state, path)
    with pytest.raises(ValueError, match=told) as caught:
        loaded(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
