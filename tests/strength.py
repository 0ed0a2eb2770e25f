"""Compares the figures of a default audit with the least that its attacks must reach: `python tests/strength.py RESULTS.json`.

The floors stand in strength.toml. Each names a question (method, artifact, adversary, secret), a figure, and its bound:
`at_least`, or `at_most` where lower leaks. A floor that is not reached yet says so: `so_far` is the figure that must not get
worse meanwhile. The figure is the best over the attacks that ask the question, from the whole
client's artifact; with `rounds = 1` from views that are cut to the last round. `share_of_achievable` is that of the
question's verdict.
"""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, TypeAdapter, model_validator

from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run
from fdgpriv.utils.records import Entry, Word

FLOORS = Path(__file__).with_name("strength.toml")
SHARE = "share_of_achievable"


class Floor(Entry):
    """The least that the attacks on one question must reach.

    Attributes:
        rounds: 1 for views that are cut to the last round; None for all that the adversary sees.
        so_far: Of a floor that is not reached yet, the figure that must not get worse.
    """

    method: Word
    artifact: Word
    adversary: Word
    secret: Word
    figure: Word
    rounds: int | None = Field(default=None, ge=1)
    at_least: float | None = None
    at_most: float | None = None
    so_far: float | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("want either at_least or at_most")
        return self

    def __str__(self) -> str:
        view = "" if self.rounds is None else f", {self.rounds} round"
        return f"{self.method}: {self.secret} from {self.artifact} by the {self.adversary}{view}: {self.figure}"

    @property
    def bound(self) -> float:
        """The figure that is wanted."""
        bound = self.at_most if self.at_least is None else self.at_least
        assert bound is not None
        return bound

    def holds(self, value: float, bound: float) -> bool:
        """Whether a figure is as good as this bound."""
        return value <= bound if self.at_least is None else value >= bound


def floors(path: Path = FLOORS) -> list[Floor]:
    """The floors in this file."""
    return TypeAdapter(list[Floor]).validate_python(tomllib.loads(path.read_text(encoding="utf-8"))["floor"])


def reached(run: Run, floor: Floor) -> float | None:
    """The best figure of the run's attacks on this question; None where none has it."""
    if floor.figure == SHARE:
        shares = [
            question.share_of_achievable
            for question in run.questions
            if (question.artifact, question.secret, question.scope) == (floor.artifact, floor.secret, "client")
            and floor.adversary in (question.adversary, *question.also)
        ]
        known = [share for share in shares if share is not None]
    else:
        known = []
        for row in run.attacks:
            if (row.kind, row.secret, row.threat.role) != (floor.artifact, floor.secret, floor.adversary):
                continue
            measured = row.metrics.get(floor.figure)
            if floor.rounds is not None:
                cut = [point.value for point in row.rounds if (point.rounds, point.images) == (floor.rounds, None)]
                measured = cut[0] if cut and row.headline == floor.figure else None
            if measured is not None and measured.value is not None:
                known.append(measured.value)
    return (max if floor.at_least is not None else min)(known, default=None)


def shortfalls(results: Results, wanted: Sequence[Floor], so_far: bool = True) -> list[str]:
    """One line for each floor of the audited methods that is not reached; if `so_far`, only for what got worse."""
    lines = []
    for run in results.runs:
        for floor in wanted:
            if floor.method != run.method.partition(":")[0]:
                continue
            value = reached(run, floor)
            bound = floor.so_far if so_far and floor.so_far is not None else floor.bound
            if value is None or not floor.holds(value, bound):
                want = f"want {'at most' if floor.at_least is None else 'at least'} {bound:g}"
                lines.append(f"{floor}: {want}, got {'no such figure' if value is None else f'{value:.3f}'}")
    return lines


def main(path: str) -> int:
    """Prints the floors that this results.json does not reach; 1 if any got worse than is known."""
    results, wanted = Results.load(Path(path)), floors()
    missed, worse = shortfalls(results, wanted, so_far=False), shortfalls(results, wanted)
    asked = sum(floor.method == run.method.partition(":")[0] for run in results.runs for floor in wanted)
    known = [f"{line} (known)" for line in missed if not any(line.split(": want")[0] in other for other in worse)]
    lines = [*worse, *known, f"strength: {asked - len(missed)} of {asked} floors reached"]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(worse) or not asked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
