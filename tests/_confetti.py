"""Tiny federations on images of coloured noise, which a tiny network learns by heart."""

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.defense import Defense
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import Population, populate
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.models.backbone import Backbone
from fdgpriv.threat import threat
from fdgpriv.utils.global_rng import drawing_from
from fdgpriv.utils.seeds import generator

CLASSES, SIDE, PATTERN, WIDTH = 4, 8, 0.2, 48


class Plain(nn.Sequential):
    """A convolution, with or without BatchNorm."""

    def __init__(self, norm: bool, rng: torch.Generator) -> None:
        with drawing_from(rng):
            layers = [nn.Conv2d(3, WIDTH, 5, 3, 1), nn.BatchNorm2d(WIDTH) if norm else nn.Identity(), nn.Tanh()]
        super().__init__(*layers)


def federation_of(clients: Sequence[str], norm: bool) -> Federation:
    def build(rng: torch.Generator) -> Backbone:
        return Backbone({"stem": Plain(norm, rng)}, {"stem": WIDTH}, (0.5,) * 3, (0.5,) * 3)

    return Federation(tuple(clients), CLASSES, SIDE, build, seed=0)


def confetti(count: int, domains: int, seed: int = 0) -> Dataset:
    """Noise with a little of its class's pattern: few images tell the classes apart, but each can be learned by heart."""
    rng = generator(seed)
    patterns = torch.rand(CLASSES, 3, SIDE, SIDE, generator=rng)
    made = []
    for d in range(domains):
        labels = torch.randint(CLASSES, (count,), generator=rng)
        noise = torch.rand(count, 3, SIDE, SIDE, generator=rng)
        made.append(Domain(f"domain-{d}", (1 - PATTERN) * noise + PATTERN * patterns[labels], labels))
    names = tuple(str(label) for label in range(CLASSES))
    return Dataset("confetti", names, tuple(made), "domain-0", "noise", "everything")


def method_of(**settings: Any) -> Method:
    given = {"rounds": 2, "local_epochs": 12, "batch_size": 8, "lr": 0.1, "participants": None, "schedule": "constant"}
    return Method.named("fedavg").configured(given | settings)


def trained(images: int, domains: int, clients: int, *, halved: bool = False, **settings: Any) -> Evaluator:
    population: Population = populate(confetti(images, domains), "domain-0", "single", clients, 0)
    if halved:
        population = with_half_held_out(population)
    federation = federation_of(list(population.clients), norm=True)
    method, none = method_of(**settings), Defense.named("none")()
    wire = Wire({name: len(data) for name, data in population.clients.items()}, none)
    LocalEngine(1).run(method, federation, population.clients, wire)
    return Evaluator(population, method, federation, none, wire.transcript, 0, {1: 1})


def with_half_held_out(population: Population) -> Population:
    """Each client trains on half of what it would, so that there are many who took no part."""
    clients, domain_of = dict(population.clients), dict(population.domain_of)
    for name, data in population.clients.items():
        half = len(data) // 2
        clients[name] = dataclasses.replace(
            data,
            pixels=data.images[:half],
            labels=data.labels[:half],
            held_out_pixels=torch.cat([data.images[half:], data.held_out_images]),
            held_out_labels=torch.cat([data.labels[half:], data.held_out_labels]),
        )
        domain_of[name] = domain_of[name][:half]
    return dataclasses.replace(population, clients=clients, domain_of=domain_of)


@cache
def sittings_of(evaluator: Evaluator, target: str, role: str, sizes: tuple[int | None, ...]) -> list[AdversaryTrials]:
    return evaluator.adversaries(evaluator.series(target), threat(role), sizes)


def attack_of(**settings: Any) -> Attack:
    return Attack.named("membership").configured(settings)
