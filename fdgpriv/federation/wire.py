"""The server's half of the transport between it and its clients: validates, records and delivers every artifact.

The clients' half, which applies defenses, is in `fdgpriv.federation.participant`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fdgpriv.artifacts.artifact import PEER, SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import TOLD, ModelState, TensorState
from fdgpriv.defense import Defense
from fdgpriv.federation.request import Answers, Request
from fdgpriv.federation.secure_sum import secure_mean
from fdgpriv.federation.transcript import Record, Transcript
from fdgpriv.federation.upload import LARGEST, ClientFailed, ExpectedArtifact, client_errors, excessive, faults


class Diverged(ArithmeticError):
    """Training diverged: an artifact or an evaluated model contains NaN, an infinity or excessive values."""


@dataclass
class Wire:
    """Transports the messages of one run.

    Attributes:
        sizes: Number of training samples by client, for the ledger only.
        defense: Applied by each client before it shares; the wire does its part at the server (aggregation, anonymity).
        transcript: Records all transfers.
        masks: Random numbers of secure aggregation, agreed between the clients; not known to the server.
        shared: By kind, the clients that shared such an artifact, as keys.
        latest: By kind and client, the client's latest artifact; network tensors excepted.
    """

    sizes: Mapping[str, int]
    defense: Defense
    transcript: Transcript = field(default_factory=Transcript)
    masks: torch.Generator = field(default_factory=torch.Generator)
    shared: dict[str, dict[str, bool]] = field(default_factory=dict, init=False)
    latest: dict[str, dict[str, Artifact]] = field(default_factory=dict, init=False)
    _checked: Artifact | None = None  # the last artifact checked: one sent to several clients is checked once

    def receive(
        self,
        client: str,
        verb: str,
        message: Message,
        round: int | None = None,
        wanted: Sequence[ExpectedArtifact] | None = None,
    ) -> Message:
        """The defended answer of `client` as the server receives it: validated and recorded.

        Args:
            client: The sender.
            verb: The request.
            message: The answer as it left the client.
            round: The expected round; None to skip the check.
            wanted: The expected artifacts; None to check only conditions that hold for all artifacts of a kind.

        Raises:
            ClientFailed: The answer is invalid; nothing is recorded.
            Diverged: The answer contains NaN, an infinity or excessive values.
        """
        self._check(client, verb, message, round, wanted)
        return self._record_answer(client, verb, message)

    def collect(self, request: Request, messages: Mapping[str, Message]) -> Answers:
        """By client, its answer as the server receives it: validated, recorded, and summed or shuffled.

        Args:
            request: The request.
            messages: By client, its answer as it left the client.

        Raises:
            ClientFailed: An answer is invalid; nothing of it is recorded.
            Diverged: An answer contains NaN, an infinity or excessive values.
        """
        if self.defense.aggregates and request.reduce == "mean":
            for client, message in messages.items():
                self._check(client, request.verb, message, request.round(client), request.wanted)
            return self._aggregated(request, messages)
        answers = {
            client: self.receive(client, request.verb, message, request.round(client), request.wanted)
            for client, message in messages.items()
        }
        if not self.defense.anonymous:
            return answers
        order = torch.randperm(len(answers), generator=self.masks).tolist()
        return dict(zip(answers, [list(answers.values())[i] for i in order], strict=True))

    def _check(
        self,
        client: str,
        verb: str,
        message: Message,
        round: int | None,
        wanted: Sequence[ExpectedArtifact] | None,
    ) -> None:
        """Raises ClientFailed if the answer is invalid."""
        with client_errors(client, verb, round):
            if wanted is not None:
                size = self.sizes[client]
                wanted = [
                    replace(part, least=0) if self.defense.withholds(part.template, size) else part for part in wanted
                ]
            for fault in faults(message, client, round, wanted):
                raise ClientFailed(client, verb, round, fault)

    def _record_answer(self, client: str, verb: str, message: Message) -> Message:
        """Records a client's answer; returns it as it is stored."""
        message = [self._record(artifact, client, SERVER, verb) for artifact in message]
        for artifact in message:
            kind = ModelState.kind if isinstance(artifact, TensorState) else artifact.kind
            self.shared.setdefault(kind, {})[client] = True
            if not isinstance(artifact, TensorState):
                self.latest.setdefault(artifact.kind, {})[client] = artifact
        return message

    def _aggregated(self, request: Request, messages: Mapping[str, Message]) -> Answers:
        """By client, the mean answer of all clients; records the masked uploads."""
        for message in messages.values():
            for artifact in message:
                self._check_finite(artifact, artifact.client)
        colluders = sorted(messages)[len(messages) - min(len(messages), self.defense.colluding) :]
        masked = secure_mean(messages, self.masks, colluders, request.weights)
        for client, uploads in masked.uploads.items():
            self._record_answer(client, request.verb, uploads)
        for client, mask_sums in masked.mask_sums.items():
            self._record_answer(client, TOLD, mask_sums)
        return {client: [artifact.seen_as(client) for artifact in masked.means] for client in messages}

    def down(self, client: str, verb: str, message: Sequence[Artifact], round: int | None = None) -> Message:
        """The server's message as `client` receives it: recorded, with other clients' names replaced.

        Other clients are called peer, peer-2, ... in order of appearance in this message, without the receiver's name.
        `round` is the request's; None for the round of each artifact.
        """
        message = [self._released(artifact, client) for artifact in message]
        message = [self._record(artifact, SERVER, client, verb, round) for artifact in message]
        others = dict.fromkeys(a.client for a in message if a.client not in (SERVER, client))
        pseudonyms = [PEER, *(f"{PEER}-{number}" for number in range(2, len(others) + 2))]
        names = dict(zip(others, [name for name in pseudonyms if name != client], strict=False))
        return [a.seen_as(names[a.client]) if a.client in names else a for a in message]

    def _released(self, artifact: Artifact, receiver: str) -> Artifact:
        """The artifact as the defense lets the server send it, if it is another client's or computed from several clients'."""
        if not isinstance(artifact, Artifact) or artifact.client == receiver:
            return artifact
        kind = artifact.aggregated_from if artifact.client == SERVER else artifact.kind
        if artifact.client == SERVER and kind not in self.latest:
            return artifact
        return self.defense.released(artifact, self.latest.get(kind, {}))

    def _record(self, artifact: Artifact, sender: str, receiver: str, verb: str, round: int | None = None) -> Artifact:
        """Checks and records one transfer; returns the artifact as it is stored. `round` is that of a relay."""
        if not isinstance(artifact, Artifact):
            raise TypeError(f"want an artifact on the wire, got {type(artifact).__name__} from {sender}")
        origin = artifact.client
        clients = list(self.shared.get(artifact.aggregated_from, ())) if origin == SERVER else [origin]
        samples = 1 if artifact.level == "image" else sum(self.sizes[c] for c in clients)
        relay = round if sender == SERVER and origin != SERVER else None
        record = Record.of(artifact, sender, receiver, verb, samples, len(clients), relay)
        self._check_finite(artifact, sender)
        return self.transcript.add(record, artifact)

    def _check_finite(self, artifact: Artifact, sender: str) -> None:
        """Raises Diverged if the artifact contains NaN, an infinity or excessive values."""
        fault = None if artifact is self._checked else _diverged(artifact)
        self._checked = artifact
        if fault is not None:
            raise Diverged(
                f"{sender} sent a {artifact.kind} in round {artifact.round} whose {fault}: training diverged; try a smaller lr"
            )


def _diverged(artifact: Artifact) -> str | None:
    """The first tensor that indicates divergence, with the reason; None if there is none."""
    if (name := artifact.not_finite()) is not None:
        return f"{name} is not finite"
    name = excessive(artifact)
    return None if name is None else f"{name} is beyond {LARGEST:g}"
