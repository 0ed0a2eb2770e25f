"""What the StableFDG paper (Park et al., NeurIPS 2023) claims."""

from .hypothesis import Case, Decision, Hypothesis, bytes_per_client_round, needs, no_leak_by

CLAIMED_EXTRA = 0.0045  # Table 6


def _clustering(case: Case) -> Decision:
    """Remark 1's premise: styles cluster by domain, and within a domain not by class."""
    if "domain_purity" not in case.facts:
        return Decision(
            "undecided", "not measured: no style statistics crossed, or no domain has two images to compare"
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
        return Decision("undecided", "not measured: no style statistics crossed")
    evidence = (f"{styles:,.0f} bytes of styles beside {models:,.0f} bytes of models per client and round",)
    verdict = "supported" if styles / models <= CLAIMED_EXTRA else "refuted"
    return Decision(verdict, f"{styles / models:.3%} more than the models alone", evidence)  # type: ignore[arg-type]


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
        "membership from 1, 5, 17 and 50 rounds of one client's styles",
        needs("style_membership over rounds"),
    ),
    Hypothesis(
        "H-S6",
        "sharing the styles of more clients",
        "attacks by a client that is sent 0, 1 and 3 styles",
        needs("the client rows of three runs, --set received=0, 1 and 3, at 3 seeds each"),
    ),
    Hypothesis(
        "Table 6",
        "requires 0.45 % more communication",
        "bytes on the wire",
        _communication,
    ),
)
