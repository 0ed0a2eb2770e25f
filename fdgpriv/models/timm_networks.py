"""Convolutional networks of the optional package timm as backbones, cut into layers where their maps get smaller."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.models.architecture import Architecture, Colours, Stages, stem
from fdgpriv.models.checkpoints import load_backbone
from fdgpriv.models.names import TIMM
from fdgpriv.utils.extras import optional
from fdgpriv.utils.global_rng import global_draws
from fdgpriv.utils.suggestions import did_you_mean
from fdgpriv.utils.torchvision_import import load_torchvision

_SIDE = 128  # pixels, of the image on which a network is cut
_STEM = ("conv", "bn", "norm", "act", "relu", "pool", "maxpool", "stem")  # names of layers before the blocks start so


@dataclass(frozen=True)
class CutPlan:
    """The layers that a network is cut into.

    Attributes:
        layers: By layer, the names of the network's modules that it applies in order.
        channels: By layer, the channels of its output.
    """

    layers: dict[str, tuple[str, ...]]
    channels: dict[str, int]


@dataclass(frozen=True)
class TimmNetwork(Architecture):
    """The network that timm calls `name`; the weights, if any, come from the user's file.

    The stem is everything before the first sequence of blocks. After it, blocks whose maps have the same size form a layer:
    layer1, layer2, and so on.
    """

    name: str

    @property
    def files(self) -> tuple[str, ...]:  # type: ignore[override]
        names = dict.fromkeys((self._published, self._published.partition(".")[0]))
        return tuple(f"{name}.{kind}" for name in names for kind in ("safetensors", "pth"))

    @property
    def source(self) -> str:  # type: ignore[override]
        return f"comes from https://huggingface.co/timm/{self._published}, there called model.safetensors"

    @property
    def colours(self) -> Colours | None:
        facts = self._facts
        return tuple(facts["mean"]), tuple(facts["std"])

    def build(self) -> nn.Module:
        return _created(self.name)

    def cut(self, network: nn.Module, small_input: bool) -> Stages:
        plan = _plan(self.name)
        parts = {name: [network.get_submodule(unit) for unit in units] for name, units in plan.layers.items()}
        stages: dict[str, nn.Module] = {name: nn.Sequential(*modules) for name, modules in parts.items()}
        return stages | {"stem": stem(parts["stem"], small_input)}, plan.channels

    def load(self, network: nn.Module, path: Path) -> None:
        heads = self._facts["classifier"]
        heads = tuple(f"{head}." for head in ((heads,) if isinstance(heads, str) else heads))
        load_backbone(network, self.name, path, heads)

    @property
    def _facts(self) -> dict[str, Any]:
        """timm's description of the published network: mean, std, names of the classifier's tensors."""
        return dict(_timm(self.name).get_pretrained_cfg(self.name).to_dict())

    @property
    def _published(self) -> str:
        """Its name with the tag of the weights, as in ``resnet18.a1_in1k``."""
        facts = self._facts
        return f"{facts['architecture']}.{facts['tag']}" if facts.get("tag") else str(facts["architecture"])


def _timm(name: str) -> Any:
    """The module timm, which knows a network of this name; ValueError otherwise."""
    load_torchvision()  # before timm imports it
    timm = optional("timm", "timm", f"{TIMM}{name}")
    if not timm.is_model(name):
        raise ValueError(f"want a network of timm, got {TIMM}{name}{did_you_mean(name, timm.list_models())}")
    return timm


def _created(name: str) -> nn.Module:
    network: nn.Module = _timm(name).create_model(name, pretrained=False, num_classes=0, global_pool="")
    return network


@cache
def _plan(name: str) -> CutPlan:
    """The cut of a network; ValueError if it does not apply its modules one after the other to maps (B, C, H, W)."""
    with global_draws():
        network: Any = _created(name).eval()
        for parameter in network.parameters():
            if parameter.ndim == 1:
                nn.init.uniform_(parameter, 0.5, 1.5)  # scales that start near 0 would hide a block that is left out
    units, maps = _applied(name, network)
    first = next((i for i, unit in enumerate(units) if not _in_stem(unit)), 0)
    if first == 0:
        raise _refused(name)
    layers, channels = {"stem": tuple(units[:first])}, {"stem": maps[first - 1].shape[1]}
    for i, (_, group) in enumerate(groupby(range(first, len(units)), key=lambda index: maps[index].shape[-1]), start=1):
        indices = list(group)
        layers[f"layer{i}"] = tuple(units[index] for index in indices)
        channels[f"layer{i}"] = maps[indices[-1]].shape[1]
    return CutPlan(layers, channels)


@torch.no_grad()
def _applied(name: str, network: Any) -> tuple[Sequence[str], Sequence[Tensor]]:
    """The modules that `forward_features` applies, in order, and their outputs for one image."""
    images = torch.rand(1, 3, _SIDE, _SIDE, generator=torch.Generator().manual_seed(0))
    units, maps, features = [], [], images
    try:
        expected = network.forward_features(images)
        for unit, module in _units(network):
            features = module(features)
            units.append(unit)
            maps.append(features)
    except Exception as error:
        if not maps:
            raise _refused(name) from error
    end = next((i for i, features in enumerate(maps, start=1) if _same(features, expected)), 0)
    if end == 0 or expected.ndim != 4:
        raise _refused(name)
    return units[:end], maps[:end]


def _units(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """The network's modules in order, sequences replaced by what they contain."""
    units: list[tuple[str, nn.Module]] = []
    for name, module in network.named_children():
        inner = list(module.named_children()) if type(module) is nn.Sequential else []
        units += [(f"{name}.{part}", block) for part, block in inner] or [(name, module)]
    return [(name, module) for name, module in units if not isinstance(module, nn.Identity)]


def _in_stem(unit: str) -> bool:
    """Whether this name is of a layer before the blocks."""
    return any(part.startswith(_STEM) for part in unit.split("."))


def _same(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def _refused(name: str) -> ValueError:
    return ValueError(
        f"want a network that applies its layers one after the other to maps of an image, got {TIMM}{name}; "
        f"{TIMM}resnet18, {TIMM}tf_efficientnet_lite0 and {TIMM}regnetx_002 are some"
    )
