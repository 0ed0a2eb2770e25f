"""All artifact series of one run that can be evaluated."""

from collections.abc import Mapping
from dataclasses import replace

from fdgpriv.defense import Defense
from fdgpriv.federation.partition import Population
from fdgpriv.simulation.amplitude import amplitude_series
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.bn_statistics import statistics_series
from fdgpriv.simulation.embedding import embedding_series
from fdgpriv.simulation.head import head_series, relayed_head_series
from fdgpriv.simulation.honest_mean import honest_mean_series
from fdgpriv.simulation.importance import importance_series
from fdgpriv.simulation.label_marginal import marginal_series
from fdgpriv.simulation.prototypes import prototype_series
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.sample_count import count_series
from fdgpriv.simulation.shared_model import shared_model_series
from fdgpriv.simulation.shared_style import shared_style_series
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.style import style_series
from fdgpriv.simulation.training import training_series
from fdgpriv.simulation.translator import translator_series
from fdgpriv.simulation.validation import evaluation_series, validation_series


def recorded_series(run: RecordedRun) -> Mapping[str, ArtifactSeries[Simulator]]:
    """By name, the artifacts of this run that can be evaluated, each with its simulator."""
    trained = training_series(run)
    series_or_none = (
        style_series(run),
        trained,
        importance_series(run, trained),
        shared_model_series(run),
        honest_mean_series(run),
        shared_style_series(run),
        amplitude_series(run),
        count_series(run),
        marginal_series(run),
        embedding_series(run),
        head_series(run),
        relayed_head_series(run, trained),
        prototype_series(run),
        translator_series(run),
        statistics_series(run),
        validation_series(run),
        evaluation_series(run),
    )
    not_evaluated = run.method.disclosure().not_evaluated
    recorded = [series for series in series_or_none if series is not None and series.called not in not_evaluated]
    if run.defense.anonymous:  # artifacts of one client in several rounds cannot be recognised
        recorded = [replace(series, history=()) for series in recorded]
    return {series.called: _without_withheld(series, run.defense, run.population) for series in recorded}


def _without_withheld(
    series: ArtifactSeries[Simulator], defense: Defense, population: Population
) -> ArtifactSeries[Simulator]:
    """The series without the shadow clients whose artifacts the defense would have withheld."""
    example = next(iter(series.wire.values()), None)
    if example is None:
        return series
    withheld = frozenset(name for name, data in population.shadows.items() if defense.withholds(example, len(data)))
    if not withheld:
        return series
    return replace(series, withheld=withheld)
