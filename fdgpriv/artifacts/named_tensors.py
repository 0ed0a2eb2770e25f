"""Artifacts of a kind that fdgpriv does not know: named tensors that somebody else's training exchanged."""

import re
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import TensorState

OF_SEVERAL = (
    "global_model",
    "honest_mean",
)  # names of what is computed from several clients' artifacts, and asked about
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedTensors(TensorState):
    """Base class of artifacts of a kind that only a recording names; what their values mean is not known."""

    limits_parameters: ClassVar[bool] = False


@cache
def named_tensors(kind: str) -> type[NamedTensors]:
    """The class of artifacts of this kind, which is not among `Artifact.kinds`.

    Raises:
        ValueError: The kind is no word, or one that fdgpriv knows or asks about.
    """
    known = (*Artifact.kinds, *OF_SEVERAL)
    if not _KIND.fullmatch(kind) or kind in known:
        kinds = ", ".join(known)
        raise ValueError(f"want kind to be a word like my_kind, other than {kinds}; got {kind!r}")
    artifact_class: type[NamedTensors] = type("NamedTensors", (NamedTensors,), {})
    artifact_class.kind = kind  # set after the class is made, so that no other transcript knows the kind
    return artifact_class
