"""Examines one attack under one threat model, and keeps the marks on disk; what lies there already is read instead.

A finished examination lies in ``marks/CELL/ATTACK@ROLE.json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch
from pydantic import BaseModel, TypeAdapter

from fdgpriv import figures
from fdgpriv._contract import write_text
from fdgpriv.exam import Guess, Truth
from fdgpriv.federation import generator
from fdgpriv.judge import Paper
from fdgpriv.marks import Marks, examine
from fdgpriv.proctor import Proctor
from fdgpriv.roles import Attack, Defense
from fdgpriv.threat import ThreatModel
from fdgpriv.training import slug

Shown = Mapping[int | None, Sequence[tuple[Truth, Mapping[str, Guess]]]]


class Examined(BaseModel):
    """A finished examination, as it lies on disk."""

    marks: list[tuple[int | None, Marks]] = []
    by_layer: dict[str, Marks] = {}
    undefended: Marks | None = None
    auxiliary_images: int = 0
    chance: float | None = None
    not_applicable: str | None = None
    figures: tuple[str, ...] = ()
    attack_s: float = 0.0


_EXAMINED = TypeAdapter(Examined)


@dataclass(frozen=True, eq=False)
class Examination:
    """One attack under one threat model on one trained federation.

    Attributes:
        proctor: Of the federation.
        spec: The attack, as the command line names it.
        attack: The same, configured.
        who: The threat model.
        few_layers: Look only at the layer on the wire and the last one.
        out: Where everything goes.
        cell: The folder's name there.
    """

    proctor: Proctor
    spec: str
    attack: Attack
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
    def _name(self) -> str:
        return f"{slug(self.spec)}@{self.who.role}"

    @property
    def _draws_images(self) -> bool:
        return self.attack.family == "reconstruction"

    def _as_paper(self, examined: Examined) -> Paper:
        level = self.proctor.template.level if self.proctor.shares_styles else "client"
        on_wire = self.proctor.shares_styles and (level == "image" or None in self.attack.sizes)
        return Paper(
            attack=self.attack,
            threat=self.who,
            level=level if on_wire else "image",
            shared=on_wire,
            auxiliary_images=examined.auxiliary_images,
            marks=dict(examined.marks),
            by_layer=examined.by_layer,
            undefended=examined.undefended,
            chance=examined.chance,
            not_applicable=examined.not_applicable,
            shadows=frozenset(self.proctor.population.shadows),
            figures=examined.figures,
        )

    def _examined(self) -> Examined:
        if not self.proctor.shares_styles:
            return Examined(not_applicable=f"{self.proctor.method.name()} shares no {self.attack.reads}")
        if (why := self.proctor.too_little(self.who)) is not None:
            return Examined(not_applicable=why)
        rng = generator(self.proctor.seed, 8)
        sizes = tuple(size for size in self.attack.sizes if size is None or size in self.proctor.per_client)
        sittings = self.proctor.sittings(self.who, sizes, reconstruction=self._draws_images)
        if not sittings:
            return Examined(not_applicable="no client was sent another client's style")
        marks, shown = examine(self.attack, sittings, (1, None), rng)
        view, first = sittings[0].view, sittings[0].items[0]
        return Examined(
            marks=list(marks.items()),
            by_layer=self._by_layer(marks, rng),
            undefended=self._undefended(rng),
            auxiliary_images=sum(len(domain) for domain in view.auxiliary),
            chance=self.attack.chance(view, first.truth),
            figures=self._grid(shown) if self._draws_images else (),
        )

    def _by_layer(self, marks: Mapping[int | None, Marks], rng: torch.Generator) -> dict[str, Marks]:
        """Marks on single images' styles at each stage of the network."""
        wire, layers = self.proctor.template.at, self.proctor.layers() if self.attack.by_layer else ()
        found: dict[str, Marks] = {}
        for layer in (wire, layers[-1]) if self.few_layers and layers else layers:
            if layer == wire:
                found[layer] = marks[1]
            else:
                sittings = self.proctor.sittings(self.who, (1,), reconstruction=False, layer=layer)
                found[layer] = examine(self.attack, sittings, (), rng)[0][1]
        return found

    def _undefended(self, rng: torch.Generator) -> Marks | None:
        """The positive control: one image, no defense, the same attack and budget; None where nothing was defended."""
        none = Defense.named("none")()
        if self.proctor.defense == none or 1 not in self.attack.sizes:
            return None
        bare = replace(self.proctor, defense=none)
        return examine(self.attack, bare.sittings(self.who, (1,), reconstruction=self._draws_images), (), rng)[0][1]

    def _grid(self, shown: Shown) -> tuple[str, ...]:
        rows, labels = [], []
        for size, count in ((1, 5), (None, 3)):
            targets = shown.get(size, [])
            rows += figures.rows_of([(truth.images[0], guesses) for truth, guesses in targets], count)
            labels += ["1 image" if size == 1 else "whole\nclient"] * min(count, len(targets))
        path = Path("figures") / self.cell / f"{self._name}.png"
        figures.grid(rows, labels[: len(rows)], self.out / path)
        return (path.as_posix(),)
