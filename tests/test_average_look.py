"""The average look: the mean of a set against the true mean by plain formulas, a leak that is found and one that is not."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from conftest import Evaluator
from factories_core import truth
from factories_scores import RUN_KEY, conditions
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation, attack_scores
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.scoring import evaluate_tasks
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.selftest.stored import reduced
from fdgpriv.simulation.mixture import Sent
from fdgpriv.statistics.questions import Evidence
from fdgpriv.tasks.average_look import AverageLook
from fdgpriv.tasks.images import Images
from fdgpriv.tasks.task import Predictions
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.attack_tests import attack_tests
from fdgpriv.verdicts.ceiling import ceiling_sentence, content_ceiling
from fdgpriv.verdicts.judge import judge

STYLES = StyleStatistics.kind


@dataclass(frozen=True)
class Drawing(Attack):
    """Draws the image that an artifact is known to stand for, or grey; as two images, `apart` from it up to black or white."""

    known: Mapping[bytes, Tensor]
    apart: float = 0.0
    reads = (StyleStatistics,)
    task = Images()
    threats = ("server",)
    asked: ClassVar[list[int]] = []

    def infer(self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator) -> Predictions:
        self.asked.append(len(observations))
        side = adversary.image_size
        images = [self.known.get(content(one.sent), torch.full((3, side, side), 0.5)) for one in observations]
        room = [self.apart * torch.minimum(one, 1 - one) for one in images]
        sets = [torch.stack([one - far, one + far]) for one, far in zip(images, room, strict=True)]
        return Predictions(sets, set_size=2)


def content(sent: Sent) -> bytes:
    """What tells a style from others; empty for mixtures."""
    return sent.mean.numpy().tobytes() if isinstance(sent, StyleStatistics) else b""


def asked(evaluator: Evaluator, sizes: Sequence[int | None] = (1, None)) -> list[AdversaryTrials]:
    return evaluator.style_adversaries(threat("server"), sizes, Images())


def means(adversaries: Sequence[AdversaryTrials]) -> dict[bytes, Tensor]:
    """The true mean image behind each artifact, those of the calibration included."""
    pairs = [trial.by_role["attack"][0] for one in adversaries for trial in one.trials]
    pairs += [trial.scored for one in adversaries for trial in one.calibration]
    return {content(one.observation.sent): one.truth.mean_image for one in pairs}


def test_a_set_is_scored_by_the_error_of_its_mean(rng: torch.Generator) -> None:
    sets, true = torch.rand(4, 5, 3, 8, 8, generator=rng), torch.rand(4, 3, 8, 8, generator=rng)
    truths = [truth(mean_image=mean) for mean in true]
    task = AverageLook()
    found = task.score([task.answer(one) for one in sets], truths)
    for drawn, mean, score in zip(sets.tolist(), true.tolist(), found.tolist(), strict=True):
        errors = [
            (sum(image[c][y][x] for image in drawn) / 5 - mean[c][y][x]) ** 2
            for c in range(3)
            for y in range(8)
            for x in range(8)
        ]
        assert score == pytest.approx(sum(errors) / len(errors), rel=1e-5)
    single = sets[0, 0]
    assert task.answer(single) is single
    assert float(task.score([true[0]], truths[:1])) == 0


def test_the_truth_is_the_mean_of_all_images(evaluator: Evaluator) -> None:
    for trial in asked(evaluator, (1, 5, None))[0].trials:
        images = evaluator.population.data(trial.client).images
        if trial.size is None:
            assert trial.truth.count == len(images)
            torch.testing.assert_close(trial.truth.mean_image, sum(images) / len(images))
        else:
            torch.testing.assert_close(trial.truth.mean_image, sum(trial.truth.images) / trial.size)
        for name in ("nearest_own", "own_colour"):
            assert all(not AverageLook().askable(truth) for _, truth in trial.given[name])


def test_one_inference_answers_both_questions(evaluator: Evaluator) -> None:
    """The mean of the set is right and its images are not: the average look is trusted more."""
    adversaries = asked(evaluator)
    attack = Drawing(means(adversaries), apart=1.0)
    attack.asked.clear()
    found = evaluate_tasks(attack, adversaries, (), generator(2))[0]
    assert len(attack.asked) == len(adversaries) == 1
    for size in (1, None):
        assert found[size]["average_look"].artifact_weight == 1
        assert found[size]["images"].artifact_weight < 0.5
        assert max(found[size]["average_look"].headline["attack"]) < 1e-9
        for name in (
            "noise",
            "mean_image",
            "domain_mean",
            "random_style",
            "other_client",
            "other_domain",
            "unconditional",
        ):
            assert min(found[size]["average_look"].headline[name]) > 1e-4


def evidence(scores: AttackScores, scope: str) -> Evidence:
    found = attack_tests({"": scores}, 0)[""].scopes[scope]
    assert isinstance(found, Evidence)
    return found


def stored(adversaries: Sequence[AdversaryTrials], attack: Drawing) -> AttackScores:
    found = evaluate_tasks(attack, adversaries, (), generator(2))[0]
    by_size = {size: at["average_look"] for size, at in found.items()}
    return attack_scores(
        attack, threat("server"), STYLES, AverageLook(), level="client", shared=True, conditions=conditions(by_size)
    )


def test_perfect_and_empty_predictions_are_judged(evaluator: Evaluator) -> None:
    adversaries = asked(evaluator)
    exact = means(adversaries)
    nearly = {whose: 0.98 * mean + 0.01 for whose, mean in exact.items()}
    blind = stored(adversaries, Drawing({}))
    drawn = [stored(adversaries, Drawing(known)) for known in (exact, nearly)]
    for known, scope in itertools.product(drawn, ("client", "domain")):
        leak, none = evidence(known, scope), evidence(blind, scope)
        assert leak.p is not None
        assert none.p is not None
        assert leak.p < 0.025 < 0.4 < none.p
        assert leak.test.difference >= leak.relevant
        assert none.test.difference <= 1e-9


def test_a_quarter_of_the_strongest_control_matters(evaluator: Evaluator) -> None:
    one = stored(asked(evaluator), Drawing({}))
    whole = one.by_size[None]
    strongest = min(np.mean(values) for values in one.controls("client", whole).values())
    assert one.relevant_effect(whole) == pytest.approx(0.25 * strongest)
    assert (one.secret, one.metric, one.scopes) == ("average_look", "mse", ("client", "domain"))


def test_an_evaluation_stores_and_reads_both(evaluator: Evaluator, tmp_path: Path) -> None:
    evaluator = replace(evaluator, per_client={1: 1})
    attack = Drawing(means(asked(evaluator)))
    attack.asked.clear()
    one = AttackEvaluation(
        AttackTrials(evaluator, attack, threat("server")), "drawing", STYLES, True, tmp_path, "cell", RUN_KEY
    )
    found = one.run()
    assert list(found) == [
        "cell/drawing@server on style_statistics",
        "cell/drawing@server on style_statistics, average_look",
    ]
    assert [scores.secret for scores in found.values()] == ["content", "average_look"]
    inferred = len(attack.asked)
    assert one.run() == found
    assert len(attack.asked) == inferred
    assert [file.name for file in tmp_path.glob("scores/cell/*")] == ["drawing@server-style_statistics.zip"]
    assert list(one.pending("later")) == list(found)


def test_a_global_artifact_has_no_client_scope(evaluator: Evaluator) -> None:
    target = evaluator.series(STYLES)
    assert AverageLook().inapplicable(target) is None
    assert AverageLook().inapplicable(replace(target, level="group")) is not None


def test_every_attack_that_draws_images_answers_it() -> None:
    for attack in map(Attack.named, Attack.names()):
        implied: tuple[str, ...] = tuple(task.name() for task in attack.task.implied)
        assert implied == (("average_look",) if attack.task.draws_images else ())


def test_the_ceiling_of_content_is_the_true_mean_s(evaluator: Evaluator) -> None:
    """In decibels over the scored images of each client, image by image."""
    adversaries = asked(evaluator)
    attack = Drawing({})
    found = evaluate_tasks(attack, adversaries, (), generator(2))[0][None]
    gains = []
    for trial in (trial for one in adversaries for trial in one.trials if trial.size is None):
        domain = evaluator.population.auxiliary[evaluator.population.sources[trial.truth.domain]].images
        public = sum(domain) / len(domain)
        far = [
            [float((image - mean).double().square().mean()) for image in trial.truth.images]
            for mean in (trial.truth.mean_image, public)
        ]
        gains.append(np.mean([10 * np.log10(b / a) for a, b in zip(*far, strict=True)]))
    ceiling = content_ceiling(found["images"])
    assert ceiling is not None
    assert ceiling.value == pytest.approx(np.mean(gains), abs=1e-4)
    assert content_ceiling(found["average_look"]) is None
    one = attack_scores(
        attack, threat("server"), STYLES, level="client", shared=True, conditions=conditions({None: found["images"]})
    )
    assert ceiling_sentence(one.model_copy(update={"relevant": 0.01})) is None
    told = ceiling_sentence(one.model_copy(update={"relevant": 9.0}))
    assert told is not None
    assert f"{ceiling.value:.2g} dB" in told
    asked_of = judge({"cell/drawing": one.model_copy(update={"relevant": 9.0})}, 0).questions.of_cell(
        "cell", ["cell/drawing"]
    )
    assert len(asked_of) == 1  # who knows the domain is asked in one scope
    assert all(question.reason.endswith(told) for question in asked_of)


def test_the_self_test_keeps_its_scores_to_six_digits(evaluator: Evaluator) -> None:
    """Errors of average images are small: a millionth is a thousandth of them."""
    one = stored(asked(evaluator), Drawing({}))
    whole = one.by_size[None]
    whole.crossed = {"client-00": [0.00123456789] * len(whole.units)}
    found = reduced(one)
    assert found is not None
    assert found.secret == "average_look"
    assert found.by_size[None].crossed["client-00"][0] == 0.00123457
    for name, values in found.by_size[None].headline.items():
        np.testing.assert_allclose(values, whole.headline[name], rtol=1e-5)
    assert found.undefended is not None
