"""Why a report cannot carry a conclusion: it was interrupted, runs failed, it is a quick one, or models guess."""

from collections.abc import Iterator
from dataclasses import dataclass

from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run
from fdgpriv.results.summary import UNINFORMATIVE

from ._arms import Arm
from ._command import AuditCommand
from ._numbers import percent, quantity, share
from ._words import joined, title, unique, upper

_MOST_NAMED = 3


def guesses(run: Run) -> bool:
    """Whether the run's model has not learned, or does no better on the target domain than naming the most frequent class.

    The latter is so where the interval of its target accuracy holds that share, or lies below.
    """
    utility = run.utility
    if utility is not None and utility.not_learned:
        return True
    if utility is None or utility.chance is None or utility.target_accuracy.value is None:
        return False
    lowest = utility.target_accuracy.ci95[0] if utility.target_accuracy.ci95 else utility.target_accuracy.value
    return lowest <= utility.chance


def arm_guesses(arm: Arm) -> bool:
    """Whether a model of this method and defense does no better than guessing."""
    return any(guesses(run) for run in arm.runs)


@dataclass(frozen=True)
class Caveats:
    """Why a report cannot carry a conclusion, or only a part of one; one sentence for each reason."""

    heading: str
    sentences: tuple[str, ...]


def caveats(results: Results) -> Caveats | None:
    """The reasons in order of weight; None if there is none."""
    whole, partial = [sentence for sentence in _of_all(results) if sentence], tuple(_of_parts(results))
    if whole:
        return Caveats("This audit cannot carry a conclusion.", (*whole, *partial))
    return Caveats("A part of this audit is missing.", partial) if partial else None


def _of_all(results: Results) -> Iterator[str]:
    """Reasons against any conclusion."""
    if results.interrupted:
        yield (
            "This audit was interrupted. What follows is what had finished; nothing stands in for the rest. To finish it, run "
            "its command again with --resume."
        )
    if results.config.get("preset") == "quick":
        default = AuditCommand.of(results).with_values("--preset", ["default"])
        yield (
            "This is a quick audit, which shows that everything works: few clients, images and rounds. Its leaks and "
            "accuracies are not those of the method; draw no conclusion from them."
            + (f" For one: {default}" if default else "")
        )
    yield _not_learned(results)
    yield _guessing(results)


def _of_parts(results: Results) -> Iterator[str]:
    """What failed."""
    failed = [run for run in results.runs if run.ended is not None]
    if failed:
        yield f"{_runs(failed, len(results.runs))} failed, and {_is(failed)} missing below: {_first(failed)}"
    parts = [part for run in results.runs for part in run.failed_parts()]
    if parts:
        more = f" (and {len(parts) - 1} more)" if len(parts) > 1 else ""
        yield f"{quantity(len(parts), 'measurement')} failed, so that questions stay open: {parts[0]}{more}"


def _not_learned(results: Results) -> str:
    """Which models have not learned, with the figures of the first."""
    runs = [run for run in results.runs if run.utility is not None and run.utility.not_learned]
    if not runs:
        return ""
    assert runs[0].utility is not None
    return (
        f"Not learned: {_named(runs)}. {upper(runs[0].utility.not_learned or '')}. {upper(UNINFORMATIVE)}: it is not called "
        "dominated, nor DP at matched accuracy."
    )


def _guessing(results: Results) -> str:
    """Which models have learned, and are no better than guessing on the unseen domain."""
    runs = [run for run in results.runs if guesses(run) and run.utility is not None and not run.utility.not_learned]
    if not runs:
        return ""
    utility = runs[0].utility
    assert utility is not None
    return (
        f"No better than guessing: {_named(runs)}. Its accuracy on the unseen domain, {share(utility.target_accuracy)}, is not "
        f"above the {percent(utility.chance or 0.0, 1)} that naming the most frequent class gives. What such a model leaks or "
        "hides says nothing about one that works: it is not called dominated, nor DP at matched accuracy."
    )


def _named(runs: list[Run]) -> str:
    """The first runs by title."""
    more = f" (and {len(runs) - _MOST_NAMED} more)" if len(runs) > _MOST_NAMED else ""
    return joined(unique(title(run) for run in runs)[:_MOST_NAMED]) + more


def _runs(failed: list[Run], total: int) -> str:
    return f"{len(failed)} of {quantity(total, 'run')}" if total > 1 else "The only run"


def _is(failed: list[Run]) -> str:
    return "is" if len(failed) == 1 else "are"


def _first(failed: list[Run]) -> str:
    more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"{title(failed[0])}: {failed[0].ended}{more}"
