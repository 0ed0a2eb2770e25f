"""Copies of what an adversary has, for attacks that users write: they may change in place what they are given.

Tensors are copied when they are read, each once, so that artifacts which share tensors share their copies. Attacks of this
package get the tensors themselves, whose identity caches rely on; one that changes them fails.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Domain
from fdgpriv.simulation.mixture import Mixture, Sent
from fdgpriv.simulation.output_cache import OutputCache
from fdgpriv.tasks.task import Predictions
from fdgpriv.threat import Capability
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.file_memory import LARGE, together_in_file
from fdgpriv.utils.user_code import is_user_code
from fdgpriv.view import Deferred, Earlier, RecordedRound

A = TypeVar("A", bound=Artifact)
T = TypeVar("T")


def inferred(
    attack: Attack, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
) -> Predictions | Sequence[Prediction] | Tensor:
    """The attack's predictions; an attack that a user wrote gets copies.

    Raises:
        ValueError: An attack of this package changed in place what it was given.
    """
    if not is_user_code(attack):
        versions = _versions(adversary, observations)
        predictions = attack.infer(adversary, observations, rng)
        if changed := next((name for name, tensor, version in versions if tensor._version != version), None):
            raise ValueError(
                f"{attack.name()}: want an attack that works on copies, got one that changed {changed} in place"
            )
        return predictions
    copies = Copies()
    copied_observations = [copies.observation(observation) for observation in observations]
    return attack.infer(CopiedAdversary.of(adversary, copies, copied_observations), copied_observations, rng)


def _versions(adversary: Adversary, observations: Sequence[Observation]) -> list[tuple[str, Tensor, int]]:
    """The evaluator's tensors, each with a name and with the number of its changes in place."""
    domains, sent = (*adversary._auxiliary, *adversary.held_back), [observation.sent for observation in observations]
    artifacts = list[Artifact]()
    while sent:
        part = sent.pop()
        if isinstance(part, Mixture):
            sent += [part.base, part.leak]
        else:
            artifacts.append(part)
    tensors = {
        "candidates": [adversary._candidates],
        "auxiliary images": [part for domain in domains for part in vars(domain).values() if isinstance(part, Tensor)],
        "observed artifacts": [tensor for artifact in artifacts for tensor in artifact.tensors().values()],
    }
    return [(name, t, t._version) for name, group in tensors.items() for t in group if not t.is_inference()]


class Copies:
    """Copies of tensors, and of what contains them, each made when it is first asked for."""

    def __init__(self) -> None:
        self._cache: Cache[tuple[object, object]] = Cache()

    def _once(self, original: object, copy: Callable[[], T]) -> T:
        """The copy of this object, which is stored so that its id stays unique."""
        _, made = self._cache.get(id(original), lambda: (original, copy()))
        return made  # type: ignore[return-value]

    def tensor(self, tensor: Tensor) -> Tensor:
        """A copy, in a temporary file if it is large."""
        is_large = tensor.nbytes >= LARGE and tensor.device.type == "cpu"
        return self._once(tensor, lambda: together_in_file({"": tensor})[""] if is_large else tensor.clone())

    def artifact(self, artifact: A) -> A:
        """The artifact with copies of its tensors."""
        return self._once(artifact, lambda: artifact.map(self.tensor))

    def model(self, artifact: A | None) -> A | None:
        """The received model with copies of its tensors, if there is one."""
        return None if artifact is None else self.artifact(artifact)

    def sent(self, sent: Sent) -> Sent:
        """The artifact, or the mixture of two, with copies of tensors."""
        if not isinstance(sent, Mixture):
            return self.artifact(sent)
        return self._once(sent, lambda: Mixture(self.sent(sent.base), self.sent(sent.leak), sent.weight))

    def domain(self, domain: Domain) -> Domain:
        """The images and labels, copied."""
        return self._once(domain, lambda: Domain(domain.name, self.tensor(domain.pixels), self.tensor(domain.labels)))

    def observation(self, observation: Observation) -> Observation:
        """The observation with copies of tensors; those of earlier rounds are copied when they are read."""
        return replace(
            observation,
            sent=self.sent(observation.sent),
            candidates=self.tensor(observation.candidates),
            membership_candidates=self.tensor(observation.membership_candidates),
            received_model=self.model(observation.received_model),
            earlier={number: self._earlier(earlier) for number, earlier in observation.earlier.items()},
        )

    def _earlier(self, earlier: Earlier) -> Earlier:
        def shared() -> Sent:
            return self.sent(earlier.shared.sent)

        return Earlier(Deferred(shared), self.model(earlier.received_model))

    def round(self, recorded: RecordedRound) -> RecordedRound:
        """The round, whose artifacts and models are copied when they are read."""
        return replace(
            recorded,
            artifacts=_CopiedTable(recorded.artifacts, self.artifact),
            received_models=_CopiedTable(recorded.received_models, self.artifact),
        )


@dataclass(frozen=True)
class _CopiedTable(Mapping[str, A]):
    source: Mapping[str, A]
    copy: Callable[[A], A]

    def __getitem__(self, name: str) -> A:
        return self.copy(self.source[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.source)

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class _CopiedSequence(Sequence[A]):
    source: Sequence[A]
    copy: Callable[[A], A]

    @overload
    def __getitem__(self, index: int) -> A: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[A]: ...

    def __getitem__(self, index: int | slice) -> A | Sequence[A]:
        return [self.copy(a) for a in self.source[index]] if isinstance(index, slice) else self.copy(self.source[index])

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class CopiedAdversary(Adversary):
    """An adversary whose images and artifacts are copied when they are read."""

    _copies: Copies = field(default_factory=Copies)

    @classmethod
    def of(cls, adversary: Adversary, copies: Copies, observations: Sequence[Observation]) -> "CopiedAdversary":
        """The adversary with these copies, and empty caches."""
        of_artifacts = partial(_CopiedSequence[Artifact], copy=copies.artifact)
        changed: dict[str, Any] = {
            "_earlier": of_artifacts(adversary._earlier),
            "_latest": of_artifacts(adversary._latest),
            "_rounds": tuple(map(copies.round, adversary._rounds)),
            "_earlier_rounds": tuple(
                (copies.round(recorded), of_artifacts(shared)) for recorded, shared in adversary._earlier_rounds
            ),
            "held_back": tuple(map(copies.domain, adversary.held_back)),
            "cache": Cache(),
            "common_cache": Cache(),
            "look_cache": Cache(),
            "output_cache": OutputCache.among((seen.sent, seen.membership_candidates) for seen in observations),
            "_copies": copies,
        }
        unchanged: dict[str, Any] = {
            f.name: getattr(adversary, f.name) for f in fields(Adversary) if f.name not in changed
        }
        return cls(**unchanged, **changed)

    @property
    def auxiliary(self) -> tuple[Domain, ...]:
        return tuple(map(self._copies.domain, self._auxiliary))

    @property
    def candidates(self) -> Tensor:
        self.threat.require(Capability.HAS_CANDIDATES)
        return self._copies.tensor(self._candidates)
