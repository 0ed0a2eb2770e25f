"""Finds the clients that received another client's artifact: as recorded, or one halfway around the client list."""

from collections.abc import Mapping, Sequence

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.federation.transcript import Transcript


def relayed_to(transcript: Transcript, kind: str) -> dict[str, list[str]]:
    """By client, the other clients to which the server relayed its last artifact of this kind, in order."""
    receivers: dict[str, list[str]] = {}
    for record in transcript.records:
        if record.kind != kind:
            continue
        if record.receiver == SERVER:
            receivers.pop(record.origin, None)
        elif record.relayed and record.receiver != record.origin:
            receivers.setdefault(record.origin, []).append(record.receiver)
    return receivers


def reaches_all(transcript: Transcript, kind: str) -> bool:
    """Whether every client that gets relayed artifacts of this kind in a round gets those of all other clients."""
    relayed: dict[int, dict[str, set[str]]] = {}
    for record in transcript.records:
        if record.kind == kind and record.relayed:
            relayed.setdefault(record.round, {}).setdefault(record.receiver, set()).add(record.origin)
    return bool(relayed) and all(
        origins | {receiver} >= set().union(*by_receiver.values())
        for by_receiver in relayed.values()
        for receiver, origins in by_receiver.items()
    )


def receiver_of(receivers: Mapping[str, Sequence[str]], senders: Sequence[str]) -> dict[str, str]:
    """By sender with `receivers`, one of them: the one halfway around their list."""
    return {
        name: opposite_client(list(dict.fromkeys(receivers[name])), i)
        for i, name in enumerate(senders)
        if name in receivers
    }


def opposite_client(receivers: Sequence[str], number: int) -> str:
    """The recipient halfway around the list from position `number`; mostly of another domain."""
    return receivers[(number + len(receivers) // 2) % len(receivers)]


def opposite_clients(clients: Sequence[str]) -> dict[str, str]:
    """By client, the client halfway around the list."""
    return {name: opposite_client(clients, number) for number, name in enumerate(clients)}
