"""Administers an examination: the adversary reads, its guesses are scored, and only numbers remain."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from pydantic import ConfigDict
from torch import Tensor

from fdgpriv.finding import Measured
from fdgpriv.roles import Attack

from .sitting import Guess, Item, Question, Sitting, Truth

Scores = dict[str, list[float]]
DESCRIBED = ("attack", "mean_image", "random_style", "other_client", "autoencoder")


@dataclass
class Marks:
    """Scores of one attack under one threat model at one number of images behind the artifact.

    Attributes:
        units: The independent unit of each target.
        clients: Whose each target is.
        headline: By name (``attack``, controls, bounds), the headline metric of each target.
        details: By further metric, the same.
        realism: By name, figures of the guesses as a set.
    """

    units: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    headline: Scores = field(default_factory=dict)
    details: dict[str, Scores] = field(default_factory=dict)
    realism: dict[str, dict[str, Measured]] = field(default_factory=dict)

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    def check(self) -> None:
        """Raises a ValueError where a target has no score, or a score no target."""
        count = len(self.units)
        if count == 0 or "attack" not in self.headline:
            raise ValueError(f"want scores of an attack on at least 1 target, got {count} targets")
        for metric, scores in [("headline", self.headline), *self.details.items()]:
            for name, values in scores.items():
                if len(values) != count:
                    raise ValueError(f"want {count} scores of {name} in {metric}, got {len(values)}")
        if len(self.clients) != count:
            raise ValueError(f"want the client of each of {count} targets, got {len(self.clients)}")


Asks = list[tuple[int, Guess, Truth]]  # item, guess, truth


def examine(
    attack: Attack, sittings: Sequence[Sitting], described: Sequence[int | None], rng: torch.Generator
) -> tuple[dict[int | None, Marks], dict[int | None, list[tuple[Truth, dict[str, Guess]]]]]:
    """Marks by size, and for each size what was guessed for each target, for pictures.

    Args:
        attack: Reads each sitting's questions, and is scored.
        sittings: Adversaries and their items.
        described: The sizes at which the further metrics are wanted too.
        rng: Of the attack's own randomness.
    """
    answers: dict[int | None, dict[str, Asks]] = defaultdict(lambda: defaultdict(list))
    items: dict[int | None, list[Item]] = defaultdict(list)
    for sitting in sittings:
        asked = [(item, name, one) for item in sitting.items for name, ones in item.asked.items() for one in ones]
        place: dict[Question, int] = {}  # a question that stands for several controls is read once
        for _, _, one in asked:
            place.setdefault(one.question, len(place))
        guesses, blind = attack.read(sitting.view, list(place), rng)
        number = {}
        for item in sitting.items:
            number[id(item)] = len(items[item.size])
            items[item.size].append(item)
            for name, guess, truth in _without_artifact(item, blind, sitting.view.sources):
                answers[item.size][name].append((number[id(item)], guess, truth))
        for item, name, one in asked:
            answers[item.size][name].append((number[id(item)], guesses[place[one.question]], one.truth))
    marks = {
        size: _mark(attack, items[size], by_name, size in described)
        for size, by_name in sorted(answers.items(), key=_last)
    }
    shown = {
        size: [
            (item.truth, {name: asks[0][1] for name in by_name if (asks := _of(by_name[name], i))})
            for i, item in enumerate(items[size])
        ]
        for size, by_name in answers.items()
    }
    return marks, shown


def _last(entry: tuple[int | None, object]) -> float:
    return float("inf") if entry[0] is None else float(entry[0])


def _of(asks: Asks, item: int) -> Asks:
    return [ask for ask in asks if ask[0] == item]


def _without_artifact(
    item: Item, blind: "dict[str, list[Guess]] | object", sources: tuple[str, ...]
) -> list[tuple[str, Guess, Truth]]:
    """What is said of this item without any artifact: by the adversary, by whoever knows a public mean, or given."""
    assert isinstance(blind, dict)
    found: list[tuple[str, Guess, Truth]] = []
    for key, guesses in blind.items():
        name, _, about = key.partition(":")
        known = {"domain_mean": sources[item.truth.domain]}
        if item.size == 1:
            known["class_mean"] = str(int(item.truth.labels[0]))
        if not about or known.get(name) == about:
            found += [(name, guess, item.truth) for guess in guesses]
    return found + [(name, guess, truth) for name, pairs in item.given.items() for guess, truth in pairs]


def _mark(attack: Attack, items: Sequence[Item], by_name: dict[str, Asks], described: bool) -> Marks:
    marks = Marks(units=[item.unit for item in items], clients=[item.client for item in items])
    for name, asks in by_name.items():
        if {item for item, _, _ in asks} != set(range(len(items))):
            continue  # a control that not every target has says nothing of the rest
        guesses, truths = [guess for _, guess, _ in asks], [truth for _, _, truth in asks]
        marks.headline[name] = _averaged(attack.score(guesses, truths), asks, len(items))
        if described and name in DESCRIBED:
            _describe(attack, name, list({ask[0]: ask for ask in reversed(asks)}.values()), marks)
    return marks


def _describe(attack: Attack, name: str, asks: Asks, marks: Marks) -> None:
    """The further metrics, of one ask per item."""
    guesses, truths = [guess for _, guess, _ in asks], [truth for _, _, truth in asks]
    for metric, values in attack.describe(guesses, truths).items():
        marks.details.setdefault(metric, {})[name] = _averaged(values, asks, len(asks))
    if realism := attack.realism(guesses, truths):
        marks.realism[name] = realism


def _averaged(scores: Tensor, asks: Asks, count: int) -> list[float]:
    """The mean score of each item (count,)."""
    where = torch.tensor([item for item, _, _ in asks])
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, where, scores.double())
    mean: list[float] = (total / where.bincount(minlength=count)).tolist()
    return mean
