"""One attack under one threat model before one evaluator: of which sizes it is asked, and by which adversaries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fdgpriv.roles import Attack
from fdgpriv.subjects import Craft, Subject
from fdgpriv.threat import ThreatModel

from .marks import Marks, examine
from .proctor import Proctor
from .sitting import Sitting


@dataclass(frozen=True, eq=False)
class Seating:
    """Who is asked.

    Attributes:
        proctor: Of the federation.
        attack: Configured.
        who: The threat model.
    """

    proctor: Proctor
    attack: Attack
    who: ThreatModel

    @property
    def draws_images(self) -> bool:
        """Whether it is of a reconstruction, which takes longest."""
        return self.attack.family == "reconstruction"

    def sizes(self, subject: Subject[Craft]) -> tuple[int | None, ...]:
        """The numbers of images behind artifacts that the attack asks for and the evaluator has.

        Of an artifact that stands for all clients, one image and all: of few images it is much like a client's own. Of one
        that comes to be only with all other clients', all.
        """
        some = (None,) if subject.together else (1, None)
        wanted = [s for s in self.attack.sizes_on(subject) if not (subject.alone or subject.together) or s in some]
        return tuple(size for size in wanted if size is None or size in self.proctor.per_client)

    def sittings(self, subject: Subject[Craft], sizes: Sequence[int | None]) -> list[Sitting]:
        """The adversaries, each with its items."""
        attack = self.attack
        sittings = self.proctor.sittings(
            subject,
            self.who,
            sizes,
            reconstruction=self.draws_images,
            asks_size=attack.asks_size,
            alone=attack.family == "algebra",
        )
        fitting = [replace(one, items=[item for item in one.items if attack.fits(item.truth)]) for one in sittings]
        return [one for one in fitting if one.items]

    def marks(
        self, subject: Subject[Craft], sizes: Sequence[int | None], rng: torch.Generator
    ) -> dict[int | None, Marks]:
        """By size, how well they do."""
        return examine(self.attack, self.sittings(subject, sizes), (), rng)[0]
