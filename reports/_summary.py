"""The verdict in plain words: what leaks, to whom, how sure, by which attack, and what a defense changes."""

from collections.abc import Callable
from dataclasses import dataclass

from fdgpriv.results.accuracy import accuracies
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Results, Run

from ._evidence import bound, sentence
from ._numbers import p_value, share
from ._pool import key, strength
from ._words import artifact, called, defense, joined, learns, role, sight, spoken, unique
from ._worst import leaking, undecided, worst


@dataclass(frozen=True)
class Verdict:
    """One method under one defense: a word for the chip, a sentence, and the facts beneath it."""

    word: str
    method: str
    defense: str
    sentence: str
    facts: tuple[tuple[str, str], ...]


def verdicts(results: Results) -> tuple[Verdict, ...]:
    """One verdict per method and defense, over all its targets and seeds, in the order of the runs."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in results.runs:
        found.setdefault((run.method, run.defense), []).append(run)
    first = {method: group for (method, _), group in reversed(found.items())}
    over_seeds = {(row.method, row.defense): row.target for row in reversed(accuracies(results))}

    def worth(runs: list[Run]) -> str:
        (run, *more), utility = runs, runs[0].utility
        figure = over_seeds.get((run.method, run.defense)) if more else utility.target_accuracy if utility else None
        return share(figure)

    return tuple(
        _verdict(group, first[method] if group is not first[method] else None, worth)
        for (method, _), group in found.items()
    )


def _verdict(runs: list[Run], base: list[Run] | None, worth: Callable[[list[Run]], str]) -> Verdict:
    found = worst(runs)
    client = [a for a in found if a.verdict == "leak"]
    domain = [a for a in found if a.verdict_domain == "leak" and a.verdict != "leak"]
    pending = [a for a in found if not leaking(a) and undecided(a)]
    quiet = [a for a in found if not leaking(a) and not undecided(a)]
    method = runs[0].method
    with_defense = "" if runs[0].defense == "none" else f" with {defense(runs[0].defense)}"
    if client:
        word, said = "leak", f"{method}{with_defense} gives away {_what([*client, *domain])}."
    elif domain:
        word, said = (
            "leak",
            f"{method}{with_defense} gives away {_what(domain)}; no leak about a single client was shown.",
        )
    elif not any(run.attacks for run in runs):
        word = "not_attacked"
        said = f"Nothing was attacked, so this says nothing about what {method} gives away{with_defense}."
    elif not found:
        word, said = "not_applicable", f"No attack of this audit applies to what {method} shares{with_defense}."
    elif pending:
        word = "inconclusive"
        said = (
            f"{method}{with_defense}: no leak was shown, but {len(pending)} of {len(found)} attacks could not decide."
        )
    else:
        word, said = (
            "no_leak_found",
            f"No leak was found in what {method} shares{with_defense}. That is no proof of privacy.",
        )
    facts = [*_leaks(runs, client, domain), *_sure(runs, found, pending), *_silent(quiet), *_change(runs, base, worth)]
    facts.append(_advice(word, client, domain))
    return Verdict(word, method, runs[0].defense, said, tuple(fact for fact in facts if fact[1]))


def _leaks(runs: list[Run], client: list[AttackFinding], domain: list[AttackFinding]) -> list[tuple[str, str]]:
    both = [*client, *domain]
    if not both:
        return []
    parts = [f"about single clients: {_from(client)}"] if client else []
    parts += [f"about the client's domain at most: {_from(domain)}"] if domain else []
    return [
        ("What leaks", _upper("; ".join(parts) + ".")),
        ("To whom", _upper(joined(unique([_whom(runs, a) for a in both]))) + "."),
        ("Strongest attack", _upper(sentence(min(both, key=strength)))),
    ]


def _whom(runs: list[Run], finding: AttackFinding) -> str:
    kind, level = finding.kind, finding.level
    rows_ = [row for run in runs for row in run.artifacts if kind in called(row) and level in ("", row.level)]
    sees = not rows_ or any(sight(row, finding.threat.role) for row in rows_)
    return role(finding.threat.role) + ("" if sees else ", should it obtain the artifact")


def _from(found: list[AttackFinding]) -> str:
    kinds = unique([artifact(a) for a in found])
    parts = [f"{joined(unique([learns(a) for a in found if artifact(a) == kind]))}, from {kind}" for kind in kinds]
    return "; ".join(parts)


def _sure(runs: list[Run], found: list[AttackFinding], pending: list[AttackFinding]) -> list[tuple[str, str]]:
    leaks = [a for a in found if leaking(a)]
    parts = []
    if leaks:
        lines = [a.leakage if a.verdict == "leak" else a.leakage_domain for a in leaks]
        largest = max((line.p_corrected for line in lines if line and line.p_corrected is not None), default=None)
        beat = "beats" if len(leaks) == 1 else "beat"
        parts.append(
            f"{len(leaks)} of {len(found)} attacks on what is shared {beat} every control of a verdict line, "
            f"at a corrected p of at most {p_value(largest)}"
        )
    controls = [a.positive_control for a in found if a.positive_control and a.positive_control.succeeded is not None]
    if controls:
        passed = sum(bool(control.succeeded) for control in controls)
        parts.append(f"{passed} of {len(controls)} succeed where they must (positive control)")
    if pending:
        parts.append(f"{len(pending)} could not decide")
    if len(runs) > 1 and found:
        parts.append(f"each attack's worst result over {len(runs)} runs counts")
    return [("How sure", _upper("; ".join(parts) + "."))] if parts else []


def _silent(quiet: list[AttackFinding]) -> list[tuple[str, str]]:
    if not quiet:
        return []
    names = joined(unique([f"{spoken(a.attack)} by {role(a.threat.role)} on {artifact(a)}" for a in quiet]))
    limit = bound(quiet[0]) if len(quiet) == 1 else ""
    return [("No leak found by", f"{_upper(names)}. {limit}".strip())]


def _change(runs: list[Run], base: list[Run] | None, worth: Callable[[list[Run]], str]) -> list[tuple[str, str]]:
    if base is None:
        return []
    before = {key(a): a for a in worst(base) if leaking(a)}
    now = {key(a): a for a in worst(runs)}
    groups: dict[str, list[str]] = {
        "still leaks": [],
        "no longer found": [],
        "undecided now": [],
        "not measured now": [],
    }
    for name, finding in before.items():
        groups[_after(now.get(name))].append(
            f"{learns(finding)} ({spoken(finding.attack)}, {role(finding.threat.role)})"
        )
    told = [f"{word}: {joined(unique(names))}" for word, names in groups.items() if names]
    cost = f"target accuracy {worth(base)} with {defense(base[0].defense)}, {worth(runs)} now"
    return [(f"Against {defense(base[0].defense)}", _upper("; ".join([*told, cost]) + "."))]


def _after(finding: AttackFinding | None) -> str:
    if finding is None:
        return "not measured now"
    if leaking(finding):
        return "still leaks"
    return "undecided now" if undecided(finding) else "no longer found"


def _advice(word: str, client: list[AttackFinding], domain: list[AttackFinding]) -> tuple[str, str]:
    if client:
        kinds, whom = joined(unique([artifact(a) for a in client])), _names(client)
        return (
            "What to do",
            f"Treat {kinds} as personal data in the hands of {whom}, or protect it before it leaves the client.",
        )
    if domain:
        kinds, whom = joined(unique([artifact(a) for a in domain])), _names(domain)
        return "What to do", f"Decide whether {whom} may learn from {kinds} what domain a client's images come from."
    if word == "inconclusive":
        return (
            "What to do",
            "Do not rely on this as evidence of privacy: repeat it with more clients or a larger budget.",
        )
    if word == "no_leak_found":
        return (
            "What to do",
            "Read what was not measured below before relying on it; only a proof bounds attacks not yet known.",
        )
    return "", ""


def _names(found: list[AttackFinding]) -> str:
    return joined(unique([role(a.threat.role) for a in found]), "or")


def _what(found: list[AttackFinding]) -> str:
    return joined(unique([learns(a) for a in sorted(found, key=strength)]))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
