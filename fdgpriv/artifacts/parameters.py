"""Artifacts that are tensors of a network: models, updates, heads, translators, importances, BatchNorm statistics."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from fdgpriv.artifacts.artifact import MAX_COUNT, Artifact, out_of_range
from fdgpriv.artifacts.local_tensors import may_be_local
from fdgpriv.artifacts.moments import Moments

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorState(Artifact):
    """Base class of artifacts that contain a network's tensors by name; not a kind itself.

    Attributes:
        limits_parameters: Whether parameters above a million mean that training diverged. Importances scale with the
            features and masked numbers are uniform, so that theirs say nothing.
    """

    limits_parameters: ClassVar[bool] = True

    state: dict[str, Tensor] = field(repr=False)

    @classmethod
    def of(cls, model: nn.Module, client: str, round: int) -> Self:
        """A copy of the current state of `model`."""
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

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        """Negative variances of BatchNorm, and counters of batches below the expected ones, or far above them."""
        _, variance, counter = STATISTICS
        expected_tensors = {} if expected is None else expected.tensors()
        for name, tensor in self.state.items():
            leaf = name.rpartition(".")[2]
            if leaf == variance:
                yield from out_of_range(name, tensor, 0)
            elif leaf == counter:
                batches = int(expected_tensors[name]) if name in expected_tensors else 0
                yield from out_of_range(name, tensor, batches, batches + MAX_COUNT)

    def load_into(self, model: nn.Module) -> None:
        """Load this state into `model`; tensors that clients may keep local and that are not in it stay as they are.

        Raises:
            ValueError: Names or shapes differ.
        """
        try:
            missing, unknown = model.load_state_dict(self.state, strict=False)
        except RuntimeError as error:
            raise ValueError(
                f"this {self.kind} belongs to another network: {str(error).splitlines()[-1].strip()}"
            ) from None
        other = [*sorted(set(missing) - may_be_local(model)), *unknown] if missing else unknown
        if other:
            raise ValueError(f"this {self.kind} belongs to another network: {other[0]} is not in both")


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelState(TensorState):
    """Parameters and buffers of a network, BatchNorm counters included."""

    kind: ClassVar[str] = "model_state"

    def without_statistics(self) -> "ModelState":
        """The same state without BatchNorm's running statistics and counters."""
        return self.without({name for name in self.state if name.rpartition(".")[2] in STATISTICS})

    def without(self, names: Collection[str]) -> "ModelState":
        """The same state without the tensors of these names; itself if there are none."""
        if not names:
            return self
        state = {name: tensor for name, tensor in self.state.items() if name not in names}
        return ModelState(client=self.client, round=self.round, state=state)

    def bn_statistics(self) -> dict[str, dict[str, Tensor]]:
        """BatchNorm statistics by layer: running_mean (C,), running_var (C,) and num_batches_tracked ()."""
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
    """A network that maps one client's latents to another client's distribution."""

    kind: ClassVar[str] = "representation_translator"


@dataclass(frozen=True, eq=False, kw_only=True)
class ImportanceWeights(TensorState):
    """Importance of each parameter for a model's output: one float32 per parameter, no buffers."""

    kind: ClassVar[str] = "importance_weights"
    limits_parameters: ClassVar[bool] = False

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        yield from ()


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchNormStatistics(TensorState):
    """Running means, variances and counters of a model's BatchNorm layers, without its parameters."""

    kind: ClassVar[str] = "bn_statistics"


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelUpdate(TensorState):
    """Pseudo-gradient of a client's training: the received minus the trained parameters."""

    kind: ClassVar[str] = "model_update"

    def impossible_values(self, expected: Artifact | None) -> Iterator[str]:
        yield from ()

    @classmethod
    def between(cls, sent: ModelState, trained: ModelState) -> "ModelUpdate":
        """The update of a client that received `sent` and returns `trained`."""
        state = {name: tensor - trained.state[name] for name, tensor in sent.state.items()}
        return cls(client=trained.client, round=trained.round, state=state)


@dataclass(frozen=True, eq=False, kw_only=True)
class AutoencoderState(TensorState):
    """The autoencoder with which clients compute embeddings of their data; not the task model."""

    kind: ClassVar[str] = "autoencoder_state"


@dataclass(frozen=True, eq=False, kw_only=True)
class MaskedUpload(TensorState):
    """An upload under secure aggregation: fixed-point numbers plus masks, uniform modulo 2**64 on its own; int64."""

    kind: ClassVar[str] = "masked_upload"
    limits_parameters: ClassVar[bool] = False


TOLD = "collude"  # the verb under which a colluding client tells the server masks that it has in common with others


def running(state: Mapping[str, Tensor]) -> dict[str, Moments]:
    """Running mean and variance (C,) of each BatchNorm layer for which `state` contains both."""
    mean, variance, _ = STATISTICS
    layers = [name.removesuffix(f".{mean}") for name in state if name.endswith(f".{mean}")]
    return {
        name: (state[f"{name}.{mean}"], state[f"{name}.{variance}"]) for name in layers if f"{name}.{variance}" in state
    }
