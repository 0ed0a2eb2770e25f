"""Calls a method's own client as the server would, to simulate its answer."""

from typing import Any, TypeVar

from fdgpriv.artifacts.artifact import Artifact, Message

A = TypeVar("A", bound=Artifact)


def answered(client: Any, verb: str, received_model: Artifact, kind: type[A]) -> A:
    """The one artifact of this kind in the client's answer to `verb`, given the received artifact."""
    answer: Message = getattr(client, verb)([received_model])
    (found,) = (artifact for artifact in answer if isinstance(artifact, kind))
    return found
