"""Questions: corrections, resolution, the verdicts at their borders, who belongs to the family, and how often all err."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from _golden import assert_golden
from scipy import stats
from test_judge import CHANCE, attack_scores, reader, scores

from fdgpriv.attack import Attack
from fdgpriv.results.question import Question
from fdgpriv.statistics import rule
from fdgpriv.statistics.interval import Array
from fdgpriv.statistics.multiplicity import benjamini_hochberg, holm, simes
from fdgpriv.statistics.paired import ControlTest
from fdgpriv.statistics.questions import Absent, Answer, Evidence, EvidenceByAttack, answers
from fdgpriv.statistics.resolution import resolution
from fdgpriv.statistics.rule import LeadTest
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.attack_tests import attack_tests
from fdgpriv.verdicts.judge import judge

RESAMPLES = 400


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# Corrections


def test_the_corrections_are_those_computed_by_hand() -> None:
    p = [0.001, 0.01, 0.02, 0.04]
    assert benjamini_hochberg(p) == pytest.approx([0.004, 0.02, 0.08 / 3, 0.04])
    assert holm(p) == pytest.approx([0.004, 0.03, 0.04, 0.04])
    assert benjamini_hochberg(p[::-1]) == pytest.approx([0.04, 0.08 / 3, 0.02, 0.004])
    assert holm(p[::-1]) == pytest.approx([0.04, 0.04, 0.03, 0.004])
    assert benjamini_hochberg([0.5, 0.9, 0.9]) == pytest.approx([0.9, 0.9, 0.9])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert (benjamini_hochberg([]), holm([])) == ([], [])
    for ps, wanted in (
        ([0.3], 0.3),
        ([0.04, 0.01], 0.02),
        ([0.03, 0.03, 0.03], 0.03),  # many weak ones count as one of them, where Bonferroni says .09
        ([0.001, 0.9, 0.9, 0.9], 0.004),
    ):
        assert simes(ps) == pytest.approx(wanted)


def test_corrections_against_their_step_procedures(rng: np.random.Generator) -> None:
    for _ in range(200):
        p = (rng.random(6) ** 3).tolist()
        ascending = sorted(p)
        down = 0
        while down < 6 and ascending[down] <= 0.05 / (6 - down):  # as Holm states it: step down until one fails
            down += 1
        up = max((k for k in range(1, 7) if ascending[k - 1] <= 0.05 * k / 6), default=0)  # the last that passes
        assert {x for x, one in zip(p, holm(p), strict=True) if one <= 0.05} == set(ascending[:down])
        assert {x for x, one in zip(p, benjamini_hochberg(p), strict=True) if one <= 0.05} == set(ascending[:up])


def test_a_p_outside_0_and_1_is_an_error() -> None:
    for correct in (holm, benjamini_hochberg, simes):
        with pytest.raises(ValueError, match="want p in"):
            correct([0.5, 1.5])
    with pytest.raises(ValueError, match="at least one p"):
        simes([])


# Resolution


@pytest.mark.parametrize("gap", [0.0, 0.5, 3.0])
def test_the_resolution_over_four_controls(gap: float, rng: np.random.Generator) -> None:
    """Equally strong controls, one that is a little weaker, and one that is far weaker and very noisy."""
    weaker, spread = np.array([0.0, 0.0, gap, 4 * gap]), np.array([1.0, 1.0, 1.0, 1.0 + gap])

    def experiments(lead: float, count: int) -> Array:
        return lead + weaker + spread * rng.normal(size=(count, 30, 4))

    printed = [resolution(np.zeros(30), dict(enumerate(-each.T)), None) or 0.0 for each in experiments(0.0, 100)]
    p = stats.ttest_1samp(experiments(float(np.mean(printed)), 2000), 0, axis=1, alternative="greater").pvalue
    assert np.mean(p.max(axis=1) <= 0.025) == pytest.approx(0.80, abs=0.06)


def test_the_resolution_over_one_control_is_that_of_t(rng: np.random.Generator) -> None:
    for units in (8, 15, 30, 100):
        drawn = rng.normal(size=(200, units))
        reach = stats.t.ppf(0.975, units - 1) + stats.t.ppf(0.8, units - 1)
        wanted = reach * drawn.std(1, ddof=1).mean() / units**0.5
        printed = [resolution(one, {"b": np.zeros(units)}, None) or 0.0 for one in drawn]
        assert np.mean(printed) == pytest.approx(wanted, rel=0.04)


def test_hits_at_the_resolution_are_found(rng: np.random.Generator) -> None:
    control = np.array([1.0] * 6 + [0.0] * 24)
    least = resolution(control[::-1].copy(), {"b": control}, (0.0, 1.0))
    assert least is not None

    def power(lead: float) -> float:
        """By the rule's own p, against a control of rate 6/30."""
        found = []
        for _ in range(300):
            hits = (rng.random(30) < 0.2 + lead).astype(float)
            line = LeadTest(hits, {"b": control}, bounds=(0.0, 1.0))
            found.append((rule.test(line, rng, RESAMPLES, sharp=False).p or 0.0) <= 0.025)
        return float(np.mean(found))

    assert power(least) >= 0.75
    assert power(least - 0.075) < 0.80


def test_constant_leads_have_no_resolution(rng: np.random.Generator) -> None:
    hits = rng.random(20).round()
    for bounds in (None, (0.0, 1.0)):
        assert resolution(hits, {"a": hits, "b": hits}, bounds) is None
        assert resolution(hits, {"a": hits, "b": 1 - hits}, bounds) is not None
        assert resolution(np.ones(1), {"a": np.zeros(1)}, bounds) is None


# Verdicts at their borders


def outcome(p: float | None, lead: float = 0.05, upper: float | None = 0.09, least: float | None = 0.2) -> rule.Test:
    """A test over 12 units with this outcome."""
    one = ControlTest(lead, 0.0, upper, p, 0.02)
    no_bound = None if upper is not None else "equal_differences"
    reason = None if p else "one unit"
    return rule.Test(lead, 0.0, upper, p, 12, "noise", {"noise": one}, least, no_bound=no_bound, reason=reason)


def evidence(
    p: float | None = 0.4,
    *,
    upper: float | None = 0.09,
    positive: float | None = 0.025,
    positive_lead: float = 0.1,
    planted: float | None = 0.8,
    relevant: float = 0.1,
    **more: float,
) -> Evidence:
    """An attack that just about says that no leak was found, but for what is given."""
    proof = None if positive is None else outcome(positive, positive_lead)
    return Evidence(outcome(p, upper=upper), relevant, proof, planted, "5 steps", **more)


def answered(*ps: float, **more: Any) -> Answer:
    """The answer to the first of several questions of one attack each."""
    return answers({str(i): {"attack": evidence(p, **more)} for i, p in enumerate(ps)})["0"]


# p of the questions, what is known of the first one's attack, its verdict and why it is inconclusive.
BORDERS: tuple[tuple[list[float], dict[str, Any], str, str | None], ...] = (
    ([0.025], {}, "leak", None),
    ([0.0251], {}, "inconclusive", "too_coarse"),  # q <= .05, so it is not "no leak" either
    ([0.05], {}, "inconclusive", "too_coarse"),
    ([0.0501], {}, "no_leak_found", None),
    ([0.025, 1], {}, "leak", None),  # q = .05
    ([0.0166, 1, 1], {}, "leak", None),  # q = .0498
    ([0.0167, 1, 1], {}, "inconclusive", "not_after_correction"),  # q = .0501
    ([0.026, 0.001], {}, "inconclusive", "too_coarse"),  # q = .026, p > .025
    ([0.026, 1], {}, "no_leak_found", None),  # q = .052
    ([0.02, 0.02, 0.02, 0.02], {}, "leak", None),  # each alone has q = .02; Holm would say .08
    ([0.4], {}, "no_leak_found", None),
    ([0.4], {"positive": None}, "inconclusive", "weak_attack"),
    ([0.4], {"positive": 0.0251}, "inconclusive", "too_coarse"),  # a lead that matters, over too few units
    ([0.4], {"positive": 0.0251, "positive_lead": 0.0999}, "inconclusive", "weak_attack"),
    ([0.4], {"positive_lead": 0.0999}, "inconclusive", "weak_attack"),
    ([0.4], {"upper": 0.0999}, "no_leak_found", None),
    ([0.4], {"upper": 0.1}, "inconclusive", "too_coarse"),
    ([0.4], {"upper": 0.3}, "inconclusive", "too_coarse"),
    ([0.4], {"upper": None}, "inconclusive", "too_coarse"),
    ([0.4], {"upper": 0.0}, "no_leak_found", None),
    ([0.4], {"planted": None}, "inconclusive", "weak_attack"),
    ([0.4], {"planted": 0.79}, "inconclusive", "weak_attack"),
    ([0.4], {"positive_lead": 0.15, "relevant_on_positive": 0.16}, "inconclusive", "weak_attack"),
)


def test_verdicts_at_their_borders() -> None:
    """Their reasons are in golden/reasons_of_verdicts.txt."""
    lines = []
    for ps, given, verdict, because in BORDERS:
        found = answered(*ps, **given)
        assert (found.verdict, found.because) == (verdict, because), (ps, given)
        assert found.p == ps[0]
        assert found.q == pytest.approx(benjamini_hochberg(ps)[0])
        assert found.p_holm == pytest.approx(holm(ps)[0])
        known = ", ".join(f"{name} {value}" for name, value in given.items())
        lines.append(f"p = {ps} {known}".rstrip() + f"\n    {found.verdict}: {found.reason}\n")
    assert_golden("reasons_of_verdicts.txt", "".join(lines))


def test_untestable_questions_keep_their_reasons() -> None:
    lead = 0.7 - 0.5  # 0.19999999999999996, of which .2 is wanted
    assert evidence(positive_lead=lead, relevant=0.2).works
    one: dict[str, EvidenceByAttack] = {"tested": {"a": evidence(0.02)}, "alone": {"a": evidence(None)}}
    found = answers({**one, "lone": Absent(rule.NO_OTHER_CLIENT), "none": Absent("reads no update", "not_applicable")})
    assert {key: (one.verdict, one.reason) for key, one in found.items() if key != "tested"} == {
        "alone": ("inconclusive", "one unit"),
        "lone": ("inconclusive", rule.NO_OTHER_CLIENT),
        "none": ("not_applicable", "reads no update"),
    }
    assert (found["tested"].q, found["lone"].q, found["alone"].p) == (0.02, None, None)
    assert answers({}) == {}


def test_the_strongest_positive_control_decides() -> None:
    accuracy = evidence(0.6, positive=0.001, positive_lead=0.9)  # 9 relevant effects
    decibels = evidence(0.3, positive=0.001, positive_lead=5.0, relevant=1.0, upper=0.9)  # 5
    found = answers({"x": {"decibels": decibels, "accuracy": accuracy}})["x"]
    assert (found.verdict, found.shown_attack) == ("no_leak_found", "accuracy")
    blind = evidence(0.6, positive=0.001, positive_lead=0.9, planted=0.1)  # what the others say does not help
    found = answers({"x": {"decibels": decibels, "accuracy": blind}})["x"]
    assert (found.verdict, found.because, found.shown_attack) == ("inconclusive", "weak_attack", "accuracy")


def of(
    p: float, lead: float, *, relevant: float = 0.1, positive_lead: float = 0.5, upper: float | None = None
) -> Evidence:
    """An attack with this p and lead, which succeeds on its positive control and finds planted leaks."""
    upper = lead + 0.2 if upper is None else upper
    return Evidence(outcome(p, lead, upper), relevant, outcome(0.001, positive_lead), 0.9, "5 steps")


def test_the_attack_that_tells_answers() -> None:
    """A ranking that fails, with the larger lead on its positive control, hides no score that tells."""
    ranking = of(1.0, -0.05, positive_lead=0.9, upper=0.05)
    for p, verdict, because in (
        (0.003, "leak", None),
        (0.0125, "leak", None),  # Simes and Holm .025
        (0.016, "inconclusive", "not_after_correction"),
        (0.03, "inconclusive", "too_coarse"),  # a lead that matters is not excluded
    ):
        found = answers({"x": {"ranking": ranking, "score": of(p, 0.21)}})["x"]
        assert (found.verdict, found.because) == (verdict, because), p
        assert found.shown_attack == found.reason_of == "score", p
    alone = answers({"x": {"score": of(0.016, 0.21)}})["x"]
    assert alone.verdict == "leak"
    found = answers({"x": {"ranking": ranking, "score": of(0.3, 0.02, upper=0.09)}})["x"]
    assert (found.verdict, found.shown_attack) == ("no_leak_found", "ranking")


def test_the_shown_attack_has_the_largest_lead_that_is_significant() -> None:
    for attacks, shown in (
        ({"a": of(0.0001, 0.2), "b": of(0.001, 0.3)}, "b"),
        ({"a": of(0.0001, 0.2), "b": of(0.001, 0.3, relevant=0.2)}, "a"),  # in units of what matters
        ({"a": of(0.0001, 0.2), "b": of(0.0251, 0.3)}, "a"),
        ({"a": of(0.0001, 0.2), "b": of(0.025, 0.3)}, "b"),
        ({"a": of(0.024, 0.2), "b": of(0.024, 0.3), "c": of(0.025, 0.3)}, "b"),  # Simes .025, Holm .072
        ({"a": of(0.2, 0.2), "b": of(0.4, 0.3)}, "b"),
        ({"a": of(0.4, 0.3), "b": of(0.2, 0.3)}, "b"),
    ):
        for order in (list(attacks), list(attacks)[::-1]):
            found = answers({"x": {name: attacks[name] for name in order}})["x"]
            assert found.shown_attack == shown, attacks


def test_an_untestable_attack_answers_nothing() -> None:
    found = answers({"x": {"untested": Evidence(outcome(None, 0.9), 0.1), "tested": of(0.001, 0.2)}})["x"]
    assert (found.verdict, found.shown_attack, found.error) == ("leak", "tested", 0.05)


def test_the_interval_of_the_largest_of_several_leads_is_widened() -> None:
    leak, open_ = of(0.001, 0.3), of(0.3, 0.3)
    for k in (1, 2, 5):
        found = answers({"x": dict.fromkeys("abcde"[:k], leak), "y": dict.fromkeys("abcde"[:k], open_)})
        assert [found[key].verdict for key in "xy"] == ["leak", "inconclusive"]
        assert [found[key].error for key in "xy"] == [pytest.approx(0.05 / 2 / k), pytest.approx(0.05 / k)]


# Within a question, and beyond doubt


def asked(*ps: Sequence[float]) -> dict[str, Answer]:
    """The answers to questions 0, 1, ... of attacks a, b, ... with these p."""
    return answers({str(i): dict(zip("abcd", map(evidence, some), strict=False)) for i, some in enumerate(ps)})


def test_p_is_simes_over_the_attacks() -> None:
    found = asked([0.9, 0.004, 0.012], [0.8])["0"]
    assert (found.verdict, found.shown_attack) == ("leak", "b")
    assert found.p == pytest.approx(0.012)  # 3 x .004
    assert found.q == pytest.approx(0.024)  # 2 x .012


@pytest.mark.parametrize(
    ("questions", "marked"),
    [
        (([0.001, 0.0250], [1.0]), "ab"),  # Holm (.002, .025), level .05 x 1/2
        (([0.001, 0.0251], [1.0]), "a"),
        (([0.001, 0.0251], [0.001]), "a"),  # level .05 x 2/2, but at most .025
        (([0.001, 0.02, 0.03, 0.6], [1.0]), "a"),  # Holm (.004, .06, .06, .6)
        (([0.012, 0.012], [0.001]), "ab"),  # Holm (.024, .024)
        (([0.024, 0.024], [0.001]), ""),  # Holm (.048, .048): a leak of the question, of no attack by itself
        (([0.012, 0.012], [0.001], *[[1.0]] * 4), ""),  # level .0167
        (([0.3, 0.9], [0.001]), ""),  # no leak, no mark
    ],
)
def test_leaking_attacks_pass_holm(questions: Sequence[Sequence[float]], marked: str) -> None:
    found = asked(*questions)["0"]
    assert found.leaking == set(marked)
    assert (found.verdict == "leak") == (questions[0][0] < 0.1)


def test_intervals_of_leaks_are_widened() -> None:
    found = asked([0.001], [0.002], [0.5], [0.6], [0.7])
    assert [found[key].error for key in "01"] == [pytest.approx(0.02)] * 2  # .05 x 2/5
    assert [found[key].error for key in "234"] == [0.05] * 3


def test_a_leak_is_beyond_doubt_where_it_passes_holm() -> None:
    for p, sure in ((0.0125, True), (0.0126, False)):
        found = answered(p, 1.0)
        assert (found.verdict, found.beyond_doubt) == ("leak", sure)


# The questions of a report


def secret(name: str, *scopes: str, **facts: Any) -> Attack:
    return reader(secret=name, scopes=scopes, **facts)


def questions(**more: AttackScores) -> tuple[Question, ...]:
    """The questions of a report of these attacks."""
    verdicts = judge({f"run/{name}": one for name, one in more.items()}, 0)
    return verdicts.questions.of_cell("run", [f"run/{name}" for name in more])


LEAKING, NULL = scores(3, 3.0), scores(4, 0.0)


def test_attacks_are_grouped_into_questions() -> None:
    member = secret("membership", "client")
    attacks = {
        "one": attack_scores(NULL, attack=member),
        "two": attack_scores(NULL, attack=member),
        "insider": attack_scores(NULL, attack=member, role="insider"),
        "image": attack_scores(NULL, attack=member, level="image"),
        "model": attack_scores(NULL, attack=member).model_copy(update={"kind": "model_state"}),
        "content": attack_scores(NULL, attack=secret("content", "client", "domain")),
        "server": attack_scores(NULL, attack=secret("content", "client", "domain"), role="server"),
    }
    found = questions(**attacks)
    assert {(q.artifact, q.level, q.adversary, q.secret, q.scope): q.attacks for q in found} == {
        ("style_statistics", "client", "third_party", "membership", "client"): (0, 1),
        ("style_statistics", "client", "insider", "membership", "client"): (2,),
        ("style_statistics", "image", "third_party", "membership", "client"): (3,),
        ("model_state", "client", "third_party", "membership", "client"): (4,),
        ("style_statistics", "client", "third_party", "content", "client"): (5,),
        ("style_statistics", "client", "third_party", "content", "domain"): (5,),
        ("style_statistics", "client", "server", "content", "client"): (6,),
    }


def test_both_scopes_are_one_question_for_whoever_knows_the_domain() -> None:
    """Its p is the larger one, as the client scope has all controls of the domain scope."""
    near = scores(7, 1.0, {**CHANCE, "other_client": 0.8})
    for role, scopes in (("server", ["client"]), ("insider", ["client"]), ("third_party", ["client", "domain"])):
        content = attack_scores(near, attack=secret("content", "client", "domain"), role=role)
        found = questions(one=content)
        assert [question.scope for question in found] == scopes
        tests = attack_tests({"run/one": content}, 0)["run/one"].scopes
        assert found[0].p == tests["client"].p >= tests["domain"].p
    alone = scores(7, 1.0, {name: at for name, at in CHANCE.items() if name != "other_client"})
    lone, domain = questions(one=attack_scores(alone, attack=secret("content", "client", "domain"), role="server"))
    assert (lone.scope, lone.verdict, domain.scope, domain.verdict) == ("client", "inconclusive", "domain", "leak")


def test_the_family_has_only_tests_on_shared_artifacts() -> None:
    one = attack_scores(LEAKING, attack=secret("membership", "client"))
    alone = {"one": one}
    more = {
        "one": one,
        **{f"unshared{i}": attack_scores(NULL, shared=False) for i in range(3)},
        "exact": attack_scores(NULL, attack=secret("content", "client", "domain", exact=True)),
        "nothing": attack_scores(None, None, attack=secret("identity", "client"), not_applicable="reads no update"),
    }
    found = {(q.secret, q.scope): q for q in questions(**more)}
    asks = found["membership", "client"]
    assert asks.p == asks.q == asks.p_holm  # one test in the family: what is beside it costs nothing
    assert asks.p == pytest.approx(questions(**alone)[0].p or 0.0, abs=1e-3)
    assert set(found) == {
        ("membership", "client"),
        ("content", "client"),
        ("content", "domain"),
        ("identity", "client"),
    }
    assert {found[key].verdict for key in found if key[0] != "membership"} == {"not_applicable"}
    assert found["identity", "client"].reason == "reads no update"


def test_exact_recovery_answers_with_its_share() -> None:
    exact = scores(5, 0.0)
    exact.details = {"recovered": {"attack": [1.0] * 3 + [0.0] * 9}}
    attacks = {
        "exact": attack_scores(exact, attack=secret("content", "client", "domain", exact=True)),
        "gan": attack_scores(LEAKING, attack=secret("content", "client", "domain")),
    }
    for question in questions(**attacks):
        assert question.verdict == "leak"
        assert question.attacks == (0, 1)
        wanted = stats.binomtest(3, 12).proportion_ci(0.95, method="exact")
        assert question.recovered.value == 0.25
        assert question.recovered.ci95 == pytest.approx((wanted.low, wanted.high))


SCOPES = {
    "domain": ("domain",),
    "membership": ("client",),
    "identity": ("client",),
    "size": ("client",),
    "labels": ("client", "domain"),
    "content": ("client", "domain"),
    "average_look": ("client", "domain"),
}


def test_each_secret_is_asked_in_its_scopes() -> None:
    tasks = {Attack.named(name).task for name in Attack.names()}
    for task in [one for each in tasks for one in (each, *each.implied)]:
        assert task.scopes == SCOPES.get(task.secret, task.scopes), task.secret
        assert not task.draws_images or task.secret == "content"
    assert Attack.named("exact_recovery").task.exact
    least = {(task.metric, task.relevant, bool(task.relative_to)) for task in tasks}
    assert least >= {
        ("psnr", 1.0, False), ("auc", 0.10, False), ("top1", 0.10, False), ("accuracy", 0.20, False),
        ("balanced_accuracy", 0.20, False), ("l1", 0.10, True), ("relative_error", 0.10, True), ("top1", 0.15, False),
    }  # fmt: skip


SIZE: dict[str, Any] = {"higher_leaks": False, "relative_to": ("mean_image",), "relevant": 0.1}


@pytest.mark.parametrize(
    ("prior", "facts", "relevant"),
    [([0.5, 0.7] * 6, SIZE, 0.06), ([0.5, 0.7] * 6, {**SIZE, "relative_to": ()}, 0.1), ([0.0] * 12, SIZE, None)],
)
def test_a_relative_effect_is_a_share_of_the_prior(
    prior: list[float], facts: dict[str, Any], relevant: float | None
) -> None:
    whole = scores(6, 0.5)
    whole.headline["mean_image"] = prior
    one = attack_scores(whole, attack=secret("size", "client", **facts))
    found = questions(one=one)[0]
    if relevant is None:
        assert (found.verdict, found.reason) == ("not_applicable", "the public prior already answers this exactly")
    else:
        assert found.relevant == pytest.approx(relevant)  # a tenth of .6


def test_resampling_uses_400_draws_for_each_test(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(lead_test: LeadTest, rng: np.random.Generator, resamples: int, *, sharp: bool = True) -> rule.Test:
        seen.append(resamples)
        return rule.test(lead_test, rng, resamples, sharp=sharp)

    monkeypatch.setattr("fdgpriv.verdicts.attack_tests.test", spy)
    attack_tests({f"run/{i}": attack_scores(NULL) for i in range(10)}, 0)
    assert min(seen) >= 400 * 2 * 10  # both scopes of ten attacks


# How often a whole report errs


REPORTS = 200


def leaks(truth: Array, rng: np.random.Generator) -> list[bool]:
    """The questions that a report calls leaks, with these true leads: 2 attacks each, 3 controls, 15 units, noise in common."""
    units = rng.normal(size=15)  # how hard a unit is, for every attack and control
    asked: dict[str, EvidenceByAttack] = {}
    for i, lead in enumerate(truth):
        own = rng.normal(size=15)  # and for those of this question
        evidence = {}
        for name in ("a", "b"):
            attack, *others = (units + own + rng.normal(size=(4, 15))) / 3**0.5
            controls = {str(j): values for j, values in enumerate(others)}
            line = LeadTest(attack + lead, controls)
            evidence[name] = Evidence(rule.test(line, rng, RESAMPLES, sharp=False), 0.5)
        asked[str(i)] = evidence
    return [one.verdict == "leak" for one in answers(asked).values()]


@pytest.mark.slow
def test_at_most_16_of_200_null_reports_call_a_leak(rng: np.random.Generator) -> None:
    assert sum(any(leaks(np.zeros(10), rng)) for _ in range(REPORTS)) <= 16


def test_at_most_5_percent_false_leaks(rng: np.random.Generator) -> None:
    truth = np.array([1.2, 0.0] * 5)
    found = np.array([leaks(truth, rng) for _ in range(REPORTS)])
    false = found[:, truth == 0].sum(axis=1) / np.maximum(1, found.sum(axis=1))
    assert false.mean() <= 0.05
    assert found[:, truth > 0].mean() >= 0.7
