"""Builds what an audit will train and compare with, so that invalid settings fail before anything is written."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch

from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import defended
from fdgpriv.federation.unfederated import participants_of
from fdgpriv.federation.weights import Weights
from fdgpriv.models.architecture import RANDOM
from fdgpriv.models.backbone import Backbone
from fdgpriv.results.baseline import TrainingKey, unmatched
from fdgpriv.utils.global_rng import global_draws
from fdgpriv.utils.seeds import generator


def dry_run(config: AuditConfig, dataset: Dataset) -> list[str]:
    """Builds every partition, model and metric's network once; what the user should know before the training, in lines.

    Raises:
        ValueError: One cannot be built, or an option has no effect.
    """
    for attack in config.attacks:
        config.attack(attack).check(dataset.image_size)
    weights: dict[str, dict[TrainingKey, Weights | None]] = {spec: {} for spec in config.methods}
    built = _built(config, dataset, weights)
    if not built and config.backbone is not None:
        raise ValueError(f"--backbone: has no effect on the networks of {', '.join(config.methods)}; leave it out")
    compared = _compared_by_users_networks(config, dataset)
    loaded = any(config.network(spec, dataset.n_sources)[1] != RANDOM for spec in config.methods)
    if config.weights is not None and not (loaded or compared or any(map(config.transfers_styles, config.methods))):
        raise ValueError(f"--weights: has no effect on the networks of {', '.join(config.methods)}; leave it out")
    return [line for line in (unmatched(spec, weights) for spec in config.methods) if line]


def _built(config: AuditConfig, dataset: Dataset, weights: Mapping[str, dict[TrainingKey, Weights | None]]) -> bool:
    """Whether any method trains a backbone, after all were built and all settings checked; fills in the `weights`."""
    built = set[str]()

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
                clients = population.clients
                if config.units_per_domain is not None and any(
                    len(d.unique()) > 1 for d in population.domain_of.values()
                ):
                    raise ValueError("--units-per-domain: has no effect: clients hold images of several domains")
                method = config.method(spec)
                weights[spec][seed, target] = population.weights(method.disclosure().weights)
                federation = config.federation(dataset, list(clients), seed, spec)
                name = config.setup(spec, dataset.n_sources).backbone
                federation = replace(federation, backbone=partial(recorded, name, federation.backbone))
                method.check(method.model(federation, generator(seed)))
                trained_on = participants_of(method, clients)
                for client_data in trained_on.values():
                    method.check_data(client_data)
                for defense in config.defenses:
                    protected_method, protecting = defended(method, defense, config.inject_bug)
                    protecting.check_sizes({name: len(client_data) for name, client_data in trained_on.items()})
                    trained = protected_method.model(federation, generator(seed))
                    protected_method.check(trained)
                    for client_data in trained_on.values():
                        protected_method.check_data(client_data)
                    protecting.check_model(trained)
    return bool(built)


def check_image_size(name: str, network: Backbone, image_size: int) -> None:
    """Raises ValueError if the backbone `name` has no features of images of this side: two go through a copy of it.

    With numbers: the modules that compute shapes alone take longer to import than the copy takes.
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
    """Whether images that attacks draw are compared by networks from the user's files, after all of these were checked."""
    if not any(config.attack(spec).task.draws_images for spec in config.attacks):
        return False
    networks = [network for spec in config.methods for network in config.metric_networks(spec, dataset.n_sources)]
    for network in networks:
        network.check(dataset.image_size)
    return any(network.of_user for network in networks)
