"""ROC curves of membership attacks: the mean over clients of the true positive rate at each false positive rate."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run
from fdgpriv.results.score_tables import ScoreFrames, ScoreTables
from fdgpriv.statistics.interval import mean_interval

from ._arms import arms
from ._figures import Drawing, Series, rate_chart
from ._words import joined, role, spoken, unique

SECRET = "membership"
MAX_CURVES = 5  # that a reader can still tell apart
_POINTS = 100  # false positive rates
_CONTROL = "other_client"  # the only one of which scores of candidates are stored


class _Curve(NamedTuple):
    """One attack of one run: its entry in the legend, the run, and what identifies its evaluation there."""

    name: str
    run: Run
    attack: str
    artifact: str
    adversary: str

    def candidates(self, frames: ScoreFrames, source: str) -> pd.DataFrame:
        """The candidates that the attack scored, or the control by the name `source`."""
        rows, run = frames.evaluations, self.run
        identity = {
            "method": run.method,
            "seed": run.seed,
            "defense": run.defense,
            "secret": SECRET,
            "attack": self.attack,
            "artifact": self.artifact,
            "adversary": self.adversary,
        }
        for column, value in identity.items():
            rows = rows[rows[column] == value]
        if run.target is not None:
            rows = rows[rows["target"] == run.target]
        candidates = frames.candidates
        return candidates[candidates["evaluation"].isin(rows["evaluation"]) & (candidates["role"] == source)]


def roc_curves(runs: Sequence[Run], folder: Path) -> tuple[Drawing, ...]:
    """One chart: a curve for each method and defense of the strongest membership attack, or for each attack of one run.

    Empty if no membership attack was evaluated, or the folder has no score tables.
    """
    curves = _curves(runs)
    if not curves or not (folder / "candidates.parquet").is_file():
        return ()
    frames = ScoreTables.load(folder).to_pandas()
    drawn = [(curve, rates) for curve in curves if len(rates := curve.candidates(frames, "attack"))][:MAX_CURVES]
    if not drawn:
        return ()
    control = drawn[0][0].candidates(frames, _CONTROL)
    fprs = false_positive_rates([candidates for _, candidates in drawn])
    lines = [_mean_curve(curve.name, candidates, fprs) for curve, candidates in drawn]
    lines += [_mean_curve("another client's artifact", control, fprs, is_control=True)] if len(control) else []
    attacks = joined(unique(spoken(curve.attack) for curve, _ in drawn))
    caption = (
        f"ROC of {attacks}: mean over clients at each false positive rate, with the 95% interval of the mean over "
        f"{drawn[0][1]['client'].nunique()} clients; seed {drawn[0][0].run.seed}."
    )
    at = int(np.searchsorted(fprs, 0.1))
    alt = "; ".join(f"{line.name}: {line.values[at]:.3g} at a false positive rate of 0.1" for line in lines)
    labels = "false positive rate", "true positive rate"
    return (rate_chart("roc", caption, alt, *labels, [float(rate) for rate in fprs], lines),)


def _curves(runs: Sequence[Run]) -> list[_Curve]:
    """Of several arms, the strongest attack of all in each; of one arm, the strongest attack on each question."""
    all_arms = arms(runs)
    if len(all_arms) == 1:
        run = all_arms[0].runs[0]
        by_name = {_attacked(q): q for q in sorted(_asked(run), key=_order, reverse=True)}  # the worse scope stays
        return [_curve(name, run, by_name[name]) for name in reversed(by_name)]
    asked = [question for arm in all_arms for question in _asked(arm.runs[0])]
    if not asked:
        return []
    strongest = min(asked, key=_order)
    return [_curve(arm.name, arm.runs[0], strongest) for arm in all_arms]


def _asked(run: Run) -> Iterator[Question]:
    """The tested questions about membership."""
    return (question for question in run.questions if question.secret == SECRET and question.strongest)


def _order(question: Question) -> tuple[int, float]:
    """Leaks first, then by the lead in multiples of the least that matters."""
    lead = question.lead.value if question.lead else None
    return WORST_FIRST.index(question.verdict), -(lead or 0.0) / (question.relevant or 1.0)


def _attacked(question: Question) -> str:
    return f"{spoken(question.artifact)}, {role(question.adversary)}"


def _curve(name: str, run: Run, question: Question) -> _Curve:
    assert question.strongest is not None
    return _Curve(name, run, question.strongest.attack, question.artifact, question.adversary)


def false_positive_rates(candidates: Sequence[pd.DataFrame]) -> NDArray[np.float64]:
    """Rates from the smallest that a client's non-members resolve to 1, evenly on a logarithmic scale."""
    others = [frame[~frame["is_member"]].groupby("client").size().median() for frame in candidates]
    lowest = 1 / max(2.0, max(others, default=100.0))
    return np.geomspace(lowest, 1.0, _POINTS)


def _mean_curve(name: str, candidates: pd.DataFrame, fprs: NDArray[np.float64], is_control: bool = False) -> Series:
    """The mean over clients that have members and non-members."""
    by_client = []
    for _, of_client in candidates.groupby("client"):
        scores, is_member = of_client["score"].to_numpy(), of_client["is_member"].to_numpy()
        if is_member.any() and not is_member.all():
            by_client.append(true_positive_rates(scores[is_member], scores[~is_member], fprs))
    means = [mean_interval(column) for column in np.transpose(by_client)]
    values = tuple(mean.value for mean in means)
    intervals = tuple((max(0.0, mean.ends[0]), min(1.0, mean.ends[1])) if mean.ends else None for mean in means)
    return Series(name, values, () if is_control else intervals, is_control)


def true_positive_rates(
    members: NDArray[np.float64], others: NDArray[np.float64], fprs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The true positive rate at each false positive rate, interpolated between thresholds.

    Args:
        members: Scores (N,) of members, N >= 1; higher means member.
        others: Scores (M,) of non-members, M >= 1.
        fprs: Rates (R,) in [0, 1].

    Returns: (R,) in [0, 1]; the rate itself is guessing.
    Reference: Fawcett, "An introduction to ROC analysis", Pattern Recognition Letters 2006, vertical averaging.
    """
    thresholds = -np.unique(-np.concatenate([members, others]))  # decreasing
    accused, identified = (
        np.concatenate([[0.0], 1 - np.searchsorted(np.sort(scores), thresholds) / len(scores)])
        for scores in (others, members)
    )
    rates: NDArray[np.float64] = np.interp(fprs, accused, identified)
    return rates
