"""Images about which several clients are asked: what is a non-member of whom, and the variance that they add to a mean."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from factories_core import truth
from torch import Tensor

from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.membership import Members
from fdgpriv.tasks.task import TrialAnswers

CLIENTS, OWN, SHARED = 6, 8, 12


def asked(client: int, candidates: Sequence[int], trained_by: Sequence[int], sender: int | None = None) -> GroundTruth:
    """About these images of the pool; those that this client trained on are the members."""
    by = torch.tensor(trained_by)
    return truth(
        members=by == client,
        trained_by=by,
        membership_candidates=torch.tensor(candidates),
        senders=(client if sender is None else sender,),
    )


def plain_auc(members: np.ndarray, others: np.ndarray) -> float:
    pairs = [(m > o) + 0.5 * (m == o) for m in members for o in others]
    return float(np.mean(pairs))


def of_shared_held_out(rng: torch.Generator, names: Sequence[str]) -> tuple[dict[str, TrialAnswers], list[str], Tensor]:
    """Each client is asked about its own images and the same held-out ones, last in the pool; with ties."""
    pool = CLIENTS * OWN + SHARED
    effect = torch.randn(pool, generator=rng)
    scores = (2 * (effect + torch.randn(len(names), CLIENTS, pool, generator=rng))).round()
    answers: dict[str, TrialAnswers] = {}
    for number, name in enumerate(names):
        answers[name] = []
        for client in range(CLIENTS):
            own = list(range(client * OWN, (client + 1) * OWN))
            candidates = own + list(range(CLIENTS * OWN, pool))
            told = asked(client, candidates, [client] * OWN + [-1] * SHARED)
            answers[name].append((client, scores[number, client][told.membership_candidates], told))
    return answers, [f"client {i}" for i in range(CLIENTS)], scores


def test_the_variance_is_that_of_drawing_again(rng: torch.Generator) -> None:
    """The same images for all clients, the attack and the control, members as they are; compared with 4,000 drawings."""
    answers, units, scores = of_shared_held_out(rng, ["attack", "other_client"])
    variances = Members().shared_variances(answers, units)
    values, drawing = scores.numpy(), np.random.default_rng(0)
    # (2, SHARED): by role, the mean share of members above each shared image
    above = np.stack(
        [
            np.mean(
                [
                    [
                        plain_auc(role[c, c * OWN : (c + 1) * OWN], role[c, [j]])
                        for j in range(CLIENTS * OWN, role.shape[1])
                    ]
                    for c in range(CLIENTS)
                ],
                axis=0,
            )
            for role in values
        ]
    )
    drawn = above[:, drawing.integers(0, SHARED, (4000, SHARED))].mean(2) * np.sqrt(SHARED / (SHARED - 1))
    assert variances.of_mean["attack"] == pytest.approx(drawn[0].var(), rel=0.1)
    assert variances.of_mean["other_client"] == pytest.approx(drawn[1].var(), rel=0.1)
    assert variances.of_lead["other_client"] == pytest.approx((drawn[0] - drawn[1]).var(), rel=0.1)
    assert set(variances.of_lead) == {"other_client"}


def test_a_lead_over_itself_does_not_vary(rng: torch.Generator) -> None:
    answers, units, _ = of_shared_held_out(rng, ["attack"])
    twice = {"attack": answers["attack"], "other_client": [row for row in answers["attack"] for _ in range(2)]}
    variances = Members().shared_variances(twice, units)
    assert variances.of_lead == {"other_client": pytest.approx(0)}
    assert variances.of_mean["attack"] > 0


def test_images_of_one_client_add_nothing() -> None:
    """Nor what several artifacts of one client are asked about, if they are one unit."""
    rows = []
    for client in range(3):
        told = asked(client, [10 * client + i for i in range(6)], [client] * 3 + [-1] * 3)
        rows += [(2 * client + again, torch.tensor([3.0, 1, 4, 1, 5, 2]), told) for again in range(2)]
    by_client = [f"client {number // 2}" for number in range(6)]
    assert Members().shared_variances({"attack": rows}, by_client) == ({}, {})
    by_artifact = [f"artifact {number}" for number in range(6)]
    assert Members().shared_variances({"attack": rows}, by_artifact).of_mean["attack"] > 0


def test_a_client_s_own_images_travel_with_it(rng: torch.Generator) -> None:
    """Only as non-members of other clients are they drawn: by plain influence, one image left out at a time."""
    pool = CLIENTS * OWN
    scores = torch.randn(CLIENTS, pool, generator=rng)
    owner = [place // OWN for place in range(pool)]
    rows = [(client, scores[client], asked(client, range(pool), owner)) for client in range(CLIENTS)]
    found = Members().shared_variances({"attack": rows}, [f"client {i}" for i in range(CLIENTS)]).of_mean["attack"]

    def mean_without(image: int | None) -> float:
        areas = []
        for client in range(CLIENTS):
            members = np.asarray([i for i in range(pool) if owner[i] == client])
            others = np.asarray([i for i in range(pool) if owner[i] != client and i != image])
            areas.append(plain_auc(scores[client, members].numpy(), scores[client, others].numpy()))
        return float(np.mean(areas))

    n, whole = pool - OWN, mean_without(None)
    jackknife = [(n - 1) * (whole - mean_without(image)) for image in range(pool)]
    assert found == pytest.approx(sum(value**2 for value in jackknife) / (n * (n - 1)), rel=1e-6)


def test_random_halves_do_not_vary_with_images(
    rng: torch.Generator,
) -> None:
    """Half of what nobody trained on stands for members: an image that scores high is as often among either."""
    pool = 40
    effect = torch.randn(pool, generator=rng)
    rows = []
    for number in range(400):
        order = torch.randperm(pool, generator=rng)
        told = asked(0, order.tolist(), [-1] * pool)
        object.__setattr__(told, "members", torch.arange(pool) < pool // 2)
        rows.append((number, effect[order], told))
    units = [str(number) for number in range(400)]
    halves = Members().shared_variances({"attack": rows}, units).of_mean["attack"]
    fixed = [(number, effect, asked(0, range(pool), [0] * 20 + [-1] * 20)) for number in range(400)]
    assert halves < Members().shared_variances({"attack": fixed}, units).of_mean["attack"] / 50


def test_a_sender_s_images_are_no_non_members(rng: torch.Generator) -> None:
    """The attack answers with the sender's images: as a control it is not to look worse than chance for that."""
    owner = [place // OWN for place in range(3 * OWN)]
    told = asked(0, range(3 * OWN), owner, sender=2)
    assert told.non_members.tolist() == [of == 1 for of in owner]
    scores = torch.tensor([1.0 if of == 2 else 0.5 for of in owner])
    assert Members().score([scores], [told]).tolist() == [0.5]
    assert Members().score([scores], [asked(0, range(3 * OWN), owner)]).tolist() == [0.25]


def test_two_kinds_of_non_members_are_pooled(rng: torch.Generator) -> None:
    """As plain areas of all pairs; neither where one prediction has but one kind."""
    owner = [0] * 5 + [1] * 7 + [-1] * 3
    scores = torch.randint(6, (15,), generator=rng).float()
    both = asked(0, range(15), owner)
    found = Members().details([scores, scores], [both, both])
    of = np.asarray(owner)
    for name, kind in (("auc_held_out", of < 0), ("auc_other_clients", of == 1)):
        assert found[name].tolist() == pytest.approx([plain_auc(scores.numpy()[of == 0], scores.numpy()[kind])] * 2)
    pooled = (7 * found["auc_other_clients"] + 3 * found["auc_held_out"]) / 10
    assert Members().score([scores], [both]).tolist() == pytest.approx([float(pooled[0])])
    assert Members().details([scores, scores], [both, asked(0, range(15), [0] * 5 + [-1] * 10)]) == {}
