"""Decides whether a client's style leaks less than single images' styles, by the leads of attacks on both."""

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.claims.by_attack import WITHOUT_LEAKED_IMAGES
from fdgpriv.claims.claim_test import Case, ClaimRule, Decision
from fdgpriv.claims.findings import rows_of, wire_verdict
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.measured import Measured

LeadInterval = tuple[float, float, float]  # a lead, and the ends of its 95 % interval


def harder_for_many(*attacks: str, secret: str | None = None) -> ClaimRule:
    """Rule for the claim that the client's style leaks less than single images' styles.

    Supported if each attack that leads on single images leads by less on the client's style, refuted if one leads by
    more; in both cases the 95 % intervals of the two leads must not overlap. `secret` is the secret that the attacks are
    asked for, None for all.
    """

    def decide(case: Case) -> Decision:
        rows = rows_of(case, attacks, (StyleStatistics.kind,), WITHOUT_LEAKED_IMAGES, "client", secret)
        leads = [
            (row, single, client)
            for row in rows
            if wire_verdict(row) != "not_shared" and row.positive_control and row.positive_control.succeeded
            for single, client in ((_single_image_lead(row), _client_lead(row)),)
            if single is not None and client is not None
        ]
        if not leads:
            needed = f"{' or '.join(attacks)} on the client's style that succeeds on single images' styles"
            return Decision("undecided", f"not measured: needs {needed}")
        evidence = tuple(_text(*lead) for lead in leads)
        if any(client[1] > single[2] for _, single, client in leads):
            return Decision("refuted", "an attack leads by more on the client's style than on single images'", evidence)
        if all(client[2] < single[1] for _, single, client in leads):
            return Decision(
                "supported", "each attack leads by less on the client's style than on single images'", evidence
            )
        reason = "inconclusive: the intervals of the two leads overlap; more clients would decide"
        return Decision("undecided", reason, evidence)

    return decide


def _client_lead(row: AttackFinding) -> LeadInterval | None:
    """The lead on the client's style."""
    lead = row.main.lead if row.main else None
    return None if lead is None or lead.value is None or lead.ci95 is None else (lead.value, *lead.ci95)


def _single_image_lead(row: AttackFinding) -> LeadInterval | None:
    """The lead on single images' styles; its interval as if the attack's and the control's errors were independent.

    Both are of the same images, so that their errors correlate and the interval is rather too wide.
    """
    control = row.positive_control
    if control is None or not control.controls:
        return None
    leads = [lead for other in control.controls.values() if (lead := lead_over(control.value, other)) is not None]
    return min(leads) if len(leads) == len(control.controls) else None


def lead_over(value: Measured, control: Measured) -> LeadInterval | None:
    """The lead of the attack's figure over the control's, with its interval; None if either lacks one."""
    if value.value is None or control.value is None or value.ci95 is None or control.ci95 is None:
        return None
    lead = value.value - control.value if value.direction == "higher_leaks" else control.value - value.value
    half = sum(((figure.ci95[1] - figure.ci95[0]) / 2) ** 2 for figure in (value, control) if figure.ci95) ** 0.5
    return lead, lead - half, lead + half


def _text(row: AttackFinding, single: LeadInterval, client: LeadInterval) -> str:
    both = [f"{lead:.2g} [{low:.2g}, {high:.2g}]" for lead, low, high in (client, single)]
    leads = f"client's style {both[0]}, single images' {both[1]}"
    return f"{row.attack} by {row.threat.role}, {row.headline} over controls: {leads}"
