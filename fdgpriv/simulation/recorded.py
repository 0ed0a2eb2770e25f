"""All kinds of artifact of one run that adversaries are evaluated on."""

from collections.abc import Mapping
from dataclasses import replace

from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.partition import Population
from fdgpriv.federation.transcript import Transcript
from fdgpriv.simulation.amplitude import amplitude_series
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.bn_statistics import statistics_series
from fdgpriv.simulation.embedding import embedding_series
from fdgpriv.simulation.head import head_series
from fdgpriv.simulation.honest_mean import honest_mean_series
from fdgpriv.simulation.importance import importance_series
from fdgpriv.simulation.label_marginal import marginal_series
from fdgpriv.simulation.recorded_styles import RecordedStyles
from fdgpriv.simulation.sample_count import count_series
from fdgpriv.simulation.shared_model import shared_model_series
from fdgpriv.simulation.shared_style import shared_style_series
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.style import style_series
from fdgpriv.simulation.training import received_models, training_series
from fdgpriv.simulation.translator import translator_series
from fdgpriv.simulation.validation import validation_series


def recorded_series(
    transcript: Transcript,
    method: FederatedMethod,
    federation: Federation,
    defense: Defense,
    population: Population,
    recorded_styles: RecordedStyles | None,
) -> Mapping[str, ArtifactSeries[Simulator]]:
    """By name, the artifacts of this run that can be evaluated, each with its simulator."""
    trained = training_series(transcript, method, federation, defense, population)
    first_models = received_models(transcript.models_sent(0), population)
    series_or_none = (
        None if recorded_styles is None else style_series(recorded_styles, defense),
        trained,
        importance_series(transcript, trained),
        shared_model_series(transcript, method, federation, defense, population),
        honest_mean_series(transcript, method, federation, defense, population),
        shared_style_series(transcript, method, recorded_styles, defense),
        amplitude_series(transcript, defense),
        count_series(transcript, defense),
        marginal_series(transcript, defense),
        embedding_series(transcript, method, federation, defense, population.clients),
        head_series(transcript, method, federation, defense, population.clients, first_models),
        translator_series(transcript, method, federation, defense, population.clients, first_models),
        statistics_series(transcript, method, federation, defense, population),
        validation_series(transcript, method, federation, defense, population),
    )
    recorded = [series for series in series_or_none if series is not None]
    if defense.anonymous:  # nobody knows which artifacts of several rounds are one client's
        recorded = [replace(series, history=()) for series in recorded]
    return {series.called: _as_shared(series, defense, population) for series in recorded}


def _as_shared(
    series: ArtifactSeries[Simulator], defense: Defense, population: Population
) -> ArtifactSeries[Simulator]:
    """The series without the shadow clients that would have withheld theirs."""
    example = next(iter(series.wire.values()), None)
    if example is None:
        return series
    withheld = frozenset(name for name, data in population.shadows.items() if defense.withholds(example, len(data)))
    if not withheld:
        return series
    return replace(series, withheld=withheld)
