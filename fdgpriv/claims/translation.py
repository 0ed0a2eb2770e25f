"""Leakage of other clients' latent moments through a shared translator (LSI, stage 3)."""

from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState, RepresentationTranslator
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.models.cpu_io import latents_of
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.utils.seeds import generator


def translation(evaluator: Evaluator) -> dict[str, float]:
    """Distance of translated latents' moments to those of another client's real latents; {} if no translator was shared,
    or models without BatchNorm statistics, with which latents do not depend on the client.

    Each client i translates the latents of its images, under the last global model sent, to each other client j, and uses
    their mean and standard deviation as estimates of j's. The error is the Euclidean distance over 2p dimensions, in units
    of their standard deviation over clients. Controls are i's untranslated latents, and translations to clients other than
    j. Figures are means over j: ``translated_error``, ``untranslated_error``, ``elsewhere_error``; ``translation_gain`` is
    the smaller of the two gains over the controls, ``translation_gain_low`` and ``_high`` its 95 % interval over j.
    """
    crossed = [a for _, a in evaluator.transcript.of_kind(RepresentationTranslator.kind) if a is not None]
    model = _last_model(evaluator)
    names = list(evaluator.population.clients)
    method: Any = evaluator.method
    if not crossed or model is None or len(names) < 3 or method.local_statistics:
        return {}
    translator = method.received(crossed[-1], len(names), generator(evaluator.seed, 16))
    latents = [latents_of(model, data.images) for data in evaluator.population.clients.values()]
    with torch.no_grad():
        real = torch.stack([_moments(of_client) for of_client in latents])
        translated = torch.stack(
            [_translated(translator, of_client, i, len(names)) for i, of_client in enumerate(latents)]
        )
    rows = [_errors(translated, real, j) for j in range(len(names))]
    errors = {f"{name}_error": fmean(getattr(row, name) for row in rows) for name in EstimateErrors._fields}
    gain = mean_interval([min(row.untranslated, row.elsewhere) - row.translated for row in rows])
    return errors | gain.named("translation_gain")


class EstimateErrors(NamedTuple):
    """Mean errors of estimates of one client's moments by the others."""

    translated: float
    untranslated: float
    elsewhere: float


def _errors(translated: Tensor, real: Tensor, client: int) -> EstimateErrors:
    """Errors of the estimates of this client's moments, from those translated (i, j, 2, p) and real ones (i, 2, p)."""
    others = [i for i in range(len(real)) if i != client]
    elsewhere = torch.stack([translated[i, j] for i in others for j in others if i != j])
    spread = real.std(0).clamp_min(1e-6)
    estimates = translated[others, client], real[others], elsewhere
    return EstimateErrors(*(_error(estimate, real[client], spread) for estimate in estimates))


def _moments(latents: Tensor) -> Tensor:
    """Mean and standard deviation (2, p) of latents (N, p)."""
    return torch.stack([latents.mean(0), latents.std(0, correction=0)])


def _translated(translator: nn.Module, latents: Tensor, client: int, clients: int) -> Tensor:
    """Moments (clients, 2, p) of the latents (N, p) of client number `client`, translated to each client."""
    source = torch.full((len(latents),), client)
    return torch.stack([_moments(translator(latents, source, torch.full_like(source, to))) for to in range(clients)])


def _error(predictions: Tensor, truth: Tensor, spread: Tensor) -> float:
    """Mean distance of predictions (N, 2, p) to the truth (2, p), in units of `spread` (2, p)."""
    return float(((predictions - truth) / spread).flatten(1).norm(dim=1).mean())


def _last_model(evaluator: Evaluator) -> Any:
    """The last recorded global model in evaluation mode, or None."""
    models = [
        a for record, a in evaluator.transcript.of_kind(ModelState.kind) if record.sender == SERVER and a is not None
    ]
    if not models:
        return None
    model = evaluator.method.model(evaluator.federation, generator(evaluator.seed, 4))
    last = models[-1]
    assert isinstance(last, ModelState)
    last.load_into(model)
    return model.eval()
