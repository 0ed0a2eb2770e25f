"""The kinds of artifact that adversaries are examined on, each with the craft of making it."""

from collections.abc import Mapping

from fdgpriv.evidence import Evidence
from fdgpriv.federation import Federation
from fdgpriv.partition import Population
from fdgpriv.roles import Defense, Method
from fdgpriv.transcript import Transcript

from .amplitude import AmplitudeCraft, amplitude_subject
from .bn_statistics import StatisticsCraft, statistics_subject
from .embedding import EmbeddingCraft, embedding_subject
from .head import HeadCraft, head_subject
from .importance import ImportanceCraft, importance_subject
from .label_marginal import MarginalCraft, marginal_subject
from .maker import Maker
from .repeated import RepeatedStyles, repeated_subject
from .sample_count import CountCraft, count_subject
from .shared_model import SharedModelCraft, shared_model_subject
from .shared_style import shared_style_subject
from .style import StyleCraft, style_subject
from .subject import Craft, Holding, Subject
from .training import TrainingCraft, for_everybody, training_subject
from .translator import TranslatorCraft, translator_subject
from .validation import ValidationCraft, validation_subject

__all__ = [
    "AmplitudeCraft",
    "CountCraft",
    "Craft",
    "EmbeddingCraft",
    "HeadCraft",
    "Holding",
    "ImportanceCraft",
    "Maker",
    "MarginalCraft",
    "RepeatedStyles",
    "SharedModelCraft",
    "StatisticsCraft",
    "StyleCraft",
    "Subject",
    "TrainingCraft",
    "TranslatorCraft",
    "ValidationCraft",
    "subjects_of",
]


def subjects_of(
    transcript: Transcript,
    method: Method,
    federation: Federation,
    defense: Defense,
    population: Population,
    evidence: Evidence | None,
) -> Mapping[str, Subject[Craft]]:
    """By name, what this run shared that can be examined."""
    trained = training_subject(transcript, method, federation, defense, population)
    began = for_everybody(transcript.models_sent(0), population)
    found = (
        None if evidence is None else style_subject(evidence, defense, repeated_subject(evidence, defense)),
        trained,
        importance_subject(transcript, trained),
        shared_model_subject(transcript, method, federation, defense, population),
        shared_style_subject(transcript, method, evidence, defense),
        amplitude_subject(transcript, defense),
        count_subject(transcript, defense),
        marginal_subject(transcript, defense),
        embedding_subject(transcript, method, federation, defense, population.clients),
        head_subject(transcript, method, federation, defense, population.clients, began),
        translator_subject(transcript, method, federation, defense, population.clients, began),
        statistics_subject(transcript, method, federation, defense, population),
        validation_subject(transcript, method, federation, defense, population),
    )
    return {subject.called: subject for subject in found if subject is not None}
