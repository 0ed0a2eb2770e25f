"""The style that PARDON's server makes of all, as it is attacked: whose it is, what stands in its place, what it tells."""

from statistics import fmean

import pytest
import torch
from conftest import Fitted, fit
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam.marks import Marks, examine
from fdgpriv.exam.proctor import Proctor
from fdgpriv.federation import Dataset, generator
from fdgpriv.kinds import InterpolationStyle
from fdgpriv.roles import Attack
from fdgpriv.subjects import Holding
from fdgpriv.threat import THREATS, threat

NAME = InterpolationStyle.kind


@pytest.fixture(scope="module")
def pardon(tiny: Dataset) -> Proctor:
    return fit(tiny, clients=6, method="pardon").proctor()


def marks_of(proctor: Proctor, spec: str, role: str) -> dict[int | None, Marks]:
    attack = Attack.parse(spec)
    draws = attack.family == "reconstruction"
    sittings = proctor.sittings(proctor.subject(NAME), threat(role), (1, None), reconstruction=draws)
    return examine(attack, sittings, (), generator(4))[0]


def test_it_is_what_every_client_was_sent(pardon: Proctor) -> None:
    subject = pardon.subject(NAME)
    assert (subject.level, subject.called, subject.alone) == ("group", NAME, True)
    assert {pardon.population.main_domain(name) for name in subject.receiver} == set(range(3))
    sent = [style for _, style in pardon.transcript.of_kind(NAME) if isinstance(style, InterpolationStyle)]
    for artifact in subject.wire.values():
        assert torch.equal(artifact.tensors()["mean"], sent[-1].mean)
        assert torch.equal(artifact.tensors()["std"], sent[-1].std)
    assert all(subject.refused(who) is None for who in THREATS.values())


def test_of_few_images_it_is_what_clients_that_hold_them_would_have_been_sent(pardon: Proctor) -> None:
    subject, styles = pardon.subject(NAME), pardon.subject(StyleStatistics.kind).craft
    data = next(iter(pardon.population.clients.values()))
    held, size = Holding(data.images, data.labels), subject.craft.typical  # type: ignore[attr-defined]
    index = torch.arange(min(len(data), size + 3))
    for some in (index[:1], index):
        made = subject.craft.make(held, some, generator(1))
        clients = [styles.make(held, part, generator(1)) for part in some.split(size)]
        blended = pardon.method.interpolation(clients)  # type: ignore[attr-defined]
        assert torch.equal(made.tensors()["mean"], blended.mean)
        assert torch.equal(made.tensors()["std"], blended.std)


def test_in_the_place_of_another_client_stand_strangers(pardon: Proctor) -> None:
    """The artifact is one for all, so that its controls are images that nobody trained on: in pictures and line-ups too."""
    population = pardon.population
    (sitting,) = pardon.sittings(pardon.subject(NAME), threat("server"), (None,), reconstruction=True)
    out = torch.cat([data.held_out_images for data in population.clients.values()])
    for item in sitting.items:
        (own,) = item.asked["attack"]
        assert "random_style" not in item.asked  # it would be drawn around the very style
        for name in ("other_client", "other_domain"):
            for ask in item.asked[name]:
                assert torch.equal(ask.question.artifact.tensors()["mean"], own.question.artifact.tensors()["mean"])
                assert all(_among(image, out) for image in ask.truth.images)
                named = ask.truth.candidates[torch.arange(len(ask.truth.positions)), ask.truth.positions]
                assert all(_among(image, out) for image in ask.truth.pool[named])
                assert torch.equal(ask.question.candidates, ask.truth.candidates)
        assert all(_among(image, population.data(item.client).images) for image in own.truth.images)


def _among(image: Tensor, images: Tensor) -> bool:
    return bool((images == image).flatten(1).all(1).any())


@pytest.mark.parametrize(
    ("spec", "least"), [("style_membership:practice=30", 0.95), ("identification:practice=20", 0.9)]
)
def test_one_image_is_found_and_of_all_no_more_than_of_strangers(pardon: Proctor, spec: str, least: float) -> None:
    marks = marks_of(pardon, spec, "server")
    assert fmean(marks[1].headline["attack"]) > least
    whole = marks[None].headline
    assert abs(fmean(whole["attack"]) - fmean(whole["other_client"])) < 0.25


@pytest.mark.parametrize("role", ["client", "third_party"])
@pytest.mark.parametrize("spec", ["gan:steps=1", "style_inversion:steps=1"])
def test_what_is_drawn_of_it_is_no_nearer_to_who_took_part_than_to_strangers(
    pardon: Proctor, spec: str, role: str
) -> None:
    whole = marks_of(pardon, spec, role)[None].headline
    lead = [a - b for a, b in zip(whole["attack"], whole["other_client"], strict=True)]
    assert abs(fmean(lead)) < 2  # decibels


def test_a_method_without_such_a_style_has_no_such_subject(fitted: Fitted) -> None:
    assert NAME not in fitted.proctor().subjects
