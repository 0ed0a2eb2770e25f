"""Membership in a training: formulas, shadows, and that what was learned by heart is found and nothing else."""

import dataclasses
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from _confetti import CLASSES, attack_of, confetti, federation_of, method_of, sittings_of, trained
from conftest import mostly_slow
from factories import inferred
from factories_core import truth
from factories_scores import conditions
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.attack import Attack
from fdgpriv.defense import Defense
from fdgpriv.evaluation.attack_evaluation import attack_scores
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials, ScoredObservation, Trial
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import populate
from fdgpriv.federation.wire import Wire
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.simulation.output_cache import OutputCache, identity
from fdgpriv.simulation.simulator import ClientImages
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.statistics import rule
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.rule import LeadTest
from fdgpriv.tasks import membership as members_task
from fdgpriv.threat import THREATS, threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts import judge as judging
from fdgpriv.verdicts.trial_scores import TrialScores

membership: Any = import_module("fdgpriv.attacks._membership")
shadows: Any = import_module("fdgpriv.attacks._shadow_models")

# Formulas


def test_log_odds_are_of_label_against_others(rng: torch.Generator) -> None:
    logits, labels = torch.randn(2, 5, CLASSES, generator=rng), torch.tensor([0, 1, 2, 3, 0])
    p = logits.double().softmax(-1)
    for model in range(2):
        for i, label in enumerate(labels.tolist()):
            expected = p[model, i, label].log() - (1 - p[model, i, label]).log()
            assert float(membership.log_odds(logits, labels)[model, i]) == pytest.approx(float(expected), rel=1e-6)
            assert float(membership.likelihood(logits, labels)[model, i]) == pytest.approx(float(p[model, i, label]))
    certain = membership.log_odds(torch.tensor([[300.0, 0.0]]), torch.tensor([0]))
    assert float(certain) == pytest.approx(300)  # and finite


@pytest.mark.parametrize("count", [16, 100])
def test_offline_lira_is_the_normal_distribution_s(rng: torch.Generator, count: int) -> None:
    phi, out = torch.randn(7, generator=rng).double(), torch.randn(count, 7, generator=rng).double()
    z = membership.offline(phi, out)
    pooled = float(np.sqrt(np.mean(np.var(out.numpy(), axis=0, ddof=1))))
    for i in range(7):
        spread = pooled if count < 64 else float(np.std(out[:, i].numpy(), ddof=1))
        expected = scipy.stats.norm.cdf(float(phi[i]), float(out[:, i].mean()), spread)
        assert scipy.stats.norm.cdf(float(z[i])) == pytest.approx(expected)


def test_online_lira_is_a_ratio_of_densities(rng: torch.Generator) -> None:
    count, phi = 128, torch.randn(5, generator=rng).double()
    told = torch.randn(count, 5, generator=rng).double()
    saw = torch.arange(count)[:, None].expand(count, 5) % 2 == 0
    told = told + 2 * saw
    found = membership.online(phi, told, saw)
    for i in range(5):
        inside, out = told[saw[:, i], i].numpy(), told[~saw[:, i], i].numpy()
        # at 64 of each, a variance of each membership candidate's own
        expected = scipy.stats.norm.logpdf(float(phi[i]), inside.mean(), inside.std(ddof=1))
        expected -= scipy.stats.norm.logpdf(float(phi[i]), out.mean(), out.std(ddof=1))
        assert float(found[i]) == pytest.approx(expected)


def test_online_lira_borrows_across_candidates(rng: torch.Generator) -> None:
    told = torch.randn(8, 8, generator=rng).double() / 10
    saw = torch.eye(8, dtype=torch.bool)
    told = told + 5 * saw
    found = membership.online(torch.tensor([0.0, 5, 0, 5, 0, 5, 0, 5]).double(), told, saw)
    assert (found > 0).tolist() == [False, True] * 4


def test_rmia_counts_the_others_that_a_candidate_outdoes(rng: torch.Generator) -> None:
    membership_candidates, out = torch.rand(6, generator=rng).double(), torch.rand(6, generator=rng).double()
    others, out_others = torch.rand(9, generator=rng).double(), torch.rand(9, generator=rng).double()
    gamma, a = 1.3, 0.3
    found = membership.rmia(membership_candidates, out, others, out_others, gamma, a)
    for i in range(6):
        hits = 0
        for j in range(9):
            x = float(membership_candidates[i]) / (((1 + a) * float(out[i]) + (1 - a)) / 2)
            z = float(others[j]) / (((1 + a) * float(out_others[j]) + (1 - a)) / 2)
            hits += x / z >= gamma
        assert float(found[i]) == pytest.approx(hits / 9)


def truth_of(members: Tensor) -> GroundTruth:
    return truth(members=members, membership_candidates=torch.arange(len(members)) + 1)


def test_auc_is_sklearn_s_with_ties(rng: torch.Generator) -> None:
    members = torch.rand(40, generator=rng) < 0.3
    scores = torch.randint(6, (40,), generator=rng) + 2.0 * members
    expected = roc_auc_score(members.numpy(), scores.numpy())
    pool = torch.cat([torch.tensor([99.0]), scores, torch.tensor([99.0])])
    assert members_task.auc([scores, pool], [truth_of(members)] * 2).tolist() == pytest.approx([expected] * 2)
    assert members_task.auc([scores[:3]], [truth_of(torch.ones(3, dtype=torch.bool))]).tolist() == [0.5]


@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_tpr_at_low_fpr_is_the_roc_curve_s(rng: torch.Generator, rate: float) -> None:
    members, others = torch.randint(60, (200,), generator=rng) + 20, torch.randint(60, (700,), generator=rng)
    found = members_task.tpr_at_fpr(members.double(), others.double(), rate, len(others))
    labels = [1] * len(members) + [0] * len(others)
    fpr, tpr, _ = roc_curve(labels, torch.cat([members, others]).numpy(), drop_intermediate=False)
    assert found.value == pytest.approx(max(tpr[fpr <= rate]))
    exact = scipy.stats.binomtest(round(found.value * 200), 200).proportion_ci(0.95, "exact")
    assert found.ci95 == pytest.approx((exact.low, exact.high))


def test_too_few_non_members_give_no_rate() -> None:
    """None of 299 says nothing of 1 %."""
    members = torch.ones(5)
    refused = members_task.tpr_at_fpr(members, torch.zeros(600), 0.01, 299)
    assert refused.value is None
    assert "300" in str(refused.reason)
    assert members_task.tpr_at_fpr(members, torch.zeros(600), 0.01, 300).value == 1
    alike = [truth_of(torch.arange(40) < 5)] * 10  # 350 times one of 35 images
    apart = [
        dataclasses.replace(one, membership_candidates=one.membership_candidates + 40 * i)
        for i, one in enumerate(alike)
    ]
    for truths, told in ((alike, "got 35"), (apart, None)):
        found = members_task.tpr_at_low_fpr([torch.rand(40)] * 10, truths)
        assert (found["tpr_at_fpr_0.01"].value is None) == (told is not None)
        assert (told or "") in str(found["tpr_at_fpr_0.01"].reason)
        assert found["tpr_at_fpr_0.001"].value is None


# Shadows


@pytest.mark.parametrize(
    ("norm", "settings", "size"),
    [(True, {}, 1), (True, {"buffers": "freeze", "momentum": 0.0}, 11), (True, {}, 11), (False, {}, 11)],
)
def test_joint_shadows_are_as_trained_one_by_one(norm: bool, settings: dict[str, Any], size: int) -> None:
    """Batches, augmentation, momentum, weight decay, BatchNorm's own and running statistics, counters."""
    data = populate(confetti(40, 2), "domain-0", "single", 1, 0).clients["client-00"]
    data = dataclasses.replace(data, flip=True, translate=0.2)
    method = method_of(local_epochs=2, lr=0.1, **settings)
    simulator = TrainingSimulator("model_state", method, federation_of(["a"], norm), Defense.named("none")(), data, 0)
    sent = ModelState.of(simulator.network(), "server", 0)
    holdings = [ClientImages(data.images[i : i + size], data.labels[i : i + size], sent) for i in range(3)]
    plain, together = (
        train(simulator, holdings, [3, 1, 2]) for train in (shadows.train_separately, shadows.train_jointly)
    )
    for one, other in zip(plain, together, strict=True):
        assert list(one.state) == list(other.state)
        for name, tensor in one.state.items():
            torch.testing.assert_close(other.state[name], tensor, rtol=1e-4, atol=1e-5)
            assert other.state[name].dtype == tensor.dtype
    moved = [name for name, tensor in plain[0].state.items() if not torch.equal(tensor, sent.state[name])]
    assert len(moved) >= 4
    assert not torch.equal(plain[0].state["head.weight"], plain[1].state["head.weight"])


def test_shadows_of_unequal_sizes_are_refused() -> None:
    data = populate(confetti(40, 2), "domain-0", "single", 1, 0).clients["client-00"]
    simulator = TrainingSimulator(
        "model_state", method_of(), federation_of(["a"], True), Defense.named("none")(), data, 0
    )
    uneven = [ClientImages(data.images[:n], data.labels[:n]) for n in (2, 3)]
    with pytest.raises(ValueError, match=r"equally many images, got \[2, 3\]"):
        shadows.train_shadows(simulator, uneven, generator(0))


# The attack


@pytest.fixture(scope="module")
def memorised() -> Evaluator:
    """Twelve clients who learned about twenty images each by heart, in one round."""
    return trained(120, 4, 12, rounds=1, local_epochs=20)


@pytest.fixture(scope="module")
def shared() -> Evaluator:
    """Four clients who learned about twenty images each by heart, together."""
    return trained(60, 3, 4, rounds=10, local_epochs=10)


def scores_of(
    evaluator: Evaluator,
    target: str,
    role: str,
    sizes: tuple[int | None, ...],
    attack: Attack,
    as_attack: str = "attack",
) -> dict[int | None, TrialScores]:
    """With what is asked as a control in the place of the target, where that is named."""
    adversaries = sittings_of(evaluator, target, role, sizes)
    if as_attack != "attack":
        adversaries = [
            AdversaryTrials(one.adversary, [standing_in(trial, as_attack) for trial in one.trials])
            for one in adversaries
        ]
    return evaluate_trials(attack, adversaries, (1, None), generator(4))[0]


def standing_in(trial: Trial, name: str) -> Trial:
    found = trial.by_role.get(name, [])
    if name == "noise":
        (one,) = trial.by_role["attack"]
        rng = torch.Generator().manual_seed(sum(map(ord, trial.unit)))
        artifact = one.observation.artifact.map(lambda tensor: torch.rand(tensor.shape, generator=rng))
        found = [ScoredObservation(dataclasses.replace(one.observation, sent=artifact), one.truth)]
    return dataclasses.replace(trial, by_role={**trial.by_role, "attack": found})


def interval(scores: TrialScores) -> tuple[float, float]:
    found = mean_interval(np.asarray(scores.headline["attack"]), np.asarray(scores.units))
    assert found.lower is not None
    assert found.upper is not None
    return found.lower, found.upper


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({}, 0.8),
        ({"statistic": "change"}, 0.8),
        ({"statistic": "loss"}, 0.8),
        pytest.param({"statistic": "rmia"}, 0.55, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_what_a_client_learned_by_heart_is_found(memorised: Evaluator, settings: dict[str, Any], least: float) -> None:
    sizes = (None,) if settings else (1, None)
    scores = scores_of(memorised, "model_state", "server", sizes, attack_of(shadows=6, **settings))
    whole = scores[None]
    assert np.mean(whole.headline["attack"]) > least
    for name in ("noise", "random_style", "other_client", "other_domain"):
        assert abs(np.mean(whole.headline[name]) - 0.5) < 0.12
    if not settings:
        stored = attack_scores(attack_of(), threat("server"), "model_state", shared=True, conditions=conditions(scores))
        lead_test = stored.lead_test("client", whole)
        assert isinstance(lead_test, LeadTest)
        p = rule.test(lead_test, np.random.default_rng(0), 2000).p
        assert p is not None
        assert p <= LEVEL


@pytest.mark.slow
def test_online_shadows_find_members(shared: Evaluator) -> None:
    """Of images that all were there in earlier rounds, or were not; for shadows that saw them or did not."""
    (adversary_trials,) = sittings_of(shared, "model_state", "server", (1,))
    items = [dataclasses.replace(item, by_role={"attack": item.by_role["attack"]}) for item in adversary_trials.trials]
    scores = evaluate_trials(
        attack_of(shadows=40, online=True), [AdversaryTrials(adversary_trials.adversary, items)], (), generator(4)
    )[0][1]
    assert np.mean(scores.headline["attack"]) > 0.7


@pytest.mark.parametrize("control", ["noise", "other_client", "other_domain"])
def test_nothing_is_found_in_noise_or_others(memorised: Evaluator, control: str) -> None:
    found = interval(scores_of(memorised, "model_state", "server", (None,), attack_of(shadows=6), control)[None])
    assert found[0] <= 0.5
    assert abs(sum(found) / 2 - 0.5) < 0.1


@pytest.mark.parametrize("role", ["server", "client", "third_party"])
def test_the_shared_model_reveals_participants(shared: Evaluator, role: str) -> None:
    scores = scores_of(shared, "global_model", role, (None,), attack_of(shadows=6))
    assert np.mean(scores[None].headline["attack"]) > 0.8
    for name in ("other_client", "other_domain"):
        assert abs(np.mean(scores[None].headline[name]) - 0.5) < 0.35  # three images a client: steps of a third
    assert "random_style" not in scores[None].headline  # it would be drawn around the very model


def test_shared_models_are_controlled_by_strangers(shared: Evaluator) -> None:
    """The artifact is one for all: what stands in for another client is people who never took part."""
    population = shared.population
    subject = shared.series("global_model")
    assert (subject.level, subject.kind, subject.called) == ("group", "model_state", "global_model")
    (adversary_trials,) = shared.adversaries(subject, threat("server"), (None,))
    total = sum(len(data) for data in population.clients.values())
    for item in adversary_trials.trials:
        (attack,) = item.by_role["attack"]
        assert attack.observation.n_images == item.truth.count == total
        inside = adversary_trials.adversary.candidates[attack.observation.membership_candidates][attack.truth.members]
        own = {float(image.sum()) for image in population.data(item.client).images}
        assert {float(image.sum()) for image in inside} <= own
        assert len(inside) > 0
        model = attack.observation.artifact.tensors()
        for name, near in (("other_client", True), ("other_domain", False)):
            for ask in item.by_role[name]:
                assert all(tensor is model[key] for key, tensor in ask.observation.artifact.tensors().items())
                out = {
                    float(image.sum())
                    for other in population.clients
                    if (population.main_domain(other) == item.truth.domain) is near
                    for image in population.data(other).held_out_images
                }
                strangers = adversary_trials.adversary.candidates[ask.observation.membership_candidates]
                assert {float(image.sum()) for image in strangers} <= out
                assert abs(int(ask.truth.members.sum()) * 2 - len(strangers)) <= 1
                assert torch.equal(ask.truth.membership_candidates, ask.observation.membership_candidates)


def test_candidates_are_asked_about_once(rng: torch.Generator) -> None:
    table, asked = torch.randn(6, 3, generator=rng), []

    def ask(some: torch.Tensor) -> torch.Tensor:
        asked.append(some.tolist())
        return table[some]

    known, other = (ModelState(client="server", round=0, state={"a": torch.zeros(1)}) for _ in range(2))
    output_cache = OutputCache.among([(known, torch.tensor([3, 1])), (known.seen_as("peer"), torch.tensor([5, 1]))])
    for index in ([3, 1], [5]):
        assert torch.equal(output_cache.of(known, None, torch.tensor(index), ask), table[index])
    assert asked == [[1, 3, 5]]
    assert torch.equal(output_cache.of(known, known, torch.tensor([1]), ask), table[[1]])  # under something else
    for index in ([2], [2, 0]):
        assert torch.equal(output_cache.of(other, None, torch.tensor(index), ask), table[index])
    assert asked == [[1, 3, 5], [1, 3, 5], [2], [2, 0]]


@pytest.mark.slow
def test_adversaries_agree_on_the_shared_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All three adversaries ask the same model; each says bit for bit what it says alone, and asks for nothing twice."""
    shared = trained(120, 3, 8, rounds=10, local_epochs=10)  # right on most public images of every domain
    asked: list[int] = []
    plain = membership.ModelOutputs.logits

    def counting(self: Any, states: Any, images: torch.Tensor, sent: Any) -> torch.Tensor:
        asked.append(len(images))
        return plain(self, states, images, sent)

    monkeypatch.setattr(membership.ModelOutputs, "logits", counting)

    def said(role: str, evaluator: Evaluator) -> tuple[list[torch.Tensor], int, int]:
        """Its predictions, how many images it asked models about, and how many of those an artifact alone tells of."""
        asked.clear()
        by_artifact: dict[int, list[torch.Tensor]] = {}
        predictions: list[torch.Tensor] = []
        for adversary_trials in sittings_of(evaluator, "global_model", role, (1, None)):
            some = [a.observation for item in adversary_trials.trials for asks in item.by_role.values() for a in asks]
            for observation in some:
                by_artifact.setdefault(identity(observation.sent), []).append(observation.membership_candidates)
            predictions += inferred(attack_of(), adversary_trials.adversary, some, generator(1))[0]
        return predictions, sum(asked), sum(len(torch.cat(some).unique()) for some in by_artifact.values())

    evaluator = dataclasses.replace(shared)
    said("server", evaluator)
    second, alone = said("third_party", evaluator), said("third_party", dataclasses.replace(shared))
    assert alone[1] - second[1] == alone[2] > 0
    assert all(torch.equal(one, other) for one, other in zip(second[0], alone[0], strict=True))


@pytest.mark.parametrize(
    ("subject", "statistic"),
    mostly_slow(
        [("model_state", "auto"), ("global_model", "auto"), ("global_model", "lira"), ("global_model", "rmia")],
        [("model_state", "auto"), ("global_model", "auto")],
    ),
)
def test_truth_is_sealed(shared: Evaluator, subject: str, statistic: str) -> None:
    """With every private image destroyed, and members and others exchanged, it says bit for bit the same."""

    def said(destroyed: bool) -> list[Tensor]:
        population = populate(confetti(60, 3), "domain-0", "single", 4, 0)
        evaluator = dataclasses.replace(shared, population=population)
        (adversary_trials,) = evaluator.adversaries(evaluator.series(subject), threat("server"), (None,))
        asked = [ask for item in adversary_trials.trials[:3] for asks in item.by_role.values() for ask in asks]
        if destroyed:
            for data in population.clients.values():
                data.images.fill_(torch.nan)
                data.held_out_images.fill_(torch.nan)
                data.labels.fill_(-1)
            for ask in asked:
                object.__setattr__(ask.truth, "index", torch.zeros_like(ask.truth.index))
            for members in {id(ask.truth): ask.truth.members for ask in asked}.values():
                members.logical_not_()
        attack = attack_of(shadows=2, statistic=statistic)
        return list(inferred(attack, adversary_trials.adversary, [ask.observation for ask in asked], generator(1))[0])

    assert all(torch.equal(one, other) for one, other in zip(said(False), said(True), strict=True))


def test_online_shadows_of_the_shared_model_are_refused(shared: Evaluator) -> None:
    of_all, of_one = shared.series("global_model"), shared.series("model_state")
    assert "never hold a candidate" in str(attack_of(statistic="lira", online=True).inapplicable(of_all))
    for attack in (attack_of(online=True), attack_of(statistic="lira")):
        assert attack.inapplicable(of_all) is None
    assert attack_of(statistic="lira", online=True).inapplicable(of_one) is None
    for role in THREATS:  # everybody sees the shared model, and only the server an update
        assert of_all.refused(threat(role)) is None
    assert of_one.refused(threat("client")) is not None


def test_an_untrained_model_is_no_target() -> None:
    population = populate(confetti(40, 3), "domain-0", "single", 2, 0)
    federation, none = federation_of(list(population.clients), norm=False), Defense.named("none")()
    method = method_of(rounds=1, local_epochs=1)
    wire = Wire({name: len(data) for name, data in population.clients.items()}, none)
    LocalEngine(1).run(method, federation, population.clients, wire)
    evaluator = Evaluator(population, method, federation, none, wire.transcript, 0)
    assert "global_model" not in evaluator.artifact_series


def test_tpr_at_low_fpr_is_reported(memorised: Evaluator) -> None:
    attack = attack_of(statistic="loss")
    scores = scores_of(memorised, "model_state", "server", (1, None), attack)
    stored = attack_scores(
        attack, threat("server"), "model_state", shared=True, conditions=conditions(scores), chance=0.5
    )
    finding = judging.judge({"run/x": stored}, 0).findings["run/x"]
    for name in ("tpr_at_fpr_0.01", "single_image tpr_at_fpr_0.001"):
        assert finding.metrics[name].value is None  # twelve clients hold out too few
        assert "non-members" in str(finding.metrics[name].reason)


def test_online_shadows_are_for_lira_alone() -> None:
    with pytest.raises(ValueError, match="want statistic=lira, got rmia"):
        attack_of(online=True, statistic="rmia")
