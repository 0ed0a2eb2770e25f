"""What a server asks of its clients, and the types of a method's server generator."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.federation.upload import Wanted


@dataclass(frozen=True)
class Ask:
    """What the server asks of its clients: call `verb` on each with its message.

    Attributes:
        verb: The client's method.
        messages: What each asked client is sent.
        reduce: ``"mean"`` where the server needs only the (weighted) mean of the answers, so that secure aggregation
            may stand in; None where it needs each one.
        noted: What the server noted of its own work, for the evaluator; it crosses no wire.
        after: After how many rounds the model in it is, for the evaluator; None for the round that the model names. A model
            that is sent in round r is the one after r rounds.
        wanted: What each client's answer must hold, which the wire then checks; empty for nothing. None does not say: then
            kinds, numbers of artifacts, tensor names, shapes and dtypes are not checked.
    """

    verb: str
    messages: Mapping[str, Message]
    reduce: str | None = None
    noted: Mapping[str, float] = field(default_factory=dict)
    after: int | None = None
    wanted: Sequence[Wanted] | None = None

    def round(self, client: str) -> int:
        """The round that this client is asked to answer for: the latest of what it is sent, 0 where it is sent nothing."""
        return max((artifact.round for artifact in self.messages[client]), default=0)


Answers = dict[str, Message]


Server = Generator[Ask, Answers, nn.Module]
