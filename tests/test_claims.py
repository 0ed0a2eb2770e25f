"""The claims ledger: every hypothesis of every paper is a row, and a row is decided by the evidence it names alone."""

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import Fitted
from factories_core import crossing, model_state, style
from factories_findings import figure, finding, outcome
from scipy import stats

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState
from fdgpriv.artifacts.statistics import ValidationMetrics
from fdgpriv.artifacts.style import AmplitudeSpectrum, InterpolationStyle
from fdgpriv.attack import Attack
from fdgpriv.claims import PAPERS, Case, claim_tests, claims
from fdgpriv.claims.by_attack import measured_by, no_leak_by
from fdgpriv.claims.claim_test import ClaimTest, Decision, corrected_decisions, needs
from fdgpriv.claims.colour import no_leak_beyond_colour
from fdgpriv.claims.style_space import style_space
from fdgpriv.claims.wire import statistics_layers
from fdgpriv.federation.transcript import Record
from fdgpriv.method import Method
from fdgpriv.results.attack_finding import OVER_OWN_COLOUR, AttackFinding
from fdgpriv.statistics.interval import Interval
from fdgpriv.statistics.questions import Verdict

NUMBERS = {
    "stablefdg": ("S", 0, 6),
    "ccst": ("C", 1, 9),
    "hfedf": ("H", 1, 7),
    "lsi": ("L", 1, 9),
    "pardon": ("P", 1, 8),
}


def case(
    *attacks: AttackFinding,
    records: tuple[Record, ...] = (),
    facts: dict[str, float] | None = None,
    training_warning: str | None = None,
) -> Case:
    return Case(attacks, records, facts or {}, training_warning=training_warning)


LEARNED = {"stage1_accuracy_min": 0.8, "class_preservation": 0.6, "class_untranslated": 0.5}


def state(client: str, layers: int = 2, numbers: int = 1000) -> ModelState:
    statistics = {f"bn{i}.{name}": torch.ones(2) for i in range(layers) for name in ("running_mean", "running_var")}
    return model_state(client, weight=torch.ones(numbers), **statistics)


@pytest.mark.parametrize("method", PAPERS)
def test_every_claim_is_undecided_without_evidence(method: str) -> None:
    letter, first, last = NUMBERS[method]
    rows = claims(method, case())
    assert [row.id for row in rows if row.id.startswith("H-")] == [f"H-{letter}{i}" for i in range(first, last + 1)]
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert (row.verdict, row.evidence) == (None if row.kind == "design" else "undecided", ())
        assert row.reason.startswith("not measured: ")
        if wanted := re.fullmatch(r"not measured: needs (\w+)", row.reason):
            assert wanted[1] not in Attack.names()  # none that is there


def test_a_method_without_claims_has_none() -> None:
    assert set(PAPERS) < set(Method.names())
    assert claim_tests("fedavg") == ()


# Rules


def gan(role: str, psnr: float, verdict: Verdict, **given: Any) -> AttackFinding:
    """A reconstruction from whole clients' styles, whose positive control succeeded."""
    control = {
        "value": figure(20.2, 0.6),
        "controls": {"mean_image": figure(13.5, 0.2)},
        "lead": 6.7,
        "p": 0.0004,
        "succeeded": True,
    }
    usual = {
        "task": "images",
        "secret": "content",
        "metrics": {"psnr": figure(psnr, 0.42)},
        "positive_control": control,
        "leakage": {scope: outcome(verdict, lead=figure(1.4, 0.3), relevant=1.0) for scope in ("client", "domain")},
    }
    return finding("gan", "psnr", psnr, verdict, **{**usual, "threat": {"role": role, "auxiliary": "A3"}, **given})


LEAK, QUIET = gan("client", 15.9, "leak"), gan("third_party", 13.4, "no_leak_found")
DOMAIN = finding("domain_inference", "accuracy", 0.96, "leak", secret="domain", leakage={"domain": outcome("leak")})
UNSHARED = finding(
    "class_probe", "balanced_accuracy", 0.38, "leak", artifact="style_statistics:image", shared=False, secret="labels"
)
UNSURE = gan("server", 14.1, "inconclusive")
SINGLE = finding("identification", "top-1", 0.02, "no_leak_found")


RULES: tuple[tuple[Callable[[Case], Decision], list[AttackFinding], str], ...] = (
    (no_leak_by("gan"), [QUIET, LEAK], "refuted"),  # one leak among several adversaries is enough
    (no_leak_by("gan"), [QUIET], "supported"),
    (no_leak_by("gan"), [QUIET, UNSURE], "undecided"),
    (no_leak_by("class_probe", image=True), [UNSHARED], "refuted"),  # of what never crossed: single images alone
    (no_leak_by("class_probe"), [UNSHARED], "undecided"),
    (no_leak_by("domain_inference", leak="supported"), [DOMAIN], "supported"),  # a line that asks for the domain
    (no_leak_by("domain_inference"), [DOMAIN], "refuted"),
    (no_leak_by("domain_inference", on=("style_statistics",), by=("server",)), [DOMAIN], "refuted"),
    (no_leak_by("domain_inference", on=("model_state",)), [DOMAIN], "undecided"),
    (no_leak_by("domain_inference", by=("client",)), [DOMAIN], "undecided"),
)


def test_a_leak_refutes_and_no_leak_supports() -> None:
    for number, (rule, rows, verdict) in enumerate(RULES):
        assert rule(case(*rows)).verdict == verdict, number


@pytest.mark.parametrize(
    ("lead", "nearer"), [(figure(1.2, 0.5), True), (figure(0.2, 0.5), False), (figure(-1.0, 0.5), False), (None, False)]
)
@pytest.mark.parametrize("changed", [{}, {"artifact": "style_statistics:image"}], ids=["client", "image"])
def test_reconstructions_must_beat_one_colour(lead: Any, nearer: bool, changed: dict[str, Any]) -> None:
    """In CCST's first claim and in PARDON's last: of the positive control of a client's style, and of an image's own."""
    metrics = {**LEAK.metrics, **({} if lead is None else {OVER_OWN_COLOUR: lead})}
    row = LEAK.model_copy(update={"metrics": metrics, **changed})
    for method, id, word in (("ccst", "H-C1", "refuted"), ("pardon", "H-P8", "supported")):
        (found,) = (one for one in claims(method, case(row)) if one.id == id)
        assert found.verdict == (word if nearer else "undecided")
        assert any(line.startswith("gan by client") for line in found.evidence)
        assert any("dB over the best image of one colour" in line for line in found.evidence) == (lead is not None)
        assert nearer or found.reason == "an attack beats every control, but not the best image of one colour"
    insider = row.model_copy(update={"threat": gan("insider", 15.9, "leak").threat})
    for method, id in (("ccst", "H-C1"), ("pardon", "H-P8")):  # who holds leaked images of the client: H-C9's sentence
        assert verdict_of(method, id, case(insider))[1].startswith("not measured")


def test_the_p_of_a_lead_over_colour_counts_in_the_claim() -> None:
    """Student's t over the units of the interval, and the larger of both p."""
    lead = figure(0.5, float(stats.t.ppf(0.975, 23)) * 0.2)  # 2.5 standard errors
    expected = float(stats.t.sf(2.5, 23))
    assert Interval(lead.value, *lead.ci95, 24).p_above() == pytest.approx(expected)
    row = LEAK.model_copy(update={"metrics": {**LEAK.metrics, OVER_OWN_COLOUR: lead}})
    assert no_leak_beyond_colour("gan")(case(row)).p == pytest.approx(expected)
    clear = LEAK.model_copy(update={"metrics": {**LEAK.metrics, OVER_OWN_COLOUR: figure(5.0, 0.1)}})
    assert no_leak_beyond_colour("gan")(case(clear)).p == 0.0004
    assert Interval(None, None, None, 24, "x").p_above() == Interval(1.0, None, None, 1, "x").p_above() == 1
    assert (Interval(1.0, 1.0, 1.0, 24).p_above(), Interval(-1.0, -1.0, -1.0, 24).p_above()) == (0, 1)
    named = Interval(0.7, 0.6, 0.8, 9)
    assert Interval.read(named.named("area") | {"other": 1.0}, "area") == named
    assert named.p_above(0.5) == pytest.approx(float(stats.t.sf(0.2 / (0.1 / stats.t.ppf(0.975, 8)), 8)))


def test_only_exact_recovery_is_a_leak_without_a_test() -> None:
    near = finding("exact_recovery", "max_abs_error", 0.1, "no_leak_found", task="exact_styles")
    near = near.model_copy(update={"leakage": {"client": outcome("no_leak_found", p=1e-4)}})
    marginal = finding("style_membership", "auc", 0.6, "leak", leakage={"client": outcome("leak", p=0.02)})
    rule = no_leak_by("exact_recovery", "style_membership")
    assert rule(case(near, marginal)).p == pytest.approx(0.02)
    recovered = near.model_copy(update={"leakage": {"client": outcome("leak", p=0.9)}})
    found = rule(case(recovered))
    assert (found.verdict, found.p) == ("refuted", None)  # no test that a correction could overturn


def head_of(verdict: Verdict) -> AttackFinding:
    """An inversion of the head alone, by the server."""
    plain = gan("server", 15.0, verdict)
    return plain.model_copy(update={"attack": "latent_inversion", "artifact": "classifier_head:client"})


def deep(verdict: Verdict, **psnr: float) -> AttackFinding:
    """An inversion of the model, and of single images by the layers used; the strongest control has 13.5 dB."""
    metrics = {"psnr": figure(14.0)} | {f"psnr@{name.replace('_', '=')}": figure(at, 0.5) for name, at in psnr.items()}
    row = gan("server", 14.0, verdict, metrics=metrics)
    return row.model_copy(update={"attack": "deep_inversion", "artifact": "model_state:client"})


def test_claims_on_one_layer_and_on_all() -> None:
    """However many layers are sent: that is the statement about stage 2."""
    quiet, one, many = head_of("no_leak_found"), {"k_1": 16.0, "last_1": 13.5}, {"k_1": 13.5, "last_1": 13.5}
    for head, model, *verdicts in (
        (head_of("leak"), deep("no_leak_found"), "refuted", "refuted", "refuted"),
        (quiet, deep("leak"), "supported", "supported", "supported"),
        (quiet, deep("inconclusive"), "supported", "supported", "undecided"),
        (head_of("inconclusive"), deep("leak", **many, k_all=16.0), "undecided", "undecided", "supported"),
        (quiet, deep("leak", **one, k_all=16.0), "supported", "undecided", "supported"),
        (quiet, deep("leak", **many, k_all=16.0), "supported", "supported", "supported"),
    ):
        records = (crossing(state("a", 3), "a", SERVER),)
        rows = {row.id: row for row in claims("lsi", case(head, model, records=records))}
        assert [rows[id].verdict for id in ("H-L1", "H-L2", "all layers")] == verdicts
        assert rows["Stage 2"].verdict is None
        assert rows["Stage 2"].evidence[0].startswith("running statistics of 3 BatchNorm layers")


@pytest.mark.parametrize(("lead", "verdict"), [(1.0, "refuted"), (0.9, "undecided")])
def test_only_a_relevant_leak_refutes_a_degree(lead: float, verdict: str) -> None:
    leakage = {"client": outcome("leak", lead=figure(lead, 0.3), relevant=1.0)}
    row = gan("client", 15.0, "leak", leakage=leakage)
    assert no_leak_by("gan")(case(row)).verdict == "refuted"
    found = no_leak_by("gan", matters=True)(case(row))
    assert (found.verdict, found.leak, bool(found.evidence)) == (verdict, verdict == "refuted", True)
    single = gan(
        "client",
        15.0,
        "inconclusive",
        positive_control={"value": figure(14.0), "lead": lead, "p": 0.001, "succeeded": True},
    )
    assert no_leak_by("gan", image=True, matters=True)(case(single)).verdict == verdict


def test_the_mean_image_is_not_a_reconstruction() -> None:
    """Attacks that draw images answer for both."""
    mean = gan("client", 15.9, "leak", secret="average_look")
    for method, id in (("ccst", "H-C1"), ("ccst", "H-C8"), ("pardon", "H-P1"), ("pardon", "H-P8")):
        assert verdict_of(method, id, case(mean))[1].startswith("not measured")
    head = head_of("leak").model_copy(update={"secret": "average_look"})
    assert [verdict_of("lsi", id, case(head))[0] for id in ("H-L1", "H-L2")] == ["undecided", "undecided"]
    assert no_leak_by("gan")(case(mean)).verdict == "refuted"


@pytest.mark.parametrize("upper", [None, 0.0])
def test_an_unused_artifact_supports_no_claim(upper: float | None) -> None:
    unused = gan("client", 13.4, "no_leak_found", leakage={"client": outcome("no_leak_found", upper_bound=upper)})
    found = no_leak_by("gan")(case(unused))
    assert (found.verdict, "gan found nothing to use" in found.reason) == ("undecided", True)
    assert no_leak_by("gan")(case(unused, QUIET)).verdict == "supported"  # by another adversary one is excluded
    other = finding("identification", "top1", 0.02, "no_leak_found")
    assert no_leak_by("gan", "identification")(case(unused, other)).verdict == "undecided"
    assert no_leak_by("gan", broad=True)(case(QUIET)).verdict == "undecided"
    assert no_leak_by("gan", broad=True)(case(LEAK)).verdict == "refuted"


def test_a_statement_of_design_has_no_verdict() -> None:
    rule = measured_by("domain_inference", on=("style_statistics",))
    said = ClaimTest("H-0", "", "", rule, "design").claim(rule(case(DOMAIN)))
    shown = ("domain_inference by server on style_statistics:client: accuracy 0.96 [0.89, 1.03] (leak)",)
    assert (said.kind, said.verdict, said.evidence) == ("design", None, shown)
    assert said.reason.startswith("a statement of design")
    designs = [ClaimTest(f"D-{i}", "", "", lambda case: quiet(0.9), "design") for i in range(9)]
    leaks = ClaimTest("H-1", "", "", lambda case: leaking(0.04))
    assert corrected_decisions([leaks, *designs], case())[0].verdict == "refuted"
    with pytest.raises(ValueError, match="want a verdict for a claim and none for design"):
        said.model_validate({**said.model_dump(), "verdict": "refuted"})


def test_evidence_names_rows_and_what_is_needed() -> None:
    (shown,) = no_leak_by("gan")(case(LEAK)).evidence
    assert shown == "gan by client on style_statistics:client: psnr 15.9 [15.5, 16.3]"
    unsure = no_leak_by("gan")(case(QUIET, UNSURE))
    assert unsure.evidence == ()
    assert "too few units" in unsure.reason
    other = no_leak_by("identification")(case(LEAK))
    assert other == Decision("undecided", "not measured: needs identification on this artifact")
    single = no_leak_by("identification", image=True)(case(SINGLE))  # its positive control tells of single images
    shown = "identification by server on single images: top-1 0.85 [0.79, 0.91]"
    assert (single.verdict, single.evidence) == ("refuted", (shown,))
    assert needs("membership")(case()) == Decision("undecided", "not measured: needs membership")


def test_a_row_that_asks_nothing_is_no_evidence() -> None:
    said = {"p": None, "why": "the public prior already answers this exactly"}
    nothing = gan("server", 14.1, "leak", leakage={"client": outcome("not_applicable", **said)})
    assert no_leak_by("gan")(case(nothing)).reason.startswith("not measured")
    assert no_leak_by("gan")(case(nothing, QUIET)).verdict == "supported"


# Corrected over the claims of a paper


def resting_on(*decisions: Decision) -> list[str]:
    """The verdicts on as many claims after the correction."""
    claims = [ClaimTest(f"H-{i}", "", "", lambda case, one=one: one) for i, one in enumerate(decisions)]  # type: ignore[misc]
    return [one.verdict for one in corrected_decisions(claims, case())]


def leaking(p: float) -> Decision:
    return Decision("refuted", "leaks", ("a row",), p, leak=True)


def quiet(p: float | None) -> Decision:
    return Decision("supported", "none found", ("a row",), p)


def test_a_refuting_leak_must_pass_holm() -> None:
    for decisions, verdicts in (
        ([leaking(0.05)], ["refuted"]),
        ([leaking(0.025), quiet(0.5)], ["refuted", "supported"]),  # .05
        ([leaking(0.026), quiet(0.5)], ["undecided", "supported"]),  # .052
        ([leaking(0.026), quiet(None)], ["refuted", "supported"]),  # bytes and layers have no p
        ([leaking(0.01), leaking(0.04), quiet(0.9)], ["refuted", "undecided", "supported"]),  # .03, .08
        ([quiet(0.001), quiet(0.9)], ["supported", "supported"]),
    ):
        assert resting_on(*decisions) == verdicts


def test_the_p_of_a_claim_is_simes_over_its_rows() -> None:
    one, other = (gan("server", 14.1, "leak", leakage={"client": outcome("leak", p=p)}) for p in (0.01, 0.015))
    assert no_leak_by("gan")(case(one, other)).p == pytest.approx(0.015)
    assert no_leak_by("gan")(case(QUIET)).p == QUIET.leakage["client"].p
    assert no_leak_by("identification", image=True)(case(SINGLE)).p == 0.0004  # its positive control's


# Several rounds


def rounds(p_leak: float, p_rise: float, kept: tuple[int, ...] = (1, 2, 3)) -> AttackFinding:
    """Membership in whole clients' styles and in those of five images, by the server."""
    points = [
        {
            "rounds": count,
            "images": images,
            "units": 12,
            "value": figure(0.5 + count / 100, 0.04),
            **({"rise": figure(count / 100, 0.004)} if count > 1 else {}),
            **({"p_rise": p_rise} if count == kept[-1] else {}),
        }
        for count in kept
        for images in (5, None)
    ]
    points[-1] |= {"verdict": "leak" if p_leak <= 0.025 else "no_leak_found", "p": p_leak, "reason": "tested"}
    return finding("style_membership", "auc", 0.52, "no_leak_found", rounds=points)


SENT_THRICE = tuple(
    replace(crossing(style(client), client, SERVER, "style"), round=round) for round in range(3) for client in "ab"
)


def sent_again(*rows: AttackFinding) -> Any:
    return next(row for row in claims("stablefdg", case(*rows, records=SENT_THRICE)) if row.id == "H-S5")


def test_repeated_styles_are_design_with_evidence() -> None:
    for p_leak, p_rise, words in (
        (0.001, 1.0, "leaks, not better from more"),
        (1.0, 0.001, "is not found, better from more"),
        (1.0, 1.0, "is not found, not better from more"),
    ):
        found = sent_again(rounds(p_leak, p_rise))
        assert (found.kind, found.verdict) == ("design", None)
        assert f"1, 2 and 3 of 3 rounds read together: membership in a client's own styles {words}" in found.reason
        shown = "style_membership by server on 3 rounds of styles of whole clients: auc 0.53 [0.49, 0.57]"
        assert found.evidence[-1].startswith(shown)
        assert len(found.evidence) == 4  # one round and all, of clients and of five images
    row = finding("style_membership", "auc", 0.9, "leak")  # one round's says nothing of repetition
    assert "--keep all" in sent_again(row).reason
    assert sent_again(row).evidence == ()


# What crossed


def test_statistics_of_uploads_are_counted_by_layer() -> None:
    records = [crossing(state(SERVER, 9), SERVER, "a"), *[crossing(state(c, 3), c, SERVER) for c in ("a", "b")]]
    assert statistics_layers(case(records=tuple(records))) == 3
    assert statistics_layers(case(records=(records[0],))) == 0


def named(*layers: str) -> ModelState:
    return model_state("a", **{f"{layer}.running_mean": torch.ones(2) for layer in layers})


def test_frozen_statistics_are_not_counted() -> None:
    model = crossing(named("backbone.bn1", "backbone.bn2", "head.norm"), "a", SERVER)
    head = crossing(ClassifierHead(client="a", round=0, state=named("norm").state), "a", SERVER)
    for buffers, layers in (("share", 3), ("keep_local", 3), ("freeze_backbone", 1), ("freeze", 1)):
        made = replace(case(records=(model, head)), settings={"buffers": buffers})
        assert statistics_layers(made) == layers
    assert statistics_layers(replace(case(records=(model,)), settings={"buffers": "freeze"})) == 0


SHARED: tuple[tuple[str, Artifact, int, str], ...] = (
    ("ccst", model_state("a"), 40, "supported"),
    ("lsi", ClassifierHead(client="a", round=0, state={"linear.weight": torch.ones(7, 512)}), 1, "supported"),
    ("ccst", style("a", channels=4, granularity="image"), 1, "supported"),
    ("lsi", ValidationMetrics(client="a", round=0, accuracy=torch.tensor(0.5)), 40, "supported"),
    ("lsi", style("a", channels=12), 1, "refuted"),
    ("ccst", AmplitudeSpectrum(client="a", round=0, amplitude=torch.ones(3, 4, 4), granularity="image"), 1, "refuted"),
    ("ccst", AmplitudeSpectrum(client="a", round=0, amplitude=torch.ones(3, 4, 4), granularity="client"), 40, "supported"),
)  # fmt: skip


def test_data_are_shared_if_as_large_as_one_image() -> None:
    for method, artifact, samples, verdict in SHARED:
        record = Record.of(artifact, "a", SERVER, "fit", samples=samples, clients=1)
        made = case(records=(record,), facts={"image_numbers": 48.0})
        assert verdict_of(method, "messages", made)[0] == verdict
        assert verdict_of(method, "messages", replace(made, facts={}))[0] == "undecided"


def test_messages_list_further_statistics() -> None:
    single = style("b", granularity="image")
    sent = (
        crossing(named("backbone.bn1", "head.norm"), "a", SERVER),
        crossing(ValidationMetrics(client="a", round=0, accuracy=torch.tensor(0.5)), "a", SERVER),
        crossing(single, "b", SERVER),
        crossing(single, SERVER, "a"),
    )
    (found,) = (
        row for row in claims("ccst", case(records=sent, facts={"image_numbers": 48.0})) if row.id == "messages"
    )
    assert found.evidence[-3:] == (
        "BatchNorm statistics, computed from images, of 2 layers in clients' uploads",
        "1 times a single image's style of one client was sent to another client",
        "1 times a client's accuracy on its held-out images was sent",
    )


def verdict_of(method: str, id: str, made: Case) -> tuple[str, str]:
    (row,) = [row for row in claims(method, made) if row.id == id]
    return row.verdict, row.reason


def test_cross_sharing_is_decided_by_relays() -> None:
    passed_on = crossing(style("a"), SERVER, "b")
    blended = InterpolationStyle(client=SERVER, round=0, mean=torch.ones(4), std=torch.ones(4), at="layer1", rule="x")
    for clients, verdict in (("ab", "refuted"), ("abc", "supported"), ("abcd", "supported")):
        sent = tuple(crossing(style(client), client, SERVER) for client in clients)
        assert verdict_of("pardon", "messages", case(records=sent))[0] == "supported"
        assert verdict_of("pardon", "messages", case(records=(*sent, passed_on)))[0] == "refuted"
        found, reason = verdict_of("pardon", "messages", case(records=(*sent, crossing(blended, SERVER, "a"))))
        assert found == verdict
        assert ("the mean of the other two" in reason) == (len(clients) == 3)


def test_a_style_has_many_sources_if_it_has_fewer_numbers() -> None:
    """128 numbers of each image, 256 in a style; that an image is named all the same is evidence."""
    for images, verdict in ((41, "supported"), (1, "undecided")):
        record = Record.of(style("a", channels=64), "a", SERVER, "style", samples=images, clients=1)
        made = case(SINGLE, records=(record,), facts={"image_numbers": 128.0})
        (found,) = (row for row in claims("ccst", made) if row.id == "H-C2")
        assert found.verdict == verdict
        named = "which image is behind a single style, nevertheless: identification by server"
        assert found.evidence[1].startswith(named)


def test_the_class_counts_where_colour_tells_it_less() -> None:
    """The probe's balanced accuracy is .6 [.53, .67]; that by colour is .3, .52 or not measured."""
    leak = outcome("leak", lead=figure(0.3, 0.1), relevant=0.2)
    given = {"artifact": "style_statistics:image", "shared": False, "secret": "labels", "leakage": {"client": leak}}
    row = finding("class_probe", "balanced_accuracy", 0.6, "leak", **given)
    for colour, verdict in ((0.3, "refuted"), (0.52, "undecided"), (None, "undecided")):
        known = {} if colour is None else {"colour_accuracy": colour, "colour_accuracy_high": colour + 0.02}
        assert verdict_of("ccst", "H-C3", case(row, facts=known))[0] == verdict


# Facts that decide alone

# Style space


def facts(**given: float) -> dict[str, Any]:
    usual = {"domain_silhouette": 0.4, "domain_purity": 0.95, "domain_chance": 0.33, "class_silhouette": 0.0}
    return {**usual, "class_purity": 0.11, "class_chance": 0.1, "class_chance_se": 0.01, **given}


def areas(few: float, many: float, other: float = 0.5) -> dict[str, float]:
    """Presence among 2 and among 10 clients, and of somebody else, with intervals 0.1 to either side."""
    values = {"presence_2": few, "presence_10": many, "absent_2": 0.5, "absent_10": other}
    values |= {"presence_lead_2": few - 0.5, "presence_lead_10": many - other}
    ends = {f"{name}_{end}": value + by for name, value in values.items() for end, by in (("low", -0.1), ("high", 0.1))}
    return values | ends | {f"{name}_n": 9.0 for name in values}


LATENTS = {"latent_precision": 0.0, "latent_recall": 0.5, "noise_precision": 0.0, "noise_recall": 1.0} | {
    f"latent_gain{end}": 0.0 for end in ("", "_low", "_high")
}
MOMENTS = {
    "latent_mean_error": 0.1,
    "latent_var_error": 0.2,
    "latent_mean_error_high": 0.15,
    "latent_var_error_high": 0.22,
    "latent_mean_error_n": 5.0,
}
LATENTS |= {"latent_precision_n": 5.0}
GAIN = {"translated_error": 1.0, "untranslated_error": 2.0, "elsewhere_error": 1.5} | {
    f"translation_gain{end}": 0.5 for end in ("", "_low", "_high")
}
GAIN |= {"translation_gain_n": 5.0}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"stage1_accuracy_min": 0.79}, "stage 1 trained too little: a client's accuracy on its own training images is 0.79"),
        ({"class_preservation": 0.5}, "the translator does not keep classes: accuracy 0.50 under the other client's head"),
        ({"class_preservation": 0.32}, "the translator does not keep classes: accuracy 0.32 under the other client's head"),
        ({"class_preservation": 0.94, "class_untranslated": 1.0}, "the translator does not keep classes: accuracy 0.94"),
        ({"class_preservation": 0.95, "class_untranslated": 1.0}, None),
        ({"stage1_accuracy_min": None}, "the run's log lacks stage 1's accuracy or the translator's class preservation"),
        ({"class_untranslated": None}, "the run's log lacks stage 1's accuracy or the translator's class preservation"),
        ({}, None),
    ],
    ids=str,
)  # fmt: skip
def test_untrained_translators_decide_nothing(changed: dict[str, float | None], told: str | None) -> None:
    inverted = gan("server", 15.0, "leak")
    head = inverted.model_copy(update={"attack": "latent_inversion", "artifact": "classifier_head:client"})
    deep = inverted.model_copy(update={"attack": "deep_inversion", "artifact": "model_state:client"})
    labels = head.model_copy(update={"attack": "label_histogram"})
    known = {name: figure for name, figure in (LEARNED | changed).items() if figure is not None}
    training_warning = Method.named("lsi")().training_warning(known)
    measured = case(head, deep, labels, facts=LATENTS | MOMENTS | GAIN, training_warning=training_warning)
    rows = {row.id: row for row in claims("lsi", measured)}
    assert Method.named("lsi")(invariance=0.0).training_warning(known) is None
    for claim in ("H-L1", "H-L3", "H-L4", "H-L7", "H-L8"):
        assert rows[claim].evidence
        assert rows[claim].verdict == ("refuted" if told is None else "undecided")
        assert rows[claim].reason.startswith(told or "")


def test_facts_decide_claims() -> None:
    error = {"translated_error": 1.0, "untranslated_error": 2.0, "elsewhere_error": 1.5, "translation_gain": 0.5}
    decided: tuple[tuple[str, str, dict[str, float], str], ...] = (
        # a key that the server computes is not hidden
        ("hfedf", "H-H6", {"key_error": 1e-6, "update_error": 0.0}, "refuted"),
        ("hfedf", "H-H6", {"key_error": 0.5, "update_error": 0.0}, "undecided"),
        # domains apart and classes mixed
        ("stablefdg", "H-S0", facts(), "supported"),
        ("stablefdg", "H-S0", facts(class_purity=0.13), "refuted"),
        ("stablefdg", "H-S0", facts(domain_purity=0.4), "refuted"),
        (
            "stablefdg",
            "H-S0",
            facts(domain_purity=0.45, domain_chance_se=0.05),
            "undecided",
        ),  # too few images for either
        ("stablefdg", "H-S0", facts(class_chance_se=0.06), "undecided"),
        # who took part is found in the style of two clients and not in that of many
        ("pardon", "H-P2", areas(0.9, 0.7), "refuted"),
        ("pardon", "H-P2", areas(0.9, 0.48), "supported"),
        ("pardon", "H-P2", areas(0.9, 0.55), "undecided"),  # up to 0.65
        ("pardon", "H-P2", areas(0.55, 0.5), "undecided"),
        ("pardon", "H-P2", areas(0.55, 0.7), "refuted"),
        ("pardon", "H-P2", areas(0.9, 0.7, 0.65), "undecided"),  # a client who is not there is found as well
        ("pardon", "H-P2", {}, "undecided"),
        # a translator gains on both controls
        ("lsi", "H-L8", error | {"translation_gain_low": 0.2, "translation_gain_n": 5.0}, "refuted"),
        ("lsi", "H-L8", error | {"translation_gain_low": -0.1, "translation_gain_n": 5.0}, "undecided"),
        ("lsi", "H-L8", {}, "undecided"),
    )
    for method, id, measured, verdict in decided:
        assert verdict_of(method, id, case(facts=measured))[0] == verdict, (id, measured)


def labels(verdict: Verdict, **given: Any) -> AttackFinding:
    return finding("label_histogram", "l1", 0.3, verdict, task="label_shares", secret="labels", **given)


def test_the_global_style_hides_labels_if_client_styles_do() -> None:
    assert verdict_of("pardon", "H-P3", case(labels("no_leak_found")))[0] == "supported"
    found, reason = verdict_of("pardon", "H-P3", case(labels("leak")))
    assert found == "undecided"
    assert "is not measured" in reason


def test_a_style_adds_a_risk_if_the_model_has_none() -> None:
    style_row = finding("style_membership", "auc", 0.7, "leak")
    names = ("identification", "domain_inference", "label_histogram", "gan", "style_inversion")
    others = [finding(name, "auc", 0.5, "no_leak_found") for name in names]

    def model(verdict: Verdict, role: str = "server", **given: Any) -> AttackFinding:
        threat = {"role": role, "auxiliary": "A3"}
        return finding("membership", "auc", 0.5, verdict, artifact="model_state:client", threat=threat, **given)

    quiet_model = model("no_leak_found")
    found, reason = verdict_of("pardon", "H-P5", case(style_row, *others, quiet_model))
    assert (found, reason) == ("refuted", "the style leaks what the model does not: membership by server")
    found, reason = verdict_of("pardon", "H-P5", case(style_row, *others, model("leak")))
    assert (found, reason) == ("undecided", "the model alone leaks the same secrets to the same adversaries")
    unused = model("no_leak_found", leakage={"client": outcome("no_leak_found", upper_bound=None)})
    for rows in (
        [],
        [model("inconclusive")],
        [quiet_model, model("inconclusive")],
        [unused],
        [model("leak", "client")],
    ):
        found, reason = verdict_of("pardon", "H-P5", case(style_row, *others, *rows))
        assert (found, "membership by server, and whether the model does" in reason) == ("undecided", True)
    unharmed = finding("style_membership", "auc", 0.5, "no_leak_found")
    said = "not measured: needs label_histogram and gan and style_inversion on this artifact, too"
    assert verdict_of("pardon", "H-P5", case(unharmed, *others[:2], quiet_model)) == ("undecided", said)
    assert verdict_of("pardon", "H-P5", case(unharmed, *others, model("leak")))[0] == "supported"


def test_no_leaked_image_is_needed_to_reconstruct() -> None:
    """Whatever the insider's leads by leaked share."""
    shares = {f"leaked_{share}_{what}": at for share in (5, 90) for what, at in (("image", 0.2), ("count", 3.0))}
    known = shares | {"leaked_90_image": 3.0, "leaked_90_image_low": 2.0, "leaked_5_image_high": 0.5}
    row = LEAK.model_copy(update={"metrics": {**LEAK.metrics, OVER_OWN_COLOUR: figure(1.2, 0.5)}})
    assert verdict_of("ccst", "H-C9", case(facts=known))[0] == "supported"
    found, reason = verdict_of("ccst", "H-C9", case(row, facts=known))
    assert (found, reason.startswith("no leaked image is needed")) == ("refuted", True)


def compared_styles(client: float, single: float, half: float = 0.2, **given: Any) -> AttackFinding:
    """Leads in dB on the client's style and on single images', whose controls reach 13.5 dB exactly."""
    control = {
        "value": figure(13.5 + single, half),
        "controls": {"mean_image": figure(13.5, 0.0), "noise": figure(8.0, 0.0)},
        "lead": single,
        "p": 0.0004,
        "succeeded": True,
    }
    leakage = {"client": outcome("leak", lead=figure(client, half))}
    return gan("third_party", 14.1, "leak", **{"leakage": leakage, "positive_control": control, **given})


def test_a_client_style_is_harder_if_its_lead_is_less() -> None:
    """In CCST's comparison of its two styles, and in PARDON's with styles of samples."""
    for client, half, verdict in (
        (0.6, 0.2, "supported"), (7.2, 0.2, "refuted"), (6.6, 0.2, "undecided"), (0.6, 4.0, "undecided"),
    ):  # fmt: skip
        for method, id in (("ccst", "H-C8"), ("pardon", "mitigates")):
            row = compared_styles(client, 6.7, half)
            assert verdict_of(method, id, case(row))[0] == verdict
            assert verdict_of(method, id, case(row, compared_styles(7.2, 6.7)))[0] == "refuted"
            mixed = verdict_of(method, id, case(row, compared_styles(6.6, 6.7)))[0]
            assert mixed == ("refuted" if verdict == "refuted" else "undecided")
    for nothing in (
        compared_styles(0.6, 6.7, positive_control=None),
        compared_styles(0.6, 6.7, threat={"role": "insider", "auxiliary": "A3"}),
    ):
        assert verdict_of("ccst", "H-C8", case(nothing))[1].startswith("not measured")


def test_single_styles_do_not_decide_the_overall_style() -> None:
    for claim, row in (
        ("H-C4", finding("style_membership", "auc", 0.9, "leak", artifact="style_statistics:image")),
        ("H-C8", gan("client", 20.0, "leak", artifact="style_statistics:image")),
    ):
        found, reason = verdict_of("ccst", claim, case(row))
        assert found == "undecided"
        assert reason.startswith("not measured")


def test_a_quiet_update_is_no_merit_of_embeddings() -> None:
    def update(verdict: Verdict) -> AttackFinding:
        told = {"task": "images", "secret": "content", "artifact": "model_update:client"}
        return finding("gradient_inversion", "psnr", 15.0, verdict, **told)

    def labels(verdict: Verdict) -> AttackFinding:
        return finding("label_histogram", "l1", 0.3, verdict, artifact="model_update:client")

    for rows in ((update("leak"), labels("no_leak_found")), (update("no_leak_found"), labels("leak"))):
        assert verdict_of("hfedf", "H-H5", case(*rows))[0] == "refuted"
    found, reason = verdict_of("hfedf", "H-H5", case(update("no_leak_found"), labels("no_leak_found")))
    assert found == "undecided"
    assert "FedAvg's update" in reason


def test_inversions_of_one_layer_and_all_are_listed() -> None:
    plain = gan("server", 15.0, "no_leak_found")
    head = plain.model_copy(update={"attack": "latent_inversion", "artifact": "classifier_head:client"})
    every = {"psnr@k=1": figure(16.8, 0.5), "psnr@k=all": figure(15.9, 0.25), "psnr": figure(14, 1)}
    model = plain.model_copy(update={"attack": "deep_inversion", "artifact": "model_state:client", "metrics": every})
    rows = {row.id: row for row in claims("lsi", case(head, model))}
    for id in ("H-L1", "H-L2"):
        assert rows[id].evidence[-1] == (
            "one image's PSNR in dB by the statistics inverted: k=1 16.8 [16.3, 17.3]; k=all 15.9 [15.7, 16.1]; the head's "
            "20.2 [19.6, 20.8]; strongest control (mean_image) 13.5 [13.3, 13.7]"
        )


def test_style_space_against_a_loop(fitted: Fitted) -> None:
    evaluator = fitted.evaluator()
    found = style_space(evaluator)
    layer, population = evaluator.template.at, evaluator.population
    points = torch.cat(
        [torch.cat(evaluator.recorded_styles.of_client(d.images, layer), 1) for d in population.clients.values()]
    ).double()
    points = (points - points.mean(0)) / points.std(0)
    domain = torch.cat([population.domain_of[name] for name in population.clients]).tolist()
    label = torch.cat([data.labels for data in population.clients.values()]).tolist()
    same_domain, same_class, pairs, alike = [], [], 0, 0
    for i, own in enumerate(points):
        distance = (points - own).norm(dim=1)
        near = [j for j in distance.argsort().tolist() if j != i]
        same_domain += [domain[j] == domain[i] for j in near[:5]]
        mine = [j for j in near if domain[j] == domain[i]]
        same_class += [label[j] == label[i] for j in mine[:5]]
    assert found["domain_purity"] == pytest.approx(sum(same_domain) / len(same_domain), abs=2e-3)
    assert found["class_purity"] == pytest.approx(
        sum(same_class) / len(same_class), abs=0.05
    )  # scaled within the domain
    for a in range(len(domain)):
        for b in range(a):
            pairs += 1
            alike += domain[a] == domain[b]
    assert found["domain_chance"] == pytest.approx(alike / pairs)
    assert style_space(SimpleNamespace(recorded_styles=None)) == {}  # type: ignore[arg-type]
