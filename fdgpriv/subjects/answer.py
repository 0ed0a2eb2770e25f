"""What a method's own client answers, asked as the server asks it."""

from typing import Any, TypeVar

from fdgpriv.artifact import Artifact, Message

A = TypeVar("A", bound=Artifact)


def answered(client: Any, verb: str, sent: Artifact, kind: type[A]) -> A:
    """The one artifact of this kind in the answer to `verb`, sent with this artifact."""
    answer: Message = getattr(client, verb)([sent])
    (found,) = (artifact for artifact in answer if isinstance(artifact, kind))
    return found
