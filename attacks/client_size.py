"""Client size: how many images does this client train on?

Reference: METHODS 2.3: BatchNorm counts the mini-batches that it has seen, and the counters are averaged and sent along.
That accuracies tell a size is elementary, and we know of no paper on federated domain generalization that mentions it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import STATISTICS, ModelState, SampleCount
from fdgpriv.exam import Guess, Question, Truth, View
from fdgpriv.kinds import ValidationHistory, ValidationMetrics
from fdgpriv.partition import held_out
from fdgpriv.roles import Attack
from fdgpriv.states import BatchNormStatistics, ModelUpdate
from fdgpriv.subjects import Craft, StatisticsCraft, Subject, TrainingCraft

from ._reading import sizes_of

_COUNTER = STATISTICS[2]
_MOST = 1 << 20  # images that a client may have
_FINE = 1 << 10  # and images that it may hold out, where accuracies are to tell
_ROUNDED = 2.0**-24  # twice what rounding to float32 changes at most in a number up to 1


@dataclass(frozen=True)
class ClientSize(Attack):
    """Reads the number where it is shared, or narrows it down by the counters of BatchNorm or by accuracies.

    A client with n images makes t = E floor(n / B) steps, or E where n < B, so that n is in [B t/E, B (t/E + 1)), from 1 on
    where t = E; of those, the guess is the number nearest to what clients of this federation have, which is public. A
    single image never moves a counter. Where clients take statistics anew, E is 1.

    Accuracies on what a client holds out are all k / m for one m, how many images these are: the least m that all of them
    are fractions of is that number or a divisor of it. The share that is held out is public, so m bounds n too.
    """

    family: ClassVar[str] = "property"
    reads: ClassVar[tuple[str, ...]] = (
        *(ModelState.kind, ModelUpdate.kind, SampleCount.kind),
        *(BatchNormStatistics.kind, ValidationMetrics.kind),
    )
    headline: ClassVar[str] = "relative_error"
    higher_leaks: ClassVar[bool] = False
    threats: ClassVar[tuple[str, ...]] = ("server",)
    asks_size: ClassVar[bool] = True

    def sizes_on(self, subject: Subject[Craft]) -> tuple[int | None, ...]:
        return sizes_of(subject, self.sizes)

    def refuses(self, subject: Subject[Craft]) -> str | None:
        if subject.kind in (SampleCount.kind, ValidationHistory.kind) or not subject.wire:
            return None
        client, artifact = next(iter(subject.wire.items()))
        if not any(name.endswith(_COUNTER) for name in artifact.tensors()):
            return "no counter of BatchNorm crosses with the model"
        craft = subject.craft
        if isinstance(craft, TrainingCraft) and not _steps(craft, artifact, subject.sent[client]):
            return "the counters of BatchNorm stand still in training"
        return None

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        guesses = [torch.tensor(float(self._size(view, question))) for question in questions]
        most = torch.tensor(2.0 * view.typical).log()
        drawn = (torch.rand(30, generator=rng) * most).exp().round()
        return guesses, {"noise": list(drawn), "mean_image": [torch.tensor(float(view.typical))]}

    def _size(self, view: View, question: Question) -> int:
        if isinstance(question.artifact, SampleCount):
            return int(question.artifact.count)
        if isinstance(question.artifact, ValidationHistory):
            return self._by_accuracy(view, denominator(question.artifact.accuracies.tolist()))
        steps, seen = self._seen(view, question)
        if not seen:  # a batch of one image leaves the counters alone
            return 1
        fewest, most = interval(steps, seen)
        return min(max(view.typical, fewest), most)

    def _by_accuracy(self, view: View, held: int) -> int:
        """The number nearest to what clients have, of those that go with `held` images held out; 0 tells nothing."""
        if not held:
            return view.typical
        fewest, most = interval(held_out, held)
        return min(max(view.typical, fewest - held, 1), most - held)

    def _seen(self, view: View, question: Question) -> tuple[Callable[[int], int], int]:
        """By number of images, how many batches the counters count; and how many they counted."""
        if isinstance(question.artifact, BatchNormStatistics):
            anew = view.craft(StatisticsCraft)
            return anew.batches, anew.seen(question.artifact)
        craft = view.craft(TrainingCraft)
        assert question.sent is not None
        return craft.method.steps, _steps(craft, question.artifact, question.sent)

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        """|n guessed - n| / n."""
        return torch.tensor([abs(float(g) - t.count) / t.count for g, t in zip(guesses, truths, strict=True)])


def denominator(shares: Sequence[float]) -> int:
    """The least m such that each of these numbers in [0, 1] is k / m, rounded to float32, for a whole k; 0 for no m.

    Fractions of denominators up to _FINE are farther apart than float32 rounds, so that each number has at most one, and
    m is the least common multiple of their denominators.
    """
    found = [Fraction(share).limit_denominator(_FINE) for share in shares]
    if any(abs(float(fraction) - share) > _ROUNDED for fraction, share in zip(found, shares, strict=True)):
        return 0
    least = math.lcm(*(fraction.denominator for fraction in found))
    return least if least <= _FINE else 0


def interval(steps: Callable[[int], int], seen: int) -> tuple[int, int]:
    """The fewest and the most images with which a client makes `seen` steps; where none does, the next that makes more.

    Args:
        steps: By number of images, how many steps; never falls.
        seen: At least 0.
    """
    fewest = _first(lambda n: steps(n) >= seen)
    return fewest, max(fewest, _first(lambda n: steps(n) > seen) - 1)


def _first(holds: Callable[[int], bool]) -> int:
    """The least number from 1 of which `holds` is true, as it stays from there on."""
    low, high = 0, 1
    while not holds(high) and high < _MOST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _steps(craft: TrainingCraft, artifact: ModelState | ModelUpdate | object, sent: ModelState) -> int:
    """How many mini-batches the client trained on, by the middle one of its counters."""
    assert isinstance(artifact, ModelState | ModelUpdate)
    change = craft.change(artifact, sent)
    counters = torch.stack([-tensor for name, tensor in change.items() if name.endswith(_COUNTER)])
    return max(0, round(float(counters.median())))
