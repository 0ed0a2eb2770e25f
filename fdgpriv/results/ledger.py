"""Ledger of shared artifacts: transcript records aggregated by kind, request and direction."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.federation.transcript import Record
from fdgpriv.results.run import ArtifactRow


def ledger(records: Iterable[Record], sent_as: Mapping[str, str]) -> tuple[ArtifactRow, ...]:
    """One row per (kind, verb, direction), in the order in which they first crossed.

    Args:
        records: Of one run.
        sent_as: Names of artifact kinds when sent by the server, where they differ from the kind.
    """
    by_crossing: dict[tuple[str, str, bool, bool], list[Record]] = defaultdict(list)
    for record in records:
        by_crossing[record.kind, record.verb, record.sender == SERVER, record.relayed].append(record)
    everything = [record for crossing in by_crossing.values() for record in crossing]
    last = max((record.round for record in everything), default=0)
    return tuple(_row(crossing, last, sent_as) for crossing in by_crossing.values())


def _row(crossing: list[Record], last_round: int, sent_as: Mapping[str, str]) -> ArtifactRow:
    first = crossing[0]
    down, relayed = first.sender == SERVER, first.relayed
    last = max(record.round for record in crossing)
    broadcast = down and not relayed and first.kind == ModelState.kind and last == last_round
    visible = ["server"] + ["client"] * down + ["third_party (the model of the last round)"] * broadcast
    return ArtifactRow(
        kind=sent_as.get(first.kind, first.kind) if down else first.kind,
        level=first.level,
        verb=first.verb,
        sender="client" if relayed or not down else "server",
        to="client" if down else "server",
        via="server" if relayed else None,
        per_client_per_round_bytes=max(_per_client_and_round(crossing)),
        shape=_shape(first),
        dtype=" + ".join(sorted(set(first.dtypes.values()))),
        times=len(crossing),
        samples_behind=min(record.samples for record in crossing if record.round == last or not (down and not relayed)),
        visible_to=tuple(visible),
    )


def _per_client_and_round(crossing: list[Record]) -> list[int]:
    total: dict[tuple[str, int], int] = defaultdict(int)
    for record in crossing:
        client = record.receiver if record.sender == SERVER else record.sender
        total[client, record.round] += record.nbytes
    return list(total.values())


def _shape(record: Record) -> str:
    if len(record.shapes) > 4:
        numbers = sum(_product(shape) for shape in record.shapes.values())
        return f"{len(record.shapes)} tensors, {numbers:,} numbers"
    return ", ".join(f"{name} {list(shape)}" for name, shape in record.shapes.items() if shape != (0,))


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product
