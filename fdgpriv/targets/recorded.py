"""All kinds of artifact of one run that adversaries are evaluated on."""

from collections.abc import Mapping
from dataclasses import replace

from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.partition import Population
from fdgpriv.federation.transcript import Transcript
from fdgpriv.targets.amplitude import amplitude_target
from fdgpriv.targets.bn_statistics import statistics_target
from fdgpriv.targets.embedding import embedding_target
from fdgpriv.targets.head import head_target
from fdgpriv.targets.honest_mean import honest_mean_target
from fdgpriv.targets.importance import importance_target
from fdgpriv.targets.label_marginal import marginal_target
from fdgpriv.targets.recorded_styles import RecordedStyles
from fdgpriv.targets.sample_count import count_target
from fdgpriv.targets.shared_model import shared_model_target
from fdgpriv.targets.shared_style import shared_style_target
from fdgpriv.targets.simulator import Simulator
from fdgpriv.targets.style import style_target
from fdgpriv.targets.target import Target
from fdgpriv.targets.training import received_models, training_target
from fdgpriv.targets.translator import translator_target
from fdgpriv.targets.validation import validation_target


def recorded_targets(
    transcript: Transcript,
    method: FederatedMethod,
    federation: Federation,
    defense: Defense,
    population: Population,
    evidence: RecordedStyles | None,
) -> Mapping[str, Target[Simulator]]:
    """By name, the artifacts of this run that can be evaluated, each with its simulator."""
    trained = training_target(transcript, method, federation, defense, population)
    first_models = received_models(transcript.models_sent(0), population)
    found = (
        None if evidence is None else style_target(evidence, defense),
        trained,
        importance_target(transcript, trained),
        shared_model_target(transcript, method, federation, defense, population),
        honest_mean_target(transcript, method, federation, defense, population),
        shared_style_target(transcript, method, evidence, defense),
        amplitude_target(transcript, defense),
        count_target(transcript, defense),
        marginal_target(transcript, defense),
        embedding_target(transcript, method, federation, defense, population.clients),
        head_target(transcript, method, federation, defense, population.clients, first_models),
        translator_target(transcript, method, federation, defense, population.clients, first_models),
        statistics_target(transcript, method, federation, defense, population),
        validation_target(transcript, method, federation, defense, population),
    )
    known = [target for target in found if target is not None]
    if defense.anonymous:  # nobody knows which artifacts of several rounds are one client's
        known = [replace(target, history=()) for target in known]
    return {target.called: _as_shared(target, defense, population) for target in known}


def _as_shared(target: Target[Simulator], defense: Defense, population: Population) -> Target[Simulator]:
    """The target without the shadow clients that would have withheld theirs."""
    like = next(iter(target.wire.values()), None)
    if like is None:
        return target
    few = frozenset(name for name, data in population.shadows.items() if defense.withholds(like, len(data)))
    if not few:
        return target
    return replace(target, withheld=few)
