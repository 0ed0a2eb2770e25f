"""The printed line of a question gives the lead if the figures of attack and control print alike."""

import re

import pytest
from factories_findings import question

from fdgpriv.results.question import Strongest
from fdgpriv.results.summary import _attack_and_control, line
from fdgpriv.statistics.measured import Measured


def _strongest(value: float, control: float) -> Strongest:
    figures = {"value": value, "control_value": control}
    measured = {name: Measured(value=figure, n=30, direction="higher_leaks") for name, figure in figures.items()}
    return Strongest(attack="gan", metric="psnr", control="noise", **measured)


@pytest.mark.parametrize(
    ("value", "control", "line"),
    [
        (17.12, 17.06, "gan: psnr 17.1, noise 17.1, leads by 0.06"),
        (17.3, 17.06, "gan: psnr 17.3, noise 17.1"),
        (17.06, 17.06, "gan: psnr 17.1, noise 17.1"),
        (17.06 + 4e-15, 17.06, "gan: psnr 17.1, noise 17.1"),  # rounding is no lead
        (17.06, 17.12, "gan: psnr 17.1, noise 17.1, is behind by 0.06"),
    ],
)
def test_the_lead_is_said_where_rounding_hides_it(value: float, control: float, line: str) -> None:
    lead = Measured(value=value - control, n=30, direction="higher_leaks")
    assert _attack_and_control(_strongest(value, control), lead) == line


def test_what_was_not_tested_has_its_reason() -> None:
    for verdict in ("sent_in_clear", "not_applicable"):
        asked = question("inconclusive").model_copy(update={"verdict": verdict, "reason": "it is public"})
        assert re.search(f"{verdict.replace('_', ' ')} +it is public$", line(asked))
