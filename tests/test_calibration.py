"""Calibration: the images that each adversary holds back, and the simulated artifacts that it makes of them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha1
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import TARGET, Evaluator, Fitted
from torch import Tensor

from fdgpriv.adversary import LOOKS
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.evaluation.auxiliary import AuxiliaryData
from fdgpriv.evaluation.calibration import Calibration, CalibrationLayout
from fdgpriv.evaluation.trial import AdversaryTrials, TrialNeeds
from fdgpriv.threat import THREATS, Auxiliary, threat

EACH_ROLE = pytest.mark.parametrize("role", THREATS)
SHIFTED = {"server": False, "client": True, "third_party": True, "insider": False}


@pytest.fixture(scope="module")
def by_role(evaluator: Evaluator) -> Mapping[str, list[AdversaryTrials]]:
    return {role: evaluator.style_adversaries(threat(role), (1, None)) for role in THREATS}


@cache
def named(images: Tensor) -> tuple[str, ...]:
    """One name for each image, the same for equal images."""
    return tuple(sha1(image.contiguous().numpy().tobytes()).hexdigest() for image in images)


def keys(images: Tensor, index: Tensor | None = None) -> set[str]:
    """The names of these images, or of those at these places."""
    every = named(images)
    return set(every if index is None else (every[i] for i in index.flatten().tolist()))


# The adversary's images


@pytest.mark.parametrize("kind", [Auxiliary.SAME_DOMAINS, Auxiliary.OWN_DOMAIN, Auxiliary.OTHER_DOMAIN])
def test_public_images_are_split_for_calibration(fitted: Fitted, kind: Auxiliary) -> None:
    population = fitted.population
    held, holder = AuxiliaryData(population, 3), population.sources[1]
    practice, back = held.simulation_images(kind, holder, {}), held.held_back(kind, holder)
    whole = {
        Auxiliary.SAME_DOMAINS: list(population.auxiliary.values()),
        Auxiliary.OWN_DOMAIN: [population.auxiliary[holder]],
        Auxiliary.OTHER_DOMAIN: [population.target],
    }[kind]
    assert [d.name for d in practice] == [d.name for d in back] == [d.name for d in whole]
    for own, kept, every in zip(practice, back, whole, strict=True):
        assert len(own) > len(population.dataset.classes)
        assert len(own) + len(kept) == len(every)
        assert keys(own.images) | keys(kept.images) == keys(every.images)
        assert len(keys(every.images)) == len(every)  # so that the two parts are disjoint
    again = held.simulation_images(kind, holder, {}), held.held_back(kind, holder)
    assert all(a.images is b.images for a, b in zip((*practice, *back), (*again[0], *again[1]), strict=True))
    assert (whole[0].name == TARGET) is (kind is Auxiliary.OTHER_DOMAIN)


@pytest.mark.parametrize(("public", "kept"), [(11, 0), (12, 1), (13, 2), (16, 4), (40, 10)])
def test_more_images_than_classes_are_for_practice(fitted: Fitted, public: int, kept: int) -> None:
    few = {name: domain.take(torch.arange(public)) for name, domain in fitted.population.auxiliary.items()}
    held = AuxiliaryData(replace(fitted.population, auxiliary=few), 0)
    assert [len(domain) for domain in held.held_back(Auxiliary.SAME_DOMAINS, "")] == [kept] * 3
    assert [len(domain) for domain in held.simulation_images(Auxiliary.SAME_DOMAINS, "", {})] == [public - kept] * 3


def test_leaked_images_are_never_held_back(fitted: Fitted) -> None:
    population, held = fitted.population, AuxiliaryData(fitted.population, 0)
    leaked = {name: torch.tensor([0, 2]) for name in population.clients}
    for d, domain in enumerate(held.simulation_images(Auxiliary.LEAKED, "", leaked)):
        own = [data.images[:3:2] for name, data in population.clients.items() if population.main_domain(name) == d]
        public = held.simulation_images(Auxiliary.SAME_DOMAINS, "", {})[d].images
        assert torch.equal(domain.images, torch.cat([public, *own]))
    pairs = zip(held.held_back(Auxiliary.LEAKED, ""), held.held_back(Auxiliary.SAME_DOMAINS, ""), strict=True)
    assert all(a.images is b.images for a, b in pairs)
    assert held.held_back(Auxiliary.NONE, "") == held.simulation_images(Auxiliary.NONE, "", {}) == ()


# Simulated artifacts


@EACH_ROLE
def test_calibration_is_on_held_back_images(
    by_role: Mapping[str, list[AdversaryTrials]], evaluator: Evaluator, role: str
) -> None:
    clients = evaluator.population.clients.values()
    private = set().union(*(keys(data.images) | keys(data.held_out_images) for data in clients))
    for one in by_role[role]:
        assert one.shifted is SHIFTED[role] is (len(one.adversary.held_back) == 1)
        assert len({trial.client for trial in one.calibration}) == 12
        assert [trial.size for trial in one.calibration].count(1) == 72
        held_back = set().union(*(keys(domain.images) for domain in one.adversary.held_back))
        for trial in one.calibration:
            known = trial.scored.truth
            assert trial.client not in evaluator.population.clients
            assert (
                known.count == trial.scored.observation.n_images == (one.adversary.typical if trial.size is None else 1)
            )
            shown = keys(known.images) | keys(known.pool, known.candidates)
            assert not shown & private
            assert one.shifted or shown <= held_back
            assert not one.shifted or not shown & held_back


@EACH_ROLE
def test_candidates_of_simulated_clients_are_theirs(by_role: Mapping[str, list[AdversaryTrials]], role: str) -> None:
    for one in by_role[role]:
        for trial in one.calibration:
            seen, known = trial.scored.observation, trial.scored.truth
            assert torch.equal(seen.candidates, known.candidates)
            assert torch.equal(seen.membership_candidates, known.membership_candidates)
            assert one.adversary.candidates is known.pool
            for row, position in enumerate(known.positions.tolist()):
                assert torch.equal(known.pool[seen.candidates[row, position]], known.images[row])
            candidates = known.pool[seen.membership_candidates]
            members, others = candidates[known.members], candidates[~known.members]
            inside, true = ({image.numpy().tobytes() for image in some} for some in (members, known.images))
            assert inside >= true or inside <= true
            assert len(others) > 0
            own = seen.membership_candidates
            assert not keys(known.pool, own[known.members]) & keys(known.pool, own[~known.members])


def test_nothing_is_simulated_if_all_clients_count(evaluator: Evaluator) -> None:
    held: Any = [(0, evaluator.population.auxiliary[evaluator.population.sources[0]])]
    layout = CalibrationLayout(evaluator.population, Any, evaluator._cached_simulator, TrialNeeds(), 20, 0)  # type: ignore[arg-type]

    def found(target: Any, held_back: Any = held) -> Calibration:
        return replace(layout, series=target).calibration(held_back, (1, None), torch.empty(0, 3, 32, 32), "a", False)

    target = evaluator.series(StyleStatistics.kind)
    empty = held[0][1].take(torch.arange(0))
    for none in (
        found(SimpleNamespace(is_global=True, needs_all_clients=False, expensive=True, kept=False)),
        found(SimpleNamespace(is_global=False, needs_all_clients=True, kept=False)),
        found(SimpleNamespace(is_global=False, needs_all_clients=False, kept=True)),
        found(target, []),
        found(target, [(0, empty)]),
    ):
        assert none.trials == ()
        assert none.pool is None
    assert len(found(target).trials) == 12 * 7


def test_simulated_clients_are_made_once(fitted: Fitted) -> None:
    """So that what is computed of their images is computed once."""
    evaluator = fitted.evaluator()
    target, known = evaluator.series(StyleStatistics.kind), threat("third_party")
    first, second = (
        {one.client: one.scored.truth.source for one in evaluator.adversaries(target, known, sizes)[0].calibration}
        for sizes in ((1, None), (None,))
    )
    assert first.keys() == second.keys()
    assert all(first[client] is second[client] for client in first)
    assert len(set(map(id, first.values()))) == len(first)


@pytest.mark.slow
def test_other_looks_are_made_once(fitted: Fitted) -> None:
    """As many as are asked for, of so many images each, the same for every attack; nothing for who has the domains."""
    evaluator = fitted.evaluator()
    target = evaluator.series(StyleStatistics.kind)
    for role in ("client", "third_party"):
        (first, second) = (evaluator.adversaries(target, threat(role), sizes)[0].adversary for sizes in ((1,), (None,)))
        more = first.with_looks(5, 4)
        assert len(first.practice) == len(first.domains) + LOOKS[0]
        assert [len(domain) for domain in more.practice[len(first.domains) :]] == [4] * 5
        assert more.practice[0].images is first.domains[0].images
        assert more.cache is not first.cache
        assert more.cache is first.with_looks(5, 4).cache
        again = second.with_looks(5, 4).practice
        assert all(a.images is b.images for a, b in zip(more.practice, again, strict=True))
    server = evaluator.adversaries(target, threat("server"), (1,))[0].adversary
    assert server.with_looks(5, 4) is server
    assert server.practice == server.domains
