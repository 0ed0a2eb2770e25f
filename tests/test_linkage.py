"""Linkage: artifacts of two rounds are matched by what is their client's own in them."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Evaluator, Fitted, fit

from fdgpriv.exam.examination import Examination
from fdgpriv.exam.marks import Marks
from fdgpriv.exam.paper import Paper
from fdgpriv.federation import Dataset
from fdgpriv.roles import Attack
from fdgpriv.threat import threat

linkage: Any = import_module("fdgpriv.attacks.linkage")


def test_clients_are_linked_though_the_model_moved_and_scaled_everything(rng: torch.Generator) -> None:
    own = torch.randn(12, 30, generator=rng)
    now = 5 + 3 * (own + 0.3 * torch.randn(12, 30, generator=rng))
    found = linkage.likeness(now, own)
    assert found.argmax(1).tolist() == list(range(12))
    assert float(found.abs().max()) <= 1 + 1e-5


def test_unrelated_rounds_link_nobody(rng: torch.Generator) -> None:
    now, before = torch.randn(2, 200, 30, generator=rng)
    hits = linkage.likeness(now, before).argmax(1) == torch.arange(200)
    assert float(hits.float().mean()) < 0.05


def test_who_cannot_be_told_apart_is_not_found() -> None:
    assert linkage._rank(torch.zeros(5), 2) == 2


def examined(evaluator: Evaluator, out: Path) -> Paper:
    part = Attack.named("linkage")()
    return Examination(evaluator, "linkage", part, "style_statistics", threat("server"), True, out, "c").paper()[0]


def mean(marks: Marks, name: str) -> float:
    return float(np.mean(marks.headline[name]))


def test_a_style_is_linked_to_its_client_s_style_of_the_first_round(fitted: Fitted, tmp_path: Path) -> None:
    evaluator = fitted.proctor()
    subject = evaluator.subject("style_statistics")
    assert {artifact.round for artifact in subject.earlier.values()} == {0}
    assert {artifact.round for artifact in subject.wire.values()} == {1}
    paper = examined(evaluator, tmp_path)
    marks = paper.marks[None]
    assert set(marks.clients) == set(subject.earlier)  # no shadow: they shared nothing before
    assert paper.chance == 1 / len(subject.earlier)
    assert mean(marks, "attack") > 0.4
    for name in ("noise", "mean_image", "random_style", "other_client", "other_domain"):
        assert mean(marks, name) < mean(marks, "attack") - 0.2
    assert paper.undefended is not None
    assert paper.positive() == ("1", paper.undefended)


def test_a_style_that_crossed_once_is_linked_to_nothing(tiny: Dataset, tmp_path: Path) -> None:
    once = fit(tiny, clients=6)
    paper = examined(once.proctor(), tmp_path)
    assert paper.not_applicable == "no style statistics of the same clients crossed in two rounds that are kept"


@pytest.mark.parametrize("role", ["client", "third_party"])
def test_only_who_saw_all_rounds_links_them(fitted: Fitted, role: str) -> None:
    evaluator = fitted.proctor()
    subject = evaluator.subject("style_statistics")
    sitting, *_ = evaluator.sittings(subject, threat(role), (None,), reconstruction=False)
    with pytest.raises(PermissionError, match="sees_all_rounds"):
        assert sitting.view.earlier
