"""Transport between server and clients: applies defenses, validates, records and delivers every artifact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fdgpriv.artifacts.artifact import PEER, SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState, TensorState
from fdgpriv.artifacts.style import Outgoing
from fdgpriv.defense import Defense
from fdgpriv.federation.transcript import Record, Transcript
from fdgpriv.federation.upload import LARGEST, ClientFailed, Wanted, client_errors, excessive, faults


class Diverged(ArithmeticError):
    """Training diverged: an artifact or an evaluated model contains NaN, an infinity or excessive values."""


@dataclass
class Wire:
    """Transports the messages of one run.

    Attributes:
        sizes: Number of training samples by client, for the ledger only.
        defense: Applied by each client before it shares.
        transcript: Records all transfers.
        shared: By kind, the clients that shared one, as keys.
    """

    sizes: Mapping[str, int]
    defense: Defense
    transcript: Transcript = field(default_factory=Transcript)
    shared: dict[str, dict[str, bool]] = field(default_factory=dict, init=False)
    _checked: Artifact | None = None  # the last artifact checked: one sent to several clients is checked once

    def up(
        self,
        client: str,
        verb: str,
        outgoing: Outgoing,
        rng: torch.Generator,
        round: int | None = None,
        wanted: Sequence[Wanted] | None = None,
    ) -> Message:
        """The answer of `client` as the server receives it: defended, validated and recorded.

        Args:
            client: The sender.
            verb: The request.
            outgoing: The answer before the defense.
            rng: Of the defense.
            round: The expected round; None to skip the check.
            wanted: The expected artifacts; None to check only conditions that hold for all artifacts of a kind.

        Raises:
            ClientFailed: The answer is invalid; nothing is recorded.
            Diverged: The answer contains NaN, an infinity or excessive values.
        """
        with client_errors(client, verb, round):
            if not isinstance(outgoing, list | tuple):
                raise ClientFailed(client, verb, round, f"want a list of artifacts, got {type(outgoing).__name__}")
            message = [self.defense.protect(item, rng) for item in outgoing]
            for fault in faults(message, client, round, wanted):
                raise ClientFailed(client, verb, round, fault)
        for artifact in message:
            self._record(artifact, client, SERVER, verb)
        for artifact in message:
            kind = ModelState.kind if isinstance(artifact, TensorState) else artifact.kind
            self.shared.setdefault(kind, {})[client] = True
        return message

    def down(self, client: str, verb: str, message: Sequence[Artifact]) -> Message:
        """The server's message as `client` receives it: recorded, with other clients' names replaced.

        Other clients are called peer, peer-2, ... in order of appearance in this message.
        """
        for artifact in message:
            self._record(artifact, SERVER, client, verb)
        others = dict.fromkeys(a.client for a in message if a.client not in (SERVER, client))
        names = {name: PEER if number == 1 else f"{PEER}-{number}" for number, name in enumerate(others, start=1)}
        return [a.seen_as(names[a.client]) if a.client in names else a for a in message]

    def _record(self, artifact: Artifact, sender: str, receiver: str, verb: str) -> None:
        if not isinstance(artifact, Artifact):
            raise TypeError(f"want an artifact on the wire, got {type(artifact).__name__} from {sender}")
        origin = artifact.client
        clients = sorted(self.shared.get(artifact.aggregated_from, {})) if origin == SERVER else [origin]
        samples = 1 if artifact.level == "image" else sum(self.sizes[c] for c in clients)
        record = Record.of(artifact, sender, receiver, verb, samples, len(clients))
        fault = None if artifact is self._checked else _diverged(artifact)
        self._checked = artifact
        if fault is not None:
            raise Diverged(
                f"{sender} sent a {artifact.kind} in round {artifact.round} whose {fault}: training diverged; try a smaller lr"
            )
        self.transcript.add(record, artifact)


def _diverged(artifact: Artifact) -> str | None:
    """The first tensor that indicates divergence, with the reason; None if there is none."""
    if (name := artifact.not_finite()) is not None:
        return f"{name} is not finite"
    name = excessive(artifact)
    return None if name is None else f"{name} is beyond {LARGEST:g}"
