"""Artifacts that are not held in memory: they are loaded or computed each time they are read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from fdgpriv.artifacts.artifact import Artifact


class Deferred(ABC):
    """Stands for an artifact."""

    @abstractmethod
    def artifact(self) -> Artifact:
        """The artifact, in new tensors."""

    @property
    @abstractmethod
    def level(self) -> str:
        """The artifact's level."""

    @property
    def identity(self) -> Hashable:
        """The same for those that stand for equal tensors; by default of this one only."""
        return id(self)


Sent = Artifact | Deferred


def read(sent: Sent) -> Artifact:
    """The artifact itself."""
    return sent.artifact() if isinstance(sent, Deferred) else sent


def identity(sent: Sent) -> Hashable:
    """Identifies an artifact by its first tensor, which equal observations share."""
    return sent.identity if isinstance(sent, Deferred) else id(next(iter(sent.tensors().values())))


def changed(sent: Sent, change: Callable[[Artifact], Artifact]) -> Sent:
    """The artifact after a change that leaves its tensors as they are."""
    return Changed(sent, change) if isinstance(sent, Deferred) else change(sent)


@dataclass(frozen=True, eq=False)
class Changed(Deferred):
    """An artifact of which something other than the tensors is changed."""

    before: Deferred
    change: Callable[[Artifact], Artifact]

    def artifact(self) -> Artifact:
        return self.change(self.before.artifact())

    @property
    def level(self) -> str:
        return self.artifact().level

    @property
    def identity(self) -> Hashable:
        return self.before.identity
