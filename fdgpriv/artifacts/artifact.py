"""The base class of artifacts: exactly the data that crosses a trust boundary and that an adversary may read."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from typing import Any, ClassVar, Self, get_type_hints

import torch
from torch import Tensor

from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.file_memory import LARGE, together_in_file
from fdgpriv.utils.user_names import JOINERS, plain

SERVER = "server"


PEER = "peer"  # pseudonym of another client whose artifact the server relays; a second one is peer-2


# Maximum number of samples of a client, and of training steps in one answer. The sum of such counts over 2**22 clients is
# exact in double precision.
MAX_COUNT = 2**31

MOST_CHARACTERS = 200  # of a client's name

_JOINERS = str.maketrans("", "", JOINERS)

LEVELS = ("image", "cluster", "client", "group")


@dataclass(frozen=True, eq=False, kw_only=True)
class Artifact:
    """Data that a client or the server shared in one round.

    Attributes:
        client: The client that computed it, or ``"server"``.
        round: The round it belongs to, from 0.
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type["Artifact"]]] = {}
    equals: ClassVar[tuple[str, ...]] = ()  # secrets whose value the artifact is
    aggregated_from: ClassVar[str] = "model_state"  # kind of the clients' artifacts that the server's are computed from

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
        """The layer it was computed at, if any."""
        return None

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name; they determine its size on the wire."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}

    @cached_property
    def form(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Shapes and dtypes of its tensors by name, the same objects for all records of its transfers."""
        return _form(tuple((name, tensor.shape, tensor.dtype) for name, tensor in self.tensors().items()))

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """Its other fields, which the protocol fixes and which do not depend on data."""
        return {f.name: value for f in fields(self) if not isinstance(value := getattr(self, f.name), Tensor | dict)}

    @classmethod
    def build(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        """The artifact with these tensors and facts; ValueError if a field is missing, unknown or of the wrong type."""
        types = _types(cls)  # type: ignore[arg-type]  # a class is hashable
        values = {**tensors, **facts}
        names = {f.name for f in fields(cls)}
        if set(values) != names:
            raise ValueError(f"want fields {sorted(names)} of {cls.kind}, got {sorted(values)}")
        for name, value in values.items():
            if not isinstance(value, types[name]):
                raise ValueError(f"want {cls.kind}.{name} to be {types[name]}, got {type(value).__name__}")
        return cls(**values)

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same artifact with `change` applied to each of its tensors."""
        return type(self).build({name: change(tensor) for name, tensor in self.tensors().items()}, self.facts())

    def seen_as(self, client: str) -> Self:
        """The same artifact with another sender's name."""
        return type(self).build(self.tensors(), {**self.facts(), "client": client})

    def copied(self) -> Self:
        """A copy that shares no tensor with the artifact, in a temporary file if it is large."""
        tensors = self.tensors()
        copies = together_in_file(tensors) if self.nbytes >= LARGE else {n: t.clone() for n, t in tensors.items()}
        return type(self).build(copies, self.facts())

    def in_file(self, least: int = LARGE) -> Self:
        """The same artifact, its tensors in one temporary file; itself if it has fewer bytes, or is in a file already.

        Raises:
            OSError: The folder for temporary files (TMPDIR) is full.
        """
        if self.nbytes < least or all(tensor.is_shared() for tensor in self.tensors().values()):
            return self
        return type(self).build(together_in_file(self.tensors()), self.facts())

    @property
    def nbytes(self) -> int:
        """Bytes on the wire, without framing."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())

    def impossible_values(self, expected: "Artifact | None") -> Iterator[str]:
        """Values that no honest client sends, whatever its data, each as "want ..., got ..."; by default none.

        Args:
            expected: The artifact that its receiver expects, of the same kind and form, if it is known.
        """
        yield from ()

    def not_finite(self) -> str | None:
        """The name of the first tensor that contains NaN or an infinity, or None."""
        floats = ((name, tensor) for name, tensor in self.tensors().items() if tensor.is_floating_point())
        return next((name for name, tensor in floats if not all(map(math.isfinite, extremes(tensor)))), None)


def extremes(tensor: Tensor) -> tuple[float, float]:
    """The smallest and the largest number of a tensor: NaN if any is NaN, 0 if there are none."""
    if not tensor.numel():
        return 0.0, 0.0
    smallest, largest = torch.aminmax(tensor)
    return float(smallest), float(largest)


def out_of_range(name: str, tensor: Tensor, low: int, high: int | None = None) -> Iterator[str]:
    """The error, if any, of values of `tensor` outside [low, high], as "want ..., got ...".

    NaN is an error if `high` is given; otherwise the wire reports it as divergence.
    """
    invalid = tensor < low if high is None else ~((tensor >= low) & (tensor <= high))
    if bool(invalid.any()):
        limits = f"at least {low}" if high is None else f"in [{low}, {high}]"
        value = tensor[invalid][0].item()
        yield f"want {name} {limits}, got {f'{value:g}' if isinstance(value, float) else value}"


@cache
def _types(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


Message = list[Artifact]


def copied_message(message: Sequence[Artifact]) -> Message:
    """Copies of these artifacts, one of each; anything else, and what cannot be copied, as it is: the wire refuses it."""
    copies: dict[int, Artifact] = {}
    for artifact in message:
        if isinstance(artifact, Artifact) and not isinstance(copied := attempt(artifact.copied), Failed):
            copies[id(artifact)] = copied
    return [copies.get(id(artifact), artifact) for artifact in message]


def client_name(given: object, what: str) -> str:
    """The `plain` name of a client; raises ValueError, which begins with `what`, if there is none."""
    name = plain(given) if isinstance(given, str) else ""
    if not 0 < len(name) <= MOST_CHARACTERS or not name.translate(_JOINERS).isprintable():
        raise ValueError(f"{what}: want a client's name of 1 to {MOST_CHARACTERS} printable characters, got {given!r}")
    if name in (SERVER, PEER):
        raise ValueError(f"{what}: want a client's name other than {SERVER} and {PEER}, got {given!r}")
    return name


@lru_cache(maxsize=64)
def _form(
    tensors: tuple[tuple[str, torch.Size, torch.dtype], ...],
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Shapes and types of tensors by name; the same objects for equal ones, as there may be many clients."""
    shapes = {name: tuple(shape) for name, shape, _ in tensors}
    return shapes, {name: str(dtype).removeprefix("torch.") for name, _, dtype in tensors}
