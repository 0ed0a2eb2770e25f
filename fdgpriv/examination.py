"""Examines one attack under one threat model, and keeps the marks on disk; what lies there already is read instead.

A finished examination lies in ``marks/CELL/ATTACK@ROLE.json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch
from pydantic import BaseModel, TypeAdapter
from torch import Tensor

from fdgpriv import figures
from fdgpriv._contract import write_text
from fdgpriv.exam import Asked, Guess, Sitting, Truth
from fdgpriv.federation import generator
from fdgpriv.marks import Marks, examine
from fdgpriv.metrics.matching import first_match
from fdgpriv.once import Once
from fdgpriv.paper import Paper
from fdgpriv.plan import slug
from fdgpriv.proctor import Proctor
from fdgpriv.roles import Attack, Defense
from fdgpriv.subjects import Craft, RepeatedStyles, Subject
from fdgpriv.threat import ThreatModel

Shown = Mapping[int | None, Sequence[tuple[Truth, Mapping[str, Guess]]]]


class Examined(BaseModel):
    """A finished examination, as it lies on disk."""

    marks: list[tuple[int | None, Marks]] = []
    by_layer: dict[str, Marks] = {}
    by_rounds: list[tuple[int, int | None, Marks]] = []
    undefended: Marks | None = None
    auxiliary_images: int = 0
    chance: float | None = None
    not_applicable: str | None = None
    figures: tuple[str, ...] = ()
    attack_s: float = 0.0


ROUNDS = (1, 2, 5, 17)  # numbers of rounds that are looked at, besides all that are kept (METHODS 4e, H-S5)
_EXAMINED = TypeAdapter(Examined)


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
        file = self.out / "marks" / self.cell / f"{self._name}.json"
        if file.is_file():
            examined = _EXAMINED.validate_json(file.read_bytes())
        else:
            start = perf_counter()
            examined = self._examined()
            examined.attack_s = perf_counter() - start
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, examined.model_dump_json())
        return self._as_paper(examined), examined.attack_s

    @property
    def key(self) -> str:
        """Names it among those of all cells."""
        return f"{self.cell}/{self.spec}@{self.who.role} on {self.kind}"

    @property
    def _name(self) -> str:
        return f"{slug(self.spec)}@{self.who.role}-{self.kind}"

    @property
    def draws_images(self) -> bool:
        """Whether it is of a reconstruction, which takes longest."""
        return self.attack.family == "reconstruction"

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
        rng = generator(self.proctor.seed, 8)
        sizes = self._sizes(subject)
        sittings = self._sittings(self.proctor, subject, sizes)
        if not sittings:
            return Examined(not_applicable=f"no client was sent another client's {self.kind.replace('_', ' ')}")
        marks, shown = examine(self.attack, sittings, (1, None), rng)
        view, first = sittings[0].view, sittings[0].items[0]
        return Examined(
            marks=list(marks.items()),
            by_layer=self._by_layer(subject, marks, rng) or self._by_setting(sittings, marks, rng),
            undefended=self._undefended(subject, marks, rng),
            auxiliary_images=sum(len(domain) for domain in view.auxiliary),
            chance=self.attack.chance(view, first.truth),
            figures=self._grid(shown) if self.draws_images else (),
            by_rounds=self._by_rounds(subject, rng),
        )

    def _by_layer(
        self, subject: Subject[Craft], marks: Mapping[int | None, Marks], rng: torch.Generator
    ) -> dict[str, Marks]:
        """Marks on single images' artifacts at each layer of the network."""
        layers = subject.craft.layers() if self.attack.by_layer else ()
        wire = self.proctor.template.at if layers else ""
        found: dict[str, Marks] = {}
        for layer in (wire, layers[-1]) if self.few_layers and layers else layers:
            if layer == wire:
                found[layer] = marks[1]
            else:
                sittings = self.proctor.sittings(subject.at(layer), self.who, (1,), reconstruction=False)
                found[layer] = examine(self.attack, sittings, (), rng)[0][1]
        return found

    def _by_setting(
        self, sittings: Sequence[Sitting], marks: Mapping[int | None, Marks], rng: torch.Generator
    ) -> dict[str, Marks]:
        """Marks on single images' artifacts under each of the attack's further settings."""
        single = [Sitting(s.view, items) for s in sittings if (items := [i for i in s.items if i.size == 1])]
        found: dict[str, Marks] = {}
        settings = list(self.attack.settings(self.kind).items()) if single else []
        for name, attack in (settings[0], settings[-1]) if self.few_layers and settings else settings:
            found[name] = marks[1] if attack == self.attack else examine(attack, single, (), rng)[0][1]
        return found

    def _by_rounds(self, subject: Subject[Craft], rng: torch.Generator) -> list[tuple[int, int | None, Marks]]:
        """Marks on what clients shared in several rounds together, by number of rounds and of images.

        The same targets, suspects and artifacts for each number of rounds; of fewer rounds the artifacts are cut.
        """
        repeated = subject.repeated
        sizes = tuple(size for size in self._sizes(subject) if size in self.attack.by_round)
        if repeated is None or not sizes or repeated.refused(self.who):
            return []
        assert isinstance(repeated.craft, RepeatedStyles)
        every = len(repeated.craft.crafts)
        wanted = (1, every) if self.few_layers else sorted({count for count in ROUNDS if count < every} | {every})
        sittings = self._sittings(self.proctor, repeated, sizes)
        found = []
        for count in wanted:
            short = [_last_rounds(one, repeated.craft, count) for one in sittings]
            found += [(count, size, at) for size, at in examine(self.attack, short, (), rng)[0].items()]
        return found

    def _undefended(
        self, subject: Subject[Craft], marks: Mapping[int | None, Marks], rng: torch.Generator
    ) -> Marks | None:
        """The positive control: one image, no defense, the same attack and budget; None where nothing was defended.

        Of an attack that reads whole clients only: their artifacts made once more, without defense; where these come to be
        only together and nothing was defended, as they are.
        """
        none, sizes = Defense.named("none")(), self._sizes(subject)
        bare = self.proctor if self.proctor.defense == none else replace(self.proctor, defense=none)
        if 1 not in sizes and subject.together and bare is self.proctor:
            return marks[None]
        if 1 not in sizes:
            anew = replace(bare.subject(self.kind), wire={})
            return examine(self.attack, self._sittings(bare, anew, (None,)), (), rng)[0][None]
        if bare is self.proctor:
            return None
        wanted = sizes if self.attack.asks_size else (1,)
        return examine(self.attack, self._sittings(bare, bare.subject(self.kind), wanted), (), rng)[0][1]

    def _sizes(self, subject: Subject[Craft]) -> tuple[int | None, ...]:
        """The numbers of images behind artifacts that the attack asks for and the evaluator has.

        Of an artifact that stands for all clients, one image and all: of few images it is much like a client's own. Of one
        that comes to be only with all other clients', all.
        """
        some = (None,) if subject.together else (1, None)
        wanted = [s for s in self.attack.sizes_on(subject) if not (subject.alone or subject.together) or s in some]
        return tuple(size for size in wanted if size is None or size in self.proctor.per_client)

    def _sittings(self, proctor: Proctor, subject: Subject[Craft], sizes: Sequence[int | None]) -> list[Sitting]:
        """The adversaries, each with its items."""
        attack = self.attack
        sittings = proctor.sittings(
            subject,
            self.who,
            sizes,
            reconstruction=self.draws_images,
            asks_size=attack.asks_size,
            alone=attack.family == "algebra",
        )
        fitting = [replace(one, items=[item for item in one.items if attack.fits(item.truth)]) for one in sittings]
        return [one for one in fitting if one.items]

    def _grid(self, shown: Shown) -> tuple[str, ...]:
        rows, labels = [], []
        for size, count in ((1, 5), (None, 3)):
            targets = shown.get(size, [])
            chosen = [(truth.images[0], _pictured(truth, guesses)) for truth, guesses in targets]
            rows += figures.rows_of(chosen, count)
            labels += ["1 image" if size == 1 else "whole\nclient"] * min(count, len(targets))
        path = Path("figures") / self.cell / f"{self._name}.png"
        figures.grid(rows, labels[: len(rows)], self.out / path)
        return (path.as_posix(),)


def _last_rounds(sitting: Sitting, craft: RepeatedStyles, count: int) -> Sitting:
    """The sitting with no more than the last `count` rounds of every artifact."""

    def cut(one: Asked) -> Asked:
        return replace(one, question=replace(one.question, artifact=craft.cut(one.question.artifact, count)))

    items = [
        replace(item, asked={name: [cut(one) for one in ones] for name, ones in item.asked.items()})
        for item in sitting.items
    ]
    return Sitting(replace(sitting.view, _craft=craft.last(count), learned=Once()), items)


def _pictured(truth: Truth, guesses: Mapping[str, Guess]) -> dict[str, Tensor]:
    """Of each guess one image (3, H, W): itself, or the one of a set that stands for the first true image."""
    return {name: g if g.ndim == 3 else first_match(g, truth.images) for name, g in guesses.items()}
