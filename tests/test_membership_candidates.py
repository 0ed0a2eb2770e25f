"""Which images are asked about beside an artifact's own, and how many artifacts of one image."""

import numpy as np
import torch
from conftest import TARGET, Fitted, shortened
from scipy import stats

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.candidates import CANDIDATES, MOST_MEMBERS, NON_MEMBERS, CandidatePool
from fdgpriv.evaluation.trial_layout import ARTIFACTS_PER_CLIENT, MANY_SINGLES
from fdgpriv.federation.partition import populate
from fdgpriv.tasks.domain_label import DomainLabel
from fdgpriv.tasks.membership import Members
from fdgpriv.tasks.task import Task
from fdgpriv.threat import threat


def test_beside_few_images_stand_few_others_of_all_who_held_some_out(digits: Dataset) -> None:
    population = populate(digits, TARGET, "single", 12, 0)
    pool = CandidatePool(population, tuple(population.clients))
    client = pool.names[0]
    every = pool.held_out(pool.domain[client])
    own = {c: set(pool._held_out_by(c).tolist()) for c in pool.names if pool.domain[c] == pool.domain[client]}
    assert len(every) > NON_MEMBERS >= len(own)
    seen = set()
    for number in range(4):
        candidates, members = pool.membership_candidates(client, torch.tensor([3 + number]), number)
        outside = candidates[~members]
        assert members.sum() == 1
        assert len(outside) == len(outside.unique()) == NON_MEMBERS
        assert set(outside.tolist()) <= set(every.tolist())
        counts = [len(some & set(outside.tolist())) * len(every) / len(some) for some in own.values()]
        assert max(counts) - min(counts) < 2 * len(every) / min(map(len, own.values()))  # as many of each, but for one
        seen |= set(outside.tolist())
    assert len(seen) > NON_MEMBERS  # other artifacts stand among others
    whole, members = pool.membership_candidates(client, torch.arange(9))
    assert torch.equal(whole[~members], every.sort().values)


def test_neither_the_order_nor_the_index_of_a_candidate_tells_whether_it_is_a_member(digits: Dataset) -> None:
    population = populate(digits, TARGET, "single", 12, 0)
    pool = CandidatePool(population, tuple(population.clients))
    places, shares = [], []
    for client in pool.names:
        data = population.data(client)
        candidates, members = pool.membership_candidates(client, torch.arange(len(data)))
        assert torch.equal(candidates, candidates.sort().values)
        torch.testing.assert_close(pool.images[candidates[members]].sum(0), data.images[:MOST_MEMBERS].sum(0))
        assert sorted(pool.held_out(pool.domain[client]).tolist()) == candidates[~members].tolist()
        places += (members.nonzero().flatten() / len(members)).tolist()
        shares += (candidates[members] / len(pool.images)).tolist()
    for found in (places, shares):  # uniform: members first would all lie below a third
        assert stats.kstest(found, "uniform").pvalue > 1e-4


def test_more_single_images_are_asked_about_where_that_is_cheap(fitted: Fitted) -> None:
    def singles(kind: str, task: Task) -> set[int]:
        evaluator = fitted.evaluator()
        found: dict[str, int] = {}
        for one in evaluator.adversaries(evaluator.target(kind), threat("server"), (1,), task):
            for trial in one.trials:
                found[trial.client] = found.get(trial.client, 0) + 1
        return set(found.values())

    usual = ARTIFACTS_PER_CLIENT[1]
    assert singles(StyleStatistics.kind, DomainLabel()) == singles(ModelState.kind, Members()) == {usual}
    assert singles(StyleStatistics.kind, Members()) == {MANY_SINGLES * usual}


def test_the_true_image_is_anywhere_in_a_line_up_that_has_all_others_where_they_are_few(tiny: Dataset) -> None:
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


def test_without_another_client_of_the_domain_others_of_its_own_images_stand_in_a_line_up(tiny: Dataset) -> None:
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
