"""Target: the mean model of the honest clients of a secure sum, which the server computes with clients that collude."""

from dataclasses import replace

from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import TOLD, MaskedUpload, ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.partition import Population
from fdgpriv.federation.secure_sum import honest_sum, like
from fdgpriv.federation.transcript import Transcript
from fdgpriv.targets.shared_model import SharedModelSimulator, model_of_several
from fdgpriv.targets.simulator import Simulator, like_any
from fdgpriv.targets.target import Target
from fdgpriv.threat import Capability

HONEST_MEAN = "honest_mean"


def honest_mean_target(
    transcript: Transcript, method: FederatedMethod, federation: Federation, defense: Defense, population: Population
) -> Target[Simulator] | None:
    """The mean of the models that the honest clients trained in the last stored round; None where nobody colludes.

    An artifact of few images is that mean after one client with these images trained it further, as of a global model.
    """
    found = honest_mean(transcript)
    if found is None or method.disclosure().training is None:
        return None
    mean, honest = found
    simulator = SharedModelSimulator(ModelState.kind, method, federation, defense, like_any(population.clients), 0)
    target = model_of_several(HONEST_MEAN, simulator, dict.fromkeys(honest, mean))
    return replace(target, needs=frozenset({Capability.HAS_UPDATES}))


def honest_mean(transcript: Transcript) -> tuple[ModelState, tuple[str, ...]] | None:
    """The honest clients' mean model of the last stored round of sums, and their names; None where none or all collude."""
    told, masked = dict[int, list[tuple[str, MaskedUpload]]](), dict[int, list[tuple[str, MaskedUpload]]]()
    for record, artifact in transcript.of_kind(MaskedUpload.kind):
        if isinstance(artifact, MaskedUpload):
            of_round = told if record.verb == TOLD else masked
            of_round.setdefault(record.round, []).append((record.origin, artifact))
    rounds = [round for round in told if transcript.models_sent(round)]
    if not rounds:
        return None
    last = max(rounds)
    colluders = {client for client, _ in told[last]}
    honest = tuple(sorted({client for client, _ in masked[last]} - colluders))
    if not honest:
        return None

    def total(kind: str) -> Tensor:
        uploads = [one for client, one in masked[last] if client in honest and kind in one.state]
        return honest_sum(uploads, [one for _, one in told[last] if kind in one.state])

    kinds = {name for _, one in masked[last] for name in one.state}
    if ModelState.kind not in kinds:
        return None
    count = float(total(SampleCount.kind)) if SampleCount.kind in kinds else len(honest)
    received = next(iter(transcript.models_sent(last).values()))
    mean = like(received, total(ModelState.kind) / count)
    assert isinstance(mean, ModelState)
    return replace(mean, client=SERVER), honest
