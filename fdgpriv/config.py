"""The validated configuration of an audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fdgpriv import data
from fdgpriv.attack import Attack
from fdgpriv.cli.options import ALL, SETUPS, Options
from fdgpriv.cli.options import PRESETS as PRESETS
from fdgpriv.data.dataset import Dataset
from fdgpriv.data.repeats import target_among_sources
from fdgpriv.defense import Defense, defended
from fdgpriv.evaluation.attack_evaluation import attack_scores
from fdgpriv.evaluation.trial_layout import ALTERNATIVES, ARTIFACTS_PER_CLIENT, THOROUGH_SINGLES
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.held_out import SHARE
from fdgpriv.federation.partition import Population, populate
from fdgpriv.federation.reserve import MIN_UNITS, UNITS_PER_DOMAIN
from fdgpriv.federation.setup import FLOWER, GIVEN, Federated, Setup
from fdgpriv.method import Method
from fdgpriv.metrics.networks import SHIPPED, MetricNetworks
from fdgpriv.models.adain_vgg import has_adain_vgg
from fdgpriv.models.architecture import RANDOM
from fdgpriv.models.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone, backbone, origin
from fdgpriv.models.names import TIMM
from fdgpriv.registry import JOIN, split
from fdgpriv.threat import THREATS, threat
from fdgpriv.utils.code_digest import class_digest
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.environment import versions
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.fields import kinds
from fdgpriv.utils.run_folder import Basis

LARGE = 64  # pixels; smaller images use small_resnet unless --backbone is given, and stems without downsampling
LARGE_LR = 0.05  # of training from scratch
_FROZEN_AT_RANDOM = "BatchNorm frozen at random initialisation hardly trains; want pre-trained weights (--backbone)"
IMAGES = {"quick": 200}  # maximum number of images of each domain, by preset


@dataclass(frozen=True)
class AuditConfig(Options):
    """Options with imported parts, consistency checks and derived settings.

    Attributes:
        unusable: By role and name, the reason why a part that "all" includes cannot be used.
    """

    unusable: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def checked(self) -> "AuditConfig":
        """This configuration with "all" expanded; ValueError if a name, field or value is invalid."""
        self.check()
        methods = {name: attempt(partial(self.method, name)) for name in self.method_specs if self.methods == ALL}
        attacks = {name: attempt(partial(self._usable, name)) for name in self.attack_specs if self.attacks == ALL}
        outcomes: dict[tuple[str, str], object] = {("method", name): part for name, part in methods.items()}
        outcomes |= {("attack", name): part for name, part in attacks.items()}
        config = replace(
            self,
            methods=tuple(spec for spec in self.method_specs if not isinstance(methods.get(spec), Failed)),
            attacks=tuple(spec for spec in self.attack_specs if not isinstance(attacks.get(spec), Failed)),
            threats=self.threats or tuple(THREATS),
            device=_device(self.device),
            unusable={name: part.line for name, part in outcomes.items() if isinstance(part, Failed)},
        )
        parts = [config.method(spec) for spec in config.methods]
        for part in parts:
            if self.engine == "flower" and not part.federated:
                raise ValueError(
                    f"--engine: {part.name()} is no federation of clients, and runs with --engine local only"
                )
        roles = {spec: config._usable(spec).threats for spec in config.attacks}
        config._check_defenses(parts)
        config._check_distinct(parts)
        config._check_distinct_defenses()
        if self.attacks != ALL:
            if config.attacks and not any(part.disclosure().shares for part in parts):
                names = " and ".join(config.methods)
                raise ValueError(f"--attack: {names} shares nothing that an attack could read; want --attack none")
            for spec in config.attacks:
                config._check_reads(spec, parts)
        self._check_roles(roles)
        return config

    def _check_defenses(self, methods: Sequence[Method]) -> None:
        """Raises ValueError if a defense does not apply to a method, or `inject_bug` changes none of them."""
        bug_has_effect = False
        for spec in self.defenses:
            for method in methods:
                _, defense = defended(method, spec)
                _, buggy = defended(method, spec, self.inject_bug)
                bug_has_effect |= defense.guarantee().epsilon is not None and buggy != defense
        if self.inject_bug is not None and not bug_has_effect:
            raise ValueError(
                f"--inject-bug: has no effect: none of {', '.join(self.defenses)} adds noise to what "
                f"{', '.join(self.methods)} shares"
            )

    def _check_distinct(self, methods: Sequence[Method]) -> None:
        """Raises ValueError if two methods are equal."""
        for i, method in enumerate(methods):
            if (first := methods.index(method)) < i:
                raise ValueError(
                    f"--method: want each method once, got {self.methods[first]} and {self.methods[i]}, which are equal"
                )

    def _check_distinct_defenses(self) -> None:
        """Raises ValueError if two defenses are equal, such as one with its default and one without settings."""
        defenses = [Defense.parse(spec) for spec in self.defenses]
        for i, defense in enumerate(defenses):
            if (first := defenses.index(defense)) < i:
                raise ValueError(
                    f"--defense: want each defense once, got {self.defenses[first]} and {self.defenses[i]}, which are equal"
                )

    def _check_roles(self, roles: Mapping[str, Sequence[str]]) -> None:
        """Raises ValueError if a threat is no role of any attack, or a named attack has no role among the threats.

        Args:
            roles: By attack, its roles.
        """
        for role in self.threats:
            if not any(role in attack_roles for attack_roles in roles.values()):
                raise ValueError(f"--threat: want a role of one of the attacks, got {role}")
        for spec, attack_roles in roles.items():
            if self.attacks != ALL and not set(attack_roles) & set(self.threats or THREATS):
                raise ValueError(
                    f"--attack: {spec} has the roles {', '.join(attack_roles)}; got --threat {' '.join(self.threats)}"
                )

    def _check_reads(self, spec: str, methods: Sequence[Method]) -> None:
        """Raises ValueError if the attack `spec` reads nothing that any of the methods shares."""
        sharing = [method.disclosure() for method in methods]

        def applies(kinds: Sequence[str]) -> bool:
            return any(disclosed.may_share(kind) for disclosed in sharing for kind in kinds)

        reads = self.attack(spec).kinds()
        if not applies(reads):
            names = ", ".join(name for name, attack in Attack.importable().items() if applies(attack.kinds()))
            kinds, shared = (
                " or ".join(reads),
                dict.fromkeys(kind for disclosed in sharing for kind in disclosed.uploads),
            )
            raise ValueError(
                f"--attack: {spec} reads {kinds}, which {' and '.join(self.method_specs)} does not share, but "
                f"{', '.join(shared)}; want attacks that read these: {names}"
            )

    @property
    def photographs(self) -> bool:
        """Whether the images are photographs: any dataset other than the digits."""
        return self.dataset != "digits"

    @property
    def artifacts_per_client(self) -> Mapping[int, int]:
        """Artifacts evaluated per client, by number of images per artifact."""
        if self.preset == "quick":
            return {1: 1}
        return {**ARTIFACTS_PER_CLIENT, 1: THOROUGH_SINGLES} if self.preset == "thorough" else ARTIFACTS_PER_CLIENT

    @property
    def alternatives(self) -> int:
        """Number of artifacts per control."""
        return 1 if self.preset == "quick" else ALTERNATIVES

    @property
    def repeats(self) -> int:
        """Number of runs of an attack with different random numbers; scores are averaged."""
        return 3 if self.preset == "thorough" else 1

    @property
    def every_ablation(self) -> bool:
        """Whether every layer, variant and number of rounds is evaluated, and not only the first and the last."""
        return self.preset in ("thorough", "paper")

    def setup(self, spec: str, domains: int) -> Federated:
        """The set-up of the federation for the method `spec`.

        Args:
            spec: Specification of the method.
            domains: Number of source domains.
        """
        names = ("clients", "partition", "backbone", "image_size", "held_out")
        options = Setup(**{name: getattr(self, name) for name in names})
        paper = self.method(spec).paper_setup if self.preset == "paper" else Setup()
        specified, preset = options.over(paper), SETUPS[self.preset]
        setup = specified.over(preset)
        clients = setup.clients if setup.clients_per_domain is None else setup.clients_per_domain * domains
        if specified.clients is None and specified.clients_per_domain is None and preset.clients is not None:
            clients = max(preset.clients, domains)
        size = data.DEFAULT_SIZE if self.dataset == "digits" else setup.image_size
        assert clients is not None
        assert setup.partition is not None
        assert setup.backbone is not None
        assert size is not None
        network = setup.backbone if self.backbone or size >= LARGE else "small_resnet"
        return Federated(clients, setup.partition, network, size, SHARE if setup.held_out is None else setup.held_out)

    def method(self, spec: str) -> Method:
        """The method `spec`; fields not in it come from `settings`, then from the preset."""
        part, named = Method.described(spec)
        preset = "default" if self.preset == "thorough" else self.preset  # thorough attacks on the same training
        settings = {**part.presets[preset], **self.settings, **named}
        folder = self.weights if self.weights is not None and self.weights.is_dir() else None
        if folder is not None and self.transfers_styles(spec):
            settings.setdefault("codec_weights", folder)
        if self.photographs and self.transfers_styles(spec):
            settings.setdefault("codec", "adain_vgg" if folder is not None and has_adain_vgg(folder) else "photo")
        return part.configured(settings)

    @staticmethod
    def transfers_styles(spec: str) -> bool:
        """Whether the method has a style codec, which may have weights from the user."""
        part, _ = Method.described(spec)
        return {"codec", "codec_weights"} <= set(kinds(part))

    def attack(self, spec: str) -> Attack:
        """The attack `spec`; fields not in it come from the preset."""
        part, named = Attack.described(spec)
        return part.configured({**part.presets.get(self.preset, {}), **named})

    def _usable(self, spec: str) -> Attack:
        """The attack `spec`; raises what its class raises if a declared attribute is invalid."""
        attack = self.attack(spec)
        for role in attack.threats:
            for kind in attack.kinds():
                attack_scores(attack, threat(role), kind, not_applicable="not run yet")
        return attack

    def load(self, log: ProgressLog | None = None) -> tuple[Dataset, "AuditConfig"]:
        """The dataset, and this configuration with its targets expanded and checked against it; progress goes to `log`."""
        size = self._image_size()
        dataset = data.load(
            self.dataset,
            root=self.data_root,
            image_size=None if self.dataset == "digits" else size,
            divided=self.partition == GIVEN,
            progress=None if log is None else log.counter("decoding images"),
            say=None if log is None else log.say,
        )
        targets = self.targets or (dataset.default_target,)
        all_targets = dataset.targets or dataset.names
        if targets == ALL and (called_all := [name for name in dataset.names if name.lower() == ALL[0]]):
            raise ValueError(
                f"--target: want the names of the target domains, as all of them are meant by {ALL[0]} and the dataset has a "
                f"domain called {called_all[0]}; got {ALL[0]}; rename that domain to audit it alone"
            )
        targets = all_targets if targets == ALL else tuple(dataset.target(target).name for target in targets)
        if len(set(targets)) != len(targets):
            raise ValueError(f"--target: want each domain once, got {' '.join(targets)}")
        shared = [warning for target in targets if (warning := target_among_sources(dataset, target)) is not None]
        dataset = replace(dataset, warnings=(*shared, *dataset.warnings))
        if self.images is not None:
            dataset = dataset.few(self.images)
        elif self.preset in IMAGES:
            dataset = dataset.few(IMAGES[self.preset])
            if self.auxiliary is None and self.units_per_domain is None:
                dataset = replace(dataset, whole=None)  # shadow clients of left-out images would take time
        return dataset, replace(self, targets=targets, clients=self._client_count(dataset, targets))

    def _client_count(self, dataset: Dataset, targets: Sequence[str]) -> int | None:
        """The number of clients: the option, or for a divided dataset that of the clients in its source domains.

        Raises:
            ValueError: The option differs from the dataset's number, or that depends on the target.
        """
        if self.partition != GIVEN:
            return self.clients
        numbers = {target: len(dataset.clients_of(dataset.sources(target))) for target in targets}
        if len(set(numbers.values())) > 1:
            counts = ", ".join(f"{target} {number}" for target, number in numbers.items())
            raise ValueError(
                f"--target: want targets that leave equally many clients, got {counts}; audit them one at a time"
            )
        number = next(iter(numbers.values()))
        if self.clients not in (None, number):
            raise ValueError(f"--clients: want the {number} clients of the data, or no number; got {self.clients}")
        return number

    def _image_size(self) -> int:
        """The image side common to all methods; ValueError if their papers differ."""
        sizes = {spec: self.setup(spec, 1).image_size for spec in self.methods}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{spec} {size}" for spec, size in sizes.items())
            raise ValueError(
                f"--image-size: want one size for all methods, but their papers have {listed} pixels; "
                "run these methods one at a time, or give --image-size"
            )
        return next(iter(sizes.values()))

    @property
    def wanted_units(self) -> int:
        """Number of clients and shadow clients of each source domain to aim at."""
        return self.units_per_domain or (MIN_UNITS if self.preset == "quick" else UNITS_PER_DOMAIN)

    def populate(self, dataset: Dataset, spec: str, target: str, seed: int) -> Population:
        """The partitioned dataset on which the method `spec` is trained."""
        setup = self.setup(spec, dataset.n_sources)
        return populate(
            dataset,
            target,
            setup.partition,
            setup.clients,
            seed,
            attacked=bool(self.attacks),
            auxiliary=self.auxiliary,
            units_per_domain=self.wanted_units,
            held_out=setup.held_out,
        )

    def federation(self, dataset: Dataset, clients: Sequence[str], seed: int, spec: str | None = None) -> Federation:
        """The public facts of the federation of these clients for the method `spec`, by default the first."""
        size = dataset.image_size
        mean, std = (IMAGENET_MEAN, IMAGENET_STD) if self.photographs else ((0.5,) * 3, (0.5,) * 3)
        setup = self.setup(spec or self.methods[0], dataset.n_sources)
        name = setup.backbone
        weights = self._weights(name)

        def build(rng: torch.Generator) -> Backbone:
            return backbone(name, mean=mean, std=std, rng=rng, weights=weights, small_input=size < LARGE)

        return Federation(
            clients=tuple(clients),
            classes=len(dataset.classes),
            image_size=size,
            backbone=build,
            seed=seed,
            device=torch.device(self.device),
            held_out=setup.held_out,
        )

    def _weights(self, name: str) -> Path | None:
        """The file or folder of the backbone's weights; None for its default weights."""
        if self.weights is None and self.preset == "paper" and name != "small_resnet":
            return Path()  # the papers use ImageNet weights: search torch's checkpoints
        return self.weights

    def network(self, spec: str, domains: int) -> tuple[str, str]:
        """The network that the method `spec` trains, and the origin of its initial weights."""
        if self.method(spec).own_network:
            return "the method's own", RANDOM
        name = self.setup(spec, domains).backbone
        try:
            return name, origin(name, self._weights(name))
        except FileNotFoundError:  # a run stops when it builds the network, with the name of the file
            return name, "not found"

    def advice(self, spec: str, domains: int) -> str | None:
        """A line of advice if settings for training from scratch are used with ImageNet weights, or the reverse; else None."""
        _, weights = self.network(spec, domains)
        method = self.method(spec)
        if weights == RANDOM:
            frozen = (d for d in self.defenses if getattr(defended(method, d, self.inject_bug)[0], "frozen", False))
            return next((f"{'buffers=freeze' if d == 'none' else d}: {_FROZEN_AT_RANDOM}" for d in frozen), None)
        lr = getattr(method, "lr", 0.0)
        if lr < LARGE_LR:
            return None
        return f"lr {lr:g} is for training from scratch; from ImageNet weights try --set lr=0.002 buffers=freeze"

    def metric_networks(self, spec: str, domains: int) -> tuple[MetricNetworks, MetricNetworks]:
        """The networks that compare reconstructions with private images: from a frozen encoder's styles, and all others.

        No network compares reconstructions that were optimised against it. Attacks on a frozen encoder's styles do not
        optimise against the network that the federation trains; all others do. Digits are compared by the shipped extractor.
        """
        if not self.photographs:
            return SHIPPED, SHIPPED
        trained_network, _ = self.network(spec, domains)
        others = MetricNetworks.at_hand(self.weights, trained_network)
        if not self.method(spec).disclosure().styles.frozen_encoder:
            return others, others
        return MetricNetworks.at_hand(self.weights, None), others

    def metric_names(self, spec: str, domains: int) -> list[str]:
        """The names of the networks of `metric_networks`."""
        return list(dict.fromkeys(name for networks in self.metric_networks(spec, domains) for name in networks.names))

    def as_config(self, domains: int) -> dict[str, Any]:
        """The configuration stored in results.json, without local paths; `domains` is the number of source domains."""
        unusable = [name for role, name in self.unusable if role == "attack"]
        return {
            "methods": list(self.methods),
            "dataset": self.dataset,
            "images": self.images,
            "auxiliary": self.auxiliary,
            "units_per_domain": self.units_per_domain,
            "targets": list(self.targets),
            "preset": self.preset,
            "setup": {spec: self._setup_as_config(spec, domains) for spec in self.methods},
            "settings": dict(self.settings),
            "attacks": sorted({*self.attacks, *unusable}) if unusable else list(self.attacks),
            "threats": list(self.threats),
            "defenses": list(self.defenses),
            "inject_bug": self.inject_bug,
            "seeds": list(self.seeds),
            "device": self.device,
            "keep": self.keep,
        }

    def basis(self) -> Basis:
        """What results rest on besides options and images: versions, and digests of the code of parts.

        Equal for a run and its continuation. The digest of a part of fdgpriv's folders is that of its file; that of a part
        of a user follows what its class uses.
        """
        return {"versions": self.versions(), "parts": self._code_of_parts()}

    def versions(self) -> dict[str, str]:
        """The versions of fdgpriv and of all packages that results rest on, by name."""
        timm = ("timm",) if (self.backbone or "").startswith(TIMM) else ()
        flower = ("flwr-datasets",) if (self.partition or "").startswith(FLOWER) else ()
        return versions((*timm, *flower))

    def _code_of_parts(self) -> dict[str, str]:
        classes: dict[str, type[Any]] = {f"method {spec}": type(self.method(spec)) for spec in self.method_specs}
        classes |= {f"attack {spec}": type(self.attack(spec)) for spec in self.attack_specs}
        for spec in self.defenses:
            for part in spec.split(JOIN):
                classes[f"defense {part}"] = Defense.named(split(part)[0])
        return {name: class_digest(kind) for name, kind in classes.items()}

    def _setup_as_config(self, spec: str, domains: int) -> dict[str, Any]:
        """The set-up of a method in results.json."""
        name, weights = self.network(spec, domains)
        networks = {"backbone": name, "weights": weights, "metrics": self.metric_names(spec, domains)}
        return self.setup(spec, domains).as_config() | networks


def _device(name: str) -> str:
    """``cpu`` or ``cuda``; ValueError if torch finds no such device."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device: want cuda, got a machine on which torch finds none; use --device cpu")
    return name
