"""One attack under one threat model, examined but not yet judged: its marks, and the tests they are put to.

Which controls a line holds is fixed here, before any mark is seen (AUDIT section 3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fdgpriv.roles import Attack
from fdgpriv.threat import Capability, ThreatModel
from fdgpriv.verdict import NO_OTHER_CLIENT, Absent, Line

from .marks import Marks

DOMAIN_LINE = ("noise", "mean_image", "random_style", "other_domain")
CLIENT_LINE = (*DOMAIN_LINE, "unconditional", "domain_mean", "other_client")
BOUNDS = ("nearest_own", "autoencoder")


@dataclass
class Paper:
    """One attack under one threat model on one trained federation, examined but not yet judged.

    Attributes:
        attack, threat: Who was examined.
        kind: Of the artifact.
        level: Of the artifact on the wire: image, client or group.
        shared: Whether that artifact is on the wire at all.
        auxiliary_images: How many images the adversary held.
        marks: By number of images behind the artifact; None is the whole client.
        by_layer: For an attack that reads every layer, marks on single images by layer; for one with further settings, by
            setting.
        by_rounds: By number of rounds and of images, ascending, marks on what a client shared in that many together.
        undefended: On single images without the defense, by the same attack with the same budget, where there is a defense.
        chance: What guessing reaches, where that is one number.
        not_applicable: Why nothing was examined, or None.
        shadows: Clients among the units that took no part in training.
        figures: Pictures, relative to the run's folder.
    """

    attack: Attack
    threat: ThreatModel
    kind: str
    level: str
    shared: bool
    auxiliary_images: int = 0
    marks: dict[int | None, Marks] = field(default_factory=dict)
    by_layer: dict[str, Marks] = field(default_factory=dict)
    by_rounds: Sequence[tuple[int, int | None, Marks]] = ()
    undefended: Marks | None = None
    chance: float | None = None
    not_applicable: str | None = None
    shadows: frozenset[str] = frozenset()
    figures: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """Images behind the artifact that the verdict is about."""
        return 1 if self.level == "image" else None

    def controls(self, line: str, marks: Marks) -> dict[str, list[float]]:
        """The controls of this line that this adversary's threat model grants and the examination has."""
        names = list(CLIENT_LINE if line == "client" else DOMAIN_LINE)
        if Capability.KNOWS_DOMAIN not in self.threat.capabilities and "domain_mean" in names:
            names.remove("domain_mean")
        return {name: marks.headline[name] for name in names if name in marks.headline}

    def line(self, line: str, marks: Marks | None) -> Line | Absent:
        """The test of this line on these marks, or why there is none."""
        if self.not_applicable or marks is None:
            return Absent(self.not_applicable or "nothing was examined at this level", "not_applicable")
        if line == "client" and "client" not in self.attack.lines:
            return Absent("asks for the domain, which all clients of it share: see the domain line", "not_applicable")
        controls = self.controls(line, marks)
        needed = "other_client" if line == "client" else "other_domain"
        if needed not in controls:
            return Absent(NO_OTHER_CLIENT if line == "client" else "no client of another domain exists")
        return self._line(marks, controls, marks.units)

    def _line(self, marks: Marks, controls: Mapping[str, Sequence[float]], cluster: Sequence[str]) -> Line:
        sign = 1 if self.attack.higher_leaks else -1
        bounds = self.attack.bounds if sign > 0 or self.attack.bounds is None else _turned(self.attack.bounds)
        return Line(
            attack=sign * np.asarray(marks.headline["attack"]),
            controls={name: sign * np.asarray(values) for name, values in controls.items()},
            cluster=np.asarray(cluster),
            bounds=bounds,
        )

    @property
    def most_rounds(self) -> int:
        """The most rounds that were read together; 0 where none were."""
        return max((rounds for rounds, _, _ in self.by_rounds), default=0)

    def one_round(self, size: int | None) -> Marks:
        """The marks on one round at this size."""
        return next(marks for rounds, images, marks in self.by_rounds if (rounds, images) == (1, size))

    def rise(self, size: int | None, marks: Marks) -> Line:
        """The test that these marks, of more rounds, lie above those of one round; of a client's several it is one unit."""
        return self._line(marks, {"one_round": self.one_round(size).headline["attack"]}, marks.clients)

    def positive(self) -> tuple[str, Marks] | None:
        """The examination that is known to leak: undefended single images (or whole clients), or the deepest layer."""
        if self.by_layer and not self.attack.settings(self.kind):
            deepest = list(self.by_layer)[-1]
            return deepest, self.by_layer[deepest]
        single = self.undefended or self.marks.get(1)
        return ("1", single) if single is not None else None


def _turned(bounds: tuple[float, float]) -> tuple[float, float]:
    return -bounds[1], -bounds[0]
