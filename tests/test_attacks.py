"""Every attack: it reads no more than it is given, succeeds where it must, and falls to chance where nothing is to be read."""

import dataclasses
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted, fit, mostly_slow, shortened
from factories import fitted_once, inferred
from factories_core import observation, truth
from factories_scores import conditions
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import GROUP_SIZES, Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.attack_evaluation import attack_scores
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials, ScoredObservation, Trial
from fdgpriv.federation.partition import Population, populate
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.simulation.simulator import ClientSample, Simulator
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.statistics import rule
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.statistics.paired import LEVEL
from fdgpriv.statistics.rule import LeadTest
from fdgpriv.tasks.images import Images
from fdgpriv.threat import NotGranted, threat
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.trial_scores import TrialScores

simulation: Any = import_module("fdgpriv.attacks._simulation")

READERS = [name for name in Attack.names() if StyleStatistics in Attack.named(name).reads]
CASTS = [(name, role) for name in READERS for role in Attack.named(name).threats]
EACH_ATTACK = pytest.mark.parametrize("name", READERS)


def quick(name: str) -> Attack:
    """The attack with the least work it allows."""
    part = Attack.named(name)
    known = {field.name for field in dataclasses.fields(part)} if dataclasses.is_dataclass(part) else set[str]()
    least = {"steps": 3, "simulations": 8, "expensive_simulations": 4, "style_simulations": 4, "looks": 4}
    return part.configured({field: value for field, value in least.items() if field in known})


def few(adversaries: Sequence[AdversaryTrials], count: int) -> list[AdversaryTrials]:
    """The same adversaries with about `count` trials of each size, spread over the clients."""
    found = []
    for one in adversaries:
        by_size: dict[int | None, list[Trial]] = {}
        for trial in one.trials:
            by_size.setdefault(trial.size, []).append(trial)
        spread = [trial for each in by_size.values() for trial in each[:: -(-len(each) // count)]]
        found.append(AdversaryTrials(one.adversary, spread))
    return found


def readable(evaluator: Evaluator, attack: Attack) -> ArtifactSeries[Simulator] | None:
    """What the attack reads first of what this federation shared."""
    there = evaluator.artifact_series
    return next(
        (there[kind] for kind in attack.kinds() if kind in there and not attack.inapplicable(there[kind])), None
    )


@cache
def evaluator_of(fitted: Fitted, population: Population | None = None, how_many: str = "many") -> Evaluator:
    """One for all attacks, so that what several of them ask is laid out and simulated once."""
    if population is None and how_many == "many":
        return fitted.default_evaluator()
    evaluator = fitted.evaluator(population)
    return dataclasses.replace(evaluator, per_client={1: 1}) if how_many == "fewest" else evaluator


def adversaries_of(
    fitted: Fitted,
    attack: Attack,
    role: str,
    sizes: Sequence[int | None],
    *,
    bounds: bool = False,
    fewest: bool = False,
    population: Population | None = None,
    layer: str | None = None,
) -> list[AdversaryTrials]:
    """The adversaries of the first kind of artifact that this attack reads and this federation shared.

    Where making an artifact takes a training, few are made; the `fewest` are one of a single image for each client. The
    bounds of reconstructed images are only laid out on demand.
    """
    evaluator = evaluator_of(fitted, population)
    target = readable(evaluator, attack)
    if target is None:
        pytest.skip(f"StableFDG shares nothing that {attack.name()} reads; its own tests have what does")
    if fewest or target.expensive:
        evaluator = evaluator_of(fitted, population, "fewest" if fewest else "few")
    moved = target if layer is None else target.at(layer)
    task = attack.task if bounds or not attack.task.draws_images else None
    found = evaluator.adversaries(moved, threat(role), sizes, task)
    return [
        AdversaryTrials(one.adversary, [trial for trial in one.trials if attack.task.askable(trial.truth)])
        for one in found
    ]


def asked(adversaries: Sequence[AdversaryTrials]) -> list[ScoredObservation]:
    return [one for each in adversaries for trial in each.trials for asks in trial.by_role.values() for one in asks]


def read(attack: Attack, adversaries: Sequence[AdversaryTrials], seed: int = 3) -> list[tuple[str, Tensor]]:
    """Everything that the attack says in all its adversaries, by what it was asked."""
    rng, said = generator(seed), []
    for number, adversary_trials in enumerate(adversaries):
        observations = [one.observation for one in asked([adversary_trials])]
        predictions, baselines = inferred(attack, adversary_trials.adversary, observations, rng)
        said += [(f"{number}/{i}", prediction) for i, prediction in enumerate(predictions)]
        said += [
            (f"{number}/{name}/{i}", prediction)
            for name, ones in sorted(baselines.items())
            for i, prediction in enumerate(ones)
        ]
    return said


def assert_same_words(one: list[tuple[str, Tensor]], other: list[tuple[str, Tensor]]) -> None:
    assert [name for name, _ in one] == [name for name, _ in other]
    differ = [name for (name, a), (_, b) in zip(one, other, strict=True) if not torch.equal(a, b)]
    assert differ == []


@pytest.fixture(scope="module")
def little(tiny: Dataset) -> Fitted:
    """Twelve clients of a dozen images each, two rounds in small batches."""
    return fitted_once(tiny, clients=12, settings={"rounds": "2", "batch_size": "4"})


@pytest.fixture(scope="module")
def least(tiny: Dataset) -> Fitted:
    """Two clients to a domain of 36 images, for what does not depend on how well an attack succeeds."""
    return fit(shortened(tiny, 36), clients=6, settings={"rounds": "2", "batch_size": "4"})


# Sealed truth


def sizes(attack: Attack) -> tuple[int | None, ...]:
    return tuple(size for size in (1, None) if size in (attack.group_sizes or GROUP_SIZES))


@pytest.mark.parametrize(("name", "role"), mostly_slow(CASTS, list({cast[0]: cast for cast in CASTS}.values())))
def test_truth_is_sealed(least: Fitted, tiny: Dataset, name: str, role: str) -> None:
    """With every private image replaced by NaN, the attack says bit for bit the same.

    The candidates of a line-up are granted by definition, but only to an attack that identifies or finds members.
    """
    attack = quick(name)
    plain = few(adversaries_of(least, attack, role, sizes(attack), bounds=True, fewest=True), 2)
    said = read(attack, plain)

    own = dataclasses.replace(tiny, domains=tuple(domain.take(torch.arange(36)) for domain in tiny.domains))
    copy = populate(own, "blend", "single", 6, 0)  # images of its own, to be destroyed
    sealed = few(adversaries_of(least, attack, role, sizes(attack), bounds=True, fewest=True, population=copy), 2)
    for a, b in zip(asked(plain), asked(sealed), strict=True):
        ours, theirs = a.observation.artifact.tensors(), b.observation.artifact.tensors()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for adversary_trials in sealed:
        for one in asked([adversary_trials]):  # earlier rounds are made when they are first read
            assert all(seen.artifact is not None for seen in adversary_trials.adversary.view(one.observation))
    candidates = {id(adversary_trials.adversary.candidates) for adversary_trials in sealed}
    for data in (copy.clients | copy.shadows).values():
        for images in (data.images, data.held_out_images):
            images.fill_(torch.nan)
        for labels in (data.labels, data.held_out_labels):
            labels.fill_(-1)
    for domain in copy.dataset.domains:
        if domain is not copy.target:
            domain.images.fill_(torch.nan)
            domain.labels.fill_(-1)
    for domains in copy.domain_of.values():
        domains.fill_(-1)
    for adversary_trials in sealed:
        if attack.task.secret != "membership":
            adversary_trials.adversary.candidates.fill_(torch.nan)
        for secret in truths(adversary_trials):
            for images in (secret.images, secret.histogram, *([] if id(secret.pool) in candidates else [secret.pool])):
                images.fill_(torch.nan)
            secret.labels.fill_(-1)
            secret.positions.fill_(-1)
            secret.members.logical_not_()
        for trial in adversary_trials.trials:
            for ones in trial.given.values():
                for prediction, _ in ones:
                    prediction.fill_(torch.nan)
    assert bool(truths(sealed[0])[0].images.isnan().all())
    assert_same_words(said, read(attack, sealed))


def truths(adversary_trials: AdversaryTrials) -> list[GroundTruth]:
    given = [one for trial in adversary_trials.trials for ones in trial.given.values() for _, one in ones]
    return [trial.truth for trial in adversary_trials.trials] + [one.truth for one in asked([adversary_trials])] + given


@EACH_ATTACK
def test_an_attack_uses_only_what_it_is_granted(least: Fitted, name: str) -> None:
    """Artifacts, which the seal would show a peek beyond; the given generator; and capabilities and images, or says so."""
    attack = quick(name)
    (adversary_trials, *_) = adversaries_of(least, attack, attack.threats[0], sizes(attack), fewest=True)
    (one,) = few([adversary_trials], 2)
    state = torch.random.get_rng_state()
    said = read(attack, [one])
    assert bool((torch.random.get_rng_state() == state).all())
    assert_same_words(said, read(attack, [one]))
    other = [dataclasses.replace(trial, by_role={**trial.by_role, "attack": [noisy(trial)]}) for trial in one.trials]
    changed = read(attack, [AdversaryTrials(one.adversary, other)])
    assert any(not torch.equal(a, b) for (_, a), (_, b) in zip(said, changed, strict=True))
    try:
        without = read(
            attack, [AdversaryTrials(dataclasses.replace(one.adversary, _auxiliary=(), cache=Cache()), one.trials)]
        )
    except ValueError as error:
        assert "auxiliary" in str(error)  # noqa: PT017  # that it raises is not promised
    else:
        assert_same_words(without, said)  # it never needed any
    for role in attack.threats:
        bare = dataclasses.replace(threat(role), capabilities=frozenset())
        with pytest.raises(NotGranted, match=f"{role!r} does not grant [a-z_]+"):
            read(attack, [AdversaryTrials(dataclasses.replace(one.adversary, threat=bare, cache=Cache()), one.trials)])


# What it says has the form it promises


@EACH_ATTACK
def test_every_prediction_has_a_finite_score(least: Fitted, name: str) -> None:
    attack = quick(name)
    chosen = few(adversaries_of(least, attack, attack.threats[0], sizes(attack), bounds=True, fewest=True), 2)
    scores, shown = evaluate_trials(attack, chosen, (), generator(0))
    assert set(scores) == set(sizes(attack))
    for size, found in scores.items():
        prior = "public_shares" if attack.task.secret == "labels" else "mean_image"
        assert {"attack", "random_style", "noise", prior} <= set(found.headline)
        for scores in found.headline.values():
            assert len(scores) == len(found.units) == len(found.clients) == len(shown[size])
            assert np.isfinite(scores).all()
            if attack.task.bounds is not None:
                assert attack.task.bounds[0] - 1e-9 <= min(scores) <= max(scores) <= attack.task.bounds[1] + 1e-9
    first = chosen[0]
    chance = attack.task.chance(first.adversary, first.trials[0].truth)
    assert chance is None or 0 < chance < 1


# Controls: it succeeds on a single image's style, and falls to chance without one


def p_of(attack: Attack, role: str, scope: str, scores: TrialScores, resamples: int) -> float:
    """Of the test that an attack on single images' styles beats every control of this scope."""
    found = attack_scores(attack, threat(role), "style_statistics", level="image", conditions=conditions({1: scores}))
    lead_test = found.lead_test(scope, scores)
    assert isinstance(lead_test, LeadTest)
    p = rule.test(lead_test, np.random.default_rng(0), resamples).p
    assert p is not None
    return p


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tried:
    """One attack on single images, as it is and with its artifacts replaced."""

    attack: Attack
    chance: float | None
    truly: TrialScores
    on_noise: TrialScores
    on_others: TrialScores | None

    def p(self, scores: TrialScores) -> float:
        """Of the test that the attack beats every control."""
        name = "client" if "client" in self.attack.task.scopes else "domain"
        return p_of(self.attack, self.attack.threats[0], name, scores, 2000)

    def above(self, scores: TrialScores) -> float:
        """The lower end of the 95 % interval of the attack's mean score, less chance."""
        lower = mean_interval(np.asarray(scores.headline["attack"]), np.asarray(scores.units)).lower
        assert lower is not None
        return lower - (self.chance or lower)


def noisy(trial: Trial) -> ScoredObservation:
    """The target's observation with noise for its artifact."""
    (one,) = trial.by_role["attack"]
    rng = torch.Generator().manual_seed(sum(map(ord, trial.unit)))
    artifact = one.observation.artifact.map(lambda tensor: torch.rand(tensor.shape, generator=rng))
    return ScoredObservation(dataclasses.replace(one.observation, sent=artifact), one.truth)


def with_stand_ins(trial: Trial) -> Trial:
    """The trial asked also of noise, and of another client's artifact, which is then no control any more."""
    other, *rest = trial.by_role["other_client"]
    return dataclasses.replace(
        trial, by_role={**trial.by_role, "other_client": rest, "of noise": [noisy(trial)], "of another": [other]}
    )


def tried(fitted: Fitted, attack: Attack) -> Tried:
    # an attack on every layer has its positive control at the last
    layer = fitted.shared.layers()[-1] if "layer" in attack.ablations else None
    control = attack.group_sizes or GROUP_SIZES if attack.task.hides_size else sizes(attack)[:1]
    adversaries = adversaries_of(fitted, attack, attack.threats[0], control, layer=layer)
    adversaries = [
        AdversaryTrials(one.adversary, [with_stand_ins(trial) for trial in one.trials if trial.size == control[0]])
        for one in adversaries
    ]
    scores = evaluate_trials(attack, adversaries, (), generator(7))[0][control[0]]

    def of(name: str) -> TrialScores:
        return dataclasses.replace(scores, headline={**scores.headline, "attack": scores.headline[name]})

    first = adversaries[0]
    chance = attack.task.chance(first.adversary, first.trials[0].truth)
    return Tried(
        attack, chance, of("attack"), of("of noise"), of("of another") if "client" in attack.task.scopes else None
    )


@pytest.mark.parametrize("name", mostly_slow(READERS, ("class_probe", "identification")))
def test_a_single_image_s_style_is_read(fitted: Fitted, little: Fitted, name: str) -> None:
    """Positive control: it beats every control, as a verdict asks, and guessing where that is one number; negative: not.

    Of reconstructions and of labels after a short training, and of sizes where they are more than a batch.
    """
    part = Attack.named(name)
    attack = part.configured({"steps": 10} if name == "gan" else part.presets.get("quick", {}))
    if readable(fitted.shared, attack) is None:
        pytest.skip("StableFDG shares nothing that it reads")
    found = tried(little if attack.task.hides_size else fitted, attack)
    assert found.p(found.on_noise) > LEVEL
    assert found.above(found.on_noise) <= 0
    if found.on_others is None:
        assert found.attack.task.scopes == ("domain",)  # another client of the domain has its domain
    else:
        assert found.p(found.on_others) > LEVEL
        assert found.above(found.on_others) <= 0
    if name == "style_inversion":  # 128 numbers leave it below the public means: its verdicts are inconclusive
        told = found.truly.headline
        assert np.mean(told["attack"]) > max(np.mean(told["other_client"]), np.mean(told["random_style"]))
        return
    assert found.p(found.truly) <= LEVEL
    assert found.chance is None or found.above(found.truly) > 0.5 * found.chance


@pytest.mark.slow
def test_a_client_s_style_identifies_few_images(fitted: Fitted) -> None:
    """The leak dies with the number of images behind the artifact."""
    adversaries = fitted.shared.style_adversaries(threat("server"), (1, None))
    scores, _ = evaluate_trials(quick("identification"), adversaries, (), generator(1))
    assert np.mean(scores[1].headline["attack"]) > 0.8
    assert np.mean(scores[None].headline["attack"]) < 0.2


@pytest.mark.slow
def test_the_gan_draws_digits_that_no_control_draws(digits: Dataset) -> None:
    """A `gan` whose positive control fails on digits has a bug; as it comes, on all of them."""
    whole = fit(digits, clients=12)
    adversaries = few(whole.default_evaluator().style_adversaries(threat("insider"), (1,), Images()), 40)
    scores = evaluate_trials(Attack.named("gan")(), adversaries, (), generator(2))[0][1]
    assert {"unconditional", "domain_mean", "other_client"} <= set(scores.headline)
    assert p_of(Attack.named("gan")(), "insider", "client", scores, 4000) <= LEVEL
    assert np.mean(scores.headline["attack"]) > np.mean(scores.headline["mean_image"]) + 1


@pytest.mark.parametrize("steps", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_a_diverged_gan_draws_its_regression(fitted: Fitted, steps: int) -> None:
    """Steps so large that it diverges: on artifacts left out no correction does best."""
    (trials, *_) = fitted.shared.style_adversaries(threat("insider"), (1,), Images())
    adversary, seen = trials.adversary, [one.by_role["attack"][0].observation for one in trials.trials[:3]]
    regression_of = import_module("attacks._inversion").ImageRegression.of
    regression = regression_of(adversary, "rbf")
    expected = regression(regression.simulated.standardised(adversary.vectors(seen))).clamp(0, 1)
    diverging = Attack.named("gan").configured({"steps": steps, "lr": 100.0})
    drawn = torch.stack(list(inferred(diverging, adversary, seen, generator(1))[0].values))
    assert torch.equal(drawn, expected)


# TrialScores


def test_reconstructions_are_scored_in_decibels(rng: torch.Generator) -> None:
    attack = Attack.named("gan")()
    true, prediction = torch.rand(3, 3, 32, 32, generator=rng), torch.rand(3, 32, 32, generator=rng)
    (found,) = attack.task.score([prediction], [truth(true)]).tolist()
    errors = ((true - prediction).double() ** 2).mean(dim=(1, 2, 3)).numpy()
    assert found == pytest.approx(np.mean(10 * np.log10(1 / errors)), abs=1e-4)
    exact = float(attack.task.score([true[0]], [truth(true[:1])]))
    assert np.isfinite(exact)  # never infinity


def ranked(scores: Tensor, positions: list[int]) -> tuple[float, dict[str, float]]:
    attack = Attack.named("identification")()
    rows = torch.arange(scores.shape[1]).repeat(len(scores), 1)
    secret = truth(positions=torch.tensor(positions), candidates=rows, pool=torch.zeros(scores.shape[1], 3, 2, 2))
    described = attack.task.details([torch.cat([scores, scores[:1].repeat(3, 1)])], [secret])
    return float(attack.task.score([scores], [secret])), {name: float(value) for name, value in described.items()}


def test_identification_is_scored_by_rank() -> None:
    scores = torch.tensor([[9.0, 1, 2, 3, 4, 5, 6], [0.0, 1, 2, 3, 4, 5, 6]])
    top1, others = ranked(scores, [0, 0])  # first, and last of seven
    assert top1 == 0.5
    assert others["top5"] == 0.5
    assert others["mrr"] == pytest.approx((1 + 1 / 7) / 2)
    top1, others = ranked(torch.zeros(4, 50), [0, 10, 20, 49])  # who cannot tell candidates apart has not found any
    assert (top1, others["top5"]) == (0, 0)


def test_class_probe_is_scored_by_balanced_accuracy() -> None:
    """Nine images of class 0, all hit, and one of class 1, missed: balanced accuracy 1/2, not 9/10."""
    attack = Attack.named("class_probe")()
    truths = [truth(labels=torch.tensor([label])) for label in [0] * 9 + [1]]
    predictions: list[Prediction] = [torch.tensor([1.0, 0.0])] * 10
    assert float(attack.task.score(predictions, truths).mean()) == pytest.approx(0.5)


def test_label_histogram_is_scored_by_l1_within_bounds(little: Fitted, rng: torch.Generator) -> None:
    """A rounding error above them would stop the verdict, which knows how far a difference can reach."""
    attack = Attack.named("label_histogram")()
    secret = truth(histogram=torch.tensor([0.5, 0.5, 0.0]))
    assert attack.task.score([torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.0, 1.0])], [secret] * 2).tolist() == [
        0,
        2,
    ]
    assert attack.task.bounds is not None
    told = torch.rand(500, 10, generator=rng) * (torch.arange(10) != 3)
    predictions = list(told / told.sum(1, keepdim=True))
    assert (
        float(attack.task.score(predictions, [truth(histogram=torch.eye(10)[3])] * 500).max())
        <= attack.task.bounds[1] + 1e-9
    )
    (adversary_trials, *_) = few(little.shared.style_adversaries(threat("server"), (1, None)), 10)
    for _, prediction in read(quick("label_histogram"), [adversary_trials]):  # its predictions are distributions
        assert float(prediction.sum()) == pytest.approx(1, abs=1e-4)
        assert float(prediction.min()) >= 0


def adversaries(little: Fitted, role: str) -> list[Adversary]:
    return [adversary_trials.adversary for adversary_trials in little.shared.style_adversaries(threat(role), (1,))]


def test_a_domain_is_inferred_among_the_sources(little: Fitted) -> None:
    (adversary,) = adversaries(little, "server")
    attack = quick("domain_inference")
    asked_of = observation(little.shared.template)
    predictions, _ = inferred(attack, adversary, [asked_of], generator(0))
    assert predictions[0].shape == (len(adversary.sources),)


@pytest.mark.slow
def test_clustered_styles_are_simulated_by_domain(digits: Dataset) -> None:
    """What PARDON clusters images by is as wide as a domain has images, and domains differ in size."""
    domains = tuple(domain.take(torch.arange(60 + 4 * i)) for i, domain in enumerate(digits.domains))
    uneven = dataclasses.replace(digits, domains=domains)
    evaluator = fit(uneven, clients=6, method="pardon", settings={"rounds": "1"}).evaluator()
    (adversary_trials, *_) = evaluator.style_adversaries(threat("server"), (1, 2))
    adversary = adversary_trials.adversary
    assert len({adversary.simulator(StyleSimulator).maps(domain.images).shape[1] for domain in adversary.auxiliary}) > 1
    made = simulation.simulate(adversary, 3)
    for inputs, members in zip(made.inputs, made.members, strict=True):
        domain = adversary.auxiliary[int(made.domains[members[0]])]
        images, labels = made.images[members], made.labels[members]
        assert all(any(torch.equal(image, other) for other in domain.images) for image in images)
        alone = adversary.simulate(images, labels, torch.arange(len(members)), torch.Generator().manual_seed(0))
        torch.testing.assert_close(inputs, adversary.vector(alone), atol=1e-4, rtol=1e-3)


def test_artifacts_are_simulated_once(little: Fitted) -> None:
    """More groups go on from fewer, and none is made a second time."""
    (adversary,) = adversaries(little, "server")
    adversary = dataclasses.replace(adversary, sizes=(1, 2, 5), cache=Cache())
    first = simulation.simulate(adversary, 3)
    made: list[int] = []
    simulator = adversary.simulator(StyleSimulator)
    plain = type(simulator).simulate

    def counting(self: Any, sample: ClientSample, *rest: Any) -> Any:
        made.append(len(sample.index))
        return plain(self, sample, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(simulator), "simulate", counting)
        more = simulation.simulate(adversary, 4)
    assert made == [2, 5]
    for size in (1, 2, 5):
        few, all_ = first.inputs[first.sizes == size], more.inputs[more.sizes == size]
        assert torch.equal(few, all_[: len(few)])
        assert len(all_) == len(few) + (size > 1)
    assert len({tuple(sorted(index.tolist())) for index in more.members}) == len(more.members)
