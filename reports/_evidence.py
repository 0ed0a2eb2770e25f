"""The evidence on each question: its test and resolution, its attacks and their controls, every figure of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fdgpriv.results.attack_finding import AttackFinding, Leakage, RoundsPoint, Units
from fdgpriv.results.question import Question, worst_first
from fdgpriv.results.run import Run
from fdgpriv.statistics.grades import Grade
from fdgpriv.statistics.measured import Measured

from ._bars import LeadBar, pooled_in_effects
from ._effects import amount, bound_in_words, clients_in_words, effect_in_words, pooled_effect
from ._links import Anchors
from ._numbers import decimals, measured, p_value, percent, plain, quantity
from ._tables import Picture, Table, TableCell, count_cell, number_cell, text_cell, verdict_cell
from ._words import (
    SECRETS,
    VERDICTS,
    artifact,
    artifact_of,
    auxiliary,
    capabilities,
    joined,
    metric,
    role,
    scope,
    spoken,
    upper,
)

NamedFacts = tuple[tuple[str, str], ...]  # pairs of a name and a phrase


@dataclass(frozen=True)
class QuestionEvidence:
    """One question of one run.

    Attributes:
        verdict, grade: Its verdict and that of a leak's grade, which colour it.
        title: The question in words.
        facts: Its effect, test, resolution and reason.
        attacks: Its attacks with their tests.
        bar: The lead that the verdict rests on; None if nothing was tested.
        anchor: Its own anchor on the page.
        cell: The anchor of its cell in the matrix.
    """

    verdict: str
    grade: Grade | None
    title: str
    facts: NamedFacts
    attacks: Table
    bar: LeadBar | None
    anchor: str
    cell: str


@dataclass(frozen=True)
class AttackFigures:
    """One attack of one run in figures: its adversary and settings, all metrics, curves and pictures.

    `anchor` is its own on the page, `question` that of the first question it is asked; empty if that is none.
    """

    anchor: str
    question: str
    title: str
    facts: NamedFacts
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]


def question_evidence(run: Run, anchors: Anchors) -> tuple[QuestionEvidence, ...]:
    """The evidence on each question of the run: leaks by grade, then by lead in effects that matter, the others after."""
    return tuple(_question_evidence(run, question, anchors) for question in sorted(run.questions, key=worst_first))


def _question_evidence(run: Run, question: Question, anchors: Anchors) -> QuestionEvidence:
    effect = pooled_effect([(run, question)])
    strongest = question.strongest
    attacks = [run.attacks[i] for i in question.attacks]
    attack = next((a for a in attacks if strongest and a.attack == strongest.attack), None)
    holm = "; beyond doubt: Holm's correction is passed too" if question.beyond_doubt else ""
    tested = f"p {p_value(question.p)}, corrected over all questions q {p_value(question.q)}, Holm {p_value(question.p_holm)}"
    facts = (
        ("Effect", upper(effect_in_words(effect)) if effect else ""),
        ("Strongest attack", spoken(strongest.attack) if strongest else ""),
        ("Not knowing the defense", _unaware(attack) if attack else ""),
        ("What would decide it" if question.verdict == "inconclusive" else "Why", upper(question.reason)),
        ("Test", tested + holm if question.p is not None else ""),
        ("Units", _units_in_words(attack.units) if attack and attack.units else ""),
        ("Resolution", _resolution(question, strongest.metric if strongest else "")),
        ("Grade", upper(question.graded) if question.grade else ""),
        ("Of what is achievable", _achievable(question)),
        ("Excluded", upper(bound_in_words(effect)) if effect and question.verdict == "no_leak_found" else ""),
        ("Recovered exactly", measured(question.recovered) if question.recovered else ""),
    )
    about = f" ({scope(question)})" if scope(question) else ""
    adversaries = joined([role(name) for name in question.adversaries])
    return QuestionEvidence(
        verdict=question.verdict,
        grade=question.grade,
        title=f"{upper(adversaries)} on {artifact(artifact_of(question))}: {SECRETS[question.secret]}{about}",
        facts=tuple(fact for fact in facts if fact[1]),
        attacks=_attack_tests(run, attacks, question.scope, anchors),
        bar=LeadBar.of(pooled_in_effects([question])),
        anchor=anchors.question(run, question),
        cell=anchors.cell(run, question.adversary, artifact_of(question), question.secret),
    )


def _unaware(attack: AttackFinding) -> str:
    """The figure of the same attack by an adversary that does not know the defense; empty if not measured."""
    unaware = attack.unaware
    if unaware is None:
        return ""
    return f"{metric(attack.headline)} {measured(unaware.value)}; knowing it adds {measured(unaware.difference)}"


def _achievable(question: Question) -> str:
    """The lead of the strongest attack as a share of a perfect one's; empty if unknown."""
    share = question.share_of_achievable
    return f"{percent(share)} of the way from the best control to a perfect attack" if share else ""


def _resolution(question: Question, metric_name: str) -> str:
    """The smallest lead that the test detects, next to the least that matters; empty if not tested.

    Also empty if it is 0: then an attack that answers as its control does has no variance.
    """
    if not question.resolution or question.relevant is None:
        return ""
    detectable, relevant = amount(metric_name, question.resolution), amount(metric_name, question.relevant)
    return f"a true lead of {detectable} would be found in 80% of repeats; {relevant} matters"


def _attack_tests(run: Run, attacks: Sequence[AttackFinding], scope_name: str, anchors: Anchors) -> Table:
    """The test of each attack in one scope, one row each, with its best control."""
    headings = (
        "Attack",
        "Its figure",
        "Best control",
        "Lead",
        "p",
        "Alone",
        "Where it must succeed",
        "Planted leak found",
    )
    rows = (_attack_test(a, a.leakage.get(scope_name), anchors.attack(run, a)) for a in attacks)
    return Table(headings, tuple(rows))


def _attack_test(attack: AttackFinding, test: Leakage | None, link: str) -> tuple[TableCell, ...]:
    figure = attack.metrics.get(attack.headline)
    name = test.control if test else None
    control = attack.controls.get(name, {}).get(attack.headline) if name else None
    places = decimals([shown for shown in (figure, control) if shown is not None])
    positive = attack.positive_control
    succeeded = {True: "succeeds", False: "fails", None: "not decided"}[positive.succeeded] if positive else "–"
    notes = ("leaks on its own" if test and test.marked else "", _view_read(attack))
    return (
        TableCell(spoken(attack.attack), detail="; ".join(note for note in notes if note), link=link if figure else ""),
        number_cell(measured(figure, places), metric(attack.headline)),
        number_cell(measured(control, places), spoken(name or "")),
        number_cell(measured(test.lead if test else None)),
        count_cell(p_value(test.p if test else None)),
        verdict_cell(test.verdict, grade=test.grade) if test else text_cell("–", attack.reason or ""),
        text_cell(succeeded, measured(positive.value) if positive else ""),
        count_cell("–" if test is None or test.planted is None else f"{test.planted:.0%}"),
    )


def _view_read(attack: AttackFinding) -> str:
    """How many rounds and clients the attack read; empty if only the observed artifact."""
    view = attack.view
    if view is None or (view.rounds, view.clients) == (1, 1):
        return ""
    rounds = f"{view.rounds} round{'s' * (view.rounds > 1)}"
    return f"reads {rounds} of {view.clients} client{'s' * (view.clients > 1)}"


def attack_figures(run: Run, anchors: Anchors, with_pictures: bool) -> tuple[AttackFigures, ...]:
    """The figures of every attack that was evaluated, those on what crossed the wire first."""
    evaluated = sorted((a for a in run.attacks if a.leakage or a.metrics), key=lambda a: not a.shared)
    return tuple(_attack_figures(run, attack, anchors, with_pictures) for attack in evaluated)


def _attack_figures(run: Run, attack: AttackFinding, anchors: Anchors, with_pictures: bool) -> AttackFigures:
    threat, units, trust = attack.threat, attack.units, attack.trust.items()
    facts = (
        ("On the wire", "" if attack.shared else "no: a positive control, or what decides a paper's claim"),
        ("Adversary", f"{role(threat.role)}, holding {auxiliary(threat.auxiliary)}"),
        ("Knows and sees", capabilities(threat.capabilities)),
        (
            "Units",
            f"{_units_in_words(units)}; {attack.n} scored" if units else "",
        ),
        ("Apart", _federated_and_shadows(attack.apart)),
        ("Guessing", measured(attack.chance) if attack.chance else ""),
        ("Not knowing the defense", _unaware(attack)),
        ("Trust in the artifact", ", ".join(f"{plain(weight)} for {_images(size)}" for size, weight in trust)),
        *((f"Tested against, {name}", _tested_against(test)) for name, test in attack.leakage.items()),
        ("Note", attack.reason or ""),
        ("Pictures", "" if with_pictures else ", ".join(attack.figures)),
    )
    title = f"{spoken(attack.attack)} by {role(threat.role)} on {artifact(attack.artifact)}"
    caption = f"Truth, reconstruction and baselines: {title}"
    tables = (_metrics(attack), _curve(attack), _rounds(attack))
    asked = (q for q in run.questions if any(run.attacks[i] is attack for i in q.attacks))
    return AttackFigures(
        anchor=anchors.attack(run, attack),
        question=next((anchors.question(run, question) for question in asked), ""),
        title=upper(title) + ("" if attack.shared else " (not on the wire)"),
        facts=tuple(fact for fact in facts if fact[1]),
        tables=tuple(table for table in tables if table.rows),
        pictures=tuple(Picture(file, caption) for file in attack.figures if with_pictures),
    )


def _units_in_words(units: Units) -> str:
    """The units of a test, and the clients behind them, simulated ones apart."""
    if units.kind == "client":
        return clients_in_words(units)
    of = clients_in_words(units.model_copy(update={"n": (units.federated or 0) + (units.shadows or 0)}))
    return f"{quantity(units.n, units.kind)} of {of}" if units.federated is not None else quantity(units.n, units.kind)


def _images(size: str) -> str:
    """A number of images as results.json names it; earlier versions wrote ``1 images``."""
    return "1 image" if size == "1 images" else size


def _federated_and_shadows(figures: Mapping[str, Measured]) -> str:
    """The figures of federated and of shadow clients, with a note if their intervals do not overlap."""
    line = "; ".join(f"{name} {measured(figure)}" for name, figure in figures.items())
    ends = sorted(figure.ci95 for figure in figures.values() if figure.ci95 is not None)
    if any(lower[1] < higher[0] for lower, higher in pairwise(ends)):
        line += ". These intervals do not meet: what all of them show together need not hold for clients that train"
    return line


def _tested_against(test: Leakage) -> str:
    """The controls of a test, its verdict, and the share of the way to the upper bound."""
    names = joined([spoken(name) for name in test.against])
    line = f"{names}: {VERDICTS[test.verdict].lower()}" if test.against else ""
    if test.value is not None:
        ends = f" [{plain(test.ci95[0])}, {plain(test.ci95[1])}]" if test.ci95 else ""
        line += f"; {plain(test.value)}{ends} of the way from the best control to the upper bound"
    return "; ".join(part for part in (line, test.why or "") if part)


def _metrics(attack: AttackFinding) -> Table:
    """One column per metric, the headline first; one row for the attack, each control and each upper bound."""
    names = [attack.headline] if attack.headline in attack.metrics else []
    names += [name for name in attack.metrics if name != attack.headline]
    sources: list[tuple[str, Mapping[str, Measured]]] = [("the attack", attack.metrics)]
    sources += [(spoken(name), table) for name, table in attack.controls.items()]
    sources += [(f"{spoken(name)} (upper bound)", table) for name, table in attack.upper_bounds.items()]
    places = {
        name: decimals([figure for _, table in sources if (figure := table.get(name)) is not None]) for name in names
    }
    rows = tuple(
        (text_cell(label), *(number_cell(measured(table.get(name), places[name])) for name in names))
        for label, table in sources
    )
    return Table(("", *(_metric_heading(name, attack.metrics[name]) for name in names)), rows if names else ())


def _metric_heading(name: str, figure: Measured) -> str:
    direction = {"higher_leaks": ", higher leaks", "lower_leaks": ", lower leaks"}.get(figure.direction, "")
    return f"{metric(name)}{direction}" + (f", n {figure.n}" if figure.n else "")


def _curve(attack: AttackFinding) -> Table:
    """The headline metric by the number of images behind the artifact."""
    names = list(dict.fromkeys(name for point in attack.curve for name in point.controls))
    places = decimals([figure for point in attack.curve for figure in (point.value, *point.controls.values())])
    rows = tuple(
        (
            count_cell("all" if point.images is None else str(point.images)),
            count_cell(str(point.units)),
            number_cell(measured(point.value, places)),
            *(number_cell(measured(point.controls.get(name), places)) for name in names),
        )
        for point in attack.curve
    )
    headings = ("Images", "Units", spoken(attack.attack), *(spoken(name) for name in names))
    return Table(headings, rows, f"{metric(attack.headline)} by the number of images behind the artifact")


def _rounds(attack: AttackFinding) -> Table:
    """The headline metric from one and from several rounds of each client's artifacts."""
    places = decimals([figure for point in attack.rounds for figure in (point.value, point.rise) if figure])

    def row(point: RoundsPoint) -> tuple[TableCell, ...]:
        return (
            count_cell(str(point.rounds)),
            count_cell("all" if point.images is None else str(point.images)),
            count_cell(str(point.units)),
            number_cell(measured(point.value, places)),
            number_cell(measured(point.rise, places)),
            text_cell(p_value(point.p_rise)),
            verdict_cell(point.verdict, f"p {p_value(point.p)}") if point.verdict else text_cell("–"),
        )

    headings = ("Rounds", "Images", "Units", "Figure", "Over one round", "p, that it rises", "Against every control")
    note = f"{metric(attack.headline)} by rounds read together"
    return Table(headings, tuple(row(point) for point in attack.rounds), note)
