"""Builds all partitions, models and metric networks of an audit, so that invalid settings fail before anything is written."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch

from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.defense import defended
from fdgpriv.evaluation.simulation_fit import few_public_images_note
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.unfederated import participants_of
from fdgpriv.federation.weights import Weights
from fdgpriv.models.architecture import RANDOM
from fdgpriv.models.backbone import Backbone
from fdgpriv.results.baseline import TrainingKey, unmatched
from fdgpriv.utils.global_rng import global_draws
from fdgpriv.utils.seeds import generator


def dry_run(config: AuditConfig, dataset: Dataset) -> list[str]:
    """Builds every partition, model and metric network once; returns lines that the user should read before the training.

    Raises:
        ValueError: One cannot be built, or an option has no effect.
    """
    for attack in config.attacks:
        config.attack(attack).check(dataset.image_size)
    weights: dict[str, dict[TrainingKey, Weights | None]] = {spec: {} for spec in config.methods}
    notes: dict[str, None] = {}  # in order
    built = _built(config, dataset, weights, notes)
    if not built and config.backbone is not None:
        raise ValueError(f"--backbone: has no effect on the networks of {', '.join(config.methods)}; leave it out")
    compared = _compared_by_users_networks(config, dataset)
    loaded = any(config.network(spec, dataset.n_sources)[1] != RANDOM for spec in config.methods)
    if config.weights is not None and not (loaded or compared or any(map(config.transfers_styles, config.methods))):
        raise ValueError(f"--weights: has no effect on the networks of {', '.join(config.methods)}; leave it out")
    return [*notes, *(line for line in (unmatched(spec, weights) for spec in config.methods) if line)]


def _built(
    config: AuditConfig,
    dataset: Dataset,
    weights: Mapping[str, dict[TrainingKey, Weights | None]],
    notes: dict[str, None],
) -> bool:
    """Builds and checks all methods under all defenses; returns whether any trains a backbone.

    Fills in `weights`, and `notes` with sentences on what the images do not suffice for.
    """
    built, attacks = set[str](), [config.attack(spec) for spec in config.attacks]

    def recorded(name: str, build: Callable[[torch.Generator], Backbone], rng: torch.Generator) -> Backbone:
        network = build(rng)
        if name not in built:
            check_image_size(name, network, dataset.image_size)
            built.add(name)
        return network

    for target in config.targets:
        for seed in config.seeds:
            for spec in config.methods:
                population = config.populate(dataset, spec, target, seed)
                several_domains = any(len(domains.unique()) > 1 for domains in population.domain_of.values())
                if config.units_per_domain is not None and several_domains:
                    raise ValueError("--units-per-domain: has no effect: clients hold images of several domains")
                weights[spec][seed, target] = population.weights(config.method(spec).disclosure().weights)
                if note := few_public_images_note(population, attacks):
                    notes[f"warning: {note}"] = None
                federation = config.federation(dataset, list(population.clients), seed, spec)
                name = config.setup(spec, dataset.n_sources).backbone
                federation = replace(federation, backbone=partial(recorded, name, federation.backbone))
                _check_method(config, spec, federation, population.clients, seed)
    return bool(built)


def _check_method(
    config: AuditConfig, spec: str, federation: Federation, clients: Mapping[str, ClientData], seed: int
) -> None:
    """Builds the model of a method under each defense; ValueError if a setting fits neither the model nor the data."""
    method = config.method(spec)
    data = participants_of(method, clients)
    method.check(method.model(federation, generator(seed)))
    for client_data in data.values():
        method.check_data(client_data)
    for defense_spec in config.defenses:
        defended_method, defense = defended(method, defense_spec, config.inject_bug)
        defense.check_sizes({name: len(client_data) for name, client_data in data.items()})
        model = defended_method.model(federation, generator(seed))
        defended_method.check(model)
        for client_data in data.values():
            defended_method.check_data(client_data)
        defense.check_model(model)


def check_image_size(name: str, network: Backbone, image_size: int) -> None:
    """Raises ValueError if the backbone `name` cannot be computed on images of this side, by passing two images.

    A pass with numbers is faster than importing the modules that compute only shapes.
    """
    images = torch.zeros(2, 3, image_size, image_size)
    try:
        with torch.no_grad(), global_draws():
            features = deepcopy(network).to(images.device).train()(images)
        reason = "" if min(features.shape) > 0 else f"features {tuple(features.shape[1:])}"
    except RuntimeError as error:
        reason = (str(error).splitlines() or ["no features"])[0]
    if reason:
        raise ValueError(
            f"--backbone: {name} cannot be computed on images of {image_size} x {image_size} pixels ({reason}); "
            "want a larger --image-size or another --backbone"
        )


def _compared_by_users_networks(config: AuditConfig, dataset: Dataset) -> bool:
    """Checks all metric networks; returns whether reconstructions are compared by networks from the user's files."""
    if not any(config.attack(spec).task.draws_images for spec in config.attacks):
        return False
    networks = [network for spec in config.methods for network in config.metric_networks(spec, dataset.n_sources)]
    for network in networks:
        network.check(dataset.image_size)
    return any(network.of_user for network in networks)
