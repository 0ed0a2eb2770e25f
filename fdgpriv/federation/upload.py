"""Validates a client's answer: sender, round, kinds, tensor names, shapes, dtypes and value ranges.

The expected values come from the server: the round of its message and each `ExpectedArtifact` that its method declares.
A client may still send false values within these limits: parameters of honest trainings have no tight bound, so only
excessive ones are rejected, as divergence.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact, extremes, out_of_range
from fdgpriv.artifacts.parameters import STATISTICS, TensorState
from fdgpriv.utils.failures import ends_the_run

# Maximum absolute value of a parameter or its change. Parameters of classifiers are below 100; a million means divergence
# or a false value. BatchNorm statistics and importances scale with the features and may be larger.
LARGEST = 1e6
_SHOWN = 300  # maximum characters of a client's text in an error message


class ClientFailed(ValueError):
    """A client's answer is invalid, or its code raised an exception; the message names client, verb and round.

    Attributes:
        verb: The request.
        reason: What is wrong.
    """

    def __init__(self, client: str, verb: str, round: int | None, reason: str) -> None:
        self.verb, self.reason = verb, reason
        during = verb if round is None else f"{verb} of round {round}"
        text = " ".join(reason.split())[:_SHOWN]
        super().__init__(f"{client} failed in {during}: {''.join(c if c.isprintable() else '?' for c in text)}")


@contextmanager
def client_errors(client: str, verb: str, round: int | None) -> Iterator[None]:
    """Converts exceptions of the client's code, except that of a full disk, to ClientFailed with the exception as cause."""
    try:
        yield
    except ClientFailed:
        raise
    except Exception as error:
        if ends_the_run(error):
            raise
        raise ClientFailed(client, verb, round, f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, eq=False)
class ExpectedArtifact:
    """Artifacts of one kind that the server expects in each client's answer.

    Attributes:
        template: An artifact with the expected kind, tensor names, shapes, dtypes and facts; its client and round are
            ignored. Of its values only BatchNorm counters are used: a client's may exceed them by at most `MAX_COUNT`.
        least, most: Bounds on the number of artifacts.
        signed: Whether values may be negative.
    """

    template: Artifact
    least: int = 1
    most: int = 1
    signed: bool = True


def excessive(artifact: Artifact) -> str | None:
    """The name of a parameter with an absolute value above `LARGEST`, or None."""
    if not isinstance(artifact, TensorState) or not artifact.limits_parameters:
        return None
    parameters = ((name, tensor) for name, tensor in artifact.state.items() if not name.endswith(STATISTICS))
    return next((name for name, tensor in parameters if max(map(abs, extremes(tensor))) > LARGEST), None)


def faults(
    message: Sequence[object], client: str, round: int | None, wanted: Sequence[ExpectedArtifact] | None
) -> Iterator[str]:
    """The errors in a client's defended answer, each as "want ..., got ..."; use the first one only.

    Args:
        message: The answer.
        client: The sender.
        round: The expected round; None to skip the check.
        wanted: The expected artifacts; None to skip the checks of kinds, counts, names, shapes and dtypes.
    """
    artifacts = [artifact for artifact in message if isinstance(artifact, Artifact)]
    if len(artifacts) < len(message):
        other = next(type(item) for item in message if not isinstance(item, Artifact))
        yield f"want an artifact on the wire, got {other.__name__}"
    for part in wanted or ():
        count = sum(_matches(artifact, part, wanted or ()) for artifact in artifacts)
        if not part.least <= count <= part.most:
            numbers = str(part.least) if part.least == part.most else f"{part.least} to {part.most}"
            yield f"want {numbers} {part.template.kind}, got {count}"
    for artifact in artifacts:
        fitting = [part for part in wanted or () if _matches(artifact, part, wanted or ())]
        if wanted is not None and not fitting:
            kinds = ", ".join(part.template.kind for part in wanted)
            yield f"want {kinds or 'no artifact'}, got {artifact.kind}"
        for fault in _artifact_faults(artifact, client, round, fitting[0] if fitting else None):
            yield f"{artifact.kind}: {fault}"


def _matches(artifact: Artifact, part: ExpectedArtifact, wanted: Sequence[ExpectedArtifact]) -> bool:
    """Whether `part` describes this artifact: the only part of its kind, or of several the one with its facts."""
    if type(artifact) is not type(part.template):
        return False
    is_only = sum(type(other.template) is type(artifact) for other in wanted) == 1
    return is_only or _protocol_facts(artifact) == _protocol_facts(part.template)


def _protocol_facts(artifact: Artifact) -> dict[str, str | int | float | bool | None]:
    return {name: value for name, value in artifact.facts().items() if name not in ("client", "round")}


def _artifact_faults(
    artifact: Artifact, client: str, round: int | None, wanted: ExpectedArtifact | None
) -> Iterator[str]:
    """The errors in one artifact of the answer: sender, round, layout, form and values."""
    if artifact.client != client:
        yield f"want client {client}, got {artifact.client}"
    if round is not None and (type(artifact.round) is not int or artifact.round != round):
        yield f"want round {round}, got {artifact.round!r}"
    if isinstance(artifact, TensorState) and not isinstance(artifact.state, dict):
        yield f"want state to be a dictionary of tensors, got {type(artifact.state).__name__}"
    for name, tensor in artifact.tensors().items():
        if not isinstance(tensor, Tensor):
            yield f"want {name} to be a tensor, got {type(tensor).__name__}"
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.device.type != "cpu":
            yield f"want {name} dense in CPU memory, got {str(tensor.layout).removeprefix('torch.')} on {tensor.device}"
    if wanted is not None:
        yield from _differences(artifact, wanted.template)
    yield from artifact.impossible_values(None if wanted is None else wanted.template)
    if wanted is not None and not wanted.signed:
        for name, tensor in artifact.tensors().items():
            yield from out_of_range(name, tensor, 0)


def _differences(artifact: Artifact, template: Artifact) -> Iterator[str]:
    """Differences in names, shapes, dtypes and facts from the template."""
    tensors, expected = artifact.tensors(), template.tensors()
    for name in expected:
        if name not in tensors:
            yield f"want the tensor {name}, got none of that name"
    for name in tensors:
        if name not in expected:
            yield f"want no tensor {name}, got one"
    for name, tensor in expected.items():
        if tensors[name].shape != tensor.shape or tensors[name].dtype != tensor.dtype:
            yield f"want {name} {_form(tensor)}, got {_form(tensors[name])}"
    facts = artifact.facts()
    for name, value in _protocol_facts(template).items():
        if facts.get(name) != value:
            yield f"want {name} {value}, got {facts.get(name)}"


def _form(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
