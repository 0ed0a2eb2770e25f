"""Tables and figures of accuracy by domain, seed and round, with the lead of one attack in the same trainings."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.accuracy import RETURNED, RULES, Accuracy, accuracies, is_averaged
from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question
from fdgpriv.results.run import Run
from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.defaults import BASELINE

from ._arms import Arm, arm_answers, arms
from ._figures import Drawing, Series, line_chart
from ._numbers import in_points, measured, plain, pooled, share
from ._tables import Section, Table, TableCell, count_cell, number_cell, text_cell
from ._words import artifact, artifact_of, defense, guaranteed, joined, metric, role, spoken

RECOMPUTED = "BatchNorm statistics were recomputed on the target's unlabelled images"
_RULES = ("last round", "best source accuracy", "mean of the last five")


@dataclass(frozen=True)
class ReferenceAttack:
    """The attack whose lead is compared between arms: that of the strongest leak without a defense."""

    attack: str
    artifact: str
    role: str
    scope: str
    metric: str

    def lead(self, arm: Arm) -> Measured | None:
        """The lead over its best control, pooled over the runs of the arm; None if not evaluated there."""
        key = (self.attack, self.artifact, self.role, self.metric)
        return pooled(
            [
                attack.leakage[self.scope].lead
                for run in arm.runs
                for attack in run.attacks
                if (attack.attack, attack.artifact, attack.threat.role, attack.headline) == key
                and self.scope in attack.leakage
            ]
        )


def reference_attack(runs: Sequence[Run]) -> ReferenceAttack | None:
    """The strongest attack of the question with the largest relevant lead, without a defense if a run has none."""
    tested = [(run.defense != "none", q, q.strongest) for run in runs for q in run.questions if q.strongest]
    if not tested:
        return None
    _, question, attack = min(
        tested, key=lambda entry: (entry[0], entry[1].verdict != "leak", -_relative_lead(entry[1]))
    )
    return ReferenceAttack(attack.attack, artifact_of(question), question.adversary, question.scope, attack.metric)


def _relative_lead(question: Question) -> float:
    """The strongest attack's lead in multiples of the least that matters."""
    lead = question.lead.value if question.lead else None
    return (lead or 0.0) / (question.relevant or 1.0)


def utility_and_leakage(runs: Sequence[Run]) -> Section:
    """Utility and the lead of the reference attack, a row for each arm."""
    reference = reference_attack(runs)
    lines = []
    if {run.defense for run in runs} <= {"none"}:
        lines.append("No defense was run, so this report says nothing about what protection would cost.")
    if reference is not None:
        name = f"{spoken(reference.attack)} by {role(reference.role)} on {artifact(reference.artifact)}"
        unit = metric(reference.metric)
        lines.append(f"Leakage here is the lead of {name} over its best control, in {unit}; 0 is none.")
    rows = []
    for answers in arm_answers(runs):
        arm = answers.arm
        target, source, error = (
            pooled([getattr(run.utility, field) if run.utility else None for run in arm.runs])
            for field in ("target_accuracy", "source_accuracy", "calibration_error")
        )
        leakage: tuple[TableCell, ...] = ()
        if reference:
            leaks = count_cell(f"{answers.tally.leaks} of {answers.tally.asked}")
            leakage = (number_cell(measured(reference.lead(arm))), leaks)
        accuracy = (number_cell(share(target)), number_cell(share(source)), number_cell(measured(error)))
        privacy = arm.runs[0].privacy
        about = (f"δ {plain(privacy.delta)}", *guaranteed(privacy.unit, privacy.not_covered))
        proved = count_cell("none")
        if privacy.epsilon_proved is not None:
            proved = count_cell(plain(privacy.epsilon_proved), "\n".join(phrase for phrase in about if phrase))
        rows.append((text_cell(arm.name), count_cell(str(len(arm.runs))), *accuracy, *leakage, proved))
    leakage_headings = ("Lead over the best control", "Leaks") if reference else ()
    headings = ("", "Runs", "Target accuracy", "Source accuracy", "Calibration error", *leakage_headings, "Proved ε")
    return Section("", Table(headings, tuple(rows)), tuple(lines))


def accuracy_charts(runs: Sequence[Run]) -> tuple[Drawing, ...]:
    """Accuracy after each round: a chart for each method and target, of the first seed, with all defenses."""
    groups: dict[tuple[str, str | None], list[Run]] = {}
    for run in runs:
        if run.utility and run.utility.rounds:
            groups.setdefault((run.method, run.target), []).append(run)
    first_seeds = ([run for run in group if run.seed == group[0].seed] for group in groups.values())
    return tuple(_accuracy_chart(f"rounds-{i}", group) for i, group in enumerate(first_seeds))


def _accuracy_chart(name: str, runs: Sequence[Run]) -> Drawing:
    """Accuracy after each round of the runs of one method, target and seed: two lines for each defense."""
    rounds = sorted({entry.round for run in runs if run.utility for entry in run.utility.rounds})
    lines = []
    for run in runs:
        by_round = {entry.round: entry for entry in run.utility.rounds} if run.utility else {}
        suffix = f", {defense(run.defense)}" if len(runs) > 1 else ""
        for domains in ("target", "source"):
            values = tuple(getattr(by_round.get(round), f"{domains}_accuracy", None) for round in rounds)
            lines.append(Series(domains + suffix, values))
    caption = f"Accuracy after each round: {runs[0].method}, target {runs[0].target}, seed {runs[0].seed}"
    last = joined([f"{line.name} {line.values[-1]:.3f}" for line in lines if line.values[-1] is not None])
    step = max(1, -(-len(rounds) // 8))
    ticks = [str(round) if k % step == 0 else " " for k, round in enumerate(rounds)]
    return line_chart(name, caption, f"{caption}; at last {last}", "round", "accuracy", ticks, lines)


def accuracy_of_runs(runs: Sequence[Run]) -> tuple[Section, ...]:
    """A section per arm: a line for each run, and for each round that diverged."""
    sections = []
    for arm in arms(runs):
        lines = []
        for run in arm.runs:
            training = f"target {run.target}, seed {run.seed}" if run.target else f"seed {run.seed}"
            utility = run.utility
            if utility is None:
                lines.append(f"{training}: {run.ended or 'no accuracy was measured'}")
                continue
            shares = f"source {share(utility.source_accuracy)}, target {share(utility.target_accuracy)}"
            lines.append(f"{training}: {shares}, calibration error {measured(utility.calibration_error)}")
            if utility.recomputed_statistics:
                lines.append(f"{training}: {RECOMPUTED}")
            if utility.adapted_accuracy is not None:
                lines.append(f"{training}, adapted at test time: target {share(utility.adapted_accuracy)}")
            if personal := utility.personal:
                shares = f"source {share(personal.source_accuracy)}, target {share(personal.target_accuracy)}"
                models = f"mean of {len(personal.clients)} models"
                lines.append(f"{training}, each client with its own model: {shares} ({models})")
            lines += [f"{training}, round {entry.round}: {entry.reason}" for entry in utility.rounds if entry.reason]
        sections.append(Section(arm.name, lines=tuple(lines)))
    return tuple(sections)


def accuracy_over_trainings(results: Results, baseline: str = BASELINE) -> tuple[Section, ...]:
    """Tables of mean accuracy over targets and seeds, with the missing trainings; empty for a single training."""
    if not is_averaged(results) or not (rows := accuracies(results, baseline)):
        return ()
    lines = [
        "Each mean is over the targets of a seed, then over the seeds that have every target. Square brackets are 95% t "
        "intervals over seeds, each of which is a training of its own. A target's column is the mean over its seeds."
    ]
    if recomputed := [_model_name(row) for row in rows if row.recomputed_statistics]:
        lines.append(
            f"{joined(recomputed)}: {RECOMPUTED}. This adapts the model to the target domain, which the other rows do "
            "not: the differences between them are not the methods' alone."
        )
    lines += [f"Missing for {_model_name(row)}: {'; '.join(row.missing)}." for row in rows if row.missing]
    targets = (f"Target {name}" for name in rows[0].by_target)
    headings = ("Method", "Seeds", "Target accuracy", *targets, "Source accuracy")
    means = Section("", Table(headings, tuple(_means(row) for row in rows)), lines=tuple(lines))
    return (means, *_accuracy_by_rule(rows))


def _accuracy_by_rule(rows: Sequence[Accuracy]) -> tuple[Section, ...]:
    """Target accuracy by the rule that selects the round's model, minus the baseline's; empty if no round was evaluated."""
    if not any(row.by_rule for row in rows):
        return ()
    lines = [
        "Some methods return the last round's model, others one that they select. The other columns hold one rule for all "
        "methods: the model after the last round; that of the round with the best accuracy on the sources' held-out images "
        "(the earliest of several); the mean over the last five evaluated rounds. Methods compare within a column."
    ]
    bases = list(dict.fromkeys(row.base for row in rows if row.base))
    lines += [
        f"After each figure comes its difference from {base} by the same rule, in points: the mean over pairs of target and "
        "seed, with the 95% t interval over seeds."
        for base in bases
    ]
    lines += [f"No difference from the baseline: {row.unmatched}." for row in rows if row.unmatched]
    headings = ("Method", "Target accuracy, returned", *(f"Target accuracy, {rule}" for rule in _RULES))
    cells = tuple((_model_cell(row), *(_rule_cell(row, rule) for rule in (RETURNED, *RULES))) for row in rows)
    return (Section("By the round whose model counts", Table(headings, cells), lines=tuple(lines)),)


def _rule_cell(row: Accuracy, rule: str) -> TableCell:
    figure = row.target if rule == RETURNED else row.by_rule.get(rule)
    return number_cell(share(figure), difference(row.leads.get(rule), row.target.n or 0))


def difference(lead: Measured | None, n_seeds: int) -> str:
    """A difference of accuracies in points, with the number of its seeds if some are missing."""
    if lead is None or lead.value is None:
        return ""
    seeds = _seeds_if_fewer(lead.n or 0, n_seeds)
    return in_points(lead) + (f", {seeds}" if seeds else "")


def _model_cell(row: Accuracy) -> TableCell:
    return text_cell(f"{row.method}, {defense(row.defense)}", row.model)


def _model_name(row: Accuracy) -> str:
    return f"{row.method}, {defense(row.defense)}" + (f", {row.model}" if row.model else "")


def _means(row: Accuracy) -> tuple[TableCell, ...]:
    n_seeds = row.target.n or 0
    return (
        _model_cell(row),
        count_cell(str(n_seeds), f"{len(row.left_out)} left out" if row.left_out else ""),
        number_cell(share(row.target), (row.target.reason or "") if row.target.value is not None else ""),
        *(number_cell(share(figure), _seeds_if_fewer(figure.n or 0, n_seeds)) for figure in row.by_target.values()),
        number_cell(share(row.source)),
    )


def _seeds_if_fewer(n: int, n_seeds: int) -> str:
    """The number of seeds if it is neither 0 nor that of the row."""
    return f"{n} seed{'' if n == 1 else 's'}" if n not in (0, n_seeds) else ""
