"""Which images are asked about beside an artifact's own, and how many artifacts of one image."""

import torch
from conftest import TARGET, Fitted

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.dataset import Dataset
from fdgpriv.evaluation.candidates import NON_MEMBERS, CandidatePool
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
    assert torch.equal(whole[~members], every)


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
