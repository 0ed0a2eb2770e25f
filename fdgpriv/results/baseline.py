"""Which FedAvg run a method's accuracy is compared with: one whose server weighs clients as the method's does."""

from collections.abc import Mapping, Sequence

from fdgpriv.federation.weights import Weights
from fdgpriv.utils.defaults import BASELINE

TrainingKey = tuple[int, str]  # seed, target
WeightsOf = Mapping[TrainingKey, Weights | None]  # None: the method averages no models, or it is not known
_WORDS = {"samples": "by their numbers of images", "uniform": "equally"}


def is_baseline(method: str) -> bool:
    """Whether this specification is FedAvg's."""
    return method.partition(":")[0] == BASELINE


def matched(method: str, weights: Mapping[str, WeightsOf]) -> str | None:
    """The first FedAvg with the weights of `method` in every training of both; None if there is none.

    A method that averages no models has the first FedAvg.

    Args:
        method: The specification of a method.
        weights: By specification, in the order of the report, the weights of each training.
    """
    return next((base for base in weights if is_baseline(base) and _alike(weights[method], weights[base])), None)


def unmatched(method: str, weights: Mapping[str, WeightsOf]) -> str | None:
    """Why `method` is compared with no FedAvg although there is one, and what to add; None where neither is so."""
    bases = [base for base in weights if is_baseline(base)]
    if not bases or is_baseline(method) or matched(method, weights):
        return None
    other = next((wanted for wanted in weights[method].values() if wanted is not None), None)
    assert other is not None
    return (
        f"{method} weighs clients {_WORDS[other]}, {' and '.join(bases)} not: to compare them, "
        f"add --method {BASELINE}:weights={other}"
    )


def _alike(one: WeightsOf, other: WeightsOf) -> bool:
    pairs: Sequence[tuple[Weights | None, Weights | None]] = [(one[t], other[t]) for t in one if t in other]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)
