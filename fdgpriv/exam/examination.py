"""Examines one attack under one threat model, and keeps the marks on disk; what lies there already is read instead.

A finished examination lies in ``marks/CELL/ATTACK@ROLE.json``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, model_validator
from torch import Tensor

from fdgpriv import figures
from fdgpriv._contract import Amount, Count, Entry, FileName, Text
from fdgpriv.checksum import DamagedFile, read_json, write_json
from fdgpriv.federation import generator
from fdgpriv.metrics.matching import first_match
from fdgpriv.plan import slug
from fdgpriv.roles import Attack
from fdgpriv.subjects import Craft, Subject
from fdgpriv.threat import ThreatModel

from .beyond import by_layer, by_rounds, by_setting, undefended
from .marks import Marks, examine
from .paper import Paper
from .proctor import Proctor
from .seating import Seating
from .sitting import Guess, Truth

Shown = Mapping[int | None, Sequence[tuple[Truth, Mapping[str, Guess]]]]


ROUNDING = 1e-6
Images = Annotated[int, Field(ge=1)]


class Examined(Entry):
    """A finished examination, as it lies on disk: scores, or why there are none."""

    marks: list[tuple[Images | None, Marks]] = Field(default_factory=list)
    by_layer: dict[str, Marks] = Field(default_factory=dict)
    by_rounds: list[tuple[Images, Images | None, Marks]] = Field(default_factory=list)
    undefended: Marks | None = None
    auxiliary_images: Count = 0
    chance: float | None = None
    not_applicable: Text | None = None
    figures: tuple[FileName, ...] = ()
    attack_s: Amount = 0.0

    @model_validator(mode="after")
    def _scores_of_every_target(self) -> Self:
        for marks in self._scored():
            marks.check()
        if not self.marks and self.not_applicable is None:
            raise ValueError("want scores, or not_applicable with a reason; got neither")
        return self

    def _scored(self) -> list[Marks]:
        scored = [marks for _, marks in self.marks] + [marks for _, _, marks in self.by_rounds]
        return [*scored, *self.by_layer.values(), *([self.undefended] if self.undefended else [])]

    def check_range(self, attack: Attack, file: Path) -> None:
        """Raises a DamagedFile where a score is outside the range of the attack's metric; rounding is allowed for."""
        low, high = attack.bounds or (-math.inf, math.inf)
        for score in (score for marks in self._scored() for scores in marks.headline.values() for score in scores):
            if not low - ROUNDING <= score <= high + ROUNDING:
                raise DamagedFile(f"{file}: want {attack.headline} in [{low}, {high}], got {score}")


_EXAMINED = TypeAdapter(Examined)


def examined_file(out: Path, cell: str, spec: str, role: str, kind: str) -> Path:
    """Where the scores of one examination lie."""
    return out / "marks" / cell / f"{slug(spec)}@{role}-{kind}.json"


@dataclass(frozen=True, eq=False)
class Examination:
    """One attack under one threat model on one trained federation.

    Attributes:
        proctor: Of the federation.
        spec: The attack, as the command line names it.
        attack: The same, configured.
        kind: Of the artifacts it reads here, one of those it can read.
        who: The threat model.
        few_layers: Look only at the layer on the wire and the last one, and at an attack's first and last setting,
            and one round and all.
        out: Where everything goes.
        cell: The folder's name there.
    """

    proctor: Proctor
    spec: str
    attack: Attack
    kind: str
    who: ThreatModel
    few_layers: bool
    out: Path
    cell: str

    def paper(self) -> tuple[Paper, float]:
        """What is judged, and the seconds it took when it was done: now or before."""
        file = examined_file(self.out, self.cell, self.spec, self.who.role, self.kind)
        if file.is_file():
            examined = read_json(file, _EXAMINED)
            examined.check_range(self.attack, file)
        else:
            start = perf_counter()
            examined = self._examined()
            examined = examined.model_copy(update={"attack_s": perf_counter() - start})
            write_json(file, examined.model_dump_json().encode())
        return self._as_paper(examined), examined.attack_s

    @property
    def key(self) -> str:
        """Names it among those of all cells."""
        return f"{self.cell}/{self.spec}@{self.who.role} on {self.kind}"

    @property
    def draws_images(self) -> bool:
        """Whether it is of a reconstruction, which takes longest."""
        return self._seating.draws_images

    @property
    def _seating(self) -> Seating:
        return Seating(self.proctor, self.attack, self.who)

    @property
    def _subject(self) -> Subject[Craft] | None:
        return self.proctor.subjects.get(self.kind)

    def _as_paper(self, examined: Examined) -> Paper:
        level = self._subject.level if self._subject else "client"
        on_wire = self._subject is not None and (level == "image" or None in self.attack.sizes_on(self._subject))
        return Paper(
            attack=self.attack,
            threat=self.who,
            kind=self.kind,
            level=level if on_wire else "image",
            shared=on_wire,
            auxiliary_images=examined.auxiliary_images,
            marks=dict(examined.marks),
            by_layer=examined.by_layer,
            by_rounds=examined.by_rounds,
            undefended=examined.undefended,
            chance=examined.chance,
            not_applicable=examined.not_applicable,
            shadows=frozenset(self.proctor.population.shadows),
            figures=examined.figures,
        )

    def _examined(self) -> Examined:
        subject = self._subject
        if subject is None:
            kinds = " and no ".join(kind.replace("_", " ") for kind in self.attack.reads)
            return Examined(not_applicable=f"{self.proctor.method.name()} shares no {kinds}")
        reason = subject.refused(self.who) or self.attack.refuses(subject) or self.proctor.too_little(subject, self.who)
        if reason is not None:
            return Examined(not_applicable=reason)
        rng, seating, few = generator(self.proctor.seed, 8), self._seating, self.few_layers
        sittings = seating.sittings(subject, seating.sizes(subject))
        if not sittings:
            return Examined(not_applicable=f"no client was sent another client's {self.kind.replace('_', ' ')}")
        marks, shown = examine(self.attack, sittings, (1, None), rng)
        view, first = sittings[0].view, sittings[0].items[0]
        return Examined(
            marks=list(marks.items()),
            by_layer=by_layer(seating, subject, marks, few, rng)
            or by_setting(seating, self.kind, sittings, marks, few, rng),
            undefended=undefended(seating, self.kind, subject, marks, rng),
            auxiliary_images=sum(len(domain) for domain in view.auxiliary),
            chance=self.attack.chance(view, first.truth),
            figures=self._grid(shown) if self.draws_images else (),
            by_rounds=by_rounds(seating, subject, few, rng),
        )

    def _grid(self, shown: Shown) -> tuple[str, ...]:
        rows, labels = [], []
        for size, count in ((1, 5), (None, 3)):
            targets = shown.get(size, [])
            chosen = [(truth.images[0], _pictured(truth, guesses)) for truth, guesses in targets]
            rows += figures.rows_of(chosen, count)
            labels += ["1 image" if size == 1 else "whole\nclient"] * min(count, len(targets))
        name = examined_file(self.out, self.cell, self.spec, self.who.role, self.kind).with_suffix(".png").name
        path = Path("figures") / self.cell / name
        figures.grid(rows, labels[: len(rows)], self.out / path)
        return (path.as_posix(),)


def _pictured(truth: Truth, guesses: Mapping[str, Guess]) -> dict[str, Tensor]:
    """Of each guess one image (3, H, W): itself, or the one of a set that stands for the first true image."""
    return {name: g if g.ndim == 3 else first_match(g, truth.images) for name, g in guesses.items()}
