"""Privacy claims of the hFedF paper (Bartholet et al., 2024)."""

from dataclasses import replace

from fdgpriv.claims.by_attack import BROADER, measured_by, no_leak_by
from fdgpriv.claims.claim_test import Case, ClaimTest, Decision, needs
from fdgpriv.claims.findings import difference_text, finding_text, refused, rows_of, wire_verdict
from fdgpriv.claims.run_comparison import Compared, RunComparison
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.statistics.interval import Interval

_WITH_FEDAVG = "--method hfedf fedavg:network=inception"
_WITH_RANDOM = "--method hfedf hfedf:embedding=random"
_RECEIVED = ("global_model",)  # another client's model
_COMPROMISING = ("client", "third_party")  # who may obtain it; the server made it
_EQUIVALENCE = 0.05  # AUC: differences whose interval is within this margin count as equal
_LOCAL_ONLY = (
    "Local-only: AUC 0.5 by construction for equally distributed images: a locally trained model never saw another "
    "client's members or the held-out images of their domain"
)


def _compromised(case: Case) -> Decision:
    """Refuted by any attack on the model that a client receives, by another client or an outsider who obtains it.

    Membership inference is compared with that from FedAvg's model if it was run.
    """
    rows = rows_of(case, (), _RECEIVED, _COMPROMISING)
    decision = no_leak_by(on=_RECEIVED, by=_COMPROMISING, broad=True)(case)
    comparisons = [
        f"{run.spec}{_trained(run)}: {finding_text(pair.theirs)}; "
        f"this run{_trained(case)} minus it: {difference_text(pair.difference)}"
        for run in case.other_runs
        if run.method == "fedavg"
        for pair in _compared(run)
    ]
    evidence = (*map(finding_text, rows), *comparisons, *((_LOCAL_ONLY,) if rows else ()))
    compared = any(run.method == "fedavg" and run.settings.get("network") == "inception" for run in case.other_runs)
    reason = (
        decision.reason
        if compared
        else f"{decision.reason}; to compare with FedAvg on the same network: {_WITH_FEDAVG}"
    )
    return replace(decision, reason=reason, evidence=evidence)


def _random_keys(case: Case) -> Decision:
    """Decided by membership inference from the model that a client receives, with learned against random embeddings.

    Random embeddings contain no information, so any increase in membership leakage is due to learned ones. Without one
    they may contain what this attack does not look for.
    """
    other = {"learned": "random", "random": "learned"}.get(str(case.settings.get("embedding")))
    run = case.run_with(embedding=other) if other else None
    rows = _compared(run) if run else []
    if not rows:
        return Decision("undecided", f"not measured: needs both kinds of embedding in one report: {_WITH_RANDOM}")
    pair = rows[0] if other == "random" else rows[0].swapped()
    learned, random, gain = pair.mine, pair.theirs, pair.difference
    evidence = (
        f"embeddings learned: {finding_text(learned)}",
        f"random: {finding_text(random)}",
        f"learned minus random: {difference_text(gain)}, one training of each",
    )
    if gain.ci95 is None:
        return Decision("undecided", f"inconclusive: {gain.reason}", evidence)
    low, high = gain.ci95
    if low > 0 and wire_verdict(learned) == "leak":
        reason = "members are found better with learned embeddings than with random ones, which contain no information"
        p = Interval(gain.value, low, high, gain.n or 0).p_above()
        return Decision("refuted", reason, evidence, p, leak=True)
    if low > 0:
        reason = (
            "inconclusive: learned embeddings are better for the attack than random ones, but members are not found"
        )
        return Decision("undecided", reason, evidence)
    if high < 0:
        reason = "random embeddings change membership, but increase the leakage, which does not show what learned ones contain"
        return Decision("undecided", reason, evidence)
    if low < -_EQUIVALENCE or high > _EQUIVALENCE:
        reason = f"inconclusive: the interval holds 0 and exceeds {_EQUIVALENCE}; more clients would decide"
        return Decision("undecided", reason, evidence)
    if not all(row.positive_control and row.positive_control.succeeded for row in (learned, random)):
        reason = f"no difference beyond {_EQUIVALENCE}, by an attack that fails on its positive control"
        return Decision("undecided", f"inconclusive: {reason}", evidence)
    reason = f"random embeddings, which contain no information, give equal membership leakage, to within {_EQUIVALENCE} of AUC"
    return Decision("undecided", reason + BROADER, evidence)


def _client_membership(row: AttackFinding) -> bool:
    """Whether the finding is membership inference by a client from the model it received."""
    key = (row.attack, row.threat.role, row.kind)
    return key == ("membership", "client", "global_model") and not refused(row)


def _compared(run: RunComparison) -> list[Compared]:
    return [pair for pair in run.compared if _client_membership(pair.mine) and _client_membership(pair.theirs)]


def _trained(run: Case | RunComparison) -> str:
    """Training length in parentheses; empty if the settings lack it."""
    rounds, epochs = run.settings.get("rounds"), run.settings.get("local_epochs")
    return f" (rounds={rounds}, local_epochs={epochs})" if rounds and epochs else ""


def _identifier(case: Case) -> Decision:
    """Refuted by a leak; undecided without one, which is due to embeddings only if FedAvg's update leaks."""
    decision = no_leak_by("gradient_inversion", "label_histogram", on=("model_update",))(case)
    if decision.verdict != "supported":
        return decision
    return decision.undecided(
        f"{decision.reason}; embeddings are the reason only if FedAvg's update leaks, which is not compared"
    )


_RECOVERED = 1e-3  # relative error, above float32's rounding


def _unaware(case: Case) -> Decision:
    """Decided by algebra on the run's hypernetwork: the variant of App. C.3 itself is not trained."""
    if "key_error" not in case.facts:
        return Decision("undecided", "not measured: needs a hypernetwork")
    evidence = tuple(
        f"{quantity}: largest relative error {case.facts[name]:.2g}"
        for quantity, name in (("the embedding", "key_error"), ("the client's update", "update_error"))
    )
    if case.facts["key_error"] <= _RECOVERED:
        reason = (
            "without the embedding the server needs the hypernetwork's gradient from the client, and computes the "
            "embedding and the update from it"
        )
        return Decision("refuted", reason, evidence)
    return Decision(
        "undecided", "inconclusive: the embedding is not recovered from this hypernetwork's gradient", evidence
    )


CLAIM_TESTS = (
    ClaimTest(
        "H-H1",
        "Compromising a client model does not expose information about other clients, as individual embeddings remain on "
        "the server and are not interpretable.",
        "every attack by a client or an outsider on another client's model; membership against FedAvg and Local-only",
        _compromised,
    ),
    ClaimTest(
        "H-H2",
        "Compromising a client model does not expose information about other clients",
        "participation of a domain, from one client's model",
        needs(
            "federations trained with and without the domain: 20 seeds of each, twenty audits of --target all --attack none"
        ),
    ),
    ClaimTest(
        "H-H3",
        "client embeddings do not contain sensitive information that could be misused",
        "domain mix, label histogram and size from learned embeddings",
        needs(
            "the embeddings of some 30 federations of one kind, to learn a probe across them: 30 seeds at the default preset"
        ),
    ),
    ClaimTest(
        "H-H4",
        "client embeddings do not contain sensitive information that could be misused",
        "membership from the model that a client receives, learned against random embeddings (redrawn after each round)",
        _random_keys,
    ),
    ClaimTest(
        "H-H5",
        "maintains the privacy through client-specific embeddings as a client identifier",
        "inversion of one client's update, and the labels that it tells",
        _identifier,
    ),
    ClaimTest(
        "H-H6",
        "This method ensures the server remains unaware of client-specific embeddings",
        "the update and the embedding, solved for from the hypernetwork's gradient",
        _unaware,
    ),
    ClaimTest(
        "H-H7",
        "an autoencoder (Table 6) to obtain fixed (non-learnable) embeddings based on data distribution",
        "domain and labels from the embedding",
        measured_by(
            *("domain_inference", "label_histogram"),
            on=("client_embedding",),
            needed="embeddings, which are shared only with --method hfedf:embedding=autoencoder",
        ),
        "design",
    ),
)
