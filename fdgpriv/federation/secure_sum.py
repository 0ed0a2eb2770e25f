"""Secure aggregation: clients add pairwise masks that cancel in the sum, so that the server learns only the sum.

Reference: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017. Values are
fixed-point numbers modulo 2**64, where masks are uniform and the sum is exact. Left out: key agreement (both clients of a
pair draw their mask from one generator that the server does not have) and the recovery from clients that drop out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact, Message
from fdgpriv.artifacts.parameters import MaskedUpload
from fdgpriv.artifacts.statistics import SampleCount

FRACTION_BITS = 24
Ring = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Masked:
    """One secure sum.

    Attributes:
        uploads: By client, its masked answer.
        mask_sums: By colluder, the sums of the masks that it shares with honest clients, which it tells the server.
        means: The mean answer, which the server computes from the sum; a sample count is the sum of all.
    """

    uploads: dict[str, list[Artifact]]
    mask_sums: dict[str, list[Artifact]]
    means: list[Artifact]


def secure_mean(
    messages: Mapping[str, Message],
    rng: torch.Generator,
    colluders: Collection[str] = (),
    public_weights: Mapping[str, float] | None = None,
) -> Masked:
    """The masked answers of clients, and their mean.

    Args:
        messages: By client, its answer; all have artifacts of the same kinds and shapes. If they contain sample counts,
            the other tensors are weighted by them.
        rng: Of the masks.
        colluders: Clients that tell the server the masks that they share with others.
        public_weights: By client, a whole number that the server knows; None for the sample counts in the answers, or
            equal weights if there are none.

    Raises:
        ValueError: The answers differ in kinds or shapes, or a sum may overflow.
    """
    clients = list(messages)
    forms = {tuple(_form(artifact) for artifact in message) for message in messages.values()}
    if len(forms) > 1:
        raise ValueError("secure sum: want answers of the same kinds and shapes from all clients, got others")
    weights = {
        client: _weight(message) if public_weights is None else int(public_weights[client])
        for client, message in messages.items()
    }
    masked = Masked({client: [] for client in clients}, {client: [] for client in colluders}, [])
    for number, first in enumerate(messages[clients[0]]):
        is_count = isinstance(first, SampleCount)
        rows = {
            client: _encoded(messages[client][number], 1 if is_count else weights[client], len(clients))
            for client in clients
        }
        uploads, mask_sums = masked_rows(rows, rng, colluders)
        for client, row in uploads.items():
            masked.uploads[client].append(_upload(row, messages[client][number]))
        for client, row in mask_sums.items():
            masked.mask_sums[client].append(_upload(row, messages[client][number]))
        total = _decoded(sum_of(list(uploads.values())))
        masked.means.append(with_values(first, total if is_count else total / sum(weights.values())))
    return masked


def masked_rows(
    rows: Mapping[str, Ring], rng: torch.Generator, colluders: Collection[str] = ()
) -> tuple[dict[str, Ring], dict[str, Ring]]:
    """By client, its masked row (D,); by colluder, the sum (D,) of the masks that it shares with honest clients.

    Each pair of clients shares one mask: the first client of the pair adds it, the second subtracts it.
    """
    clients = list(rows)
    masked = {client: row.copy() for client, row in rows.items()}
    mask_sums = {client: np.zeros_like(rows[client]) for client in colluders}
    for i, client in enumerate(clients):
        for other in clients[i + 1 :]:
            mask = np.random.default_rng(int(torch.randint(2**62, (), generator=rng))).integers(
                0, 2**64, len(rows[client]), dtype=np.uint64
            )
            masked[client] += mask
            masked[other] -= mask
            if client in mask_sums and other not in mask_sums:
                mask_sums[client] += mask
            if other in mask_sums and client not in mask_sums:
                mask_sums[other] -= mask
    return masked, mask_sums


def honest_sum(uploads: Iterable[MaskedUpload], mask_sums: Iterable[MaskedUpload]) -> Tensor:
    """The sum (D,) float64 of the honest clients' answers, from their uploads and all colluders' sums of masks."""
    rows = [tensor.numpy().view(np.uint64) for upload in (*uploads, *mask_sums) for tensor in upload.state.values()]
    return _decoded(sum_of(rows))


def sum_of(rows: Sequence[Ring]) -> Ring:
    """The sum of rows (D,) modulo 2**64."""
    total = np.zeros_like(rows[0])
    for row in rows:
        total += row
    return total


def _weight(message: Message) -> int:
    """The sample count in the answer; 1 if there is none."""
    counts = [int(artifact.count) for artifact in message if isinstance(artifact, SampleCount)]
    return counts[0] if counts else 1


def _form(artifact: Artifact) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]:
    """Its kind, and the names and shapes of its tensors."""
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


def with_values(artifact: Artifact, row: Tensor) -> Artifact:
    """The artifact with its values replaced by `row` (D,); integer tensors are rounded down."""
    tensors, begin = {}, 0
    for name, tensor in artifact.tensors().items():
        part = row[begin : begin + tensor.numel()].view(tensor.shape)
        begin += tensor.numel()
        tensors[name] = part.to(tensor.dtype) if tensor.is_floating_point() else (part + 1e-6).floor().to(tensor.dtype)
    return type(artifact).build(tensors, artifact.facts())
