"""Selects the findings of attacks for claims, with their verdicts and texts."""

from collections.abc import Sequence

from fdgpriv.claims.claim_test import Case
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.measured import Measured

IMAGES = "content"  # the secret of a claim about reconstructed images; their mean, `average_look`, is another


def rows_of(
    case: Case,
    attacks: Sequence[str],
    on: Sequence[str] = (),
    by: Sequence[str] = (),
    level: str | None = None,
    secret: str | None = None,
) -> list[AttackFinding]:
    """The findings of these attacks; the arguments are those of `by_attack.no_leak_by`."""
    return [
        row
        for row in case.attacks
        if (not attacks or row.attack in attacks)
        and not refused(row)
        and (not on or row.kind in on)
        and (not by or row.threat.role in by)
        and level in (None, row.level)
        and secret in (None, row.secret)
    ]


def why(row: AttackFinding) -> str:
    """The reason for `wire_verdict`."""
    return (row.main.why if row.main else row.reason) or "see the attack"


def refused(row: AttackFinding) -> bool:
    """Whether nothing was attacked."""
    return all(test.verdict == "not_applicable" for test in row.leakage.values())


def by_positive_control(row: AttackFinding, image: bool) -> bool:
    """Whether the verdict on single-image artifacts is that of the positive control of a shared artifact."""
    return image and row.shared and row.level != "image"


def wire_verdict(row: AttackFinding) -> str:
    """The verdict on the shared artifact; ``not_shared`` if it was not."""
    return _main_verdict(row) if row.shared else "not_shared"


def _main_verdict(row: AttackFinding) -> str:
    """The verdict in the client scope, or in the domain scope if the attack has no other."""
    return row.main.verdict if row.main else "not_applicable"


def image_verdict(row: AttackFinding) -> str:
    """The verdict on a single-image artifact: that of the finding if it attacks one, else of its positive control."""
    if not by_positive_control(row, image=True):
        return _main_verdict(row)
    if row.positive_control is None or row.positive_control.succeeded is None:
        return "inconclusive"
    return "leak" if row.positive_control.succeeded else "inconclusive"


def finding_text(row: AttackFinding, image: bool = False) -> str:
    """Attack, adversary, artifact and figure: membership by client on global_model:group: auc 0.52 [0.45, 0.59]."""
    single = by_positive_control(row, image) and row.positive_control is not None
    value = row.positive_control.value if single and row.positive_control else row.metrics[row.headline]
    on = "single images" if image else row.artifact
    return f"{row.attack} by {row.threat.role} on {on}: {row.headline} {figure(value)}"


def figure(value: Measured) -> str:
    """The figure with its interval, if any: 0.62 [0.55, 0.7]."""
    if value.value is None:
        return "–"
    return f"{value.value:.3g}" + (f" [{value.ci95[0]:.3g}, {value.ci95[1]:.3g}]" if value.ci95 is not None else "")


def difference_text(value: Measured) -> str:
    """A paired difference with its interval and the number of clients."""
    if value.value is None:
        return f"not comparable ({value.reason})"
    low, high = value.ci95 or (0.0, 0.0)
    ends = "" if value.ci95 is None else f" [{_rounded(low):+.3g}, {_rounded(high):+.3g}]"
    return f"{_rounded(value.value):+.3g}{ends} paired over {value.n} clients"


def _rounded(value: float) -> float:
    """The value; 0 without a sign if it is 0 up to rounding."""
    return 0.0 if abs(value) < 1e-12 else value
