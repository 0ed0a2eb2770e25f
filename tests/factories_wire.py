"""Clients that answer with given artifacts, through their defense and over the wire."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import torch

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.style import ClientReply
from fdgpriv.federation.participant import Participant
from fdgpriv.federation.request import Answers, Request
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.federation.wire import Wire


def defended(
    wire: Wire, client: str, verb: str, outgoing: ClientReply, rng: torch.Generator, round: int = 0
) -> Message:
    """`outgoing` as it leaves the client."""
    answering = SimpleNamespace(**{verb: lambda message: outgoing})
    return Participant(client, wire.sizes[client], wire.defense, answering, rng, rng).answer(verb, round, [])


def up(
    wire: Wire,
    client: str,
    verb: str,
    outgoing: ClientReply,
    rng: torch.Generator,
    round: int | None = None,
    wanted: Sequence[ExpectedArtifact] | None = None,
) -> Message:
    """`outgoing` as the server receives it from the client."""
    return wire.receive(client, verb, defended(wire, client, verb, outgoing, rng, round or 0), round, wanted)


def collect(
    wire: Wire, ask: Request, outgoing: Mapping[str, ClientReply], rngs: Mapping[str, torch.Generator]
) -> Answers:
    """By client, these answers as the server receives them."""
    messages = {name: defended(wire, name, ask.verb, reply, rngs[name]) for name, reply in outgoing.items()}
    return wire.collect(ask, messages)
