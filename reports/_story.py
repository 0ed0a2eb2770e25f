"""What a report tells, in the order in which it tells it; each format only sets it in type."""

from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.attack_finding import AttackFinding, CurvePoint
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run

from ._accuracy import each_run, over_rounds, over_trainings, worth
from ._advice import Advice, Score, advice, scores, sentence
from ._arms import Arm, arms
from ._evidence import Entry, Figures, entries, figures
from ._figures import Drawing, Series, lines
from ._frontier import frontier, words
from ._matrix import MOST_WORDS, matrix
from ._numbers import percent, plain, pooled
from ._tables import (
    Cell,
    Section,
    Table,
    claims,
    count,
    grouped,
    images,
    ledger,
    networks,
    pictures,
    privacy,
    settings,
    text,
)
from ._words import SECRETS, VERDICTS, artifact, defense, joined, metric, role, spoken, title, unique

MOST_ARMS = 5  # lines that a reader can still tell apart


@dataclass(frozen=True)
class Part:
    """One run's evidence: its questions, its attacks in figures, and the attacks that do not apply."""

    title: str
    questions: tuple[Entry, ...]
    attacks: tuple[Figures, ...]
    refusals: Table


@dataclass(frozen=True)
class Story:
    """Everything a report shows, already in words; what precedes `ledgers` stands on the first screen."""

    title: str
    subtitle: str
    interrupted: bool
    word: str
    sentence: str
    scores: Table | None
    matrix: tuple[Section, ...]
    curves: tuple[Drawing, ...]
    advice: tuple[Advice, ...]
    frontier: tuple[Section, ...]
    frontier_drawings: tuple[Drawing, ...]
    ledgers: tuple[Section, ...]
    parts: tuple[Part, ...]
    pictures: tuple[Section, ...]
    claims: tuple[Section, ...]
    trainings: tuple[Section, ...]
    worth: Section
    accuracy: tuple[Section, ...]
    rounds: tuple[Drawing, ...]
    privacy: Table
    not_measured: tuple[Section, ...]
    dataset: tuple[str, str, str]
    images: tuple[Section, ...]
    config: Table
    environment: Table
    timing: str
    command: str


def story(results: Results) -> Story:
    """The results, told."""
    runs, timing = results.runs, results.timing
    methods, targets = unique(run.method for run in runs), unique(run.target or "" for run in runs)
    aimed = f", target {joined(targets)}" if any(targets) else ""
    seeds = unique(str(run.seed) for run in runs)
    defenses = joined(unique(defense(run.defense) for run in runs)) or "nothing finished"
    told = scores(runs)
    sections, drawings = frontier(results)
    taken = sum(words(section.table) for section in sections if section.table)
    first = [arm.runs[0] for arm in arms(runs)]  # whose pictures are shown
    order = ("leak", "inconclusive", "no_leak_found", "not_attacked")
    return Story(
        title=f"{joined(methods) or 'No run'} on {results.dataset.name}{aimed}",
        subtitle=f"fdgpriv {results.fdgpriv} · {defenses} · seed{'' if len(seeds) == 1 else 's'} {joined(seeds) or '–'}",
        interrupted=results.interrupted,
        word=min((one.word for one in told), key=order.index, default="not_attacked"),
        sentence=sentence(results),
        scores=_scores(told) if len(told) > 1 and not sections and any(one.asked for one in told) else None,
        matrix=matrix(runs, MOST_WORDS - taken),
        curves=curves(runs),
        advice=advice(runs),
        frontier=sections,
        frontier_drawings=drawings,
        ledgers=grouped(runs, lambda run: Section("", ledger(run.artifacts)) if run.artifacts else None),
        parts=tuple(_part(run, run in first) for run in runs if run.attacks),
        pictures=grouped(runs, pictures),
        claims=grouped(runs, lambda run: Section("", claims(run.claims)) if run.claims else None),
        trainings=over_trainings(results),
        worth=worth(runs),
        accuracy=each_run(runs),
        rounds=over_rounds(runs),
        privacy=privacy(runs),
        not_measured=grouped(runs, lambda run: Section("", lines=run.not_measured) if run.not_measured else None),
        dataset=(results.dataset.name, results.dataset.about, results.dataset.limitations),
        images=(*grouped(runs, images), *networks(results.config)),
        config=settings(results.config),
        environment=settings(results.environment),
        timing=f"{plain(timing.total_s, ' s')} in all, {plain(timing.train_s, ' s')} training, "
        f"{plain(timing.attack_s, ' s')} attacking; peak memory {plain(timing.peak_rss_mb, ' MB')}",
        command=results.command or "",
    )


def curves(runs: Sequence[Run]) -> tuple[Drawing, ...]:
    """Leakage against the number of images behind the artifact: for each secret the attack that shows it best."""
    rows = [a for run in runs for a in run.attacks if a.shared and len(a.curve) > 2]
    found = []
    for secret in SECRETS:
        own = [row for row in rows if row.secret == secret]
        if own:
            best = max(own, key=lambda row: (any(test.marked for test in row.leakage.values()), _start(row)))
            found.append(_drawing(best, arms(runs)))
    return tuple(found)


def _start(row: AttackFinding) -> float:
    """The lead over the best control where fewest images stand behind the artifact, in relevant effects."""
    value, control = row.curve[0].value.value, _best(row, row.curve[0])
    relevant = row.main.relevant if row.main else None
    return abs((value or 0.0) - (control or 0.0)) / (relevant or 1.0)


def _best(row: AttackFinding, point: CurvePoint) -> float | None:
    """The control that comes closest to the truth, of those that the test that leaks (or the main one) is held against."""
    test = next((one for one in row.leakage.values() if one.marked), row.main)
    against = set(test.against if test else ()) & set(point.controls) or set(point.controls)
    known = [value for name in against if (value := point.controls[name].value) is not None]
    return (min if point.value.direction == "lower_leaks" else max)(known, default=None)


def _drawing(best: AttackFinding, every: Sequence[Arm]) -> Drawing:
    ticks = [point.images for point in best.curve]
    series = []
    for arm in every:
        same = [a for run in arm.runs for a in run.attacks if _like(a) == _like(best)]
        values = [pooled([p.value for a in same for p in a.curve if p.images == images]) for images in ticks]
        name = arm.name if len(every) > 1 else spoken(best.attack)
        if any(value and value.value is not None for value in values):
            middles, intervals = ([getattr(v, what) if v else None for v in values] for what in ("value", "ci95"))
            series.append(Series(name, tuple(middles), tuple(intervals)))
    left = f" Drawn are {MOST_ARMS} of {len(series)}." if len(series) > MOST_ARMS else ""
    series = [*series[:MOST_ARMS], Series("best control", tuple(_best(best, p) for p in best.curve), control=True)]
    names = ["all" if images is None else str(images) for images in ticks]
    asked = SECRETS[best.secret]
    lower = "; lower leaks" if best.curve[0].value.direction == "lower_leaks" else ""
    caption = f"{asked} ({spoken(best.attack)} by {role(best.threat.role)} on {artifact(best.artifact)}{lower}){left}"
    ends = [
        f"{one.name}: " + ", ".join(f"{v:.3g} at {n}" for n, v in zip(names, one.values, strict=True) if v is not None)
        for one in series
    ]
    alt = f"{metric(best.headline)} by number of images. {'; '.join(ends)}"
    across = "images behind the artifact"
    return lines(f"curve-{best.secret}", caption, alt, across, metric(best.headline), names, series)


def _like(row: AttackFinding) -> tuple[str, str, str, str]:
    return row.attack, row.task, row.artifact, row.threat.role


def _scores(told: Sequence[Score]) -> Table:
    heads = ("Compared", "Leaks", "No leak found", "Inconclusive", "Unseen-domain accuracy")

    def row(one: Score) -> tuple[Cell, ...]:
        counts = (
            count(str(n), sub) for n, sub in ((one.leaks, one.leaks_by_grade), (one.clear, ""), (one.undecided, ""))
        )
        worth = "–" if one.accuracy is None else percent(one.accuracy, 1)
        return (text(one.arm.name, "" if one.asked else VERDICTS[one.word]), *counts, count(worth))

    return Table(heads, tuple(row(one) for one in told))


def _part(run: Run, shown: bool) -> Part:
    heads = ("Attack", "Would read", "Adversary", "Why it does not apply")
    rows = (
        (text(spoken(a.attack)), text(artifact(a.artifact)), text(role(a.threat.role)), text(a.reason or "–"))
        for a in run.attacks
        if not a.leakage and not a.metrics
    )
    return Part(title(run), entries(run), figures(run, shown), Table(heads, tuple(rows)))
