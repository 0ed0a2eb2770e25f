"""Scores of attacks by condition, for tests."""

from collections.abc import Mapping, Sequence

from fdgpriv.results.score_tables import RunKey
from fdgpriv.verdicts.trial_scores import LAYER, UNAWARE, UNDEFENDED, Condition, TrialScores

RUN_KEY = RunKey("stablefdg", "digits", "blend", 0, "none")


def conditions(
    by_size: Mapping[int | None, TrialScores],
    *,
    by_layer: Mapping[str, TrialScores] | None = None,
    by_rounds: Sequence[tuple[int, int | None, TrialScores]] = (),
    undefended: TrialScores | None = None,
    unaware: TrialScores | None = None,
) -> dict[Condition, TrialScores]:
    """The scores by condition, of the attack as configured and of its further evaluations."""
    found = {Condition(n_images=size): scores for size, scores in by_size.items()}
    found |= {Condition(LAYER + layer, n_images=1): scores for layer, scores in (by_layer or {}).items()}
    found |= {Condition("", rounds, size): scores for rounds, size, scores in by_rounds}
    found |= {Condition(UNDEFENDED, n_images=1): undefended} if undefended else {}
    found |= {Condition(UNAWARE): unaware} if unaware else {}
    return found
