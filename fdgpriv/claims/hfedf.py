"""What the hFedF paper claims."""

from dataclasses import replace

from fdgpriv.claims.hypothesis import Case, Decision, Hypothesis, apart, needs, no_leak_by, refused, said
from fdgpriv.evaluation.comparison import Compared, RunComparison
from fdgpriv.results.attack_finding import AttackFinding

_WITH_FEDAVG = "--method hfedf fedavg:network=inception"
_WITH_RANDOM = "--method hfedf hfedf:embedding=random"
_AS_MUCH = 0.05  # AUC: a difference whose interval lies within this is none
_LOCAL_ONLY = (
    "Local-only: AUC 0.5 by construction, where images are dealt alike: a model that one client trained alone saw neither "
    "another's members nor what is held out of their domain"
)


def _compromised(case: Case) -> Decision:
    """By membership from the model that a client was sent; FedAvg's beside it, where it was run."""
    rows = [row for row in case.attacks if _by_client(row)]
    found = no_leak_by("membership", on=("global_model",), by=("client",))(case)
    beside = [
        f"{run.spec}{_trained(run)}: {said(one.theirs)}; this run{_trained(case)} less it: {apart(one.difference)}"
        for run in case.beside
        if run.method == "fedavg"
        for one in _by_a_client(run)
    ]
    evidence = (*map(said, rows), *beside, *((_LOCAL_ONLY,) if rows else ()))
    there = any(run.method == "fedavg" and run.settings.get("network") == "inception" for run in case.beside)
    reason = found.reason if there else f"{found.reason}; FedAvg of the same network beside it: {_WITH_FEDAVG}"
    return replace(found, reason=reason, evidence=evidence)


def _random_keys(case: Case) -> Decision:
    """By membership from the model that a client was sent, its embedding learned or drawn anew after every round.

    Random embeddings hold nothing. What learned ones add to membership, they hold; a learned one that takes away from it
    says nothing.
    """
    other = {"learned": "random", "random": "learned"}.get(str(case.settings.get("embedding")))
    run = case.but(embedding=other) if other else None
    rows = _by_a_client(run) if run else []
    if not rows:
        return Decision("undecided", f"not measured: needs both kinds of embedding in one report: {_WITH_RANDOM}")
    one = rows[0] if other == "random" else rows[0].turned()
    learned, random, gain = one.mine, one.theirs, one.difference
    evidence = (
        f"embeddings learned: {said(learned)}",
        f"random: {said(random)}",
        f"learned less random: {apart(gain)}, one training of each",
    )
    if gain.ci95 is None:
        return Decision("undecided", f"inconclusive: {gain.reason}", evidence)
    low, high = gain.ci95
    if low > 0:
        reason = "members are found better where embeddings are learned than where they hold nothing: they matter"
        return Decision("refuted", reason, evidence)
    if high < 0:
        reason = "random embeddings change membership, but to more leakage: that shows nothing that learned ones hold"
        return Decision("undecided", reason, evidence)
    if low < -_AS_MUCH or high > _AS_MUCH:
        reason = f"inconclusive: the interval holds 0 and reaches beyond {_AS_MUCH}; more clients would decide"
        return Decision("undecided", reason, evidence)
    if not all(row.positive_control and row.positive_control.succeeded for row in (learned, random)):
        reason = f"no difference beyond {_AS_MUCH}, by an attack that fails on its positive control"
        return Decision("undecided", f"inconclusive: {reason}", evidence)
    reason = f"embeddings that hold nothing give members away as much, to within {_AS_MUCH} of AUC"
    return Decision("supported", reason, evidence)


def _by_client(row: AttackFinding) -> bool:
    """Whether it is membership by a client in the model that it was sent."""
    of = (row.attack, row.threat.role, row.kind)
    return of == ("membership", "client", "global_model") and not refused(row)


def _by_a_client(run: RunComparison) -> list[Compared]:
    return [one for one in run.compared if _by_client(one.mine) and _by_client(one.theirs)]


def _trained(run: Case | RunComparison) -> str:
    """How long, as far as the settings say it."""
    rounds, epochs = run.settings.get("rounds"), run.settings.get("local_epochs")
    return f" (rounds={rounds}, local_epochs={epochs})" if rounds and epochs else ""


def _key(case: Case) -> Decision:
    if not any(row.kind == "client_embedding" for row in case.attacks):
        return Decision(
            "undecided", "not measured: needs embeddings, which cross only with --method hfedf:embedding=autoencoder"
        )
    return no_leak_by("domain_inference", "label_histogram", on=("client_embedding",))(case)


HYPOTHESES = (
    Hypothesis(
        "H-H1",
        "Compromising a client model does not expose information about other clients, as individual embeddings remain on "
        "the server and are not interpretable.",
        "membership of client j's images from client i's model, against FedAvg and Local-only",
        _compromised,
    ),
    Hypothesis(
        "H-H2",
        "Compromising a client model does not expose information about other clients",
        "whether a domain takes part, from one client's model",
        needs(
            "federations trained with and without the domain: 20 seeds of each, twenty audits of --target all --attack none"
        ),
    ),
    Hypothesis(
        "H-H3",
        "client embeddings do not contain sensitive information that could be misused",
        "domain mix, label histogram and size from learned embeddings",
        needs(
            "the embeddings of some 30 federations of one kind, to learn a probe across them: 30 seeds at the default preset"
        ),
    ),
    Hypothesis(
        "H-H4",
        "client embeddings do not contain sensitive information that could be misused",
        "membership from the model that a client was sent, its embedding learned against drawn anew after each round",
        _random_keys,
    ),
    Hypothesis(
        "H-H5",
        "maintains the privacy through client-specific embeddings as a client identifier",
        "inversion of one client's update, against FedAvg's",
        no_leak_by("gradient_inversion"),
    ),
    Hypothesis(
        "H-H6",
        "ensures the server remains unaware",
        "the update and the embedding from the hypernetwork's gradient",
        needs("the variant that sends the hypernetwork to its clients (App. C.3), which is not built"),
    ),
    Hypothesis(
        "H-H7",
        "an autoencoder's embedding of a client's data as its key",
        "images, domain and labels from the embedding",
        _key,
    ),
)
