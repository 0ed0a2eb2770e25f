"""Defenses that reports suggest: each can be applied to the method, and protects an artifact that it shares."""

import pytest

from fdgpriv.defense import defended
from fdgpriv.evaluation.remedies import remedies
from fdgpriv.method import Method
from fdgpriv.registry import split
from fdgpriv.simulation.shared_model import GLOBAL_MODEL

SIZES = {f"client-{i}": 41 for i in range(30)}


@pytest.mark.parametrize("name", Method.names())
def test_suggested_defenses_apply(name: str) -> None:
    method = Method.named(name)()
    sharing, suggested = method.disclosure(), remedies(method, SIZES)
    assert suggested or not sharing.shares
    for remedy in suggested:
        _, defense = defended(method, remedy.defense)
        assert not set(remedy.hides) & set(sharing.individual)
        assert set(remedy.hides) | set(remedy.proves) <= {*sharing.uploads, GLOBAL_MODEL}
        assert (remedy.epsilon is not None) == bool(remedy.proves) == (defense.guarantee().epsilon is not None)
    names = [split(remedy.defense)[0] for remedy in suggested]
    assert len(set(names)) == len(names)


def test_no_defense_is_suggested_that_these_clients_cannot_use() -> None:
    method = Method.named("fedavg")()
    assert any(remedy.hides for remedy in remedies(method, SIZES))
    assert not any(remedy.hides for remedy in remedies(method, {"client-0": 41}))  # a sum of one hides nothing
