"""The evaluation: what an adversary is asked and may hold, and that the evaluator's own book-keeping is true."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1

import pytest
import torch
from conftest import TARGET, Evaluator, Fitted, fit, shortened
from factories import fitted_once
from factories_core import observation, style, truth
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.moments import RULES, styles_of
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.candidates import CANDIDATES, MAX_LINE_UPS
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials, ScoredObservation, Trial
from fdgpriv.evaluation.trial_layout import MAX_SCORED_IMAGES
from fdgpriv.evaluation.units import attacked_clients, candidate_pool
from fdgpriv.federation.reserve import MIN_UNITS
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.images import Images
from fdgpriv.tasks.task import Baselines, Predictions, Task
from fdgpriv.threat import THREATS, Auxiliary, Capability, NotGranted, ThreatModel, threat


class ByRole(dict[str, list[AdversaryTrials]]):
    """Named in a failure without its tensors."""

    def __repr__(self) -> str:
        return f"adversaries: {', '.join(self)}"


PAIR = torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64)
EACH_ROLE = pytest.mark.parametrize("role", THREATS)


@pytest.fixture(scope="module")
def evaluator(fitted: Fitted) -> Evaluator:
    return dataclasses.replace(fitted.evaluator(), per_client={1: 2, 2: 1}, alternatives=2)


@pytest.fixture(scope="module")
def by_role(evaluator: Evaluator) -> ByRole:
    """By role, the adversaries for single images, pairs and whole clients."""
    return ByRole({role: evaluator.style_adversaries(threat(role), (1, 2, None), Images()) for role in THREATS})


@pytest.fixture(scope="module")
def owners(evaluator: Evaluator) -> dict[str, str]:
    """By image, the client that holds it, or the domain it is public in."""
    found: dict[str, str] = {}
    for name, data in (evaluator.population.clients | evaluator.population.shadows).items():
        found |= {key(image): name for image in data.images}
        found |= {key(image): f"held out by {name}" for image in data.held_out_images}
    for name, domain in evaluator.population.auxiliary.items():
        found |= {key(image): f"public {name}" for image in domain.images}
    return found


def key(values: Tensor) -> str:
    return sha1(values.contiguous().numpy().tobytes()).hexdigest()


def trials(adversaries: Sequence[AdversaryTrials], size: int | str | None = "any") -> list[Trial]:
    return [trial for one in adversaries for trial in one.trials if size in ("any", trial.size)]


def attacked(trial: Trial) -> Observation:
    (asked,) = trial.by_role["attack"]
    return asked.observation


# Threat models


def test_a_capability_is_granted_or_refused_by_name() -> None:
    with pytest.raises(ValueError, match="server, client, third_party, insider; got 'nsa'"):
        threat("nsa")
    for role in THREATS:
        who = threat(role)
        for capability in Capability:
            if capability in who.capabilities:
                who.require(capability)
            else:
                with pytest.raises(NotGranted, match=f"{role!r} does not grant {capability}"):
                    who.require(capability)


@EACH_ROLE
def test_an_adversary_is_refused_what_is_not_granted(by_role: ByRole, role: str) -> None:
    adversary = by_role[role][0].adversary
    asks: dict[Capability, Callable[[Adversary], object]] = {
        Capability.HAS_CANDIDATES: lambda adversary: adversary.candidates,
        Capability.KNOWS_ENCODER: lambda adversary: adversary.styles(PAIR[0]),
        Capability.KNOWS_DEFENSE: lambda adversary: adversary.simulate(
            *PAIR, torch.arange(2), torch.Generator().manual_seed(0)
        ),
    }
    for capability, ask in asks.items():
        ask(adversary)  # granted to all four roles
        less = dataclasses.replace(adversary.threat, capabilities=adversary.threat.capabilities - {capability})
        with pytest.raises(NotGranted, match=capability):
            ask(dataclasses.replace(adversary, threat=less))
        only = dataclasses.replace(adversary.threat, capabilities=frozenset({capability}))
        ask(dataclasses.replace(adversary, threat=only))


# What each adversary holds


def test_public_images_are_of_the_granted_domains(by_role: ByRole, evaluator: Evaluator) -> None:
    (adversary_trials,) = by_role["server"]
    assert [domain.name for domain in adversary_trials.adversary.auxiliary] == list(evaluator.population.sources)
    adversary = adversary_trials.adversary
    public = evaluator.population.auxiliary.values()
    for own, kept, every in zip(adversary.auxiliary, adversary.held_back, public, strict=True):
        assert len(kept) == len(every) // 4  # to calibrate with
        assert torch.equal(torch.cat([own.images, kept.images]), every.images)
        assert torch.equal(torch.cat([own.labels, kept.labels]), every.labels)
    (adversary_trials,) = by_role["third_party"]
    assert [domain.name for domain in adversary_trials.adversary.auxiliary] == [TARGET]
    nobody = ThreatModel("nobody", "Nobody.", Auxiliary.NONE, threat("server").capabilities)
    (adversary_trials,) = evaluator.style_adversaries(nobody, (1,))
    assert adversary_trials.adversary.auxiliary == ()


def test_a_malicious_client_holds_its_domain(by_role: ByRole, fitted: Fitted) -> None:
    sent = {
        r.origin: r.receiver for r, _ in fitted.transcript.of_kind("style_statistics") if r.relayed and r.round == 1
    }
    population = fitted.population
    seen = set()
    for adversary_trials in by_role["client"]:
        (own,) = adversary_trials.adversary.auxiliary
        for trial in adversary_trials.trials:
            receiver = sent[trial.client]
            assert population.sources[population.main_domain(receiver)] == own.name
            seen.add(trial.client)
    assert seen == set(sent)


def test_an_insider_holds_half_of_each_client(by_role: ByRole, evaluator: Evaluator, owners: Mapping[str, str]) -> None:
    (adversary_trials,) = by_role["insider"]
    leaked = [key(image) for domain in adversary_trials.adversary.auxiliary for image in domain.images]
    whose = [owners[image] for image in leaked]
    for name, data in evaluator.population.clients.items():
        assert whose.count(name) == len(data) // 2
    for domain, kept in zip(adversary_trials.adversary.auxiliary, adversary_trials.adversary.held_back, strict=True):
        public = evaluator.population.auxiliary[domain.name].images[: -len(kept)]
        assert torch.equal(domain.images[: len(public)], public)
        for image in domain.images[len(public) :]:
            client = owners[key(image)]
            assert evaluator.population.sources[evaluator.population.main_domain(client)] == domain.name
    for trial in adversary_trials.trials:
        assert not {key(image) for image in trial.truth.images} & set(leaked)
        for asks in trial.by_role.values():
            assert not any({key(image) for image in asked.truth.images} & set(leaked) for asked in asks)


@EACH_ROLE
def test_only_an_insider_holds_private_images(by_role: ByRole, role: str, owners: Mapping[str, str]) -> None:
    """But among the membership candidates, some of which are no members."""
    for one in by_role[role]:
        held = {owners.get(key(image), "target") for domain in one.adversary.auxiliary for image in domain.images}
        assert not any(owner.startswith("held out") for owner in held)
        assert role == "insider" or all(owner.startswith("public") or owner == "target" for owner in held)
        for trial in one.trials:
            lined_up = one.adversary.candidates[trial.truth.candidates.unique()]
            assert not any(owners.get(key(image), "").startswith("held out") for image in lined_up)


@EACH_ROLE
def test_membership_candidates_are_members_and_others(
    by_role: ByRole, evaluator: Evaluator, role: str, owners: Mapping[str, str]
) -> None:
    """Members are the target's; the others were held out by clients of its main domain, or trained on by other ones."""
    for one in by_role[role]:
        for trial in one.trials[::4]:
            membership_candidates = one.adversary.candidates[attacked(trial).membership_candidates]
            assert len(membership_candidates) == len(trial.truth.members)
            inside = membership_candidates[trial.truth.members]
            assert len(inside) == trial.truth.count if trial.size else len(inside) > 10
            assert {key(image) for image in inside} >= {key(image) for image in trial.truth.images}
            outside = {owners[key(image)] for image in membership_candidates[~trial.truth.members]}
            population = evaluator.population
            near = {name for name in population.domain_of if population.main_domain(name) == trial.truth.domain}
            allowed = near - {trial.client} | {f"held out by {name}" for name in near}
            assert outside <= allowed if trial.size else outside == allowed


@EACH_ROLE
def test_simulated_artifacts_are_a_client_s(by_role: ByRole, fitted: Fitted, role: str) -> None:
    adversary = by_role[role][0].adversary
    (domain, *_) = adversary.auxiliary
    made = adversary.simulate(domain.images, domain.labels, torch.arange(7), torch.Generator().manual_seed(0))
    assert isinstance(made, StyleStatistics)
    mean, std = as_a_client(fitted, domain.images[:7], made.rule)
    assert torch.allclose(made.mean, mean.mean(0), atol=1e-6)
    assert torch.allclose(made.std_var, std.var(0, correction=0), atol=1e-6)
    on_wire = attacked(trials(by_role[role], None)[0]).artifact
    assert {name: tensor.shape for name, tensor in made.tensors().items()} == {
        name: tensor.shape for name, tensor in on_wire.tensors().items()
    }


# What is asked

COMPARED = ("attack", "random_style", "other_client", "other_domain")


@EACH_ROLE
def test_every_target_has_the_controls(by_role: ByRole, evaluator: Evaluator, role: str) -> None:
    for trial in trials(by_role[role]):
        asks = {name: len(asked) for name, asked in trial.by_role.items()}
        assert asks["attack"] == 1
        assert asks["random_style"] == evaluator.alternatives
        several = (asks["other_client"], asks["other_domain"], asks["autoencoder"], len(trial.given["nearest_own"]))
        assert 1 <= min(several) <= max(several) <= evaluator.alternatives


def test_one_artifact_for_each_control_if_asked(fitted: Fitted) -> None:
    for trial in trials(fitted.shared.style_adversaries(threat("server"), (1, None), Images())):
        assert {len(one) for ones in (trial.by_role, trial.given) for one in ones.values()} == {1}


@EACH_ROLE
def test_target_and_controls_look_alike(by_role: ByRole, role: str) -> None:
    """Nor does an observation say whose artifact it is; and all are scored against the target's own truth."""
    for trial in trials(by_role[role]):
        for asked in (asked for name in COMPARED for asked in trial.by_role[name]):
            parts = (field.name for field in dataclasses.fields(GroundTruth) if field.name != "senders")
            assert all(getattr(asked.truth, name) is getattr(trial.truth, name) for name in parts)
        first, *others = [asked.observation for name in COMPARED for asked in trial.by_role[name]]
        shapes = {name: tensor.shape for name, tensor in first.artifact.tensors().items()}
        for other in others:
            assert other.n_images == first.n_images
            assert torch.equal(other.candidates, first.candidates)
            assert other.artifact.facts() == first.artifact.facts()
            assert {name: tensor.shape for name, tensor in other.artifact.tensors().items()} == shapes
    every = [asked for trial in trials(by_role[role]) for asks in trial.by_role.values() for asked in asks]
    (named,) = {asked.observation.artifact.client for asked in every}
    assert named not in {trial.client for trial in trials(by_role[role])}


def test_a_client_s_artifact_is_the_one_that_crossed(by_role: ByRole, fitted: Fitted) -> None:
    wire = {
        r.origin: a for r, a in fitted.transcript.of_kind("style_statistics") if r.receiver == SERVER and r.round == 1
    }
    whole = trials(by_role["server"], None)
    assert sorted(trial.client for trial in whole) == sorted(wire)
    for trial in whole:
        sent = wire[trial.client]
        assert isinstance(sent, StyleStatistics)
        assert torch.equal(attacked(trial).artifact.vector(), sent.vector())
        assert attacked(trial).n_images == len(fitted.population.data(trial.client))


def as_a_client(fitted: Fitted, images: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """Each image's style by the last model, taken by a client that holds these: alone as it is, several in batches."""
    state = fitted.transcript.model_sent(max(r.round for r, _ in fitted.transcript.of_kind("model_state")))
    model = fitted.method.model(fitted.federation, torch.Generator().manual_seed(9))
    state.load_into(model)
    styles = fitted.method.disclosure().styles
    if len(images) == 1:
        return styles_of(images, styles.features(model.eval(), "layer1"), RULES[rule])
    return styles.of_client(model.eval(), images, "layer1", RULES[rule])


def test_an_artifact_is_of_its_scored_images(by_role: ByRole, fitted: Fitted) -> None:
    for trial in trials(by_role["server"], 1)[::5] + trials(by_role["server"], 2)[::5]:
        observation = attacked(trial)
        mean, std = as_a_client(fitted, trial.truth.images, observation.artifact.rule)
        assert observation.n_images == len(trial.truth.images) == trial.size
        assert torch.allclose(observation.artifact.mean, mean.mean(0), atol=1e-5)
        assert torch.allclose(observation.artifact.std, std.mean(0), atol=1e-5)
        assert torch.allclose(observation.artifact.mean_var, mean.var(0, correction=0), atol=1e-5)
    for trial in trials(by_role["server"], None)[::3]:  # the autoencoder is shown one image's, undefended
        for asked in trial.by_role["autoencoder"]:
            mean, _ = as_a_client(fitted, asked.truth.images, "paper_eps")
            assert len(asked.truth.images) == 1
            assert torch.allclose(asked.observation.artifact.mean, mean[0], atol=1e-5)


@EACH_ROLE
def test_domains_of_the_control_artifacts(by_role: ByRole, evaluator: Evaluator, role: str) -> None:
    domain = evaluator.population.main_domain
    for size in (1, 2, None):
        everyone = trials(by_role[role], size)
        whose = {key(attacked(trial).artifact.vector()): trial.client for trial in everyone}
        known = 0
        for trial in everyone:
            for name, same in (("other_client", True), ("other_domain", False)):
                for asked in trial.by_role[name]:
                    other = whose.get(key(asked.observation.artifact.vector()))
                    if other is not None:
                        known += 1
                        assert other != trial.client
                        assert (domain(other) == domain(trial.client)) is same
        assert known > 0


@EACH_ROLE
def test_the_ground_truth_is_true(by_role: ByRole, evaluator: Evaluator, owners: Mapping[str, str], role: str) -> None:
    for trial in trials(by_role[role]):
        data = evaluator.population.data(trial.client)
        truth = trial.truth
        assert {owners[key(image)] for image in truth.images} == {trial.client}
        label_of = {key(image): int(label) for image, label in zip(data.images, data.labels, strict=True)}
        assert truth.labels.tolist() == [label_of[key(image)] for image in truth.images]
        assert len(truth.images) == (trial.size or min(MAX_SCORED_IMAGES, len(truth.images)))
        assert truth.domain == evaluator.population.main_domain(trial.client)
        granularity = data.labels if trial.size is None else truth.labels
        expected = [int((granularity == label).sum()) / len(granularity) for label in range(10)]
        assert truth.histogram.tolist() == pytest.approx(expected)


@EACH_ROLE
def test_the_true_image_is_once_in_its_line_up(
    by_role: ByRole, evaluator: Evaluator, owners: Mapping[str, str], role: str
) -> None:
    population = evaluator.population
    for trial in trials(by_role[role])[::4]:
        truth = trial.truth
        assert len(truth.candidates) == len(truth.positions) == min(MAX_LINE_UPS, trial.size or MAX_LINE_UPS)
        for turn, (row, position) in enumerate(zip(truth.candidates, truth.positions, strict=True)):
            line_up = truth.pool[row]
            own = [turn for turn, image in enumerate(line_up) if owners[key(image)] == trial.client]
            assert own == [int(position)]
            assert torch.equal(line_up[position], truth.images[turn])
            assert len(set(row.tolist())) == len(row) <= CANDIDATES
            domains = {population.main_domain(owners[key(image)]) for image in line_up}
            assert domains == {truth.domain}
    seen = torch.cat([trial.truth.positions for trial in trials(by_role[role])])
    assert len(seen.unique()) > 10  # its place says nothing


def test_the_nearest_own_image_is_another(by_role: ByRole, evaluator: Evaluator) -> None:
    for trial in trials(by_role["server"], 1)[::6]:
        own = evaluator.population.data(trial.client).images
        for prediction, known in trial.given["nearest_own"]:
            distances = sorted(float((image - known.images[0]).square().mean()) for image in own)
            assert distances[0] == 0
            assert float((prediction - known.images[0]).square().mean()) == pytest.approx(distances[1], rel=1e-5)


def test_the_own_colour_is_the_best_colour(by_role: ByRole) -> None:
    for trial in trials(by_role["server"], 1)[::6]:
        for prediction, known in trial.given["own_colour"]:
            best = known.images[0].mean((1, 2), keepdim=True)
            torch.testing.assert_close(prediction, best.expand_as(prediction))


@EACH_ROLE
def test_every_artifact_is_a_unit_of_its_own(by_role: ByRole, evaluator: Evaluator, role: str) -> None:
    found = trials(by_role[role])
    units = [(trial.size, trial.unit) for trial in found]
    assert len(set(units)) == len(units)
    for trial in found:
        assert (trial.unit == trial.client) == (trial.size is None)
    for size in (1, 2):
        for client in evaluator.population.clients:
            assert sum(trial.client == client for trial in trials(by_role[role], size)) == evaluator.per_client[size]
        if role != "client":  # whom several adversaries are
            images = [key(image) for trial in trials(by_role[role], size) for image in trial.truth.images]
            assert len(set(images)) == len(images)


def test_the_same_seed_lays_out_the_same_trials(by_role: ByRole, fitted: Fitted, evaluator: Evaluator) -> None:
    again = dataclasses.replace(fitted.evaluator(), per_client=evaluator.per_client, alternatives=2)
    laid_out = trials(again.style_adversaries(threat("client"), (1, 2, None), Images()))
    for one, other in zip(trials(by_role["client"]), laid_out, strict=True):
        assert (one.unit, list(one.by_role)) == (other.unit, list(other.by_role))
        for name, asks in one.by_role.items():
            for x, y in zip(asks, other.by_role[name], strict=True):
                assert torch.equal(x.observation.artifact.vector(), y.observation.artifact.vector())
                assert torch.equal(x.observation.candidates, y.observation.candidates)
                assert torch.equal(x.truth.images, y.truth.images)


def test_another_layer_has_its_own_channels(fitted: Fitted) -> None:
    evaluator = fitted.shared
    assert evaluator.template.at in evaluator.layers()
    for layer in evaluator.layers()[::2]:
        (adversary_trials,) = evaluator.style_adversaries(threat("server"), (1,), layer=layer)
        artifact = attacked(adversary_trials.trials[0]).artifact
        assert artifact.at == layer
        expected = adversary_trials.adversary.styles(adversary_trials.adversary.auxiliary[0].images)[0].shape[1]
        assert artifact.mean.shape == (expected,)
        assert "autoencoder" not in adversary_trials.trials[0].by_role


# Federations of other shapes


def test_shadows_are_asked_about_if_clients_are_few(digits: Dataset) -> None:
    found = fit(shortened(digits, 192), clients=3, settings={"rounds": "2"})
    clients, shadows = set(found.population.clients), set(found.population.shadows)
    assert len(shadows) == 9
    evaluator = found.evaluator()
    by_server = trials(evaluator.style_adversaries(threat("server"), (None,)))
    assert {trial.client for trial in by_server} == clients | shadows
    for trial in by_server:
        mean, _ = as_a_client(found, found.population.data(trial.client).images, "paper_eps")
        assert torch.allclose(attacked(trial).artifact.mean, mean.mean(0), atol=1e-5)
    assert not shadows & {r.sender for r in found.transcript.records}  # a shadow takes no part in training
    by_client = trials(evaluator.style_adversaries(threat("client"), (None,)))
    assert {trial.client for trial in by_client} == clients  # nobody sends a client a shadow's artifact
    assert (evaluator.shares_styles, evaluator.template.round) == (True, 1)


def test_a_method_without_styles_shares_none(tiny: Dataset) -> None:
    assert not fitted_once(tiny, clients=3, method="fedavg").evaluator().shares_styles


def test_shadows_are_few_if_artifacts_take_training(digits: Dataset) -> None:
    found = fit(digits.few(64), clients=3)
    targets, domain = found.evaluator().artifact_series, found.population.main_domain
    units = {kind: attacked_clients(found.population, target) for kind, target in targets.items()}
    assert set(units["style_statistics"]) == {*found.population.clients, *found.population.shadows}
    assert len(units["style_statistics"]) > 3 * MIN_UNITS
    assert sorted(map(domain, units["model_state"])) == [0] * MIN_UNITS + [1] * MIN_UNITS + [2] * MIN_UNITS
    pool = candidate_pool(found.population, targets["model_state"])
    assert set(pool.names) == set(units["style_statistics"])  # a candidate's image needs no training


# Scores


class FirstPixel(Task):
    """Scored by the distance to the first pixel."""

    secret, metric, relevant = "content", "score", 0.1

    def score(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> Tensor:
        return torch.stack(
            [prediction - truth.images[0, 0, 0, 0] for prediction, truth in zip(predictions, truths, strict=True)]
        )

    def details(self, predictions: Sequence[Prediction], truths: Sequence[GroundTruth]) -> dict[str, Tensor]:
        return {"double": 2 * self.score(predictions, truths)}

    def baselines(self, adversary: Adversary, predictions: Predictions, rng: torch.Generator) -> Baselines:
        return {
            "noise": [torch.tensor(10.0), torch.tensor(20.0)],
            "domain_mean:near": [torch.tensor(1.0)],
            "domain_mean:far": [torch.tensor(2.0)],
            "class_mean:0": [torch.tensor(3.0)],
            "class_mean:7": [torch.tensor(4.0)],
        }


@dataclass(frozen=True)
class Counter(Attack):
    """Predicts the first entry of the artifact."""

    reads = (StyleStatistics,)
    task = FirstPixel()
    threats = ("server",)

    def infer(
        self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
    ) -> Sequence[Prediction]:
        return [observation.artifact.mean[0] for observation in observations]


def made_up(client: str, number: int, size: int | None, label: int, with_other: bool = True) -> Trial:
    images, nothing = torch.full((1, 3, 2, 2), float(number)), torch.empty(0)
    secret = truth(images, labels=torch.tensor([label]), domain=number % 2)

    def asked(value: float) -> ScoredObservation:
        mean = torch.tensor([value, 0.0])
        return ScoredObservation(
            observation(style(mean=mean, std=mean.abs(), mean_var=nothing, std_var=nothing)), secret
        )

    observations = {"attack": [asked(100.0)]} | ({"other_client": [asked(30.0), asked(50.0)]} if with_other else {})
    return Trial(
        f"{client}/{number}", client, size, secret, observations, {"nearest_own": [(torch.tensor(7.0), secret)]}
    )


@pytest.fixture
def adversary(by_role: ByRole) -> Adversary:
    return dataclasses.replace(by_role["server"][0].adversary, sources=("near", "far"))


def test_scores_are_averaged_over_observations(adversary: Adversary, rng: torch.Generator) -> None:
    some = [made_up("a", 0, 1, 7), made_up("b", 1, 1, 0)]
    scores, shown = evaluate_trials(Counter(), [AdversaryTrials(adversary, some)], (1,), rng)
    found = scores[1]
    assert found.units == ["a/0", "b/1"]
    assert found.clients == ["a", "b"]
    assert found.headline == {
        "attack": [100, 99],
        "class_mean": [4, 2],  # of the class that it is
        "domain_mean": [1, 1],  # near for the first, far (2) less its number for the second
        "nearest_own": [7, 6],
        "noise": [15, 14],
        "other_client": [40, 39],
    }
    assert found.details["double"]["attack"] == [200, 198]
    assert [float(predictions["attack"][0]) for _, predictions in shown[1]] == [100, 100]


def test_sizes_are_scored_apart(adversary: Adversary, rng: torch.Generator) -> None:
    some = [made_up("a", 0, None, 7), made_up("b", 1, 1, 0), made_up("c", 2, 5, 0)]
    scores, _ = evaluate_trials(Counter(), [AdversaryTrials(adversary, some)], (None,), rng)
    assert list(scores) == [1, 5, None]
    assert scores[None].details
    assert not scores[1].details
    assert "class_mean" in scores[1].headline
    assert "class_mean" not in scores[None].headline  # a client has no one class


def test_adversaries_are_scored_by_common_controls(adversary: Adversary, rng: torch.Generator) -> None:
    one, other = made_up("a", 0, 1, 7), made_up("b", 1, 1, 5, with_other=False)
    found = evaluate_trials(
        Counter(), [AdversaryTrials(adversary, [one]), AdversaryTrials(adversary, [other])], (), rng
    )[0][1]
    assert found.units == ["a/0", "b/1"]
    assert found.headline["attack"] == [100, 99]
    assert {"attack", "noise", "domain_mean", "nearest_own"} == set(found.headline)  # nobody knows class 5's mean
    alone = evaluate_trials(Counter(), [AdversaryTrials(adversary, [one, other])], (), rng)[0][1]
    assert set(alone.headline) == set(found.headline)


def test_an_observation_is_read_once(adversary: Adversary, rng: torch.Generator) -> None:
    asked: list[int] = []

    class Listener(Counter):
        def infer(
            self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
        ) -> Sequence[Prediction]:
            asked.append(len(observations))
            return super().infer(adversary, observations, rng)

    one, two = made_up("a", 0, 1, 7), made_up("b", 1, 1, 0)
    (mine,) = two.by_role["attack"]
    shared = dataclasses.replace(
        one, by_role={**one.by_role, "other_client": [ScoredObservation(mine.observation, one.truth)]}
    )
    again = dataclasses.replace(mine.observation)
    apart = dataclasses.replace(one, by_role={**one.by_role, "other_client": [ScoredObservation(again, one.truth)]})
    found = evaluate_trials(Listener(), [AdversaryTrials(adversary, [shared, two])], (1,), rng)[0]
    assert found == evaluate_trials(Listener(), [AdversaryTrials(adversary, [apart, two])], (1,), rng)[0]
    assert asked == [4, 5]
