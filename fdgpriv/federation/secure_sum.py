"""Secure aggregation: clients add pairwise masks that cancel in the sum, so that the server learns only the sum.

Reference: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017. Values are
fixed-point numbers modulo 2**64, where masks are uniform and the sum is exact. Left out: key agreement (both clients of a
pair draw their mask from one generator that the server does not have) and the recovery from clients that drop out.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact, Message
from fdgpriv.artifacts.parameters import MaskedUpload
from fdgpriv.artifacts.statistics import SampleCount

FRACTION_BITS = 24
Ring = NDArray[np.uint64]


def secure_mean(
    messages: Mapping[str, Message], rng: torch.Generator
) -> tuple[dict[str, list[Artifact]], list[Artifact]]:
    """The masked uploads of each client, and what the server computes from their sum.

    Args:
        messages: By client, its answer; all have artifacts of the same kinds and shapes. If they contain sample counts,
            the other tensors are weighted by them.
        rng: Of the masks.

    Returns:
        By client, its masked uploads; and the mean artifacts, where a sample count is the sum of all.

    Raises:
        ValueError: The answers differ in kinds or shapes, or a sum may overflow.
    """
    clients = list(messages)
    forms = {tuple(_form(artifact) for artifact in message) for message in messages.values()}
    if len(forms) > 1:
        raise ValueError("secure sum: want answers of the same kinds and shapes from all clients, got others")
    weights = {client: _weight(message) for client, message in messages.items()}
    masked: dict[str, list[Artifact]] = {client: [] for client in clients}
    means: list[Artifact] = []
    for place, first in enumerate(messages[clients[0]]):
        whole = isinstance(first, SampleCount)
        rows = {
            client: _encoded(messages[client][place], 1 if whole else weights[client], len(clients))
            for client in clients
        }
        uploads = masked_rows(rows, rng)
        for client, row in uploads.items():
            masked[client].append(_upload(row, messages[client][place]))
        total = _decoded(sum_of(list(uploads.values())))
        means.append(_like(first, total if whole else total / sum(weights.values())))
    return masked, means


def masked_rows(rows: Mapping[str, Ring], rng: torch.Generator) -> dict[str, Ring]:
    """Each client's row (D,) plus its masks: one for each other client, added by the first of the two, subtracted by the
    second.
    """
    clients = list(rows)
    masked = {client: row.copy() for client, row in rows.items()}
    for i, one in enumerate(clients):
        for other in clients[i + 1 :]:
            mask = np.random.default_rng(int(torch.randint(2**62, (), generator=rng))).integers(
                0, 2**64, len(rows[one]), dtype=np.uint64
            )
            masked[one] += mask
            masked[other] -= mask
    return masked


def sum_of(rows: Sequence[Ring]) -> Ring:
    """The sum of rows (D,) modulo 2**64."""
    total = np.zeros_like(rows[0])
    for row in rows:
        total += row
    return total


def _weight(message: Message) -> int:
    counts = [int(artifact.count) for artifact in message if isinstance(artifact, SampleCount)]
    return counts[0] if counts else 1


def _form(artifact: Artifact) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]:
    return artifact.kind, tuple((name, tuple(tensor.shape)) for name, tensor in artifact.tensors().items())


def _encoded(artifact: Artifact, weight: int, clients: int) -> Ring:
    """Its tensors times `weight` as one row (D,) of fixed-point numbers in two's complement."""
    flat = torch.cat([tensor.detach().double().flatten() for tensor in artifact.tensors().values()]) * weight
    scaled = (flat * 2**FRACTION_BITS).round()
    largest = float(scaled.abs().max()) if len(scaled) else 0.0
    if largest * clients >= 2**63:
        raise ValueError(
            f"secure sum: want sums below 2**{63 - FRACTION_BITS}, got values up to {largest / 2**FRACTION_BITS:g} "
            f"of {clients} clients in {artifact.kind}"
        )
    row: Ring = scaled.long().numpy().view(np.uint64)
    return row


def _decoded(row: Ring) -> Tensor:
    """The numbers (D,) float64 of a sum."""
    numbers: Tensor = torch.from_numpy(row.view(np.int64).copy()).double() / 2**FRACTION_BITS
    return numbers


def _upload(row: Ring, artifact: Artifact) -> MaskedUpload:
    masked = torch.from_numpy(row.view(np.int64).copy())
    return MaskedUpload(client=artifact.client, round=artifact.round, state={artifact.kind: masked})


def _like(artifact: Artifact, row: Tensor) -> Artifact:
    """The artifact with the numbers in `row` (D,); whole numbers are rounded down."""
    tensors, begin = {}, 0
    for name, tensor in artifact.tensors().items():
        part = row[begin : begin + tensor.numel()].view(tensor.shape)
        begin += tensor.numel()
        tensors[name] = part.to(tensor.dtype) if tensor.is_floating_point() else (part + 1e-6).floor().to(tensor.dtype)
    return type(artifact).build(tensors, artifact.facts())
