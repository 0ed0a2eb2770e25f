"""The scores that the self test works on: those of one report or of several, from a shipped file or a run's folder."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fdgpriv.results.score_tables import RunKey, ScoreTables
from fdgpriv.verdicts.attack_scores import CLIENT_CONTROLS, AttackScores, from_tables, to_tables
from fdgpriv.verdicts.trial_scores import UNDEFENDED, Condition, TrialScores

_DIGITS = 6  # significant ones: errors of average images are of the order of 1e-3


def of_run(folder: Path) -> list[dict[str, AttackScores]]:
    """The scores in a run's folder, one report for each cell.

    Raises:
        ValueError: There are none that say how each attack reads other clients' artifacts.
    """
    scores = {key: part for key, attack in _read(folder).items() if (part := reduced(attack)) is not None}
    if not scores:
        raise ValueError(f"want a run's folder with scores.parquet of an attack on whole clients, got {folder}")
    return _by_cell(scores)


def _read(folder: Path) -> dict[str, AttackScores]:
    if not (folder / "scores.parquet").is_file():
        return {}
    return from_tables(ScoreTables.load(folder))


def _by_cell(scores: dict[str, AttackScores]) -> list[dict[str, AttackScores]]:
    """The scores of each cell, whose name begins the keys."""
    reports: dict[str, dict[str, AttackScores]] = {}
    for key, attack in scores.items():
        reports.setdefault(key.partition("/")[0], {})[key] = attack
    return list(reports.values())


def reduced(attack: AttackScores) -> AttackScores | None:
    """The scores that the self test needs: on the wire's artifacts, and as `undefended` the positive control's.

    None where the artifact did not cross, is of a single image or has no scores of other clients' artifacts, and for
    exact recovery.
    """
    on_wire = attack.by_size.get(None)
    if not attack.shared or attack.exact or attack.level == "image" or on_wire is None or not on_wire.crossed:
        return None
    conditions = {Condition(): _headline_only(on_wire)}
    if (positive := attack.positive()) is not None:
        conditions[Condition(UNDEFENDED)] = replace(_headline_only(positive), crossed={})
    return attack.model_copy(update={"conditions": conditions, "planted": {}, "figures": ()})


def _headline_only(scores: TrialScores) -> TrialScores:
    """The headline metric of attack and controls, rounded."""
    roles = [role for role in ("attack", *CLIENT_CONTROLS) if role in scores.headline]
    return TrialScores(
        list(scores.units),
        list(scores.clients),
        {role: _rounded(scores.headline[role]) for role in roles},
        crossed={client: _rounded(values) for client, values in scores.crossed.items()},
        shared_variance={role: variance for role, variance in scores.shared_variance.items() if role in roles},
    )


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


def write(reports: Sequence[dict[str, AttackScores]], run: RunKey, path: Path) -> None:
    """Writes these scores of a run as one archive of score tables; equal scores give equal bytes."""
    ScoreTables.joined([to_tables(run, report) for report in reports]).save_archive(path)


def read(path: Path) -> list[dict[str, AttackScores]]:
    """The scores in this file by report.

    Raises:
        ValueError: There is no such file, or it was not written by `--export`.
    """
    if not path.is_file():
        raise ValueError(
            f"want scores of a default run in {path}, got no file; make it with --export RUN, or give --scores RUN"
        )
    try:
        return _by_cell(from_tables(ScoreTables.load_archive(path)))
    except ValueError as error:
        raise ValueError(f"want scores that --export wrote, got another file: {error}") from None
