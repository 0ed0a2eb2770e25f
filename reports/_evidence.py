"""The evidence behind each question: its test and resolution, its attacks and their controls, every figure of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fdgpriv.results.attack_finding import AttackFinding, Leakage, RoundsPoint
from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run
from fdgpriv.statistics.measured import Measured

from ._effects import amount, bound, effect, of_questions
from ._numbers import decimals, measured, p_value, percent, plain
from ._tables import Cell, Picture, Table, count, number, text, verdict
from ._words import SECRETS, VERDICTS, artifact, asked_of, joined, metric, role, scope, spoken, upper

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Entry:
    """One question of one run: its verdict, the verdict in words (a leak's with its grade), what it asks, and its evidence."""

    word: str
    label: str
    title: str
    facts: Facts
    attacks: Table


@dataclass(frozen=True)
class Figures:
    """One attack of one run in figures: who, what is known, all its metrics, its curves, its pictures."""

    title: str
    facts: Facts
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]


def entries(run: Run) -> tuple[Entry, ...]:
    """One for each question of the run, leaks first."""
    told = sorted(run.questions, key=lambda question: WORST_FIRST.index(question.verdict))
    return tuple(_entry(run, question) for question in told)


def _entry(run: Run, question: Question) -> Entry:
    found = of_questions([(run, question)])
    name = question.strongest.metric if question.strongest else ""
    own = [run.attacks[i] for i in question.attacks]
    best = next((one for one in own if question.strongest and one.attack == question.strongest.attack), None)
    holm = "; beyond doubt: Holm's correction is passed too" if question.beyond_doubt else ""
    tested = f"p {p_value(question.p)}, corrected over all questions q {p_value(question.q)}, Holm {p_value(question.p_holm)}"
    facts = (
        ("Effect", upper(effect(found)) if found else ""),
        ("Strongest attack", spoken(question.strongest.attack) if question.strongest else ""),
        ("Not knowing the defense", _unaware(best) if best else ""),
        ("What would decide it" if question.verdict == "inconclusive" else "Why", upper(question.reason)),
        ("Test", tested + holm if question.p is not None else ""),
        ("Resolution", _resolution(question, name)),
        ("Grade", upper(question.graded) if question.grade else ""),
        ("Of what is achievable", _achievable(question)),
        ("Excluded", upper(bound(found)) if found and question.verdict == "no_leak_found" else ""),
        ("Recovered exactly", measured(question.recovered) if question.recovered else ""),
    )
    about = f" ({one})" if (one := scope(question)) else ""
    adversaries = joined([role(name) for name in question.adversaries])
    title = f"{upper(adversaries)} on {artifact(asked_of(question))}: {SECRETS[question.secret]}{about}"
    return Entry(
        question.verdict,
        upper(question.graded),
        title,
        tuple(fact for fact in facts if fact[1]),
        tests(own, question.scope),
    )


def _unaware(attack: AttackFinding) -> str:
    """The figure of the same attack by an adversary that does not know the defense; empty where there is none."""
    found = attack.unaware
    if found is None:
        return ""
    return f"{metric(attack.headline)} {measured(found.value)}; knowing it adds {measured(found.difference)}"


def _achievable(question: Question) -> str:
    """How far the strongest attack goes to a perfect one; empty where there is no perfect score or no lead."""
    share = question.share_of_achievable
    return f"{percent(share)} of the way from the best control to a perfect attack" if share else ""


def _resolution(question: Question, name: str) -> str:
    if question.resolution is None or question.relevant is None:
        return ""
    found, matters = amount(name, question.resolution), amount(name, question.relevant)
    return f"a true lead of {found} would be found in 80% of repeats; {matters} matters"


def tests(attacks: Sequence[AttackFinding], asked: str) -> Table:
    """What each attack's test in one scope found, with the control that it is held against."""
    heads = (
        "Attack",
        "Its figure",
        "Best control",
        "Lead",
        "p",
        "Alone",
        "Where it must succeed",
        "Planted leak found",
    )
    return Table(heads, tuple(_test(attack, attack.leakage.get(asked)) for attack in attacks))


def _test(attack: AttackFinding, test: Leakage | None) -> tuple[Cell, ...]:
    figure = attack.metrics.get(attack.headline)
    control = test.control if test else None
    beside = attack.controls.get(control, {}).get(attack.headline) if control else None
    places = decimals([one for one in (figure, beside) if one is not None])
    positive = attack.positive_control
    succeeded = {True: "succeeds", False: "fails", None: "not decided"}[positive.succeeded] if positive else "–"
    return (
        text(
            spoken(attack.attack),
            "; ".join(filter(None, ("leaks on its own" if test and test.marked else "", _read(attack)))),
        ),
        number(measured(figure, places), metric(attack.headline)),
        number(measured(beside, places), spoken(control or "")),
        number(measured(test.lead if test else None)),
        count(p_value(test.p if test else None)),
        verdict(test.verdict) if test else text("–", attack.reason or ""),
        text(succeeded, measured(positive.value) if positive else ""),
        count("–" if test is None or test.planted is None else f"{test.planted:.0%}"),
    )


def _read(attack: AttackFinding) -> str:
    """How much of its view the attack read; empty where that is the observed artifact alone."""
    view = attack.view
    if view is None or (view.rounds, view.clients) == (1, 1):
        return ""
    rounds = f"{view.rounds} round{'s' * (view.rounds > 1)}"
    return f"reads {rounds} of {view.clients} client{'s' * (view.clients > 1)}"


def figures(run: Run, shown: bool) -> tuple[Figures, ...]:
    """Every attack that was evaluated, those on what crossed the wire first; pictures where they are to be shown."""
    told = sorted((a for a in run.attacks if a.leakage or a.metrics), key=lambda a: not a.shared)
    return tuple(_figures(attack, shown) for attack in told)


def _figures(attack: AttackFinding, shown: bool) -> Figures:
    threat, units, trust = attack.threat, attack.units, attack.trust.items()
    of = joined([f"{n} {kind}" for kind in ("federated", "shadows") if (n := getattr(units, kind, None))])
    facts = (
        ("On the wire", "" if attack.shared else "no: a positive control, or what decides a paper's claim"),
        ("Adversary", f"{role(threat.role)}, holding {threat.auxiliary}"),
        ("May", joined([spoken(name) for name in threat.capabilities])),
        ("Units", f"{units.n} {units.kind}s{f', {of}' if of else ''}; {attack.n} scored" if units else ""),
        ("Apart", _apart(attack.apart)),
        ("Guessing", measured(attack.chance) if attack.chance else ""),
        ("Not knowing the defense", _unaware(attack)),
        ("Trust in the artifact", ", ".join(f"{plain(weight)} at {images} images" for images, weight in trust)),
        *((f"Tested against, {name}", _against(test)) for name, test in attack.leakage.items()),
        ("Note", attack.reason or ""),
        ("Pictures", "" if shown else ", ".join(attack.figures)),
    )
    who = f"{spoken(attack.attack)} by {role(threat.role)} on {artifact(attack.artifact)}"
    caption = f"Truth, reconstruction and baselines: {who}"
    tables = (metrics(attack), _curve(attack), _rounds(attack))
    return Figures(
        upper(who) + ("" if attack.shared else " (not on the wire)"),
        tuple(fact for fact in facts if fact[1]),
        tuple(table for table in tables if table.rows),
        tuple(Picture(file, caption) for file in attack.figures if shown),
    )


def _apart(found: Mapping[str, Measured]) -> str:
    """The figures of federated and of shadow clients, and whether their intervals meet."""
    told = "; ".join(f"{name} {measured(figure)}" for name, figure in found.items())
    ends = sorted(figure.ci95 for figure in found.values() if figure.ci95 is not None)
    if any(first[1] < second[0] for first, second in pairwise(ends)):
        told += ". These intervals do not meet: what all of them show together need not hold for clients that train"
    return told


def _against(test: Leakage) -> str:
    said = (
        f"{joined([spoken(name) for name in test.against])}: {VERDICTS[test.verdict].lower()}" if test.against else ""
    )
    if test.value is not None:
        ends = f" [{plain(test.ci95[0])}, {plain(test.ci95[1])}]" if test.ci95 else ""
        said += f"; {plain(test.value)}{ends} of the way from the best control to the upper bound"
    return "; ".join(part for part in (said, test.why or "") if part)


def metrics(attack: AttackFinding) -> Table:
    """All metrics of one attack, one to a column: the attack, each control, each bound."""
    names = [attack.headline] if attack.headline in attack.metrics else []
    names += [name for name in attack.metrics if name != attack.headline]
    rows: list[tuple[str, Mapping[str, Measured]]] = [("the attack", attack.metrics)]
    rows += [(spoken(name), table) for name, table in attack.controls.items()]
    rows += [(f"{spoken(name)} (upper bound)", table) for name, table in attack.upper_bounds.items()]
    columns = {name: [table.get(name) for _, table in rows] for name in names}
    places = {name: decimals([figure for figure in column if figure]) for name, column in columns.items()}
    cells = ((number(measured(columns[name][i], places[name])) for name in names) for i in range(len(rows)))
    body = tuple((text(label), *own) for (label, _), own in zip(rows, cells, strict=True))
    return Table(("", *(_column(name, attack.metrics[name]) for name in names)), body if names else ())


def _column(name: str, figure: Measured) -> str:
    way = {"higher_leaks": ", higher leaks", "lower_leaks": ", lower leaks"}.get(figure.direction, "")
    return f"{metric(name)}{way}" + (f", n {figure.n}" if figure.n else "")


def _curve(attack: AttackFinding) -> Table:
    names = list(dict.fromkeys(name for point in attack.curve for name in point.controls))
    places = decimals([figure for point in attack.curve for figure in (point.value, *point.controls.values())])
    body = tuple(
        (
            count("all" if point.images is None else str(point.images)),
            count(str(point.units)),
            number(measured(point.value, places)),
            *(number(measured(point.controls.get(name), places)) for name in names),
        )
        for point in attack.curve
    )
    heads = ("Images", "Units", spoken(attack.attack), *(spoken(name) for name in names))
    return Table(heads, body, f"{metric(attack.headline)} by the number of images behind the artifact")


def _rounds(attack: AttackFinding) -> Table:
    """What several rounds of one client's artifacts tell together."""
    places = decimals([figure for point in attack.rounds for figure in (point.value, point.rise) if figure])

    def row(point: RoundsPoint) -> tuple[Cell, ...]:
        return (
            count(str(point.rounds)),
            count("all" if point.images is None else str(point.images)),
            count(str(point.units)),
            number(measured(point.value, places)),
            number(measured(point.rise, places)),
            text(p_value(point.p_rise)),
            verdict(point.verdict, f"p {p_value(point.p)}") if point.verdict else text("–"),
        )

    heads = ("Rounds", "Images", "Units", "Figure", "Over one round", "p, that it rises", "Against every control")
    note = f"{metric(attack.headline)} by rounds read together"
    return Table(heads, tuple(row(point) for point in attack.rounds), note)
