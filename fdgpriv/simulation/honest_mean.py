"""Artifact kind: the mean model of a secure sum's honest clients, which the server computes with colluding clients."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import TOLD, MaskedUpload, ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.federation.secure_sum import honest_sum, with_values
from fdgpriv.federation.transcript import Transcript
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.shared_model import model_of_several, shared_model_simulator
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.threat import Capability

HONEST_MEAN = "honest_mean"


def honest_mean_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The mean model of the honest clients in the last stored round; None if no client colludes.

    The artifact of few images is that mean after further training by one client with these images, as for a global model.
    """
    means = honest_means(run.transcript)
    if not means or run.method.disclosure().training is None:
        return None
    *earlier_rounds, last = sorted(means)
    mean, honest = means[last]
    simulator = shared_model_simulator(run)
    series = model_of_several(HONEST_MEAN, simulator, dict.fromkeys(honest, mean))
    history = []
    for round in earlier_rounds:
        earlier_mean, earlier_honest = means[round]
        if earlier_honest == honest:
            models = dict.fromkeys(honest, earlier_mean)
            history.append(EarlierRound(round, simulator, models, models))
    return replace(series, needs=frozenset({Capability.HAS_UPDATES}), number=last, history=tuple(history))


def honest_means(transcript: Transcript) -> dict[int, tuple[ModelState, tuple[str, ...]]]:
    """By stored round with sums, the honest clients' mean model and their names; without rounds in which all collude."""
    mask_shares, masked = dict[int, list[tuple[str, MaskedUpload]]](), dict[int, list[tuple[str, MaskedUpload]]]()
    for record, artifact in transcript.of_kind(MaskedUpload.kind):
        if isinstance(artifact, MaskedUpload):
            uploads_by_round = mask_shares if record.verb == TOLD else masked
            uploads_by_round.setdefault(record.round, []).append((record.origin, artifact))
    means = {}
    for round in mask_shares:
        received = next(iter(transcript.models_sent(round).values()), None)
        if (
            received is not None
            and (mean := _honest_mean(mask_shares[round], masked.get(round, []), received)) is not None
        ):
            means[round] = mean
    return means


def _honest_mean(
    mask_shares: Sequence[tuple[str, MaskedUpload]], masked: Sequence[tuple[str, MaskedUpload]], received: ModelState
) -> tuple[ModelState, tuple[str, ...]] | None:
    """The honest clients' mean model and names in one round, from masked uploads and the colluders' sums of masks."""
    colluders = {client for client, _ in mask_shares}
    honest = tuple(sorted({client for client, _ in masked} - colluders))
    if not honest:
        return None

    def total(kind: str) -> Tensor:
        uploads = [upload for client, upload in masked if client in honest and kind in upload.state]
        return honest_sum(uploads, [upload for _, upload in mask_shares if kind in upload.state])

    kinds = {name for _, upload in masked for name in upload.state}
    if ModelState.kind not in kinds:
        return None
    count = float(total(SampleCount.kind)) if SampleCount.kind in kinds else len(honest)
    mean = with_values(received, total(ModelState.kind) / count)
    assert isinstance(mean, ModelState)
    return replace(mean, client=SERVER), honest
