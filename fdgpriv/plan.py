"""What a call of the audit asks for, checked before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fdgpriv import data
from fdgpriv.exam.questions import ALTERNATIVES, ARTIFACTS_PER_CLIENT
from fdgpriv.federation import Dataset, Federation, generator
from fdgpriv.models.backbone import BACKBONES, IMAGENET_MEAN, IMAGENET_STD, Backbone, backbone
from fdgpriv.partition import Population, partitioner, populate
from fdgpriv.roles import Attack, Defense, Method
from fdgpriv.setup import Federated, Setup
from fdgpriv.threat import THREATS, threat
from fdgpriv.transcript import KEEP

PRESETS = ("quick", "default", "paper")
SETUPS = {  # where neither the command line nor, with the preset paper, the method's paper says otherwise
    "quick": Setup(clients=6, partition="single", backbone="resnet18", image_size=32),
    "default": Setup(clients=15, partition="single", backbone="resnet18", image_size=32),
    "paper": Setup(clients=30, partition="single", backbone="resnet18", image_size=224),
}
LARGE = 64  # pixels; smaller images are trained on with the small network unless --backbone says otherwise
IMAGES = {"quick": 200}  # of each domain, at most


@dataclass(frozen=True)
class Plan:
    """A whole call of the audit.

    Attributes:
        methods, targets, seeds, defenses: One run for each combination; methods and defenses as written on the command
            line.
        attacks: Specifications of the attacks, as written; ("none",) trains without attacking.
        threats: Roles; empty for all that each attack can be played in.
        dataset, data_root, weights: What is trained on and with.
        clients, partition, backbone, image_size: Of every method's federation; None for the preset's, which with the
            preset ``paper`` are those of each method's paper.
        preset, settings: Of all methods.
        device: cpu or cuda.
        keep: The transcript's keep rule.
    """

    methods: tuple[str, ...] = ("stablefdg",)
    dataset: str = "digits"
    data_root: Path | None = None
    image_size: int | None = None
    targets: tuple[str, ...] = ()
    preset: str = "default"
    clients: int | None = None
    partition: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    attacks: tuple[str, ...] = ("all",)
    threats: tuple[str, ...] = ()
    defenses: tuple[str, ...] = ("none",)
    seeds: tuple[int, ...] = (0,)
    device: str = "auto"
    backbone: str | None = None
    weights: Path | None = None
    keep: str = "ends"

    def checked(self) -> "Plan":
        """This plan with "all" spelled out and every name, field and value checked; ValueError says what is wrong."""
        if self.preset not in PRESETS:
            raise ValueError(f"--preset: want one of {', '.join(PRESETS)}; got {self.preset!r}")
        if self.dataset not in data.names():
            raise ValueError(f"--dataset: want one of {', '.join(data.names())}; got {self.dataset!r}")
        if self.keep not in KEEP:
            raise ValueError(f"--keep: want one of {', '.join(KEEP)}; got {self.keep!r}")
        if self.partition is not None:
            partitioner(self.partition)
        for role in self.threats:
            threat(role)
        methods = Method.names() if self.methods == ("all",) else self.methods
        attacks = self._attacks()
        plan = replace(
            self,
            methods=methods,
            attacks=attacks,
            threats=self.threats or tuple(THREATS),
            device=_device(self.device),
        )
        if self.backbone is not None and self.backbone not in BACKBONES:
            raise ValueError(f"--backbone: want one of {', '.join(BACKBONES)}; got {self.backbone!r}")
        parts = [plan.method(spec) for spec in methods]
        for spec in attacks:
            plan.attack(spec)
        for spec in self.defenses:
            for part in parts:
                Defense.parse(spec).bound_to(part)
        for name, values in (
            ("--seed", self.seeds),
            ("--defense", self.defenses),
            ("--method", methods),
            ("--attack", attacks),
        ):
            if len({slug(str(value)) for value in values}) != len(values):  # each has files of its own
                raise ValueError(f"{name}: want each value once, got {' '.join(map(str, values))}")
        for i, part in enumerate(parts):
            if (same := parts.index(part)) < i:
                raise ValueError(
                    f"--method: want each method once, got {methods[same]} and {methods[i]}, which are alike"
                )
        if any(seed < 0 for seed in self.seeds):
            raise ValueError(f"--seed: want numbers of at least 0, got {' '.join(map(str, self.seeds))}")
        return plan

    def _attacks(self) -> tuple[str, ...]:
        if "none" not in self.attacks:
            return Attack.names() if self.attacks == ("all",) else self.attacks
        if self.attacks != ("none",):
            raise ValueError(f"--attack: want none alone, or attacks without it; got {' '.join(self.attacks)}")
        if self.threats:
            raise ValueError(f"--threat: want an attack to play, got --attack none and {' '.join(self.threats)}")
        return ()

    @property
    def artifacts_per_client(self) -> Mapping[int, int]:
        """By number of images behind an artifact, how many such artifacts of each client are examined."""
        return {1: 1} if self.preset == "quick" else ARTIFACTS_PER_CLIENT

    @property
    def alternatives(self) -> int:
        """How many artifacts stand in for each control."""
        return 1 if self.preset == "quick" else ALTERNATIVES

    def setup(self, spec: str, domains: int) -> Federated:
        """The federation in which the method that `spec` means is trained.

        Args:
            spec: The method, as written.
            domains: How many source domains there are.
        """
        said = Setup(clients=self.clients, partition=self.partition, backbone=self.backbone, image_size=self.image_size)
        papers = self.method(spec).paper_setup if self.preset == "paper" else Setup()
        found = said.over(papers).over(SETUPS[self.preset])
        clients = found.clients if found.clients_per_domain is None else found.clients_per_domain * domains
        size = data.DEFAULT_SIZE if self.dataset == "digits" else found.image_size
        assert clients is not None
        assert found.partition is not None
        assert found.backbone is not None
        assert size is not None
        network = found.backbone if self.backbone or size >= LARGE else "small_resnet"
        return Federated(clients, found.partition, network, size)

    def method(self, spec: str) -> Method:
        """The method that `spec` means; fields it does not name are the call's settings, or else the preset's."""
        part, named = Method.described(spec)
        given = {**part.presets[self.preset], **self.settings, **named}
        if self.weights is not None and self.weights.is_dir() and "codec_weights" in _fields(part):
            given.setdefault("codec_weights", self.weights)
        return part.configured(given)

    def attack(self, spec: str) -> Attack:
        """The attack that `spec` means; fields it does not name are the preset's."""
        part, named = Attack.described(spec)
        return part.configured({**part.presets.get(self.preset, {}), **named})

    def load(self) -> tuple[Dataset, "Plan"]:
        """The dataset, and this plan with its targets spelled out and checked against it."""
        size = self._image_size()
        dataset = data.load(self.dataset, root=self.data_root, image_size=None if self.dataset == "digits" else size)
        if self.preset in IMAGES:
            dataset = dataset.few(IMAGES[self.preset])
        targets = self.targets or (dataset.default_target,)
        targets = dataset.names if targets == ("all",) else targets
        for target in targets:
            dataset.domain(target)
        if len(set(targets)) != len(targets):
            raise ValueError(f"--target: want each domain once, got {' '.join(targets)}")
        return dataset, replace(self, targets=targets)

    def _image_size(self) -> int:
        """The one side that the images of all methods have; ValueError where their papers differ."""
        sizes = {spec: self.setup(spec, 1).image_size for spec in self.methods}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{spec} {size}" for spec, size in sizes.items())
            raise ValueError(
                f"--image-size: want one size for all methods, but their papers have {told} pixels; "
                "run these methods one at a time, or give --image-size"
            )
        return next(iter(sizes.values()))

    def populate(self, dataset: Dataset, spec: str, target: str, seed: int) -> Population:
        """The population that the method that `spec` means is trained on."""
        setup = self.setup(spec, len(dataset.domains) - 1)
        return populate(dataset, target, setup.partition, setup.clients, seed, attacked=bool(self.attacks))

    def rehearse(self, dataset: Dataset) -> None:
        """Deal every population and build every model once, so that what cannot be fails before anything is written."""
        for target in self.targets:
            for seed in self.seeds:
                for written in self.methods:
                    clients = self.populate(dataset, written, target, seed).clients
                    method = self.method(written)
                    federation = self.federation(dataset, list(clients), seed, written)
                    method.check(method.model(federation, generator(seed)))
                    for held in clients.values():
                        method.check_data(held)
                    for spec in self.defenses:
                        Defense.parse(spec).bound_to(method)

    def federation(self, dataset: Dataset, clients: Sequence[str], seed: int, spec: str | None = None) -> Federation:
        """What everybody may know of the federation of these clients that trains `spec`, or else the first method."""
        size = dataset.domains[0].images.shape[-1]
        photographs = self.dataset != "digits"
        mean, std = (IMAGENET_MEAN, IMAGENET_STD) if photographs else ((0.5,) * 3, (0.5,) * 3)
        name, weights = self.setup(spec or self.methods[0], len(dataset.domains) - 1).backbone, self.weights
        if weights is None and self.preset == "paper" and name != "small_resnet":
            weights = Path()  # the paper starts from ImageNet weights: look where torch keeps them

        def build(rng: torch.Generator) -> Backbone:
            return backbone(name, mean=mean, std=std, rng=rng, weights=weights, small_input=size < LARGE)

        return Federation(
            clients=tuple(clients),
            classes=len(dataset.classes),
            image_size=size,
            backbone=build,
            seed=seed,
            device=torch.device(self.device),
        )

    def as_config(self, domains: int) -> dict[str, Any]:
        """What results.json says of this plan with so many source domains: words and numbers only, no folder of ours."""
        return {
            "methods": list(self.methods),
            "dataset": self.dataset,
            "targets": list(self.targets),
            "preset": self.preset,
            "setup": {spec: self.setup(spec, domains).as_config() for spec in self.methods},
            "settings": dict(self.settings),
            "attacks": list(self.attacks),
            "threats": list(self.threats),
            "defenses": list(self.defenses),
            "seeds": list(self.seeds),
            "device": self.device,
            "keep": self.keep,
        }


def slug(text: str) -> str:
    """`text` as part of a file's name."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in text)


def _fields(part: type[Any]) -> set[str]:
    return {f.name for f in fields(part)} if is_dataclass(part) else set()


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise ValueError(f"--device: want auto, cpu or cuda; got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device: want cuda, got a machine on which torch finds none; use --device cpu")
    return name
