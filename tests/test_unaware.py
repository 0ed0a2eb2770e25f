"""The attacker that does not know the defense: same trials, other simulator; nowhere a cost where there is nothing to know."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Evaluator, Fitted, fit, shortened
from factories import mean
from factories_scores import RUN_KEY

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.artifacts.style import InterpolationStyle, StyleDraft, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.evaluation import scoring
from fdgpriv.evaluation.ablations import unaware
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.not_measured import not_measured
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.judge import judge
from fdgpriv.verdicts.trial_scores import UNAWARE

STYLES = StyleStatistics.kind


@dataclass(frozen=True)
class Reversed(Defense):
    """Reverses the channels of styles: hides them from whoever does not know it, and from nobody else."""

    def protect(
        self, outgoing: Artifact | StyleDraft, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact:
        shared = outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing
        return shared.map(lambda t: t.flip(0)) if isinstance(shared, StyleStatistics) else shared

    def alters(self, kind: str) -> bool:
        return kind == STYLES

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "Proves nothing.")


@dataclass(frozen=True)
class Everything(Reversed):
    """The same, said to change every kind of artifact."""

    def alters(self, kind: str) -> bool:
        return True


@pytest.fixture(scope="module")
def hidden(digits: Dataset) -> Fitted:
    """Styles with reversed channels, of four clients to a domain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdgpriv.defense.Defense.parse", classmethod(lambda cls, spec: Reversed()))
        return fit(shortened(digits, 120), clients=9)


def trials(evaluator: Evaluator) -> AttackTrials:
    return AttackTrials(evaluator, Attack.parse("domain_inference:simulations=15"), threat("server"), curve=False)


def evaluated(evaluator: Evaluator, out: Path, kind: str = STYLES, few: bool = True) -> AttackScores:
    (found,) = AttackEvaluation(trials(evaluator), "domain_inference", kind, few, out, "cell", RUN_KEY).run().values()
    return found


@pytest.fixture(scope="module")
def found(hidden: Fitted, tmp_path_factory: pytest.TempPathFactory) -> AttackScores:
    """An attack's scores, with those of the attacker that does not know the defense."""
    return evaluated(hidden.evaluator(), tmp_path_factory.mktemp("found"))


def test_what_only_the_knowing_attacker_can_read(found: AttackScores) -> None:
    known, ignorant = found.by_size[None], found.unaware
    assert ignorant is not None
    assert (ignorant.units, ignorant.clients) == (known.units, known.clients)
    assert mean(known) > mean(ignorant) + 0.3
    told = judge({"cell/x": found}, 0).findings["cell/x"].unaware
    assert told is not None
    assert told.value.value == pytest.approx(mean(ignorant))
    assert told.difference.value == pytest.approx(mean(known) - mean(ignorant))
    assert told.difference.ci95 is not None
    assert set(told.controls) == {"noise", "mean_image", "random_style", "other_domain"}


@pytest.mark.slow
def test_its_practice_is_without_the_defense(hidden: Fitted) -> None:
    evaluator = hidden.evaluator()
    one = trials(evaluator)
    target = evaluator.series(STYLES)
    (knowing,), (ignorant,) = (replace(one, know_defense=know).adversaries(target, (1, None)) for know in (True, False))
    assert [id(a.truth) for a in knowing.trials] == [id(b.truth) for b in ignorant.trials]
    assert [a.by_role for a in knowing.trials] == [b.by_role for b in ignorant.trials]
    assert len(ignorant.calibration) == len(knowing.calibration) > 0
    for mine, theirs in zip(knowing.calibration, ignorant.calibration, strict=True):
        reversed_, plain = (style.scored.observation.artifact for style in (mine, theirs))
        assert torch.allclose(reversed_.tensors()["mean"], plain.tensors()["mean"].flip(0))
        assert torch.equal(mine.scored.truth.membership_candidates, theirs.scored.truth.membership_candidates)
    domain = knowing.adversary.domains[0]
    made = [
        who.adversary.simulate(domain.images, domain.labels, torch.arange(5), generator(0)).tensors()["mean"]
        for who in (knowing, ignorant)
    ]
    assert torch.equal(made[0], made[1].flip(0))


@pytest.mark.slow
def test_the_aware_attacker_s_scores_stay(
    hidden: Fitted, found: AttackScores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdgpriv.evaluation.attack_evaluation.unaware", lambda *given: {})
    without = evaluated(hidden.evaluator(), tmp_path)
    assert found.unaware is not None
    assert without.unaware is None
    kept = {condition: scores for condition, scores in found.conditions.items() if condition.variant != UNAWARE}
    assert found.model_copy(update={"attack_s": 0.0, "conditions": kept}) == without.model_copy(
        update={"attack_s": 0.0}
    )


def test_without_a_defense_nothing_is_run(fitted: Fitted, hidden: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "evaluate_tasks", lambda *given: pytest.fail("an attack was run"))
    for made, kind in ((fitted, STYLES), (hidden, ModelState.kind)):
        evaluator = made.evaluator()
        assert unaware(trials(evaluator), evaluator.series(kind), 1, False, generator(0)) == {}
    assert fitted.evaluator().undefended.defense == Defense.named("none")()
    costly = replace(hidden, defense=Everything()).evaluator()
    assert unaware(trials(costly), costly.series(ModelState.kind), 1, True, generator(0)) == {}
    given: dict[str, Any] = {"failed": None, "diverged": None, "attacked": True, "once": True}
    said = [line for line in not_measured(costly, few=True, **given) if "does not know the defense" in line]
    assert len(said) == 1
    assert "model state" in said[0]
    for other, few in ((costly, False), (hidden.evaluator(), True)):
        assert not [line for line in not_measured(other, few=few, **given) if "does not know the defense" in line]


def test_which_kinds_a_defense_changes() -> None:
    noise = Defense.parse("gaussian")
    assert [noise.alters(kind.kind) for kind in (StyleStatistics, InterpolationStyle, ModelState)] == [
        True,
        True,
        False,
    ]
    assert Defense.parse("shuffle+gaussian").alters(STYLES)
    assert not Defense.parse("shuffle+gaussian").alters(ModelUpdate.kind)
    own = {name: Defense.named(name) for name in Defense.names()}
    for name in ("none", "bn_local", "bn_frozen", "secure_aggregation", "send_once", "min_clients"):
        assert not own[name]().alters(STYLES), name


@pytest.mark.slow
def test_positive_controls_of_layers_are_undefended(tiny: Dataset, tmp_path: Path) -> None:
    evaluator = fit(tiny, clients=6, defense="gaussian:epsilon=0.05").evaluator()
    attack = AttackTrials(evaluator, Attack.named("layout_probe")(), threat("server"))
    (found,) = AttackEvaluation(attack, "layout_probe", STYLES, True, tmp_path, "c", RUN_KEY).run().values()
    deepest = list(found.ablations.values())[-1]
    assert {condition.variant.partition("=")[0] for condition in found.conditions} == {"", "layer", "undefended"}
    assert found.positive() == found.undefended != deepest
    bare = replace(attack, evaluator=evaluator.undefended)
    target = bare.evaluator.series(STYLES)
    plain = bare.scores(target.at(target.simulator.layers()[-1]), (1,), generator(0))[1]["layout"]
    assert mean(found.undefended) == pytest.approx(mean(plain), abs=0.01)
    assert mean(plain) > mean(deepest) + 0.02  # at which it has learned to say little
