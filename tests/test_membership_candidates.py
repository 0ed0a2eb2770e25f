"""Which images are asked about beside an artifact's own, and how many artifacts of one image."""

import numpy as np
import pytest
import torch
from conftest import TARGET, Fitted, shortened
from scipy import stats

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation import candidates as candidates_module
from fdgpriv.evaluation.candidates import CANDIDATES, MAX_MEMBERS, MAX_NON_MEMBERS, CandidatePool
from fdgpriv.evaluation.trial_layout import ARTIFACTS_PER_CLIENT, MANY_SINGLES
from fdgpriv.federation.partition import populate
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.tasks.membership import Members
from fdgpriv.tasks.task import Task
from fdgpriv.threat import threat


def by_client(pool: CandidatePool, client: str) -> dict[str, dict[str, set[int]]]:
    """Of the clients of this client's domain, by kind the places in the pool: all that was held out, and others' own."""
    near = [name for name in pool.names if pool.domain[name] == pool.domain[client]]
    sizes = {name: torch.arange(len(pool.population.data(name))) for name in near}
    return {
        "held out": {name: set(pool._held_out_by(name).tolist()) for name in near},
        "trained": {name: set(pool._trained_by(name, sizes[name]).tolist()) for name in near if name != client},
    }


def test_few_images_have_few_other_candidates(digits: Dataset) -> None:
    population = populate(digits, TARGET, "single", 12, 0)
    pool = CandidatePool(population, tuple(population.clients))
    client = pool.names[0]
    for kind, places in by_client(pool, client).items():
        every = set().union(*places.values())
        assert len(every) > MAX_NON_MEMBERS >= len(places)
        seen = set()
        for number in range(4):
            candidates, members = pool.membership_candidates(client, torch.tensor([3 + number]), number)
            assert members.sum() == 1
            assert len(candidates) == len(candidates.unique()) == 1 + 2 * MAX_NON_MEMBERS
            outside = set(candidates[~members].tolist()) & every
            assert len(outside) == MAX_NON_MEMBERS, kind
            counts = [len(own & outside) * len(every) / len(own) for own in places.values()]
            one = len(every) / min(map(len, places.values()))
            assert max(counts) - min(counts) < 2 * one  # as many of each, but for one
            seen |= outside
        assert len(seen) > MAX_NON_MEMBERS  # other artifacts stand among others


def test_non_members_of_one_and_of_all_clients(
    digits: Dataset,
) -> None:
    population = populate(digits, TARGET, "single", 12, 0)
    pool = CandidatePool(population, tuple(population.clients))
    client = pool.names[5]
    held_out, trained = (set().union(*places.values()) for places in by_client(pool, client).values())
    candidates, members = pool.membership_candidates(client, torch.arange(9))
    assert set(candidates[~members].tolist()) == held_out | trained
    trained_by = pool.trained_by(candidates)
    assert set(candidates[trained_by < 0].tolist()) == held_out
    assert set(trained_by[members].tolist()) == {5}
    assert 5 not in trained_by[~members]
    of_all, members = pool.membership_candidates(client, torch.arange(9), of_all=True)
    assert set(of_all[~members].tolist()) == held_out


def test_the_first_images_of_others_are_candidates(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    population = populate(digits, TARGET, "single", 12, 0)
    pool = CandidatePool(population, tuple(population.clients))
    client = pool.names[0]
    trained = by_client(pool, client)["trained"]
    monkeypatch.setattr(candidates_module, "MAX_OTHER_IMAGES", 5 * len(trained) + 1)
    candidates, members = pool.membership_candidates(client, torch.arange(9))
    outside = set(candidates[~members].tolist())
    for name, places in trained.items():
        assert places & outside == set(pool._trained_by(name, torch.arange(5)).tolist())


def test_a_candidate_s_name_says_where_its_image_is(digits: Dataset) -> None:
    population = populate(digits, TARGET, "single", 12, 0)
    pool = CandidatePool(population, tuple(population.clients))
    for place in range(0, len(pool.images), 50):
        client, use, number = pool.image_name(place).split("/")
        data = population.data(client)
        images = {"train": data.images, "held_out": data.held_out_images}[use]
        assert torch.equal(pool.images[place], images[int(number)])
        assert int(pool.trained_by(torch.tensor([place]))) == (pool.names.index(client) if use == "train" else -1)


def test_order_and_index_reveal_no_member(digits: Dataset) -> None:
    population = populate(digits, TARGET, "single", 12, 0)
    pool = CandidatePool(population, tuple(population.clients))
    places, shares = [], []
    for client in pool.names:
        data = population.data(client)
        candidates, members = pool.membership_candidates(client, torch.arange(len(data)))
        assert torch.equal(candidates, candidates.sort().values)
        torch.testing.assert_close(pool.images[candidates[members]].sum(0), data.images[:MAX_MEMBERS].sum(0))
        places += (members.nonzero().flatten() / len(members)).tolist()
        shares += (candidates[members] / len(pool.images)).tolist()
    for found in (places, shares):  # uniform: members first would all lie below a third
        assert stats.kstest(found, "uniform").pvalue > 1e-4


@pytest.mark.slow
def test_cheap_artifacts_have_more_single_images(fitted: Fitted) -> None:
    def singles(kind: str, task: Task) -> set[int]:
        evaluator = fitted.default_evaluator()
        found: dict[str, int] = {}
        for one in evaluator.adversaries(evaluator.series(kind), threat("server"), (1,), task):
            for trial in one.trials:
                found[trial.client] = found.get(trial.client, 0) + 1
        return set(found.values())

    usual = ARTIFACTS_PER_CLIENT[1]
    assert singles(StyleStatistics.kind, DomainLabel()) == singles(ModelState.kind, Members()) == {usual}
    assert singles(StyleStatistics.kind, Members()) == {MANY_SINGLES * usual}


def test_the_true_image_is_anywhere_in_a_line_up(tiny: Dataset) -> None:
    """Two clients to a domain: the other's images, each time all of them, and each place as often."""
    population = populate(shortened(tiny, 20), TARGET, "single", 6, 0)
    names = tuple(population.clients)
    pool, client, rng = CandidatePool(population, names), names[0], torch.Generator().manual_seed(0)
    (near,) = [name for name in names[1:] if pool.domain[name] == pool.domain[client]]
    count = len(population.data(near)) + 1
    assert count < CANDIDATES
    places = []
    for _ in range(600):
        rows, positions = pool.line_ups(client, torch.tensor([1]), rng)
        assert len(set(rows[0].tolist())) == count
        assert torch.equal(pool.images[rows[0, positions[0]]], population.data(client).images[1])
        places.append(int(positions[0]))
    assert stats.chisquare(np.bincount(places, minlength=count)).pvalue > 1e-4


def test_a_lone_client_s_line_up_has_its_own_images(tiny: Dataset) -> None:
    population = populate(tiny, TARGET, "single", 3, 0)
    names = tuple(population.clients)
    pool, client, rng = CandidatePool(population, names), names[1], torch.Generator().manual_seed(0)
    own = population.data(client).images
    index = torch.tensor([2, 5])
    rows, positions = pool.line_ups(client, index, rng)
    for row, position, image in zip(rows, positions, index, strict=True):
        images = pool.images[row]
        assert torch.equal(images[position], own[image])
        others = torch.cat([images[:position], images[position + 1 :]])
        assert len(others) == len(own) - 2
        assert all(any(torch.equal(one, mine) for mine in own) for one in others)
    whole = torch.arange(len(own))
    (row, *_), (position, *_) = pool.line_ups(client, whole, rng)
    assert not any(torch.equal(one, mine) for one in pool.images[row[row != row[position]]] for mine in own)
