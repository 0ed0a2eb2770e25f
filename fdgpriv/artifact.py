"""The kinds of artifact: exactly what crosses a trust boundary, so exactly what an adversary may read."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

import torch
from torch import Tensor, nn

from fdgpriv.style import RULES

SERVER = "server"
PEER = "peer"  # what a client is told of another client whose artifact the server passes on; of a second one, peer-2
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
LEVELS = ("image", "cluster", "client", "group")


@dataclass(frozen=True, eq=False, kw_only=True)
class Artifact:
    """What one side shared in one round.

    Attributes:
        client: Who computed it: a client's name, or ``"server"``.
        round: The round it belongs to, from 0.
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type["Artifact"]]] = {}
    made_of: ClassVar[str] = "model_state"  # the clients' artifacts that the server makes its own of this kind from

    client: str
    round: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.kind:
            Artifact.kinds[cls.kind] = cls

    @property
    def level(self) -> str:
        """The smallest unit it describes: image, cluster, client or group."""
        return "group" if self.client == SERVER else "client"

    @property
    def layer(self) -> str | None:
        """The layer it was taken at, where there is one."""
        return None

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name: all that it weighs on the wire."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """Its other fields: what the protocol fixes, not what data gave."""
        return {f.name: value for f in fields(self) if not isinstance(value := getattr(self, f.name), Tensor | dict)}

    @classmethod
    def build(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        """The artifact of these tensors and facts; raises ValueError where a field is missing, unknown or ill-typed."""
        types = _types(cls)  # type: ignore[arg-type]  # a class is hashable
        given = {**tensors, **facts}
        known = {f.name for f in fields(cls)}
        if set(given) != known:
            raise ValueError(f"want fields {sorted(known)} of {cls.kind}, got {sorted(given)}")
        for name, value in given.items():
            if not isinstance(value, types[name]):
                raise ValueError(f"want {cls.kind}.{name} to be {types[name]}, got {type(value).__name__}")
        return cls(**given)

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same artifact with `change` applied to each of its tensors."""
        return type(self).build({name: change(tensor) for name, tensor in self.tensors().items()}, self.facts())

    def seen_as(self, client: str) -> Self:
        """The same artifact under another sender's name."""
        return type(self).build(self.tensors(), {**self.facts(), "client": client})

    @property
    def nbytes(self) -> int:
        """Bytes on the wire, without framing."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())

    def not_finite(self) -> str | None:
        """The name of the first tensor that holds NaN or an infinity, or None."""
        for name, tensor in self.tensors().items():
            if not tensor.is_floating_point() or math.isfinite(float(tensor.sum(dtype=torch.float64))):
                continue  # a finite sum has no other terms, and is quicker
            if not bool(torch.isfinite(tensor).all()):
                return name
        return None


@cache
def _types(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


Message = list[Artifact]


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
class SampleCount(Artifact):
    """How many samples a client trains on, for a weighted average: () int64."""

    kind: ClassVar[str] = "sample_count"

    count: Tensor

    def __post_init__(self) -> None:
        if self.count.shape != () or self.count.dtype != torch.int64:
            raise ValueError(f"want count () int64, got {tuple(self.count.shape)} {self.count.dtype}")


@dataclass(frozen=True, eq=False, kw_only=True)
class StyleStatistics(Artifact):
    """Channel-wise style of features, averaged over what lies behind it.

    Attributes:
        mean: (C,) average over images of the channel means.
        std: (C,) average over images of the channel standard deviations.
        mean_var: (C,) variance over images of the channel means, or empty (0,) where only mean and std are shared.
        std_var: (C,) variance over images of the channel standard deviations, or empty likewise.
        behind: The unit behind it: image, cluster or client.
        at: The layer the features come from.
        rule: Which of the inequivalent standard deviations this is (fdgpriv.style).
    """

    kind: ClassVar[str] = "style_statistics"

    mean: Tensor
    std: Tensor
    mean_var: Tensor
    std_var: Tensor
    behind: str
    at: str
    rule: str

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise ValueError(
                f"want mean and std of one shape (C,), got {tuple(self.mean.shape)}, {tuple(self.std.shape)}"
            )
        if self.mean_var.shape != self.std_var.shape or self.mean_var.shape not in ((0,), self.mean.shape):
            raise ValueError(
                f"want mean_var and std_var both {tuple(self.mean.shape)} or both (0,), "
                f"got {tuple(self.mean_var.shape)}, {tuple(self.std_var.shape)}"
            )
        if self.behind not in LEVELS:
            raise ValueError(f"want behind to be one of {', '.join(LEVELS)}, got {self.behind!r}")

    @property
    def level(self) -> str:
        return self.behind

    @property
    def layer(self) -> str | None:
        return self.at

    def vector(self) -> Tensor:
        """All its moments in one vector: (2C,) or (4C,)."""
        return torch.cat([self.mean, self.std, self.mean_var, self.std_var])


@dataclass(frozen=True, eq=False, kw_only=True)
class StyleDraft:
    """Per-image styles on their way into a StyleStatistics: not an artifact, it never crosses the wire.

    The client drafts; its defense, or nothing, turns the draft into what is shared. A defense that must bound what one
    image can change needs the images' own values, which the finished average no longer shows.

    Attributes:
        mean, std: (n, C) channel means and standard deviations of each image.
        maps: (n, D) flattened feature maps, or fewer numbers of equal inner products, where the rule clusters by them.
        variances: Whether the variances over images are shared too.
    """

    client: str
    round: int
    mean: Tensor
    std: Tensor
    variances: bool
    behind: str
    at: str
    rule: str
    maps: Tensor | None = None

    def pooled(self, mean: Tensor, std: Tensor, mean_var: Tensor, std_var: Tensor) -> StyleStatistics:
        """The artifact with these moments; the variances are dropped where the draft shares none."""
        if not self.variances:
            mean_var, std_var = mean.new_empty(0), mean.new_empty(0)
        return StyleStatistics(
            client=self.client,
            round=self.round,
            mean=mean,
            std=std,
            mean_var=mean_var,
            std_var=std_var,
            behind=self.behind,
            at=self.at,
            rule=self.rule,
        )

    def finish(self) -> StyleStatistics:
        """The undefended artifact: what the rule makes of all images, and (biased) variances over them, StableFDG Eq. 2."""
        mean, std = RULES[self.rule].together(self.mean, self.std, self.maps)
        return self.pooled(mean, std, self.mean.var(0, correction=0), self.std.var(0, correction=0))

    def take(self, index: Tensor, behind: str) -> "StyleDraft":
        """The draft of only the images at `index` (M,)."""
        return StyleDraft(
            client=self.client,
            round=self.round,
            mean=self.mean[index],
            std=self.std[index],
            variances=self.variances,
            behind=behind,
            at=self.at,
            rule=self.rule,
            maps=None if self.maps is None else self.maps[index],
        )


Outgoing = Sequence[Artifact | StyleDraft]
