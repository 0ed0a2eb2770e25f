"""Sorts the runs of audits into settings, and makes a table of methods by secrets of each."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from pydantic import JsonValue

from fdgpriv.audit_results import AuditResults
from fdgpriv.registry import JOIN
from fdgpriv.results.accuracy import accuracies
from fdgpriv.results.baseline import is_baseline
from fdgpriv.results.finding import Results
from fdgpriv.results.leaderboard import AuditedRun, Leaderboard, LeaderboardRow, Standings, WorstAnswer
from fdgpriv.results.question import Secret
from fdgpriv.utils.defaults import BASELINE
from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.suggestions import did_you_mean

ALL = "all"
UNDEFENDED = "none"
_OF_AUDIT = {"images": "images a domain", "units_per_domain": "units a domain", "auxiliary": "auxiliary data"}
_OF_METHOD = {"clients": "clients", "partition": "partition", "image_size": "image side", "held_out": "held out"}

Setting = tuple[tuple[str, str], ...]


def read(paths: Sequence[Path]) -> list[AuditedRun]:
    """All runs of these audits.

    Raises:
        ValueError: There is no audit, or one is given twice, is not finished or has no run.
    """
    if not paths:
        raise ValueError("want at least one audit: its --out, or its results.json; got none")
    runs: list[AuditedRun] = []
    for path in paths:
        check_name(str(path), "RUN")
        results = AuditResults.load(path)
        folder = results.folder
        assert folder is not None
        if other := next((run for run in runs if run.folder.resolve() == folder.resolve()), None):
            raise ValueError(f"want each audit once, got {path} twice" + _also_as(other.audit, path))
        if results.interrupted:
            raise ValueError(f"want finished audits, got {path}, which was interrupted: --resume finishes it")
        if not results.runs:
            raise ValueError(f"want audits with at least one run, got {path}, which has none")
        runs += [AuditedRun(run, str(path), results, folder) for run in results.runs]
    return runs


def _also_as(name: str, path: Path) -> str:
    return "" if name == str(path) else f", also as {name}"


def leaderboard(
    runs: Sequence[AuditedRun], defenses: Collection[str] = (UNDEFENDED,), baseline: str = BASELINE
) -> Leaderboard:
    """One table for each setting, in the order of the runs.

    Args:
        runs: Of audits.
        defenses: Names or specifications of defenses whose runs count, or ``all``.
        baseline: Name or specification of the method that accuracies are compared with.

    Raises:
        ValueError: No run is under one of the defenses, or no run is of the baseline (the default one may be missing).
    """
    for defense in defenses:
        known = dict.fromkeys(run.run.defense for run in runs)
        if defense != ALL and not any(_names(defense, name) for name in known):
            raise ValueError(
                f"--defense: want {ALL} or a defense of the runs ({', '.join(known)}), got {defense!r}"
                f"{did_you_mean(defense, known)}"
            )
    chosen = [run for run in runs if ALL in defenses or any(_names(name, run.run.defense) for name in defenses)]
    methods = dict.fromkeys(run.run.method for run in chosen)
    if baseline != BASELINE and not any(is_baseline(method, baseline) for method in methods):
        raise ValueError(
            f"--baseline: want a method of the runs ({', '.join(methods)}), got {baseline!r}{did_you_mean(baseline, methods)}"
        )
    by_setting: dict[Setting, list[AuditedRun]] = {}
    for run in chosen:
        by_setting.setdefault(_setting(run), []).append(run)
    return Leaderboard(tuple(_standings(*entry, baseline) for entry in by_setting.items()), baseline)


def _names(name: str, defense: str) -> bool:
    """Whether this is the specification of the defense, or the name of one that is not joined with another."""
    return name == defense or (JOIN not in defense and name == defense.partition(":")[0])


def _setting(run: AuditedRun) -> Setting:
    """What must agree for runs to stand in one table; whether it was attacked decides how many images train."""
    config, digest = run.results.config, run.results.dataset.sha256
    facts: dict[str, JsonValue] = {"dataset": run.run.dataset, "SHA-256": digest and f"{digest[:8]}…"}
    facts["preset"] = config.get("preset")
    setup = _setup(run)
    facts |= {words: setup.get(name) for name, words in _OF_METHOD.items()}
    facts |= {words: config.get(name) for name, words in _OF_AUDIT.items()}
    facts["attacked"] = "yes" if config.get("attacks") else "no: all images of the sources train"
    facts["deliberate error"] = config.get("inject_bug")
    return tuple((name, str(value)) for name, value in facts.items() if value is not None)


def _setup(run: AuditedRun) -> Mapping[str, JsonValue]:
    setups = run.results.config.get("setup")
    setup = setups.get(run.run.method) if isinstance(setups, Mapping) else None
    return setup if isinstance(setup, Mapping) else {}


def _standings(setting: Setting, runs: Sequence[AuditedRun], baseline: str) -> Standings:
    notes = tuple(_differences(runs))
    runs = _told_apart(runs)
    results = runs[0].results.model_copy(update={"runs": tuple(run.run for run in runs), "command": None})
    asked = {question.secret for run in runs for question in run.run.questions}
    secrets = tuple(secret for secret in get_args(Secret) if secret in asked)
    by_row: dict[tuple[str, str], list[AuditedRun]] = {}
    for run in runs:
        by_row.setdefault((run.run.method, run.run.defense), []).append(run)
    of_all = accuracies(results, baseline)
    rows = [
        LeaderboardRow(
            method=method,
            defense=defense,
            runs=tuple(of_row),
            answers={secret: answer for secret in secrets if (answer := WorstAnswer.of(of_row, secret))},
            accuracies=tuple(row for row in of_all if (row.method, row.defense) == (method, defense)),
        )
        for (method, defense), of_row in by_row.items()
    ]
    rows.sort(key=lambda row: row.rank(secrets))
    return Standings(setting, notes, secrets, tuple(rows), results)


def _told_apart(runs: Sequence[AuditedRun]) -> list[AuditedRun]:
    """The runs; where two have the same method, target, seed and defense, with what differs in the method's name.

    That are settings, network and version, or the audit where these do not tell them apart.
    """
    trainings: dict[tuple[str, str], list[tuple[str | None, int]]] = {}
    for run in runs:
        trainings.setdefault((run.run.method, run.run.defense), []).append((run.run.target, run.run.seed))
    repeated = {row for row, of_row in trainings.items() if len(set(of_row)) < len(of_row)}
    labels: dict[tuple[str, str], dict[str, str]] = {}
    for row in repeated:
        facts = {run.audit: _facts(run) for run in runs if (run.run.method, run.run.defense) == row}
        names = dict.fromkeys(name for of_audit in facts.values() for name in of_audit)
        differing = [name for name in names if len({of_audit.get(name) for of_audit in facts.values()}) > 1]
        texts = {
            audit: ", ".join(f"{name}={of_audit[name]}" for name in differing if name in of_audit) or "defaults"
            for audit, of_audit in facts.items()
        }
        labels[row] = texts if len(set(texts.values())) == len(texts) else {audit: audit for audit in facts}
    return [
        replace(run, run=run.run.model_copy(update={"method": f"{run.run.method}: {labels[row][run.audit]}"}))
        if (row := (run.run.method, run.run.defense)) in repeated
        else run
        for run in runs
    ]


def _facts(run: AuditedRun) -> dict[str, str]:
    """What may differ between two runs of one method in one setting: its settings, its network, the version."""
    settings = run.results.config.get("settings")
    facts = {name: str(value) for name, value in settings.items()} if isinstance(settings, Mapping) else {}
    return facts | {"backbone": str(_setup(run).get("backbone", "unknown")), "fdgpriv": run.results.fdgpriv}


def _differences(runs: Sequence[AuditedRun]) -> Iterator[str]:
    """What differs between the rows besides the method: attacks, adversaries, networks, versions."""
    for name, words in (("attacks", "attacks"), ("threats", "adversaries")):
        used = {run.audit: _listed(run.results, name) for run in runs}
        union = list(dict.fromkeys(entry for entries in used.values() for entry in entries))
        audits: dict[tuple[str, ...], list[str]] = {}
        for audit, entries in used.items():
            audits.setdefault(tuple(entry for entry in union if entry in entries), []).append(audit)
        for common, names in audits.items():
            lacking = [entry for entry in union if entry not in common]
            phrase = f"without the {words} {', '.join(lacking)}"
            if len(lacking) > len(common):
                phrase = f"only with the {words} {', '.join(common)}"
            if lacking:
                yield f"{', '.join(names)}: {phrase}; other audits here have more."
    for words, value_of in _COMPARED.items():
        by_value: dict[str, dict[str, None]] = {}
        for run in runs:
            by_value.setdefault(value_of(run), {})[run.run.method] = None
        if len(by_value) > 1:
            parts = (f"{value} ({', '.join(methods)})" for value, methods in by_value.items())
            yield f"{words} differ: {'; '.join(parts)}."


_COMPARED: dict[str, Callable[[AuditedRun], str]] = {
    "Networks": lambda run: str(_setup(run).get("backbone", "unknown")),
    "Versions of fdgpriv": lambda run: run.results.fdgpriv,
}


def _listed(results: Results, name: str) -> list[str]:
    values = results.config.get(name)
    return [str(value) for value in values] if isinstance(values, list) else []
