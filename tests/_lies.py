"""Lies that a client may tell the server, and a client that tells them, for tests of the wire."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState, TensorState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.federation import Federation
from fdgpriv.method import Method

LIAR = "client-01"
Outcome = list[Any]
Lie = Callable[[Outcome], Any]


@dataclass(frozen=True)
class Liar:
    """A client whose answer to one verb goes through `lie`."""

    honest: object
    verb: str
    lie: Lie

    def __getattr__(self, name: str) -> Any:
        value: Any = getattr(self.honest, name)
        return (lambda message: self.lie(value(message))) if name == self.verb else value


def corrupt(monkeypatch: pytest.MonkeyPatch, method: str, verb: str, lie: Lie, seed: int | None = None) -> None:
    """Makes one client pass what it would answer through `lie`; in the run of this seed, or in every run."""
    part = Method.named(method)
    honest: Any = part.client

    def client(self: Method, federation: Federation, data: ClientData, rng: torch.Generator) -> Any:
        made = honest(self, federation, data, rng)
        if data.client == LIAR and seed in (None, federation.seed):
            return Liar(made, verb, lie)
        return made

    monkeypatch.setattr(part, "client", client)


# Lies


def forged(artifact: Artifact, **fields: Any) -> Artifact:
    """A copy with these fields, which the artifact's own checks never see."""
    made = copy.copy(artifact)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def of_kind(kind: type[Artifact], change: Callable[[Any], Any]) -> Lie:
    """Changes the artifacts of one kind in an answer."""
    return lambda answer: [change(item) if isinstance(item, kind) else item for item in answer]


def tensor(end: str, change: Callable[[Tensor], Any], kind: type[TensorState] = ModelState) -> Lie:
    """Changes the first tensor of a state whose name ends so."""

    def changed(artifact: TensorState) -> Artifact:
        name = next(name for name in artifact.state if name.endswith(end))
        return replace(artifact, state={**artifact.state, name: change(artifact.state[name])})

    return of_kind(kind, changed)


def named(change: Callable[[dict[str, Any]], dict[str, Any]], kind: type[TensorState] = ModelState) -> Lie:
    """Changes the names of a state."""
    return of_kind(kind, lambda artifact: replace(artifact, state=change(artifact.state)))


def field(**fields: Any) -> Lie:
    """Forges these fields of all artifacts; a function is given what the field was."""
    return lambda answer: [
        forged(a, **{name: new(getattr(a, name)) if callable(new) else new for name, new in fields.items()})
        for a in answer
    ]


def style(**fields: Any) -> Lie:
    """Finishes the drafts of styles and forges these fields."""
    return lambda answer: field(**fields)([draft.finish() for draft in answer])


def count(value: Any) -> Lie:
    return of_kind(SampleCount, lambda artifact: forged(artifact, count=torch.as_tensor(value)))


def accuracy(value: float) -> Lie:
    return lambda answer: [forged(a, accuracy=torch.tensor(value)) if hasattr(a, "accuracy") else a for a in answer]


def in_round(round: int, lie: Lie) -> Lie:
    """Lies in one round only."""
    return lambda answer: lie(answer) if answer[0].round == round else answer


def raised(error: BaseException) -> Lie:
    def lie(answer: Outcome) -> Any:
        raise error

    return lie


def doubled(values: Tensor) -> Tensor:
    return torch.cat([values, values])


def without_last(state: dict[str, Any]) -> dict[str, Any]:
    return dict(list(state.items())[:-1])


def style_of_nothing() -> Artifact:
    one = torch.ones(1, 1)
    return StyleDraft(
        client=LIAR, round=0, mean=one, std=one, variances=False, granularity="client", at="layer1", rule="dassl"
    ).finish()
