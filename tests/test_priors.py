"""Priors of labels: what each adversary predicts without any artifact, by hand, and that a leak must beat all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from conftest import Evaluator
from factories_scores import conditions

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Domain
from fdgpriv.evaluation.attack_evaluation import attack_scores
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.statistics.questions import Evidence
from fdgpriv.tasks.average_look import AverageLook
from fdgpriv.tasks.class_label import ClassLabel
from fdgpriv.tasks.label_shares import LabelShares
from fdgpriv.tasks.task import Predictions, Task
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.attack_tests import attack_tests
from fdgpriv.verdicts.trial_scores import TrialScores

KNOWS = ("server", "insider")


@dataclass(frozen=True)
class Guess(Attack):
    """Predicts one distribution over the labels, whatever it reads."""

    shares: tuple[float, ...]
    reads = (StyleStatistics,)
    task = LabelShares()
    threats = ("server", "client", "third_party")

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        return Predictions([torch.tensor(self.shares)] * len(observations))


def counted(adversary: Adversary, domain: str | None = None) -> list[float]:
    """The share of each label among the adversary's images (of this domain), image by image."""
    labels = [
        label
        for one in (*adversary.domains, *adversary.held_back)
        if domain in (None, one.name)
        for label in one.labels.tolist()
    ]
    return [labels.count(k) / len(labels) for k in range(adversary.classes)]


def hedged(public: list[float], images: int) -> list[float]:
    """Equal shares, with half of how far the public ones are from these beyond twice what chance gives so many images."""
    equal = 1 / len(public)
    squared = sum((share - equal) ** 2 for share in public)
    by_chance = 2 * (1 - equal) / images
    sure = max(0.0, 1 - by_chance / squared)
    return [equal + sure * (share - equal) / 2 for share in public]


@pytest.mark.parametrize(("images", "wanted"), [(10, [0.5, 0.5]), (100_000, [0.6, 0.4])])
def test_few_public_images_reveal_no_labels(evaluator: Evaluator, images: int, wanted: list[float]) -> None:
    """Seven of ten images may be chance, so that what is expected are equal shares; of many images it is half of theirs."""
    adversary = evaluator.style_adversaries(threat("server"), (None,), LabelShares())[0].adversary
    labels = (torch.arange(images) % 10 >= 7).long()
    held = Domain("all", torch.zeros(images, 3, 1, 1), labels)
    found = replace(adversary, classes=2, _auxiliary=(held,), held_back=()).hedged_shares
    torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-4, rtol=0)


@pytest.mark.parametrize("role", ["server", "client", "third_party", "insider"])
def test_every_prior_of_labels_is_a_control(evaluator: Evaluator, role: str) -> None:
    for one in evaluator.style_adversaries(threat(role), (None,), LabelShares()):
        adversary = one.adversary
        found = LabelShares().baselines(adversary, Predictions([]), generator(0))
        public, classes = counted(adversary), adversary.classes
        images = sum(len(own) for own in (*adversary.domains, *adversary.held_back))
        wanted = {
            "uniform": [1 / classes] * classes,
            "public_shares": public,
            "half_uniform": hedged(public, images),
            **{f"domain_shares:{own.name}": counted(adversary, own.name) for own in adversary.domains},
        }
        assert found.keys() == wanted.keys() | {"noise"}
        for name, shares in wanted.items():
            torch.testing.assert_close(found[name], [torch.tensor(shares)])
        prior_prediction = LabelShares().prior_prediction(adversary, torch.zeros(classes), None)
        torch.testing.assert_close(prior_prediction, torch.tensor(wanted["half_uniform"]))
        single = ClassLabel().baselines(adversary, Predictions([]), generator(0))
        assert single.keys() == wanted.keys() - {"uniform", "half_uniform"} | {"noise"}
        assert int(single["public_shares"][0].argmax()) == public.index(max(public))


@pytest.mark.parametrize("role", ["server", "third_party"])
def test_the_domain_s_shares_are_for_who_knows_it(evaluator: Evaluator, role: str) -> None:
    asked = evaluator.style_adversaries(threat(role), (1, None), LabelShares())
    classes = asked[0].adversary.classes
    guess = Guess((1 / classes,) * classes)
    scores = evaluate_trials(guess, asked, (), generator(1))[0]
    one = attack_scores(guess, threat(role), StyleStatistics.kind, shared=True, conditions=conditions(scores))
    priors = {"uniform", "public_shares", "half_uniform"} | ({"domain_shares"} if role in KNOWS else set())
    for scope in ("client", "domain"):
        controls = one.controls(scope, scores[None])
        assert priors == controls.keys() & {*LabelShares.relative_to}
        assert "mean_image" not in controls
    means = {name: np.mean(scores[None].headline[name]) for name in priors}
    assert one.relevant_effect(scores[None]) == pytest.approx(0.1 * min(means.values()))


LEVELS = {"uniform": 0.339, "public_shares": 0.381, "half_uniform": 0.355, "domain_shares": 0.424}


def scored(attack: float, levels: Mapping[str, float]) -> TrialScores:
    """30 clients' L1 errors with these means and a standard deviation of .05."""
    names = [f"client-{i:02d}" for i in range(30)]
    rng = np.random.default_rng(3)
    tables = {
        name: (level + 0.05 * rng.standard_normal(30)).clip(0.01).tolist()
        for name, level in {"attack": attack, **levels}.items()
    }
    return TrialScores(names, names, tables)


def p_of(attack: float) -> float:
    levels = {**LEVELS, **dict.fromkeys(("noise", "random_style", "other_client", "other_domain"), 0.45)}
    guess = Guess((0.5, 0.5))
    one = attack_scores(
        guess, threat("server"), "style_statistics", shared=True, conditions=conditions({None: scored(attack, levels)})
    )
    evidence = attack_tests({"": one}, 0)[""].scopes["client"]
    assert isinstance(evidence, Evidence)
    assert evidence.relevant == pytest.approx(0.1 * 0.339, abs=0.003)
    assert evidence.test.strongest_control == "uniform"
    assert evidence.p is not None
    return evidence.p


def test_beating_public_shares_is_no_leak() -> None:
    """.036 ahead of the shares of the public images, .006 behind equal ones."""
    assert p_of(0.345) > 0.5
    assert p_of(0.25) < 0.001


def test_the_hedge_errs_no_more_than_the_mean(rng: torch.Generator) -> None:
    """In L1, for any clients; an adversary that falls back to it is thus never as wrong as the worse of the two."""
    draws = torch.rand(200, 3, 5, generator=rng)
    public, true, _ = (draws / draws.sum(-1, keepdim=True)).unbind(1)
    off = [(prior - true).abs().sum(1) for prior in (public, torch.full_like(public, 0.2), (public + 0.2) / 2)]
    assert bool((off[2] <= (off[0] + off[1]) / 2 + 1e-6).all())


def test_tasks_that_are_relative_name_their_controls() -> None:
    tasks: list[Task] = [Attack.named(name).task for name in Attack.names()]
    assert {task.name(): task.relative_to for task in tasks if task.relative_to} == {
        "average_look": AverageLook.relative_to,
        "label_shares": ("uniform", "public_shares", "half_uniform", "domain_shares"),
        "size_of_client": ("mean_image",),
    }
