"""Artifacts that are tensors of a network: models, updates, heads, translators, importances, BatchNorm statistics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.moments import Moments

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorState(Artifact):
    """Tensors under the names a network gives them: no kind of its own, the form of those below."""

    state: dict[str, Tensor] = field(repr=False)

    @classmethod
    def of(cls, model: nn.Module, client: str, round: int) -> Self:
        """A copy of what `model` holds now."""
        state = {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}
        return cls(client=client, round=round, state=state)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.state)

    @classmethod
    def build(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        if set(facts) != {"client", "round"}:
            raise ValueError(f"want facts client and round of {cls.kind}, got {sorted(facts)}")
        if not isinstance(facts["client"], str) or type(facts["round"]) is not int:
            raise ValueError(f"want {cls.kind}.client a name and .round a whole number, got {dict(facts)}")
        return cls(state=dict(tensors), client=facts["client"], round=facts["round"])

    def load_into(self, model: nn.Module) -> None:
        """Give `model` this state; BatchNorm statistics that were not shared stay its own.

        Raises:
            ValueError: Names or shapes differ.
        """
        try:
            missing, unknown = model.load_state_dict(self.state, strict=False)
        except RuntimeError as error:
            raise ValueError(f"this {self.kind} is of another network: {str(error).splitlines()[-1].strip()}") from None
        other = [name for name in missing if name.rpartition(".")[2] not in STATISTICS] + unknown
        if other:
            raise ValueError(f"this {self.kind} is of another network: {other[0]} is not in both")


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelState(TensorState):
    """Parameters and buffers of a network, BatchNorm counters included."""

    kind: ClassVar[str] = "model_state"

    def without_statistics(self) -> "ModelState":
        """The same state without BatchNorm's running statistics and counters."""
        kept = {name: tensor for name, tensor in self.state.items() if name.rpartition(".")[2] not in STATISTICS}
        return ModelState(client=self.client, round=self.round, state=kept)

    def bn_statistics(self) -> dict[str, dict[str, Tensor]]:
        """The view ``bn_statistics``: by layer, running_mean (C,), running_var (C,) and num_batches_tracked ()."""
        layers: dict[str, dict[str, Tensor]] = {}
        for name, tensor in self.state.items():
            layer, _, leaf = name.rpartition(".")
            if leaf in STATISTICS:
                layers.setdefault(layer, {})[leaf] = tensor
        return layers


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassifierHead(TensorState):
    """A classifier on latents: its linear layer, and the BatchNorm1d statistics and counter before it."""

    kind: ClassVar[str] = "classifier_head"


@dataclass(frozen=True, eq=False, kw_only=True)
class RepresentationTranslator(TensorState):
    """A network that gives one client's latents another client's distribution."""

    kind: ClassVar[str] = "representation_translator"


@dataclass(frozen=True, eq=False, kw_only=True)
class ImportanceWeights(TensorState):
    """How much each parameter of a model matters to its output: one float32 per parameter, no buffers."""

    kind: ClassVar[str] = "importance_weights"


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchNormStatistics(TensorState):
    """Running means, variances and counters of a model's BatchNorm layers, without its parameters."""

    kind: ClassVar[str] = "bn_statistics"


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelUpdate(TensorState):
    """What a client's training took away from the model it was sent: sent minus trained, a pseudo-gradient."""

    kind: ClassVar[str] = "model_update"

    @classmethod
    def between(cls, sent: ModelState, trained: ModelState) -> "ModelUpdate":
        """The update of the client that was sent the one and trained it into the other."""
        state = {name: tensor - trained.state[name] for name, tensor in sent.state.items()}
        return cls(client=trained.client, round=trained.round, state=state)


@dataclass(frozen=True, eq=False, kw_only=True)
class AutoencoderState(TensorState):
    """The autoencoder that the server has its clients embed their data with: parameters, not a model of the task."""

    kind: ClassVar[str] = "autoencoder_state"


def running(state: Mapping[str, Tensor]) -> dict[str, Moments]:
    """By BatchNorm layer of which this state holds both, running mean and variance (C,)."""
    mean, variance, _ = STATISTICS
    layers = [name.removesuffix(f".{mean}") for name in state if name.endswith(f".{mean}")]
    return {
        name: (state[f"{name}.{mean}"], state[f"{name}.{variance}"]) for name in layers if f"{name}.{variance}" in state
    }
