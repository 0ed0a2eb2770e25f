"""Grades of leaks, what an unused artifact excludes, and one measurement of several adversaries."""

import numpy as np
import pytest
from scipy import stats
from test_judge import CHANCE, CLIENTS, attack_scores, reader, scores

from fdgpriv.results.attack_finding import Threat
from fdgpriv.results.question import Question
from fdgpriv.statistics import rule
from fdgpriv.statistics.grades import grade, share_of_achievable, words
from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.resolution import power
from fdgpriv.statistics.rule import LeadTest
from fdgpriv.verdicts.attack_scores import ARTIFACT_FREE, AttackScores
from fdgpriv.verdicts.judge import judge
from fdgpriv.verdicts.trial_scores import TrialScores


def test_the_share_of_what_is_achievable() -> None:
    for lead, control, perfect, share in (
        (0.25, 0.5, 1.0, 0.5),  # AUC
        (-0.1, 0.5, 1.0, 0.0),
        (0.6, 0.5, 1.0, 1.0),
        (0.12, 0.4, 0.0, 0.3),  # L1: lower leaks, the lead is oriented
        (1.0, 14.0, 22.0, 0.125),  # PSNR, to the decoder's bound
        (0.1, 1.0, 1.0, None),  # the control is perfect already
        (0.1, 0.5, None, None),
    ):
        wanted = None if share is None else pytest.approx(share)
        assert share_of_achievable(lead, control, perfect) == wanted


def test_a_leak_is_a_trace_moderate_or_severe() -> None:
    assert grade(0.0999, 0.1, 0.9) == "trace"
    assert grade(0.7 - 0.6, 0.1, 0.4999) == "moderate"  # 0.09999999999999998
    assert grade(0.1, 0.1, 0.5) == "severe"
    assert grade(5.0, 0.1, None) == "moderate"  # nothing is known of what is achievable


def test_a_range_of_grades_is_named() -> None:
    assert words("trace", "moderate") == "trace to moderate"
    assert words("severe", "severe") == "severe"


def question_of(*attacks: AttackScores) -> list[Question]:
    keyed = {f"cell/a@{one.threat.role} on style": one for one in attacks}
    return list(judge(keyed, 0).questions.of_cell("cell", list(keyed)))


def graded(mean: float, spread: float = 0.02, **facts: object) -> Question:
    """A leak with this mean accuracy over controls at 0, of which .2 matters and 1 is perfect."""
    facts = {"scopes": ("client",), "relevant": 0.2, "perfect": 1.0, **facts}
    (question,) = question_of(attack_scores(scores(0, mean, CHANCE, spread=spread), attack=reader(**facts)))
    assert question.verdict == "leak"
    return question


def test_a_question_has_grade_share_and_lead() -> None:
    trace, moderate, severe = graded(0.1), graded(0.35), graded(0.8)
    assert [one.grade for one in (trace, moderate, severe)] == ["trace", "moderate", "severe"]
    assert [one.graded for one in (trace, moderate, severe)] == ["trace leak", "moderate leak", "severe leak"]
    lead, control = severe.lead.value or 0.0, severe.strongest.control_value.value or 0.0
    assert severe.share_of_achievable == pytest.approx(lead / (1 - control))
    assert graded(0.8, perfect=None).grade == "moderate"
    assert graded(0.28, spread=0.1).graded == "moderate leak (trace to moderate)"


def test_members_at_1_percent_fpr_are_moderate() -> None:
    whole = scores(0, 0.1, CHANCE, spread=0.02)
    attack = reader(scopes=("client",), relevant=0.2, perfect=1.0)
    for low, wanted in ((0.09, "trace"), (0.11, "moderate")):
        tpr = Measured(value=0.2, ci95=(low, 0.3), n=500, direction="higher_leaks")
        whole.aggregates = {"attack": {"tpr_at_fpr_0.01": tpr}}
        (question,) = question_of(attack_scores(whole, attack=attack))
        assert question.grade == wanted


def played_by(role: str, fingerprint: str, seed: int = 0, mean: float = 0.35) -> AttackScores:
    one = attack_scores(scores(seed, mean, CHANCE, spread=0.02), attack=reader(scopes=("client",), relevant=0.2))
    return one.model_copy(update={"fingerprint": fingerprint, "threat": Threat(role=role, auxiliary="A3")})


def test_equal_predictions_are_one_question() -> None:
    server, third = played_by("server", "same"), played_by("third_party", "same")
    nearer = np.asarray(third.by_size[None].headline["attack"]) - np.linspace(-0.02, 0.1, len(CLIENTS))
    third.by_size[None].headline["noise"] = nearer.tolist()  # a control that only it has
    alone = [question_of(one)[0] for one in (server, third)]
    (both,) = question_of(server, third)
    assert both.adversaries == ("server", "third_party")
    assert both.p == max(one.p or 0.0 for one in alone) > min(one.p or 0.0 for one in alone)
    assert both.attacks == (0, 1)
    for other in (played_by("third_party", "other"), played_by("third_party", "")):
        assert [one.adversaries for one in question_of(server, other)] == [("server",), ("third_party",)]


@pytest.mark.slow
@pytest.mark.parametrize("controls", [1, 3, 6])
def test_a_lead_of_0_is_excluded_in_at_most_3_percent(controls: int) -> None:
    """The least of several 97.5 % bounds is too small: 4 % with three controls, 9 % with six; at .025/B it is not."""
    rng, wrong = np.random.default_rng(controls), 0
    for _ in range(2000):
        others = {str(b): rng.normal(size=30) for b in range(controls)}
        tested = rule.test(LeadTest(rng.normal(size=30), others), rng, 2000, sharp=False)
        # a bound of at most 0 is reported as no bound: it would have excluded the true lead of 0
        wrong += tested.no_bound == "not_above_control"
    assert wrong <= 0.035 * 2000


def test_the_bound_is_at_level_025_over_controls() -> None:
    rng = np.random.default_rng(0)
    attack, controls = rng.normal(size=12), {str(b): rng.normal(-1, 1, size=12) for b in range(3)}
    tested = rule.test(LeadTest(attack, controls), rng, 2000, sharp=False)
    bounds = [
        stats.ttest_1samp(attack - control, 0).confidence_interval(1 - 2 * LEVEL / 3).high
        for control in controls.values()
    ]
    assert tested.upper == pytest.approx(min(bounds))


def test_an_unused_artifact_excludes_nothing() -> None:
    rng = np.random.default_rng(0)
    control = rng.normal(size=30)
    for used, no_bound in ((True, "not_above_control"), (False, "artifact_not_used")):
        tested = rule.test(LeadTest(control, {"prior": control}, artifact_used=used), rng, 2000, sharp=False)
        assert (tested.difference, tested.upper, tested.no_bound) == (0.0, None, no_bound)
    assert tested.interval(0.05) is None
    better = rule.test(LeadTest(control - 1 + rng.normal(size=30), {"prior": control}), rng, 2000, sharp=False)
    assert better.upper is None
    assert better.no_bound == "not_above_control"  # significantly worse than its control


def test_shared_images_widen_the_test() -> None:
    """Against plain arithmetic with t, and with a true shared error: without its variance the test errs far too often."""
    rng = np.random.default_rng(0)
    d, shared = rng.normal(0.4, 1, size=12), 0.05
    tested = rule.test(LeadTest(d, {"b": np.zeros(12)}, shared_variance={"b": shared}), rng, 2000, sharp=False)
    se = np.sqrt(d.var(ddof=1) / 12 + shared)
    assert tested.p == pytest.approx(stats.t.sf(d.mean() / se, 11))
    assert tested.lower == pytest.approx(min(0.0, d.mean() - stats.t.ppf(0.975, 11) * se))
    assert tested.upper == pytest.approx(d.mean() + stats.t.ppf(0.975, 11) * se)

    def null(known: float) -> float:
        found = 0
        for _ in range(400):
            leads = rng.normal(size=30) + 0.25 * rng.normal()
            one = LeadTest(leads, {"b": np.zeros(30)}, shared_variance={"b": known})
            tested = rule.test(one, rng, 400, sharp=False)
            found += tested.p is not None and tested.p <= LEVEL
        return found / 400

    assert null(0.25**2) <= 0.045
    assert null(0.0) > 0.07


def test_shared_images_lower_the_power() -> None:
    rng = np.random.default_rng(0)
    leads = rng.normal(0.6, 1, size=(30, 1))
    alone, shared = (power(leads, np.random.default_rng(0), shared_variance=np.array([v])) for v in (0.0, 0.09))
    assert shared < alone - 0.1
    tests = [
        rule.test(LeadTest(leads[:, 0], {"b": np.zeros(30)}, shared_variance={"b": v}), rng, 400).resolution
        for v in (0.0, 0.09)
    ]
    expected = [
        (2.045 + 0.854) * np.sqrt(leads.var(ddof=1) / 30 + v) for v in (0.0, 0.09)
    ]  # t quantiles of .975 and .8
    assert tests == pytest.approx(expected, rel=0.1)


def test_predictions_of_the_prior_use_no_artifact() -> None:
    whole = scores(0, 0.0, CHANCE)
    whole.artifact_used = False
    whole.headline |= dict.fromkeys(ARTIFACT_FREE, whole.headline["attack"])
    for planted, verdict in ((0.94, "no_leak_found"), (0.5, "inconclusive")):
        attack = reader(scopes=("client",))
        one = attack_scores(whole, scores(1, 2.0, CHANCE, per_client=4), attack, planted={"client": planted})
        (question,) = question_of(one)
        assert question.verdict == verdict
        assert question.upper_bound is None
        assert "found nothing to use" in question.reason
        assert f"{planted:.0%}" in question.reason


def test_scores_say_whether_the_artifact_was_used() -> None:
    assert TrialScores().artifact_used
    assert TrialScores().fingerprint == ""


# Worse than nothing


def deficit_of(attack: Array, control: Array, bounds: tuple[float, float] | None = None) -> rule.Deficit | None:
    lead_test = LeadTest(attack, {"prior": control, "artifact": control}, bounds=bounds, artifact_free=["prior"])
    return rule.test(lead_test, np.random.default_rng(0), 2000, sharp=False).deficit


def test_an_attack_worse_than_an_artifact_free_control_is_noticed() -> None:
    """At p < .05 by Student's t (at least 2^-n), of artifact-free controls only; without a difference never."""
    rng = np.random.default_rng(0)
    control = rng.normal(size=12)
    noticed = []
    for shift in np.linspace(-0.6, 0.6, 13):
        d = shift + 0.5 * rng.normal(size=12)
        wanted = max(0.5**12, float(stats.ttest_1samp(d, 0, alternative="less").pvalue))
        deficit = deficit_of(control + d, control)
        assert (deficit is not None) == (d.mean() < 0 and wanted < 0.05)
        if deficit is not None:
            assert (deficit.control, deficit.p) == ("prior", pytest.approx(wanted))
            assert deficit.difference == pytest.approx(-d.mean())
        noticed.append(deficit is not None)
    assert noticed[0]
    assert not noticed[-1]
    assert deficit_of(control, control) is None


def test_few_hits_are_not_worse_than_chance() -> None:
    """No hit in 12 trials has a probability of .54 at a chance of .05: that is not worse than a control of .05."""
    assert deficit_of(np.zeros(12), np.full(12, 0.05), (0.0, 1.0)) is None
    assert deficit_of(np.zeros(12), np.full(12, 0.5), (0.0, 1.0)) is not None  # .0002


def test_an_attack_that_is_worse_than_nothing_finds_no_leak() -> None:
    attack, positive = reader(scopes=("client",)), scores(1, 2.0, CHANCE, per_client=4)
    for mean, verdict, because in (
        (0.0, "no_leak_found", None),
        (-1.0, "inconclusive", "weak_attack"),
        (3.0, "leak", None),
    ):
        whole = scores(0, mean, CHANCE, spread=0.1)
        whole.headline["uniform"] = [0.0] * len(CLIENTS)
        if mean == 0.0:
            whole.headline |= dict.fromkeys(ARTIFACT_FREE, whole.headline["attack"])
        (question,) = question_of(attack_scores(whole, positive, attack, planted={"client": 1.0}))
        assert (question.verdict, question.inconclusive_because) == (verdict, because)
        assert ("which uses no artifact" in question.reason) == (because is not None)


# Leaks whose positive control fails


def test_a_leak_says_why_its_positive_control_may_fail() -> None:
    attack, failing = reader(scopes=("client",)), scores(1, 0.1, CHANCE, per_client=4)
    few = TrialScores(["a", "b"], ["a", "b"], {"attack": [1.0, 9.0], **{name: [0.0, 0.0] for name in CHANCE}})
    defended = {"undefended": failing}
    cases: tuple[tuple[AttackScores, str | None], ...] = (
        (attack_scores(scores(0, 3.0, CHANCE), attack=attack), None),
        (attack_scores(scores(0, 3.0, CHANCE), None, attack), None),
        (attack_scores(scores(0, 3.0, CHANCE), failing, attack), "this leak may rest on many images"),
        (
            attack_scores(scores(0, 3.0, CHANCE), failing, attack, rounds_read=3, clients_read=12),
            "this leak may rest on 3 rounds, other clients' artifacts, many images",
        ),
        (attack_scores(scores(0, 3.0, CHANCE), few, attack), "over too few units"),
        (attack_scores(scores(0, 3.0, CHANCE), attack=attack, **defended), "the defense may add what it reads"),
        (attack_scores(scores(0, 0.0, CHANCE), failing, attack), None),
    )
    for one, sentence in cases:
        (question,) = question_of(one)
        assert ("on its positive control" in question.reason.partition(";")[2]) == (sentence is not None)
        assert sentence is None or question.reason.endswith(sentence)


# One domain


def test_a_single_domain_makes_the_domain_not_applicable() -> None:
    for names, verdict in ((dict.fromkeys(CLIENTS, "scan"), "not_applicable"), ({}, "inconclusive")):
        whole = scores(0, 1.0, {name: at for name, at in CHANCE.items() if name != "other_domain"})
        for scopes in (("domain",), ("client", "domain")):
            one = attack_scores(whole, attack=reader(scopes=scopes), domains=names)
            found = {question.scope: question for question in question_of(one)}
            assert found["domain"].verdict == verdict
            assert ("of one domain" in found["domain"].reason) == bool(names)
            assert "client" not in found or found["client"].verdict == "leak"
