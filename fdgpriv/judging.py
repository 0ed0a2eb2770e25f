"""Judges the cells of an audit: computes findings, questions and the papers' claims from scores, transfers and logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from fdgpriv.attack import Attack
from fdgpriv.claims import Case, claims
from fdgpriv.claims.run_comparison import RunComparison, compared, settings_of
from fdgpriv.config import AuditConfig
from fdgpriv.defense import defended
from fdgpriv.federation.transcript import Record
from fdgpriv.method import Method
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.question import Question
from fdgpriv.results.run import Claim
from fdgpriv.training import Cell, Trained
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.judge import Verdicts, judge_all


@dataclass(eq=False, kw_only=True)
class MeasuredCell:
    """The measurements on one cell, from which its verdicts follow.

    Attributes:
        cell: The cell.
        trained: The result of its training.
        records: All transfers of its transcript.
        facts: The evaluator's own measurements, by name.
        scores: By key ``CELL/EVALUATION``, in the order of the results.
    """

    cell: Cell
    trained: Trained
    records: Sequence[Record]
    facts: dict[str, float] = field(default_factory=dict)
    scores: dict[str, AttackScores] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Judgement:
    """The verdicts on all cells of an audit, which are corrected together."""

    cells: Sequence[MeasuredCell]
    verdicts: Verdicts

    @classmethod
    def of(cls, cells: Sequence[MeasuredCell], seed: int) -> Self:
        """Judges these cells; `seed` seeds the resampling."""
        scores = {key: attack_scores for measured in cells for key, attack_scores in measured.scores.items()}
        return cls(cells, judge_all(scores, seed))

    def attacks(self, measured: MeasuredCell) -> tuple[AttackFinding, ...]:
        """The findings of a cell's attacks."""
        return tuple(self.verdicts.findings[key] for key in measured.scores)

    def questions(self, measured: MeasuredCell) -> tuple[Question, ...]:
        """The questions of a cell, with their answers."""
        return self.verdicts.questions.of_cell(measured.cell.folder, list(measured.scores))

    def claims(self, measured: MeasuredCell, config: AuditConfig) -> tuple[Claim, ...]:
        """The claims about a cell, compared with other methods' cells of the same target, seed and defense.

        Empty for a failed cell, whose transcript is incomplete.
        """
        if measured.trained.failed is not None:
            return ()
        findings = self.verdicts.findings
        scores, method = _on_own_task(measured.scores), trained_method(config, measured.cell)
        training_warning = method.training_warning(measured.trained.log)
        others = [
            other
            for other in self.cells
            if other.trained.failed is None
            and other is not measured
            and replace(other.cell, method=measured.cell.method) == measured.cell
        ]
        comparisons = [
            RunComparison(
                other.cell.method,
                part.name(),
                settings_of(part),
                other.records,
                compared(scores, _on_own_task(other.scores), findings),
            )
            for other in others
            for part in (trained_method(config, other.cell),)
        ]
        figures = measured.trained.log | measured.facts
        attacks, settings = [findings[key] for key in scores], settings_of(method)
        return claims(
            method.name(),
            Case(attacks, measured.records, figures, method.name(), settings, comparisons, training_warning),
        )


def trained_method(config: AuditConfig, cell: Cell) -> Method:
    """The method of the cell, with the settings that its defense changes."""
    return defended(config.method(cell.method), cell.defense, config.inject_bug)[0]


def _on_own_task(scores: Mapping[str, AttackScores]) -> dict[str, AttackScores]:
    """The scores of attacks on their own tasks; claims use only these."""
    return {
        key: attack_scores
        for key, attack_scores in scores.items()
        if attack_scores.task == Attack.named(attack_scores.attack).task.name()
    }
