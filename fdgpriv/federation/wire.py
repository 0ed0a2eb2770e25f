"""The only way between server and clients: it lets defenses act, records every artifact, and delivers it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fdgpriv.artifacts.artifact import PEER, SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ModelState, TensorState
from fdgpriv.artifacts.style import Outgoing
from fdgpriv.defense import Defense
from fdgpriv.federation.transcript import Record, Transcript
from fdgpriv.federation.upload import LARGEST, ClientFailed, Wanted, absurd, blaming, faults


class Diverged(ArithmeticError):
    """NaN or an infinity was shared, or came of an evaluated model: training diverged, and nothing may be made of it."""


@dataclass
class Wire:
    """Carries messages for one run.

    Attributes:
        sizes: By client, how many samples it trains on (for the ledger only; nobody is told).
        defense: What each client does before it shares.
        transcript: Where everything is recorded.
    """

    sizes: Mapping[str, int]
    defense: Defense
    transcript: Transcript = field(default_factory=Transcript)
    _checked: Artifact | None = None  # one that is sent to many is looked through once
    _shared: dict[str, set[str]] = field(default_factory=dict)  # by kind, the clients that shared one

    def up(
        self,
        client: str,
        verb: str,
        outgoing: Outgoing,
        rng: torch.Generator,
        round: int | None = None,
        wanted: Sequence[Wanted] | None = None,
    ) -> Message:
        """What the server receives of what `client` wants to share: defended, checked, recorded.

        Args:
            client: Who answers.
            verb: What it was asked.
            outgoing: Its answer.
            rng: Of the defense.
            round: For which it was asked; None is not checked.
            wanted: What the answer must hold; None checks only what holds for every artifact of its kind.

        Raises:
            ClientFailed: The answer is not what was asked for; nothing of it is recorded.
            Diverged: It is, but holds NaN or an infinity.
        """
        with blaming(client, verb, round):
            if not isinstance(outgoing, list | tuple):
                raise ClientFailed(client, verb, round, f"want a list of artifacts, got {type(outgoing).__name__}")
            message = [self.defense.protect(item, rng) for item in outgoing]
            for fault in faults(message, client, round, wanted):
                raise ClientFailed(client, verb, round, fault)
        for artifact in message:
            self._record(artifact, client, SERVER, verb)
        for artifact in message:
            kind = ModelState.kind if isinstance(artifact, TensorState) else artifact.kind
            self._shared.setdefault(kind, set()).add(client)
        return message

    def down(self, client: str, verb: str, message: Sequence[Artifact]) -> Message:
        """What `client` receives of what the server sends it: recorded, other clients' names taken off.

        They are peer, peer-2, ... of this message, in the order in which they come: only whose artifacts belong
        together can be told.
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
        granularity = sorted(self._shared.get(artifact.aggregated_from, ())) if origin == SERVER else [origin]
        samples = 1 if artifact.level == "image" else sum(self.sizes[c] for c in granularity)
        record = Record.of(artifact, sender, receiver, verb, samples, len(granularity))
        wrong = None if artifact is self._checked else _diverged(artifact)
        self._checked = artifact
        if wrong is not None:
            raise Diverged(
                f"{sender} sent a {artifact.kind} in round {artifact.round} whose {wrong}: training diverged; try a smaller lr"
            )
        self.transcript.add(record, artifact)


def _diverged(artifact: Artifact) -> str | None:
    """Which of its tensors only a training that diverged gives, and why; None where none is."""
    if (name := artifact.not_finite()) is not None:
        return f"{name} is not finite"
    name = absurd(artifact)
    return None if name is None else f"{name} is beyond {LARGEST:g}"
