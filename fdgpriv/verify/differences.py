"""Differences between two versions of a run's results, one line each."""

import json
from collections.abc import Iterator, Sequence
from math import isclose
from typing import Any

_EQUAL = 1e-9  # relative: sums may be rounded otherwise on another machine
_SHOWN = 60  # maximum characters of a value


def differences(where: str, stored: Any, source: str, computed: Any) -> list[str]:
    """One line for each value of JSON data in which results.json differs from what `source` gives."""
    return [
        f"{path}: {_text(value)} in results.json, {_text(other)} by {source}"
        for path, value, other in _differing(where, stored, computed)
    ]


def of_lists(where: str, stored: Sequence[Any], source: str, computed: Sequence[Any]) -> list[str]:
    """The same for two lists of questions, attacks or claims (`Entry`), each called by what identifies it."""
    names, others = (list(map(_name, entries)) for entries in (stored, computed))
    if names != others:
        missing, more = [name for name in others if name not in names], [name for name in names if name not in others]
        return [
            f"{where}: {len(names)} in results.json, {len(others)} by {source}"
            + (f"; results.json lacks {missing[0]}" if missing else "")
            + (f"; only results.json has {more[0]}" if more else "")
            + ("" if missing or more else ", in another order")
        ]
    dumped = ([entry.model_dump(mode="json", by_alias=True) for entry in entries] for entries in (stored, computed))
    return [
        line
        for name, entry, other in zip(names, *dumped, strict=True)
        for line in differences(f"{where} {name}", entry, source, other)
    ]


def _name(entry: Any) -> str:
    """What identifies a question, an attack or a claim among the others of its run."""
    if hasattr(entry, "id"):
        return str(entry.id)
    if hasattr(entry, "threat"):
        return f"{entry.attack}@{entry.threat.role} on {entry.artifact} ({entry.secret})"
    return f"({entry.artifact}, {entry.level}, {entry.adversary}, {entry.secret}, {entry.scope})"


def _differing(where: str, stored: Any, computed: Any) -> Iterator[tuple[str, Any, Any]]:
    """Path, stored and computed value of each difference."""
    if isinstance(stored, dict) and isinstance(computed, dict):
        for name in {**stored, **computed}:
            yield from _differing(f"{where}.{name}", stored.get(name), computed.get(name))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (value, other) in enumerate(zip(stored, computed, strict=True)):
            yield from _differing(f"{where}[{index}]", value, other)
    elif not _equal(stored, computed):
        yield where, stored, computed


def _equal(stored: Any, computed: Any) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):
        return isclose(stored, computed, rel_tol=_EQUAL, abs_tol=1e-12)
    return bool(stored == computed)


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
