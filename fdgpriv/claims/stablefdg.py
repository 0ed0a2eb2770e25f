"""Privacy claims of the StableFDG paper (Park et al., NeurIPS 2023)."""

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.claims.hypothesis import Case, Decision, Hypothesis, bytes_per_client_round, no_leak_by
from fdgpriv.claims.received import more_received
from fdgpriv.results.attack_finding import AttackFinding, RoundsPoint
from fdgpriv.statistics.multiplicity import simes
from fdgpriv.statistics.paired import LEVEL

CLAIMED_EXTRA = 0.0045  # Table 6


def _clustering(case: Case) -> Decision:
    """Remark 1's premise: styles cluster by domain, and within a domain not by class."""
    if "domain_purity" not in case.facts:
        return Decision(
            "undecided", "not measured: no style statistics were shared, or no domain has two images to compare"
        )
    f = case.facts
    evidence = (
        f"silhouette by domain {f['domain_silhouette']:.2f}; nearest neighbours of the same domain "
        f"{f['domain_purity']:.2f} (chance {f['domain_chance']:.2f})",
        f"silhouette by class within domains {f['class_silhouette']:.2f}; nearest neighbours of the same class "
        f"{f['class_purity']:.2f} (chance {f['class_chance']:.2f} ± {2 * f['class_chance_se']:.2f})",
    )
    if f["domain_purity"] <= f["domain_chance"] + 0.1:
        return Decision("refuted", "styles do not cluster by domain here", evidence)
    if f["class_purity"] > f["class_chance"] + 2 * f["class_chance_se"]:
        return Decision(
            "refuted", "within a domain, neighbours in style space share the class more often than chance", evidence
        )
    return Decision("supported", "styles cluster by domain, and within a domain not by class", evidence)


def _communication(case: Case) -> Decision:
    styles = bytes_per_client_round(case, ["style_statistics"])
    models = bytes_per_client_round(case, ["model_state"])
    if not styles or not models:
        return Decision("undecided", "not measured: no style statistics were shared")
    evidence = (f"{styles:,.0f} bytes of styles, {models:,.0f} bytes of models per client and round",)
    verdict = "supported" if styles / models <= CLAIMED_EXTRA else "refuted"
    return Decision(verdict, f"{styles / models:.3%} more than the models alone", evidence)  # type: ignore[arg-type]


def _sent_again(case: Case) -> Decision:
    """Decided by membership inference from styles of several rounds: leaks of whole clients, or a rise with more rounds."""
    rows = [row for row in case.attacks if row.attack == "style_membership" and row.rounds]
    if not rows:
        why = "needs style_membership by an adversary that sees all rounds, on at least two rounds of the same clients' styles"
        return Decision("undecided", f"not measured: {why}, each recorded with its model (--keep all)")
    points = [(row, point) for row in rows for point in row.rounds]
    read = sorted({point.rounds for _, point in points})
    rounds_shared = len({r.round for r in case.records if r.kind == "style_statistics" and r.receiver == SERVER})
    evaluated = f"{_listed(read)} of {rounds_shared} rounds read together"
    significant = [one for one in points if one[1].verdict == "leak" or _rises(one[1])]
    if significant:
        leaks, rises = (
            any(point.verdict == "leak" for _, point in significant),
            any(_rises(point) for _, point in significant),
        )
        effects = ["membership in a client's own styles leaks"] if leaks else []
        effects += ["membership is found better from more rounds than from one"] if rises else []
        evidence = tuple(_over_rounds(*one) for one in significant)
        p = simes([p for _, point in points for p in (point.p, point.p_rise) if p is not None])
        return Decision("refuted", f"{evaluated}: {', and '.join(effects)}", evidence, p, leak=True)
    most = [one for one in points if one[1].rounds == one[0].rounds[-1].rounds]
    unsure = [point for _, point in most if point.verdict not in (None, "no_leak_found")]
    if unsure:
        return Decision("undecided", f"{evaluated}; inconclusive: {unsure[0].reason}")
    if read[-1] < rounds_shared:
        return Decision(
            "undecided", f"{evaluated}: no additional leak; --keep all, which records every round, would decide"
        )
    reason = (
        f"{evaluated}: no leak, and no more than from one round, by an attack that succeeds on its positive control"
    )
    return Decision("supported", reason, tuple(_over_rounds(*one) for one in most))


def _rises(point: RoundsPoint) -> bool:
    return point.p_rise is not None and point.p_rise <= LEVEL


def _listed(numbers: list[int]) -> str:
    return " and ".join(filter(None, [", ".join(map(str, numbers[:-1])), str(numbers[-1])]))


def _over_rounds(row: AttackFinding, point: RoundsPoint) -> str:
    unit = "whole clients" if point.images is None else f"{point.images} images"
    text = f"{row.attack} by {row.threat.role} on {point.rounds} rounds of styles of {unit}: {row.headline} "
    text += f"{point.value.value:.3g}{_ends(point.value.ci95)}"
    if point.rise is not None:
        text += f", {point.rise.value:+.2g}{_ends(point.rise.ci95)} over one round"
    return text


def _ends(ci: tuple[float, float] | None) -> str:
    return "" if ci is None else f" [{ci[0]:.2g}, {ci[1]:.2g}]"


HYPOTHESES = (
    Hypothesis(
        "H-S0",
        "inherent clustering of samples based on their domains in the style-space, regardless of their labels",
        "silhouette and nearest-neighbour purity of single images' styles at the shared layer, by domain and by class "
        "within a domain",
        _clustering,
    ),
    Hypothesis(
        "H-S1",
        "label information is not contained in the style statistics, resolving privacy issues",
        "balanced accuracy of a linear probe on single images' styles at the shared layer, against controls, with the "
        "last layer as positive control",
        no_leak_by("class_probe", image=True),
    ),
    Hypothesis(
        "H-S2",
        "label information is not contained in the style statistics, resolving privacy issues",
        "the client's label histogram, by regression on its style over simulated clients",
        no_leak_by("label_histogram", on=("style_statistics",)),
    ),
    Hypothesis(
        "H-S3",
        "the domain identity of the n-th client in the style-space",
        "the client's domain from its style",
        no_leak_by("domain_inference", leak="supported", on=("style_statistics",)),
    ),
    Hypothesis(
        "H-S4",
        "label information is not contained in the style statistics, resolving privacy issues",
        "membership of one image in a client's style, by client size; exact recovery for one or two images",
        no_leak_by("style_membership", "exact_recovery", on=("style_statistics",)),
    ),
    Hypothesis(
        "H-S5",
        "style statistics are sent again in each round",
        "membership from 1, 2, 5, 17 and all recorded rounds of one client's styles",
        _sent_again,
    ),
    Hypothesis(
        "H-S6",
        "sharing the styles of more clients",
        "attacks by a client that receives 0, 1 or 3 other clients' styles; supported if more styles leak no more",
        more_received,
    ),
    Hypothesis(
        "Table 6",
        "requires 0.45 % more communication",
        "bytes on the wire",
        _communication,
    ),
)
