"""Privacy and cost claims of the StableFDG paper (Park et al., NeurIPS 2023)."""

from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.claims.by_attack import DESIGN, measured_by, no_leak_by
from fdgpriv.claims.claim_test import Case, ClaimTest, ClaimVerdict, Decision
from fdgpriv.claims.received import more_received
from fdgpriv.claims.wire import numbers, total, uploads
from fdgpriv.results.attack_finding import AttackFinding, RoundsPoint
from fdgpriv.statistics.paired import LEVEL

CLAIMED_EXTRA = 0.0045  # of the conclusion, for the model and style of Table 6
RESNET18 = 11_176_512  # parameters without a head: App. E.2 has 11,180,103 with 512 x 7 + 7 of it
_MATTERS = 0.1  # of nearest neighbours
_STYLES = (StyleStatistics.kind,)


def _clustering(case: Case) -> Decision:
    """Remark 1's premise: styles cluster by domain, and within a domain not by class.

    Purities are compared with chance by 2 standard errors to either side, and with the least difference that matters.
    """
    if "domain_purity" not in case.facts:
        return Decision(
            "undecided", "not measured: no style statistics were shared, or no domain has two images to compare"
        )
    f = case.facts
    evidence = tuple(
        f"silhouette {by} {f[f'{name}_silhouette']:.2f}; nearest neighbours of the same {name} {f[f'{name}_purity']:.2f} "
        f"(chance {f[f'{name}_chance']:.2f} ± {2 * f.get(f'{name}_chance_se', 0):.2f})"
        for name, by in (("domain", "by domain"), ("class", "by class within domains"))
    )
    domain, klass = (f[f"{name}_purity"] - f[f"{name}_chance"] for name in ("domain", "class"))
    domain_error, class_error = (2 * f.get(f"{name}_chance_se", 0.0) for name in ("domain", "class"))
    if domain + domain_error <= _MATTERS:
        return Decision("refuted", "styles do not cluster by domain here", evidence)
    if domain - domain_error <= _MATTERS:
        return Decision("undecided", "inconclusive: too few images to say whether styles cluster by domain", evidence)
    if klass > class_error:
        reason = "within a domain, neighbours in style space share the class more often than chance"
        return Decision("refuted", reason, evidence)
    if klass + class_error > _MATTERS:
        return Decision("undecided", "inconclusive: too few images to say whether classes are mixed", evidence)
    return Decision("supported", "styles cluster by domain, and within a domain not by class", evidence)


def _communication(case: Case) -> Decision:
    """What a client uploads in a round, the model with its attention module and the style, against FedAvg's model.

    Table 6 is of ResNet-18 (App. B): the attention module's share of another network's parameters is another.
    """
    styles, models = uploads(case, *_STYLES), uploads(case, "model_state")
    fedavg = case.facts.get("fedavg_bytes")
    if not models or fedavg is None:
        needed = "models in clients' uploads, and the size of FedAvg's model on the same network"
        return Decision("undecided", f"not measured: needs {needed}")
    model, style = total(models) / len(models), total(styles) / len(models)
    extra = (model + style) / fedavg - 1
    evidence = (
        f"bytes that a client uploads in a round: {model:,.0f} of the model, {style:,.0f} of its style; "
        f"FedAvg's model on the same network {fedavg:,.0f}",
    )
    more = f"{extra:.3%} more than FedAvg"
    if case.facts.get("backbone_parameters") != RESNET18:
        reason = f"not measured: the figure is ResNet-18's (--backbone resnet18); on this network {more}"
        return Decision("undecided", reason, evidence)
    verdict: ClaimVerdict = "supported" if extra <= CLAIMED_EXTRA else "refuted"
    return Decision(verdict, more, evidence)


def _length(case: Case) -> Decision:
    """128 is twice the 64 channels of ResNet-18's first stage; the same is asked of other networks' channels."""
    styles = uploads(case, *_STYLES)
    if not styles:
        return Decision("undecided", "not measured: no style statistics were shared")
    sent, (channels,) = numbers(styles[0]), styles[0].shapes["mean"]
    evidence = (f"a style on the wire has {sent} numbers, for the {channels} channels of {styles[0].layer}",)
    if sent == 2 * channels:
        return Decision(
            "supported", "means and standard deviations alone are sent, 2 numbers for each channel", evidence
        )
    each = sent // channels
    reason = f"{each} numbers for each channel are sent: with ResNet-18's 64 channels {each * 64}, not 128"
    return Decision("refuted", reason, evidence)


def _sent_again(case: Case) -> Decision:
    """Membership from one and several rounds of styles, as evidence on the statement that they are sent in each round."""
    rows = [row for row in case.attacks if row.attack == "style_membership" and row.rounds]
    if not rows:
        why = "needs style_membership by an adversary that sees all rounds, on at least two rounds of the same clients' styles"
        return Decision("undecided", f"not measured: {why}, each recorded with its model (--keep all)")
    points = [(row, point) for row in rows for point in row.rounds]
    read = sorted({point.rounds for _, point in points})
    rounds_shared = len({r.round for r in uploads(case, *_STYLES)})
    leaks = any(point.verdict == "leak" for _, point in points)
    effects = [
        f"membership in a client's own styles {'leaks' if leaks else 'is not found'}",
        f"{'better' if any(_rises(point) for _, point in points) else 'not better'} from more rounds than from one",
    ]
    evidence = tuple(_over_rounds(row, point) for row, point in points if point.rounds in (1, row.rounds[-1].rounds))
    effect = f"{_listed(read)} of {rounds_shared} rounds read together: {', '.join(effects)}"
    return Decision("undecided", f"{DESIGN}: {effect}", evidence)


def _rises(point: RoundsPoint) -> bool:
    return point.p_rise is not None and point.p_rise <= LEVEL


def _listed(numbers: list[int]) -> str:
    return " and ".join(filter(None, [", ".join(map(str, numbers[:-1])), str(numbers[-1])]))


def _over_rounds(row: AttackFinding, point: RoundsPoint) -> str:
    unit = "whole clients" if point.images is None else f"{point.images} images"
    rounds = "1 round" if point.rounds == 1 else f"{point.rounds} rounds"
    text = f"{row.attack} by {row.threat.role} on {rounds} of styles of {unit}: {row.headline} "
    text += f"{point.value.value:.3g}{_ends(point.value.ci95)}"
    if point.rise is not None:
        text += f", {point.rise.value:+.2g}{_ends(point.rise.ci95)} over one round"
    return text


def _ends(ci: tuple[float, float] | None) -> str:
    return "" if ci is None else f" [{ci[0]:.2g}, {ci[1]:.2g}]"


CLAIM_TESTS = (
    ClaimTest(
        "H-S0",
        "inherent clustering of samples based on their domains in the style-space, regardless of their labels",
        "silhouette and nearest-neighbour purity of single images' styles at the shared layer, by domain and by class "
        "within a domain",
        _clustering,
    ),
    ClaimTest(
        "H-S1",
        "label information is not contained in the style statistics",
        "balanced accuracy of a linear probe on single images' styles at the shared layer, against controls, with the "
        "last layer as positive control",
        no_leak_by("class_probe", image=True, on=_STYLES),
    ),
    ClaimTest(
        "H-S2",
        "label information is not contained in the style statistics",
        "the client's label histogram, by regression on its style over simulated clients",
        no_leak_by("label_histogram", on=_STYLES),
    ),
    ClaimTest(
        "H-S3",
        "representing the domain identity of the n-th client in the style-space",
        "the client's domain from its style",
        measured_by("domain_inference", on=_STYLES),
        "design",
    ),
    ClaimTest(
        "H-S4",
        "resolving privacy issues",
        "membership of one image in a client's style, by client size; exact recovery of the styles of one or two images",
        no_leak_by("style_membership", "exact_recovery", on=_STYLES, broad=True),
    ),
    ClaimTest(
        "H-S5",
        "In each FL round, the clients first download the global model from the server and perform style sharing",
        "membership from 1, 2, 5, 17 and all recorded rounds of one client's styles",
        _sent_again,
        "design",
    ),
    ClaimTest(
        "H-S6",
        "resolving privacy issues",
        "attacks by a client that receives 0, 1 or 3 other clients' styles (App. E.2)",
        more_received,
    ),
    ClaimTest(
        "Table 6",
        "StableFDG requires 0.45 % more communication load compared to FedAvg for sharing the attention module and style "
        "statistics",
        "bytes that a client uploads in a round, attention module and style included, against FedAvg's model on the same "
        "network, ResNet-18",
        _communication,
    ),
    ClaimTest(
        "E.2",
        "the vector length of the style information is 128",
        "numbers in a style on the wire, by channels of its layer (128 is twice ResNet-18's 64)",
        _length,
    ),
)
