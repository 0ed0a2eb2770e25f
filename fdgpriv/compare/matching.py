"""Matches the runs of two audits by method, dataset, target, seed and defense, or by as many of these as possible."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from fdgpriv.registry import split
from fdgpriv.results.run import Run

AXES = ("method", "dataset", "target", "seed", "defense")
MAY_DIFFER = ("defense", "seed", "method")  # runs on other images are not compared


@dataclass(frozen=True)
class Matched:
    """Pairs of runs, and the fields of `AXES` in which the runs of a pair agree."""

    by: tuple[str, ...]
    pairs: tuple[tuple[Run, Run], ...]


def title(run: Run) -> str:
    """A run in one line."""
    target = f", target {run.target}" if run.target is not None else ""
    return f"{run.method} on {run.dataset}{target}, seed {run.seed}, defense {run.defense}"


def matched(before: Sequence[Run], after: Sequence[Run]) -> Matched:
    """Pairs that agree in all of `AXES`; if there are none, in all but the fewest of `MAY_DIFFER`.

    Methods match by name; if an audit has several settings of a method, by settings.

    Raises:
        ValueError: No pair is found, or there are several ways to form them.
    """
    for count in range(len(MAY_DIFFER) + 1):
        matches = []
        for dropped in combinations(MAY_DIFFER, count):
            by = tuple(axis for axis in AXES if axis not in dropped)
            if pairs := _pairs(before, after, by):
                matches.append(Matched(by, pairs))
        if len(matches) == 1:
            return matches[0]
        if matches:
            ways = "; ".join(_joined(match.by) for match in matches)
            raise ValueError(f"want runs that match in one way, got several: by {ways}; {_first_runs(before, after)}")
    raise ValueError(f"want runs of one dataset and target that match one to one, got {_first_runs(before, after)}")


def _pairs(before: Sequence[Run], after: Sequence[Run], by: Sequence[str]) -> tuple[tuple[Run, Run], ...]:
    """Pairs by the method's specification, then the remaining runs by its name; ambiguous partners are not paired."""
    if "method" not in by:
        return _one_to_one(before, after, lambda run: _key(run, by, run.method))
    same_settings = _one_to_one(before, after, lambda run: _key(run, by, run.method))
    paired = {id(run) for pair in same_settings for run in pair}
    old, new = ([run for run in runs if id(run) not in paired] for runs in (before, after))
    return same_settings + _one_to_one(old, new, lambda run: _key(run, by, _method_name(run.method)))


def _one_to_one(
    before: Sequence[Run], after: Sequence[Run], key_of: Callable[[Run], Hashable]
) -> tuple[tuple[Run, Run], ...]:
    """Pairs with equal keys; none at all if a common key belongs to several runs of an audit."""
    old, new = [key_of(run) for run in before], [key_of(run) for run in after]
    common = set(old) & set(new)
    if any(keys.count(key) > 1 for keys in (old, new) for key in common):
        return ()
    return tuple((run, after[new.index(key)]) for run, key in zip(before, old, strict=True) if key in common)


def _key(run: Run, by: Sequence[str], method: str) -> Hashable:
    return tuple(method if axis == "method" else getattr(run, axis) for axis in by)


def _method_name(spec: str) -> str:
    """The method's name; the text itself if it is not a specification."""
    try:
        return split(spec)[0]
    except ValueError:
        return spec


def _joined(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _first_runs(before: Sequence[Run], after: Sequence[Run]) -> str:
    return " against ".join(f"{title(runs[0])}{_more(len(runs) - 1)}" for runs in (before, after))


def _more(count: int) -> str:
    return f" (and {count} more)" if count else ""
