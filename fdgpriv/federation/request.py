"""Requests of a server to its clients, and the types of a method's server generator."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from fdgpriv.artifacts.artifact import Message, copied_message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.federation.upload import ExpectedArtifact


@dataclass(frozen=True)
class Request:
    """A request of the server: call the method `verb` of each client with its message.

    Attributes:
        verb: Name of the client's method.
        messages: The message to each client asked.
        reduce: ``"mean"`` if the server needs only the (weighted) mean of the answers, so that secure aggregation is
            possible; None if it needs each one.
        weights: By client, its weight in that mean, a whole number that the server knows; None for equal weights, or for
            the sample counts in the answers.
        diagnostics: Diagnostics of the server for the evaluator; never sent.
        number: Round of the answers; None for the latest round in each message.
        evaluated: The global model of this round, for the evaluator, where clients are not sent all of it; never sent.
        wanted: The artifacts that each answer must contain, checked on receipt; empty for none. None disables the
            checks of kinds, counts, tensor names, shapes and dtypes.
    """

    verb: str
    messages: Mapping[str, Message]
    reduce: str | None = None
    weights: Mapping[str, float] | None = None
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    number: int | None = None
    evaluated: ModelState | None = None
    wanted: Sequence[ExpectedArtifact] | None = None

    def round(self, client: str) -> int:
        """The round of this client's answer: `number`, or the latest round in its message, 0 if the message is empty."""
        if self.number is not None:
            return self.number
        return max((artifact.round for artifact in self.messages[client]), default=0)


def copied_request(request: Request) -> Request:
    """The request with copies of its artifacts, one of each, so that a server may change its own in place."""
    copies = copied_message([artifact for message in request.messages.values() for artifact in message])
    by_client = {client: [copies.pop(0) for _ in message] for client, message in request.messages.items()}
    evaluated = None if request.evaluated is None else request.evaluated.copied()
    return replace(request, messages=by_client, evaluated=evaluated)


Answers = dict[str, Message]


Server = Generator[Request, Answers, nn.Module]
