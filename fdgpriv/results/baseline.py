"""Which run of the baseline a method's accuracy is compared with: one whose server weighs clients as the method's does."""

from collections.abc import Mapping, Sequence

from fdgpriv.federation.weights import Weights
from fdgpriv.utils.defaults import BASELINE

TrainingKey = tuple[int, str]  # seed, target
WeightsOf = Mapping[TrainingKey, Weights | None]  # None: the method averages no models, or it is not known
_WORDS = {"samples": "by their numbers of images", "uniform": "equally"}


def is_baseline(method: str, baseline: str = BASELINE) -> bool:
    """Whether this specification is that of the baseline, or begins with its name."""
    return baseline in (method, method.partition(":")[0])


def matched(method: str, weights: Mapping[str, WeightsOf], baseline: str = BASELINE) -> str | None:
    """The first run of the baseline with the weights of `method` in every training of both; None if there is none.

    A method that averages no models has the first one.

    Args:
        method: The specification of a method.
        weights: By specification, in the order of the report, the weights of each training.
        baseline: The name or specification of the method that others are compared with.
    """
    bases = (base for base in weights if is_baseline(base, baseline))
    return next((base for base in bases if _alike(weights[method], weights[base])), None)


def unmatched(method: str, weights: Mapping[str, WeightsOf], baseline: str = BASELINE) -> str | None:
    """Why `method` is compared with no baseline although there is one, and what to add; None where neither is so."""
    bases = [base for base in weights if is_baseline(base, baseline)]
    if not bases or is_baseline(method, baseline) or matched(method, weights, baseline):
        return None
    other = next((wanted for wanted in weights[method].values() if wanted is not None), None)
    assert other is not None
    reason = f"{method} weighs clients {_WORDS[other]}, {' and '.join(bases)} not"
    addition = f": to compare them, add --method {BASELINE}:weights={other}"
    return reason + addition if is_baseline(bases[0]) else reason


def _alike(one: WeightsOf, other: WeightsOf) -> bool:
    pairs: Sequence[tuple[Weights | None, Weights | None]] = [(one[t], other[t]) for t in one if t in other]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)
