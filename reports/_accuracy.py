"""Tables and figures of target accuracy by domain, seed and round, and of one attack's lead in the same trainings."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.accuracy import RETURNED, RULES, Accuracy, accuracies, several_trainings
from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question
from fdgpriv.results.run import Run
from fdgpriv.statistics.measured import Measured

from ._advice import scores
from ._arms import Arm, arms
from ._figures import Drawing, Series, lines
from ._numbers import interval, measured, plain, pooled, share
from ._numbers import number as decimal
from ._tables import Cell, Section, Table, count, number, text
from ._words import artifact, asked_of, defense, joined, metric, role, spoken

_RULES = ("last round", "best source accuracy", "mean of the last five")


@dataclass(frozen=True)
class Benchmark:
    """The attack by whose lead arms are compared: that of the strongest leak without a defense."""

    attack: str
    artifact: str
    role: str
    scope: str
    headline: str

    def lead(self, arm: Arm) -> Measured | None:
        """Over its best control, pooled over the runs of this arm."""
        rows = [a for run in arm.runs for a in run.attacks if self.scope in a.leakage and a.headline == self.headline]
        own = (self.attack, self.artifact, self.role)
        return pooled([a.leakage[self.scope].lead for a in rows if (a.attack, a.artifact, a.threat.role) == own])


def benchmark(runs: Sequence[Run]) -> Benchmark | None:
    """Of the questions without a defense (of all, where every run has one) that with the largest lead that matters."""
    asked = [(run.defense != "none", q, q.strongest) for run in runs for q in run.questions if q.strongest]
    if not asked:
        return None
    found = min(asked, key=lambda e: (e[0], e[1].verdict != "leak", -_lead(e[1])))
    _, question, one = found
    return Benchmark(one.attack, asked_of(question), question.adversary, question.scope, one.metric)


def _lead(question: Question) -> float:
    """The strongest attack's lead in relevant effects."""
    lead = question.lead.value if question.lead else None
    return (lead or 0.0) / (question.relevant or 1.0)


def worth(runs: Sequence[Run]) -> Section:
    """Utility and one attack's lead, a row for each arm."""
    mark = benchmark(runs)
    said = []
    if {run.defense for run in runs} <= {"none"}:
        said.append("No defense was run, so this report says nothing about what protection would cost.")
    if mark is not None:
        name = f"{spoken(mark.attack)} by {role(mark.role)} on {artifact(mark.artifact)}"
        said.append(f"Leakage here is the lead of {name} over its best control, in {metric(mark.headline)}; 0 is none.")
    body = []
    for score in scores(runs):
        arm = score.arm
        found = [run.utility for run in arm.runs]
        target, source, error = (
            pooled([getattr(one, field) if one else None for one in found])
            for field in ("target_accuracy", "source_accuracy", "calibration_error")
        )
        lead = mark.lead(arm) if mark else None
        epsilon = arm.runs[0].privacy.epsilon_proved
        attacked = (number(measured(lead)), count(f"{score.leaks} of {score.asked}")) if mark else ()
        accuracy = (number(share(target)), number(share(source)), number(measured(error)))
        proved = count("none" if epsilon is None else plain(epsilon))
        body.append((text(arm.name), count(str(len(arm.runs))), *accuracy, *attacked, proved))
    leaks = ("Lead over the best control", "Leaks") if mark else ()
    heads = ("", "Runs", "Target accuracy", "Source accuracy", "Calibration error", *leaks, "Proved ε")
    return Section("", Table(heads, tuple(body)), tuple(said))


def over_rounds(runs: Sequence[Run]) -> tuple[Drawing, ...]:
    """Accuracy after each round: one figure for each method and target, of its first seed, with all its defenses."""
    groups: dict[tuple[str, str | None], list[Run]] = {}
    for run in runs:
        if run.utility and run.utility.rounds:
            groups.setdefault((run.method, run.target), []).append(run)
    found = []
    for i, ((method, target), group) in enumerate(groups.items()):
        first = [run for run in group if run.seed == group[0].seed]
        places = sorted({at.round for run in first if run.utility for at in run.utility.rounds})
        series = []
        for run in first:
            known = {at.round: at for at in run.utility.rounds} if run.utility else {}
            more = f", {defense(run.defense)}" if len(first) > 1 else ""
            for name in ("target", "source"):
                values = tuple(getattr(known.get(at), f"{name}_accuracy", None) for at in places)
                series.append(Series(name + more, values))
        caption = f"Accuracy after each round: {method}, target {target}, seed {group[0].seed}"
        last = joined([f"{one.name} {one.values[-1]:.3f}" for one in series if one.values[-1] is not None])
        step = max(1, -(-len(places) // 8))
        ticks = [str(at) if k % step == 0 else " " for k, at in enumerate(places)]
        found.append(lines(f"rounds-{i}", caption, f"{caption}; at last {last}", "round", "accuracy", ticks, series))
    return tuple(found)


def each_run(runs: Sequence[Run]) -> tuple[Section, ...]:
    """Accuracies of each run in lines, with what diverged."""
    sections = []
    for arm in arms(runs):
        said = []
        for run in arm.runs:
            where = f"target {run.target}, seed {run.seed}" if run.target else f"seed {run.seed}"
            one = run.utility
            if one is None:
                said.append(f"{where}: {run.ended or 'no accuracy was measured'}")
                continue
            told = f"source {share(one.source_accuracy)}, target {share(one.target_accuracy)}"
            said.append(f"{where}: {told}, calibration error {measured(one.calibration_error)}")
            if own := one.personal:
                told = f"source {share(own.source_accuracy)}, target {share(own.target_accuracy)}"
                said.append(f"{where}, each client with its own model: {told} (mean of {len(own.clients)} models)")
            said += [f"{where}, round {entry.round}: {entry.reason}" for entry in one.rounds if entry.reason]
        sections.append(Section(arm.name, lines=tuple(said)))
    return tuple(sections)


def over_trainings(results: Results) -> tuple[Section, ...]:
    """The tables, and what is missing from them; none for a single training."""
    if not several_trainings(results) or not (rows := accuracies(results)):
        return ()
    said = [
        "Each mean is over the targets of a seed, then over the seeds that have every target. Square brackets are 95% t "
        "intervals over seeds, each of which is a training of its own. A target's column is the mean over its seeds."
    ]
    said += [f"Missing for {_name(row)}: {'; '.join(row.missing)}." for row in rows if row.missing]
    heads = ("Method", "Seeds", "Target accuracy", *(f"Target {name}" for name in rows[0].by_target), "Source accuracy")
    first = Section("", Table(heads, tuple(_cells(row) for row in rows)), lines=tuple(said))
    return (first, *_by_rule(rows))


def _by_rule(rows: Sequence[Accuracy]) -> tuple[Section, ...]:
    """Target accuracy by which round's model counts, with the difference from FedAvg; none where no round was evaluated."""
    if not any(row.by_rule for row in rows):
        return ()
    said = [
        "Some methods return the last round's model, others one that they select. The other columns hold one rule for all "
        "methods: the model after the last round; that of the round with the best accuracy on the sources' held-out images "
        "(the earliest of several); the mean over the last five evaluated rounds. Methods compare within a column."
    ]
    bases = list(dict.fromkeys(row.base for row in rows if row.base))
    said += [
        f"After each figure comes its difference from {base} by the same rule, in points: the mean over pairs of target and "
        "seed, with the 95% t interval over seeds."
        for base in bases
    ]
    said += [f"No difference from FedAvg: {row.unmatched}." for row in rows if row.unmatched]
    heads = ("Method", "Target accuracy, returned", *(f"Target accuracy, {rule}" for rule in _RULES))
    body = tuple((_title(row), *(_cell(row, rule) for rule in (RETURNED, *RULES))) for row in rows)
    return (Section("By the round whose model counts", Table(heads, body), lines=tuple(said)),)


def _cell(row: Accuracy, rule: str) -> Cell:
    figure = row.target if rule == RETURNED else row.by_rule.get(rule)
    return number(share(figure), _points(row.leads.get(rule), row.target.n or 0))


def _points(lead: Measured | None, seeds: int) -> str:
    if lead is None or lead.value is None:
        return ""
    sign = "+" if lead.value > 0 else ""
    ends = "" if lead.ci95 is None else f" {interval((100 * lead.ci95[0], 100 * lead.ci95[1]), 1)}"
    few = _of(lead.n or 0, seeds)
    return f"{sign}{decimal(100 * lead.value, 1)}{ends}" + (f", {few}" if few else "")


def _title(row: Accuracy) -> Cell:
    return text(f"{row.method}, {defense(row.defense)}", row.model)


def _name(row: Accuracy) -> str:
    return f"{row.method}, {defense(row.defense)}" + (f", {row.model}" if row.model else "")


def _cells(row: Accuracy) -> tuple[Cell, ...]:
    seeds = row.target.n or 0
    return (
        _title(row),
        count(str(seeds), f"{len(row.left_out)} left out" if row.left_out else ""),
        number(share(row.target), (row.target.reason or "") if row.target.value is not None else ""),
        *(number(share(figure), _of(figure.n or 0, seeds)) for figure in row.by_target.values()),
        number(share(row.source)),
    )


def _of(n: int, seeds: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}" if n not in (0, seeds) else ""
