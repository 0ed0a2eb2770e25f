"""The content of a report in words, tables and drawings, in reading order; each format only typesets it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.attack_finding import AttackFinding, CurvePoint
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import GRADES, Grade

from ._accuracy import accuracy_charts, accuracy_of_runs, accuracy_over_trainings, utility_and_leakage
from ._advice import Step, advice, sentence
from ._arms import Arm, ArmAnswers, arm_answers, arms
from ._caveats import Caveats, caveats
from ._evidence import AttackFigures, QuestionEvidence, attack_figures, question_evidence
from ._figures import Drawing, Series, line_chart
from ._frontier import frontier
from ._links import Anchors
from ._matrix import MAX_WORDS, matrix
from ._numbers import percent, plain, pooled
from ._reconstructions import Reconstruction, reconstructions
from ._tables import (
    Section,
    Table,
    TableCell,
    claims,
    count_cell,
    grouped,
    images,
    ledger,
    networks,
    pictures,
    privacy,
    settings,
    text_cell,
)
from ._words import SECRETS, VERDICTS, artifact, defense, joined, metric, role, spoken, title, unique

MAX_LINES = 5  # in one chart, that a reader can still tell apart


@dataclass(frozen=True)
class RunEvidence:
    """The evidence of one run: its questions, its attacks in figures, and the attacks that do not apply."""

    title: str
    questions: tuple[QuestionEvidence, ...]
    attacks: tuple[AttackFigures, ...]
    not_applicable: Table


@dataclass(frozen=True)
class ReportContent:
    """Everything that a report shows; the fields before `ledgers` are on the first screen."""

    title: str
    subtitle: str
    caveats: Caveats | None
    verdict: str
    grade: Grade | None
    sentence: str
    answers: Table | None
    matrix: tuple[Section, ...]
    reconstructions: tuple[Reconstruction, ...]
    curves: tuple[Drawing, ...]
    advice: tuple[Step, ...]
    frontier: tuple[Section, ...]
    frontier_drawings: tuple[Drawing, ...]
    ledgers: tuple[Section, ...]
    evidence: tuple[RunEvidence, ...]
    pictures: tuple[Section, ...]
    claims: tuple[Section, ...]
    accuracy_over_trainings: tuple[Section, ...]
    utility: Section
    accuracy_of_runs: tuple[Section, ...]
    accuracy_charts: tuple[Drawing, ...]
    privacy: Table
    not_measured: tuple[Section, ...]
    dataset: str
    about_dataset: str
    limitations: str
    images: tuple[Section, ...]
    config: Table
    environment: Table
    timing: str
    command: str


def report_content(results: Results) -> ReportContent:
    """The content of the report on these results."""
    runs, timing, dataset = results.runs, results.timing, results.dataset
    methods, targets = unique(run.method for run in runs), unique(run.target or "" for run in runs)
    on_targets = f", target {joined(targets)}" if any(targets) else ""
    seeds = unique(str(run.seed) for run in runs)
    defenses = joined(unique(defense(run.defense) for run in runs)) or "nothing finished"
    answers = arm_answers(runs)
    sections, drawings = frontier(results)
    frontier_words = sum(section.table.word_count() for section in sections if section.table)
    anchors = Anchors(runs)
    with_pictures = [arm.runs[0] for arm in arms(runs)]
    verdicts = ("leak", "inconclusive", "no_leak_found", "sent_in_clear", "not_attacked")
    return ReportContent(
        title=f"{joined(methods) or 'No run'} on {dataset.name}{on_targets}",
        subtitle=f"fdgpriv {results.fdgpriv} · {defenses} · seed{'' if len(seeds) == 1 else 's'} {joined(seeds) or '–'}",
        caveats=caveats(results),
        verdict=min((arm.verdict for arm in answers), key=verdicts.index, default="not_attacked"),
        grade=max((arm.grade for arm in answers if arm.grade), key=GRADES.index, default=None),
        sentence=sentence(results),
        answers=_answers(answers) if not sections else None,
        matrix=tuple(
            sorted(matrix(runs, MAX_WORDS - frontier_words), key=lambda section: section.title != "")
        ),  # notes first
        reconstructions=reconstructions(runs),
        curves=curves(runs),
        advice=advice(results),
        frontier=sections,
        frontier_drawings=drawings,
        ledgers=grouped(runs, lambda run: Section("", ledger(run.artifacts)) if run.artifacts else None),
        evidence=tuple(_run_evidence(run, anchors, run in with_pictures) for run in runs if run.attacks),
        pictures=grouped(runs, pictures),
        claims=grouped(runs, lambda run: Section("", claims(run.claims)) if run.claims else None),
        accuracy_over_trainings=accuracy_over_trainings(results),
        utility=utility_and_leakage(runs),
        accuracy_of_runs=accuracy_of_runs(runs),
        accuracy_charts=accuracy_charts(runs),
        privacy=privacy(runs),
        not_measured=grouped(runs, lambda run: Section("", lines=run.not_measured) if run.not_measured else None),
        dataset=dataset.name,
        about_dataset=dataset.about,
        limitations=dataset.limitations,
        images=(*grouped(runs, images), *networks(results.config)),
        config=settings(results.config),
        environment=settings(results.environment),
        timing=f"{plain(timing.total_s, ' s')} in all, {plain(timing.train_s, ' s')} training, "
        f"{plain(timing.attack_s, ' s')} attacking; peak memory {plain(timing.peak_rss_mb, ' MB')}",
        command=results.command or "",
    )


def curves(runs: Sequence[Run]) -> tuple[Drawing, ...]:
    """Leakage by number of images: one chart per secret, of the attack with the largest lead."""
    with_curve = [attack for run in runs for attack in run.attacks if attack.shared and len(attack.curve) > 2]
    charts = []
    for secret in SECRETS:
        attacks = [attack for attack in with_curve if attack.secret == secret]
        if attacks:
            strongest = max(attacks, key=lambda a: (any(test.marked for test in a.leakage.values()), _first_lead(a)))
            charts.append(_curve_chart(strongest, arms(runs)))
    return tuple(charts)


def _first_lead(attack: AttackFinding) -> float:
    """The lead over the best control with the fewest images, in multiples of the least that matters."""
    point = attack.curve[0]
    relevant = attack.main.relevant if attack.main else None
    return abs((point.value.value or 0.0) - (_best_control(attack, point) or 0.0)) / (relevant or 1.0)


def _best_control(attack: AttackFinding, point: CurvePoint) -> float | None:
    """The best of the controls of the test that leaks, or of the main test; of all controls if none of these is here."""
    test = next((test for test in attack.leakage.values() if test.marked), attack.main)
    names = set(test.against if test else ()) & set(point.controls) or set(point.controls)
    values = [value for name in names if (value := point.controls[name].value) is not None]
    return (min if point.value.direction == "lower_leaks" else max)(values, default=None)


def _curve_chart(attack: AttackFinding, all_arms: Sequence[Arm]) -> Drawing:
    """The attack's metric by the number of images in every arm, with its best control."""
    sizes = [point.images for point in attack.curve]
    lines = []
    for arm in all_arms:
        name = arm.name if len(all_arms) > 1 else spoken(attack.attack)
        if line := _arm_curve(name, arm, attack):
            lines.append(line)
    omitted = f" Drawn are {MAX_LINES} of {len(lines)}." if len(lines) > MAX_LINES else ""
    control = Series("best control", tuple(_best_control(attack, point) for point in attack.curve), control=True)
    lines = [*lines[:MAX_LINES], control]
    ticks = ["all" if images is None else str(images) for images in sizes]
    lower = "; lower leaks" if attack.curve[0].value.direction == "lower_leaks" else ""
    attacker = f"{spoken(attack.attack)} by {role(attack.threat.role)} on {artifact(attack.artifact)}"
    values_in_words = [
        f"{line.name}: "
        + ", ".join(f"{value:.3g} at {n}" for n, value in zip(ticks, line.values, strict=True) if value is not None)
        for line in lines
    ]
    return line_chart(
        name=f"curve-{attack.secret}",
        caption=f"{SECRETS[attack.secret]} ({attacker}{lower}){omitted}",
        alt=f"{metric(attack.headline)} by number of images. {'; '.join(values_in_words)}",
        x_label="images behind the artifact",
        y_label=metric(attack.headline),
        ticks=ticks,
        series=lines,
        title=SECRETS[attack.secret],
    )


def _arm_curve(name: str, arm: Arm, attack: AttackFinding) -> Series | None:
    """The metric of this attack in an arm, over its runs, by the number of images; None if it was not measured there."""
    same = [other for run in arm.runs for other in run.attacks if _same_attack(other, attack)]
    points = [point for other in same for point in other.curve]
    figures = [pooled([p.value for p in points if p.images == at.images]) for at in attack.curve]
    if not any(figure and figure.value is not None for figure in figures):
        return None
    values = tuple(figure.value if figure else None for figure in figures)
    return Series(name, values, tuple(figure.ci95 if figure else None for figure in figures))


def _same_attack(attack: AttackFinding, other: AttackFinding) -> bool:
    """Whether both are the same attack on the same artifact by the same adversary."""
    return (attack.attack, attack.task, attack.artifact, attack.threat.role) == (
        other.attack,
        other.task,
        other.artifact,
        other.threat.role,
    )


def _answers(answers: Sequence[ArmAnswers]) -> Table | None:
    """The number of questions by verdict, a row for each arm; None for a single arm, or if nothing was asked."""
    if len(answers) < 2 or not any(arm.tally.asked for arm in answers):
        return None
    headings = ("Compared", "Leaks", "No leak found", "Inconclusive", "Unseen-domain accuracy")

    def row(arm: ArmAnswers) -> tuple[TableCell, ...]:
        return (
            text_cell(arm.arm.name, "" if arm.tally.asked else VERDICTS[arm.verdict]),
            count_cell(str(arm.tally.leaks), arm.tally.leaks_by_grade),
            count_cell(str(arm.tally.no_leak_found)),
            count_cell(str(arm.tally.inconclusive)),
            count_cell("–" if arm.accuracy is None else percent(arm.accuracy, 1)),
        )

    return Table(headings, tuple(row(arm) for arm in answers))


def _run_evidence(run: Run, anchors: Anchors, with_pictures: bool) -> RunEvidence:
    headings = ("Attack", "Would read", "Adversary", "Why it does not apply")
    rows = tuple(
        (
            text_cell(spoken(attack.attack)),
            text_cell(artifact(attack.artifact)),
            text_cell(role(attack.threat.role)),
            text_cell(attack.reason or "–"),
        )
        for attack in run.attacks
        if not attack.leakage and not attack.metrics
    )
    not_applicable = Table(headings, rows)
    return RunEvidence(
        title(run), question_evidence(run, anchors), attack_figures(run, anchors, with_pictures), not_applicable
    )
