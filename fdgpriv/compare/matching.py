"""Matches the runs of two audits: by everything that identifies a run, else by what they have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from fdgpriv.registry import split
from fdgpriv.results.run import Run

AXES = ("method", "dataset", "target", "seed", "defense")
MAY_DIFFER = ("defense", "seed", "method")  # runs on other images are not compared

Key = tuple[object, ...]


@dataclass(frozen=True)
class Matched:
    """Pairs of runs, and which of `AXES` the two of a pair have in common."""

    by: tuple[str, ...]
    pairs: tuple[tuple[Run, Run], ...]


def title(run: Run) -> str:
    """A run in one line."""
    target = f", target {run.target}" if run.target is not None else ""
    return f"{run.method} on {run.dataset}{target}, seed {run.seed}, defense {run.defense}"


def matched(before: Sequence[Run], after: Sequence[Run]) -> Matched:
    """Pairs that agree in all of `AXES`; if there are none, in all but the fewest of `MAY_DIFFER`.

    Of a method the name is enough; where one audit has several settings of it, the same settings are wanted.

    Raises:
        ValueError: No pair is found, or there are several ways to form them.
    """
    for count in range(len(MAY_DIFFER) + 1):
        found = []
        for dropped in combinations(MAY_DIFFER, count):
            by = tuple(axis for axis in AXES if axis not in dropped)
            if pairs := _pairs(before, after, by):
                found.append(Matched(by, pairs))
        if len(found) == 1:
            return found[0]
        if found:
            ways = "; ".join(_joined(one.by) for one in found)
            raise ValueError(f"want runs that match in one way, got several: by {ways}; {_both(before, after)}")
    raise ValueError(f"want runs of one dataset and target that match one to one, got {_both(before, after)}")


def _pairs(before: Sequence[Run], after: Sequence[Run], by: Sequence[str]) -> tuple[tuple[Run, Run], ...]:
    """Pairs by equal specification of the method, then of the rest by its name; none if a partner is ambiguous."""
    if "method" not in by:
        return _one_to_one(before, after, lambda run: _key(run, by, run.method))
    same = _one_to_one(before, after, lambda run: _key(run, by, run.method))
    paired = {id(run) for pair in same for run in pair}
    old, new = ([run for run in runs if id(run) not in paired] for runs in (before, after))
    return same + _one_to_one(old, new, lambda run: _key(run, by, _name(run.method)))


def _one_to_one(before: Sequence[Run], after: Sequence[Run], key: Callable[[Run], Key]) -> tuple[tuple[Run, Run], ...]:
    """Pairs of equal key; none at all if a key that both have belongs to several runs of one."""
    old, new = [key(run) for run in before], [key(run) for run in after]
    common = set(old) & set(new)
    if any(keys.count(one) > 1 for keys in (old, new) for one in common):
        return ()
    return tuple((run, after[new.index(one)]) for run, one in zip(before, old, strict=True) if one in common)


def _key(run: Run, by: Sequence[str], method: str) -> Key:
    return tuple(method if axis == "method" else getattr(run, axis) for axis in by)


def _name(spec: str) -> str:
    """The method's name, or the text itself where it is no specification."""
    try:
        return split(spec)[0]
    except ValueError:
        return spec


def _joined(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _both(before: Sequence[Run], after: Sequence[Run]) -> str:
    return " against ".join(f"{title(runs[0])}{_more(len(runs) - 1)}" for runs in (before, after))


def _more(count: int) -> str:
    return f" (and {count} more)" if count else ""
