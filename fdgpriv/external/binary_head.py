"""A network with one logit as one with two classes, so that attacks read its last layer as of any classifier.

The weights of class 1 are half of the recorded ones, those of class 0 their negatives: a softmax over both classes gives the
sigmoid of the recorded logit, and cross-entropy is binary cross-entropy.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.models.copied import copied


class TwoRows(nn.Linear):
    """A linear layer with weights of two classes, whose one output is the difference of their logits."""

    def forward(self, features: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias[1:] - self.bias[:1]
        return nn.functional.linear(features, self.weight[1:] - self.weight[:1], bias)


@dataclass(frozen=True)
class BinaryHead:
    """The last linear layer of a network with one logit.

    Attributes:
        layer: Its name.
        names: Those of its parameters.
    """

    layer: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, network: nn.Module) -> "BinaryHead | None":
        """That of the network; None if it has no linear layer with one output."""
        layers = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Linear) and m.out_features == 1]
        if not layers:
            return None
        name, layer = layers[-1]
        return cls(name, tuple(f"{name}.{part}".removeprefix(".") for part, _ in layer.named_parameters()))

    def expanded(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state or an update of the network for two classes."""
        return {n: torch.cat([-t / 2, t / 2]) if n in self.names else t for n, t in state.items()}

    def with_two_rows(self, network: nn.Module) -> nn.Module:
        """A copy of the network, with its own state, whose last layer has two rows."""
        network = copied(network)
        one = network.get_submodule(self.layer)
        assert isinstance(one, nn.Linear)
        two = TwoRows(one.in_features, 2, bias=one.bias is not None).to(one.weight)
        two.load_state_dict({name: torch.cat([-t / 2, t / 2]) for name, t in one.state_dict().items()})
        self._set(network, two.train(one.training))
        return network

    @contextmanager
    def with_one_row(self, network: nn.Module) -> Iterator[None]:
        """Within, the network has the last layer of the user, with one row."""
        two = network.get_submodule(self.layer)
        assert isinstance(two, TwoRows)
        one = nn.Linear(two.in_features, 1, bias=two.bias is not None).to(two.weight)
        one.load_state_dict({name: t[1:] - t[:1] for name, t in two.state_dict().items()})
        self._set(network, one.train(two.training))
        try:
            yield
        finally:
            trained = network.get_submodule(self.layer)
            two.load_state_dict({name: torch.cat([-t / 2, t / 2]) for name, t in trained.state_dict().items()})
            self._set(network, two)

    def _set(self, network: nn.Module, layer: nn.Module) -> None:
        parent, _, leaf = self.layer.rpartition(".")
        network.get_submodule(parent)._modules[leaf] = layer
