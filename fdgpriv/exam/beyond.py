"""What an attack is also examined on: other layers, other settings, several rounds together, and without the defense."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from fdgpriv.once import Once
from fdgpriv.roles import Defense
from fdgpriv.subjects import Craft, RepeatedStyles, Subject

from .marks import Marks, examine
from .seating import Seating
from .sitting import Asked, Sitting

ROUNDS = (1, 2, 5, 17)  # numbers of rounds that are looked at, besides all that are kept (METHODS 4e, H-S5)

BySize = Mapping[int | None, Marks]


def by_layer(
    seating: Seating, subject: Subject[Craft], marks: BySize, few: bool, rng: torch.Generator
) -> dict[str, Marks]:
    """Marks on single images' artifacts at each layer of the network; where `few`, the wire's and the last."""
    layers = subject.craft.layers() if seating.attack.by_layer else ()
    wire = seating.proctor.template.at if layers else ""
    found: dict[str, Marks] = {}
    for layer in (wire, layers[-1]) if few and layers else layers:
        if layer == wire:
            found[layer] = marks[1]
        else:
            sittings = seating.proctor.sittings(subject.at(layer), seating.who, (1,), reconstruction=False)
            found[layer] = examine(seating.attack, sittings, (), rng)[0][1]
    return found


def by_setting(
    seating: Seating, kind: str, sittings: Sequence[Sitting], marks: BySize, few: bool, rng: torch.Generator
) -> dict[str, Marks]:
    """Marks on single images' artifacts under each of the attack's further settings; where `few`, the first and the last."""
    single = [Sitting(s.view, items) for s in sittings if (items := [i for i in s.items if i.size == 1])]
    found: dict[str, Marks] = {}
    settings = list(seating.attack.settings(kind).items()) if single else []
    for name, attack in (settings[0], settings[-1]) if few and settings else settings:
        found[name] = marks[1] if attack == seating.attack else examine(attack, single, (), rng)[0][1]
    return found


def by_rounds(
    seating: Seating, subject: Subject[Craft], few: bool, rng: torch.Generator
) -> list[tuple[int, int | None, Marks]]:
    """Marks on what clients shared in several rounds together, by number of rounds and of images; where `few`, one and all.

    The same targets, suspects and artifacts for each number of rounds; of fewer rounds the artifacts are cut.
    """
    repeated = subject.repeated
    sizes = tuple(size for size in seating.sizes(subject) if size in seating.attack.by_round)
    if repeated is None or not sizes or repeated.refused(seating.who):
        return []
    assert isinstance(repeated.craft, RepeatedStyles)
    every = len(repeated.craft.crafts)
    wanted = (1, every) if few else sorted({count for count in ROUNDS if count < every} | {every})
    sittings = seating.sittings(repeated, sizes)
    found = []
    for count in wanted:
        short = [_last_rounds(one, repeated.craft, count) for one in sittings]
        found += [(count, size, at) for size, at in examine(seating.attack, short, (), rng)[0].items()]
    return found


def undefended(
    seating: Seating, name: str, subject: Subject[Craft], marks: BySize, rng: torch.Generator
) -> Marks | None:
    """The positive control: one image, no defense, the same attack and budget; None where nothing was defended.

    Of an attack that reads whole clients only: their artifacts made once more, without defense; where these come to be
    only together and nothing was defended, as they are.

    Args:
        seating: Who is asked.
        name: Of the subject.
        subject: As it was shared.
        marks: On it.
        rng: Of the adversaries.
    """
    proctor, none, sizes = seating.proctor, Defense.named("none")(), seating.sizes(subject)
    bare = seating if proctor.defense == none else replace(seating, proctor=replace(proctor, defense=none))
    if 1 not in sizes and subject.together and bare is seating:
        return marks[None]
    own = bare.proctor.subject(name)
    if 1 not in sizes:
        return bare.marks(replace(own, wire={}), (None,), rng)[None]
    if bare is seating:
        return None
    return bare.marks(own, sizes if seating.attack.asks_size else (1,), rng)[1]


def _last_rounds(sitting: Sitting, craft: RepeatedStyles, count: int) -> Sitting:
    """The sitting with no more than the last `count` rounds of every artifact."""

    def cut(one: Asked) -> Asked:
        return replace(one, question=replace(one.question, artifact=craft.cut(one.question.artifact, count)))

    items = [
        replace(item, asked={name: [cut(one) for one in ones] for name, ones in item.asked.items()})
        for item in sitting.items
    ]
    return Sitting(replace(sitting.view, _craft=craft.last(count), learned=Once()), items)
