"""An adversary's view: every round and client that its threat model sees, and in no control's view the truth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from conftest import Fitted, fit, shared_evaluator
from factories import fitted_once
from factories_scores import RUN_KEY
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.moments import RULES
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import defended
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.evaluation.planted import _planted
from fdgpriv.evaluation.trial import AdversaryTrials, Trial
from fdgpriv.federation.transcript import VIEWS, Transcript
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.tasks.label_shares import LabelShares
from fdgpriv.tasks.linked_client import LinkedClient
from fdgpriv.tasks.membership import Members
from fdgpriv.tasks.task import Task
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.judge import judge

ROUNDS = 3


@pytest.fixture(scope="module")
def thrice(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=6, settings={"rounds": str(ROUNDS)}, keep="all")


@cache
def views(fitted: Fitted, kind: str, role: str = "server", task: Task | None = None) -> list[AdversaryTrials]:
    evaluator = shared_evaluator(fitted, ((1, 1),))
    return evaluator.adversaries(evaluator.series(kind), threat(role), (1, None), task or Members())


def wholes(asked: Sequence[AdversaryTrials]) -> Iterator[tuple[Adversary, Trial]]:
    for one in asked:
        yield from ((one.adversary, trial) for trial in one.trials if trial.size is None)


def sent(fitted: Fitted, kind: str) -> dict[tuple[str, int], Artifact]:
    """By client and round, what was shared."""
    return {
        (record.origin, record.round): artifact
        for record, artifact in fitted.transcript.of_kind(kind)
        if record.receiver == SERVER and artifact is not None
    }


def same(one: Artifact, other: Artifact) -> bool:
    theirs = other.tensors()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in one.tensors().items())


@pytest.mark.parametrize("kind", ["style_statistics", "model_state"])
def test_the_server_sees_all_rounds_of_all_clients(thrice: Fitted, kind: str) -> None:
    shared = sent(thrice, kind)
    clients = {client for client, _ in shared}
    recorded = 0
    for adversary, trial in wholes(views(thrice, kind)):
        if trial.client not in clients:
            continue
        recorded += 1
        seen = adversary.view(trial.by_role["attack"][0].observation)
        assert [round.number for round in seen] == list(range(ROUNDS))
        for round in seen:
            assert same(round.artifact, shared[trial.client, round.number])
            assert round.artifact.client not in clients
            others = clients - {trial.client}
            assert len(round.others) == len(others)
            for artifact in round.others.values():
                assert sum(same(artifact, shared[name, round.number]) for name in others) == 1
            if kind == "model_state":
                received = thrice.transcript.model_sent(round.number)
                assert round.received_model is received
                assert all(model is received for model in round.received_models.values())
        for name in seen[0].others:  # one pseudonym is one client
            (origin,) = {
                client
                for client in clients
                if all(same(round.others[name], shared[client, round.number]) for round in seen)
            }
            assert origin != trial.client
    assert recorded == len(clients) == 6


@pytest.mark.parametrize("kind", ["style_statistics", "model_state"])
def test_no_view_of_a_control_holds_the_truth(thrice: Fitted, kind: str) -> None:
    shared = sent(thrice, kind)
    controls = set()
    for adversary, trial in wholes(views(thrice, kind)):
        truth = [artifact for (client, _), artifact in shared.items() if client == trial.client]
        for name, asked in trial.by_role.items():
            for scored in asked if name != "attack" else ():
                for round in adversary.view(scored.observation):
                    seen = [round.artifact, *round.others.values()]
                    assert not any(same(artifact, true) for artifact in seen for true in truth)
                controls.add(name)
    assert controls >= {"random_style", "other_client", "other_domain"}


def test_a_control_is_another_client_in_every_round(thrice: Fitted) -> None:
    shared = sent(thrice, "style_statistics")
    for adversary, trial in wholes(views(thrice, "style_statistics")):
        for scored in trial.by_role.get("other_client", ()):
            seen = adversary.view(scored.observation)
            stands_in = {
                client
                for client in {client for client, _ in shared}
                if same(seen[-1].artifact, shared[client, ROUNDS - 1])
            }
            if stands_in:  # no shadow client
                (client,) = stands_in
                assert len(seen) == ROUNDS
                assert all(same(round.artifact, shared[client, round.number]) for round in seen)
                assert all(not same(round.artifact, other) for round in seen for other in round.others.values())


def test_a_planted_leak_is_mixed_into_every_round(thrice: Fitted) -> None:
    (asked,) = views(thrice, "style_statistics")
    planted = _planted(asked, None, 1, 0.4, 6, 1)
    whole = {trial.client: trial.by_role["attack"][0].observation for trial in asked.trials if trial.size is None}
    singles = [trial.by_role["attack"][0].observation for trial in asked.trials if trial.size == 1]
    assert planted.trials
    for trial in planted.trials:
        mixture = trial.by_role["attack"][0].observation
        (single,) = [one for one in singles if one.membership_candidates is mixture.membership_candidates]
        of_all = (whole[trial.client], single, mixture)
        rounds = [asked.adversary.view(observation) for observation in of_all]
        assert [len(seen) for seen in rounds] == [ROUNDS] * 3
        for base, leak, mixed in zip(*rounds, strict=True):
            for name, tensor in mixed.artifact.tensors().items():
                expected = 0.6 * base.artifact.tensors()[name] + 0.4 * leak.artifact.tensors()[name]
                torch.testing.assert_close(tensor, expected)


def test_each_simulated_round_has_its_own_model(thrice: Fitted) -> None:
    """Against the networks built anew, for single images."""
    checked = 0
    for one in views(thrice, "style_statistics"):
        for trial in one.trials:
            if trial.size != 1:
                continue
            for round in one.adversary.view(trial.by_role["attack"][0].observation):
                model = thrice.method.model(thrice.federation, generator(1)).eval()
                state = thrice.transcript.model_sent(round.number)
                state.load_into(model)
                artifact = round.artifact
                assert isinstance(artifact, StyleStatistics)
                features = thrice.method.disclosure().styles.features(model, artifact.at)
                with torch.no_grad():
                    mean, _ = RULES[artifact.rule](features(trial.truth.images))
                torch.testing.assert_close(artifact.mean, mean[0], atol=1e-4, rtol=1e-3)
                checked += 1
    assert checked >= 6 * ROUNDS


def test_rounds_of_random_artifacts_share_weights(thrice: Fitted) -> None:
    """Its rounds resemble each other as a client's do, and differ from all that was shared."""
    for adversary, trial in wholes(views(thrice, "style_statistics")):
        rows = [
            torch.stack([adversary.vector(round.artifact) for round in adversary.view(scored.observation)])
            for scored in trial.by_role["random_style"]
        ]
        assert all(len(vectors) == ROUNDS for vectors in rows)
        drawn = torch.stack(rows)
        centred = drawn - drawn.mean(0)
        similar = torch.nn.functional.cosine_similarity(centred[:, 0], centred[:, -1], dim=1)
        assert float(similar.mean()) > 0.3


@pytest.mark.parametrize("role", ["client", "third_party"])
def test_who_does_not_see_all_rounds_has_the_last(thrice: Fitted, role: str) -> None:
    for adversary, trial in wholes(views(thrice, "style_statistics", role)):
        (seen,) = adversary.view(trial.by_role["attack"][0].observation)
        assert seen.number == ROUNDS - 1
        assert len(seen.others) == (0 if role == "client" else 5)  # a client receives one other client's style


def test_a_client_sees_nothing_beside_simulations(thrice: Fitted) -> None:
    """It calibrates on simulated clients, which were sent to nobody; the server sees all others beside these, too."""
    for role, others in (("client", 0), ("server", len(thrice.population.clients))):
        for one in thrice.shared.style_adversaries(threat(role), (None,), LabelShares()):
            for trial in one.calibration:
                seen = one.adversary.view(trial.scored.observation)[-1]
                assert len(seen.others) == others


def test_a_client_sees_the_bank_that_it_received(tiny: Dataset) -> None:
    ccst = fitted_once(tiny, clients=6, method="ccst", settings={"rounds": "2"})
    for adversary, trial in wholes(views(ccst, "style_statistics", "client")):
        (seen,) = adversary.view(trial.by_role["attack"][0].observation)
        assert len(seen.others) >= 4  # all but its own and the one that is asked about


@pytest.mark.parametrize(("role", "rounds"), [("server", 2), ("client", 2), ("third_party", 1)])
def test_broadcast_models_are_seen_by_participants(thrice: Fitted, role: str, rounds: int) -> None:
    for adversary, trial in wholes(views(thrice, "global_model", role)):
        seen = adversary.view(trial.by_role["attack"][0].observation)
        assert [round.number for round in seen] == [1, 2][-rounds:]
        for round in seen:
            model = thrice.transcript.model_sent(round.number)
            assert same(round.artifact, model)
            assert not round.others


def test_anonymous_senders_have_one_round(tiny: Dataset) -> None:
    shuffled = fitted_once(tiny, clients=6, settings={"rounds": "2"}, defense="shuffle")
    for adversary, trial in wholes(views(shuffled, "style_statistics")):
        assert len(adversary.view(trial.by_role["attack"][0].observation)) == 1


def test_names_that_are_asked_for_are_hidden(thrice: Fitted) -> None:
    shared = sent(thrice, "style_statistics")
    for adversary, trial in wholes(views(thrice, "style_statistics", task=LinkedClient())):
        if trial.truth.earlier_index < 0:
            continue
        observation = trial.by_role["attack"][0].observation
        assert all(not round.others for round in adversary.view(observation))
        for recorded, artifacts in adversary.earlier_rounds:
            assert same(artifacts[trial.truth.earlier_index], shared[trial.client, recorded.number])
        assert [recorded.number for recorded, _ in adversary.earlier_rounds] == [0, 1]


def one_domain(adversary: Adversary) -> tuple[Tensor, Tensor]:
    domain = adversary.auxiliary[0]
    return domain.images, domain.labels


@dataclass(frozen=True)
class Reader(Attack):
    """Scores candidates by where they stand, and reads as much of its view as it is told to."""

    reads = (StyleStatistics,)
    task = Members()
    threats = ("server",)
    group_sizes = (1, None)
    ablations = ("rounds",)

    everything: bool = True
    rounds_of: ClassVar[list[list[int]]] = []

    def infer(
        self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
    ) -> list[Prediction]:
        for observation in observations:
            seen = adversary.view(observation)
            if self.everything:
                self.rounds_of.append([round.number for round in seen])
                assert all(round.others is not None and round.sent is not None for round in seen)
            else:
                assert seen[-1].artifact is not None
        return [torch.arange(len(one.membership_candidates)).double() for one in observations]


@pytest.mark.parametrize(("everything", "rounds", "clients"), [(True, ROUNDS, 6), (False, 1, 1)])
def test_what_an_attack_read_is_part_of_its_row(
    thrice: Fitted, tmp_path: Path, everything: bool, rounds: int, clients: int
) -> None:
    evaluator = replace(thrice.evaluator(), per_client={1: 1})
    trials = AttackTrials(evaluator, Reader(everything), threat("server"))
    scores = AttackEvaluation(trials, "reader", "style_statistics", False, tmp_path, "cell", RUN_KEY).run()
    found = judge({f"run/{key}": one for key, one in scores.items()}, 0).findings
    (view,) = [row.view for row in found.values()]
    assert (view.rounds, view.clients) == (rounds, clients)
    (points,) = [row.rounds for row in found.values()]
    assert [(point.rounds, point.images) for point in points] == [(1, None), (2, None), (3, None)]
    if everything:
        assert {tuple(read) for read in Reader.rounds_of} == {(2,), (1, 2), (0, 1, 2)}


def test_dropped_rounds_keep_small_tensors(thrice: Fitted, monkeypatch: Any) -> None:
    """A training that stores less than all: the first and the last round whole, small tensors of the others."""
    monkeypatch.setattr("fdgpriv.federation.transcript.BUDGET", 1)
    monkeypatch.setattr("fdgpriv.federation.transcript.SMALL", 1000)
    stored = Transcript(VIEWS)
    for index, record in enumerate(thrice.transcript.records):
        stored.add(record, thrice.transcript.kept[index])
    fitted = replace(thrice, transcript=stored)
    shared = sent(thrice, "model_state")
    for adversary, trial in wholes(views(fitted, "model_state")):
        seen = adversary.view(trial.by_role["attack"][0].observation)
        if (trial.client, 0) in shared:
            assert [round.whole for round in seen] == [True, False, True]
            part, full = seen[1].artifact.tensors(), shared[trial.client, 1].tensors()
            assert part
            assert part.keys() < full.keys()
            assert all(torch.equal(tensor, full[name]) for name, tensor in part.items())
            assert isinstance(seen[1].received_model, ModelState)
        else:
            assert [round.number for round in seen] == [0, 2]


def test_who_knows_the_defense_simulates_with_it(thrice: Fitted) -> None:
    """The artifacts that both see are the same."""
    evaluator = shared_evaluator(replace(thrice, defense=defended(thrice.method, "gaussian:epsilon=8")[1]), ((1, 1),))
    target = evaluator.series("style_statistics")
    known, unknown = (
        evaluator.adversaries(target, threat("server"), (None,), Members(), know_defense=knows)[0]
        for knows in (True, False)
    )
    held, index = ClientImages(*one_domain(known.adversary)), torch.arange(5)
    rounds = (one.adversary.view(one.trials[0].by_role["attack"][0].observation) for one in (known, unknown))
    for aware, ignorant in zip(*rounds, strict=True):
        assert same(aware.artifact, ignorant.artifact)
        sample = ClientSample(held, index)
        bare = ignorant.simulator.simulate(replace(sample, defended=False), generator(0))
        assert same(ignorant.simulator.simulate(sample, generator(0)), bare)
        with_defense = aware.simulator.simulate(sample, generator(0))
        assert not same(with_defense, bare)
        given = (held.images, held.labels, index, generator(0))
        assert same(known.adversary.simulate(*given, simulator=aware.simulator), with_defense)
