"""Changes of what was sent, in bytes and crossings, and of what is proved and measured of epsilon."""

from collections import defaultdict

from fdgpriv.results.change import BytesChange, EpsilonChange
from fdgpriv.results.run import Run

Way = tuple[str, str, str]  # kind, sender, receiver


def bytes_changes(was: Run, now: Run) -> tuple[BytesChange, ...]:
    """The kinds of artifact whose bytes per client and round, or number of crossings, are not what they were."""
    old, new = _ledger(was), _ledger(now)
    return tuple(
        BytesChange(
            kind=way[0],
            sender=way[1],
            to=way[2],
            bytes_before=old[way][0] if way in old else None,
            bytes_after=new[way][0] if way in new else None,
            times_before=old[way][1] if way in old else None,
            times_after=new[way][1] if way in new else None,
        )
        for way in {**new, **old}
        if old.get(way) != new.get(way)
    )


def _ledger(run: Run) -> dict[Way, tuple[int, int]]:
    """By kind and way, bytes per client and round, and crossings, over all requests."""
    total: dict[Way, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in run.artifacts:
        way = (row.kind, row.sender, row.to)
        size, times = total[way]
        total[way] = size + row.per_client_per_round_bytes, times + row.times
    return dict(total)


def epsilon_changes(was: Run, now: Run) -> tuple[EpsilonChange, ...]:
    """The bounds on epsilon that are not what they were."""
    old, new = _bounds(was), _bounds(now)
    changed = [name for name in old if old[name] != new[name]]
    return tuple(
        EpsilonChange.model_validate({"name": name, "before": old[name], "after": new[name]}) for name in changed
    )


def _bounds(run: Run) -> dict[str, float | None]:
    told = run.privacy
    return {"proved": told.epsilon_proved, "delta": told.delta, **told.epsilon_measured.model_dump()}
