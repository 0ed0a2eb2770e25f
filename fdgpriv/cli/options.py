"""Options of an audit, with validation of names and types that does not import torch."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from fdgpriv import data
from fdgpriv.cli.catalogue import check, check_settings, fields
from fdgpriv.cli.command_line import BadUsage, once
from fdgpriv.data.names import LEAST_IMAGES
from fdgpriv.data.table import is_table
from fdgpriv.federation.setup import FLOWER, GIVEN, KEEP, PARTITIONS, Setup, partition_named
from fdgpriv.models.names import BACKBONES, TIMM, check_backbone
from fdgpriv.registry import JOIN, names_in, plain_number, split, with_plain_numbers
from fdgpriv.threat import THREATS, threat
from fdgpriv.utils.defaults import AUTO, BUGS, FIGURE_FORMATS, LOGS, METHOD, MLFLOW, TENSORBOARD, Bug
from fdgpriv.utils.extras import check_installed, installed_version
from fdgpriv.utils.file_names import expanded, slug
from fdgpriv.utils.seed_values import seed_values
from fdgpriv.utils.suggestions import did_you_mean, same_name

PRESETS = ("quick", "default", "thorough", "paper")
SETUPS = {  # defaults; the command line and, with the preset paper, the method's paper override them
    "quick": Setup(clients=6, partition="single", backbone="resnet18", image_size=32),
    "default": Setup(clients=30, partition="single", backbone="resnet18", image_size=32),
    "thorough": Setup(clients=30, partition="single", backbone="resnet18", image_size=32),
    "paper": Setup(clients=30, partition="single", backbone="resnet18", image_size=224),
}
ALL, NONE = ("all",), ("none",)
DEVICES = ("auto", "cpu", "cuda")
ENGINES = ("local", "flower")


@dataclass(frozen=True)
class Options:
    """The options of one audit.

    Attributes:
        methods, targets, seeds, defenses: One run per combination; methods and defenses as specifications
            ``name:field=value,...``.
        attacks: Specifications of the attacks; ("none",) trains without attacks.
        threats: Roles of threat models; empty for all roles of each attack.
        dataset, data_root, weights: Dataset name, its folder, and the folder of pretrained weights.
        clients, partition, backbone, image_size: Of all federations; None for the preset's values, which with the preset
            ``paper`` are those of each method's paper.
        held_out: Share of its images that each client holds out for validation; None for a tenth.
        images: Maximum number of images of each domain that the federation has; None for the preset's. What is left over
            serves attacks, as shadow clients and auxiliary images.
        auxiliary: Number of images of each domain that adversaries hold; None for a quarter of `images` of each source
            domain, and for the target domain as evaluated.
        units_per_domain: Number of clients and shadow clients of each source domain to aim at; None for the preset's.
        preset, settings: For all methods.
        device: auto, cpu or cuda.
        keep: The transcript's keep rule.
        engine: What carries messages between server and clients: local, in one process; flower, over Flower's simulation.
            Results are the same.
        inject_bug: A deliberate error in the noise of every defense that proves an epsilon, which must show as a violation.
        figures: Formats in which the figures for a paper are drawn as well.
        log: tensorboard or mlflow, which the accuracies of rounds are logged to; None for neither.
        jobs: Number of processes, each of which works on one run at a time.
        ray: The address of a Ray cluster whose machines work on the runs; None for this machine alone.
        crossed: Also score every client's artifact read as every other client's, which the self test needs.
    """

    methods: tuple[str, ...] = (METHOD,)
    dataset: str = "digits"
    data_root: Path | None = None
    image_size: int | None = None
    images: int | None = None
    auxiliary: int | None = None
    units_per_domain: int | None = None
    targets: tuple[str, ...] = ()
    preset: str = "default"
    clients: int | None = None
    partition: str | None = None
    held_out: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    attacks: tuple[str, ...] = ALL
    threats: tuple[str, ...] = ()
    defenses: tuple[str, ...] = NONE
    seeds: tuple[int, ...] = (0,)
    device: str = "auto"
    backbone: str | None = None
    weights: Path | None = None
    keep: str = "last"
    engine: str = "local"
    inject_bug: Bug | None = None
    figures: tuple[str, ...] = ()
    log: str | None = None
    jobs: int = 1
    ray: str | None = None
    crossed: bool = False

    def __post_init__(self) -> None:
        """Spells names as they are known: case, hyphens and underscores do not matter. ValueError for a bad seed."""
        object.__setattr__(self, "seeds", seed_values(self.seeds))
        spelled: dict[str, Any] = {
            "dataset": _spelled(self.dataset, data.names()),
            "preset": _spelled(self.preset, PRESETS),
            "device": _spelled(self.device, DEVICES),
            "log": self.log and _spelled(self.log, LOGS),
            "keep": _spelled(self.keep, KEEP),
            "figures": tuple(_spelled(name, FIGURE_FORMATS) for name in self.figures),
            "threats": tuple(_spelled(role, THREATS) for role in self.threats),
            "methods": tuple(_spelled_spec(spec, "methods", ALL) for spec in self.methods),
            "attacks": tuple(_spelled_spec(spec, "attacks", (*ALL, *NONE)) for spec in self.attacks),
            "defenses": tuple(
                JOIN.join(_spelled_spec(part, "defenses") for part in spec.split(JOIN)) for spec in self.defenses
            ),
            "backbone": self.backbone and _spelled(self.backbone, BACKBONES),
            "partition": self.partition and _spelled_before_colon(self.partition, PARTITIONS),
        }
        spelled["settings"] = {
            name: plain_number(value) if isinstance(value, str) else value for name, value in self.settings.items()
        }
        spelled["targets"] = tuple(
            _spelled(target, (*ALL, *data.DOMAINS.get(spelled["dataset"], ()))) for target in self.targets
        )
        for name, value in spelled.items():
            object.__setattr__(self, name, value)

    @property
    def method_specs(self) -> tuple[str, ...]:
        """The specifications of the methods, "all" expanded."""
        return names_in("methods") if self.methods == ALL else self.methods

    @property
    def attack_specs(self) -> tuple[str, ...]:
        """The specifications of the attacks, "all" expanded; empty for "none"."""
        if self.attacks == NONE:
            return ()
        return names_in("attacks") if self.attacks == ALL else self.attacks

    def check(self) -> None:
        """Raises ValueError for invalid names, fields and values, as far as known without importing torch."""
        check_choice("--preset", self.preset, PRESETS)
        check_choice("--dataset", self.dataset, data.names())
        check_choice("--keep", self.keep, KEEP)
        if self.device == "gpu":
            raise BadUsage("--device: want cuda for a GPU, got gpu")
        check_choice("--device", self.device, DEVICES)
        check_choice("--engine", self.engine, ENGINES)
        if self.engine == "flower":
            for package in ("flwr", "ray"):
                check_installed(package, "flower", "--engine flower")
            from fdgpriv.utils.ray_environment import check_temporary_folder  # its import changes the environment

            check_temporary_folder("--engine flower")
        if self.device == "cuda" and installed_version("torch").endswith("+cpu"):
            raise BadUsage(
                "--device: want cuda, got a torch without it (+cpu); use --device cpu, or install torch for CUDA"
            )
        if self.backbone is not None:
            check_backbone(self.backbone)
            if self.backbone.startswith(TIMM):
                check_installed("timm", "timm", f"--backbone {self.backbone}")
        for name in self.figures:
            check_choice("--figures", name, FIGURE_FORMATS)
        if self.ray is not None:
            self._check_ray(self.ray)
        if self.log is not None:
            check_choice("--log", self.log, LOGS)
            check_installed(self.log, self.log, f"--log {self.log}")
        if self.inject_bug is not None:
            check_choice("--inject-bug", self.inject_bug, BUGS)
        if self.partition is not None:
            name, _ = partition_named(self.partition)
            if name == FLOWER:
                check_installed("flwr_datasets", "partition", f"--partition {self.partition}")
        for role in self.threats:
            threat(role)
        if self.clients is not None and self.clients < 1:
            raise BadUsage(f"--clients: want at least 1 client, got {self.clients}")
        sources = len(data.DOMAINS.get(self.dataset, ())) - 1
        if self.clients is not None and self.clients < sources and (self.partition or "single") == "single":
            raise BadUsage(f"--clients: want at least one client per source domain ({sources}), got {self.clients}")
        if self.jobs < 1:
            raise BadUsage(f"--jobs: want a number of at least 1, got {self.jobs}")
        self._check_data()
        self._check_parts()
        once("--seed", self.seeds)
        once("--threat", self.threats)
        once("--target", self.targets)
        once("--figures", self.figures)
        for option, specs in (
            ("--defense", self.defenses),
            ("--method", self.method_specs),
            ("--attack", self.attack_specs),
        ):
            once(option, specs, slug)  # slugs are used in file names

    def _check_ray(self, address: str) -> None:
        if address != AUTO and not re.fullmatch(r"[^/:\s]+:[0-9]{1,5}", address):
            raise BadUsage(
                f"--ray: want HOST:PORT of a Ray cluster that this machine is part of, or {AUTO}; got {address!r}"
            )
        if self.jobs > 1:
            raise BadUsage(
                "--jobs: has no effect with --ray, whose machines work on as many runs as they have cores for"
            )
        if self.engine != ENGINES[0]:
            raise BadUsage(f"--engine: want {ENGINES[0]} with --ray, got {self.engine}, which starts Ray on its own")
        if self.log == MLFLOW:
            raise BadUsage(f"--log: want {TENSORBOARD} with --ray, got {MLFLOW}, whose one file machines cannot share")
        check_installed("ray", "ray", "--ray")

    def _check_data(self) -> None:
        if self.images is not None and self.images < LEAST_IMAGES:
            raise BadUsage(f"--images: want at least {LEAST_IMAGES} images of each domain, got {self.images}")
        if self.auxiliary is not None and self.auxiliary < LEAST_IMAGES:
            raise BadUsage(f"--auxiliary: want at least {LEAST_IMAGES} images of each domain, got {self.auxiliary}")
        if self.units_per_domain is not None and self.units_per_domain < 1:
            raise BadUsage(f"--units-per-domain: want at least 1, got {self.units_per_domain}")
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise BadUsage(f"--held-out: want a share between 0 and 1, got {self.held_out:g}")
        if self.image_size is not None:
            data.check_size(self.image_size)
        for target in self.targets:
            if self.targets != ALL:
                data.check_domain(self.dataset, target)
        if self.data_root is None and self.dataset != "digits":
            raise BadUsage(f"--data-root: want the folder of {self.dataset}, got none")
        if self.data_root is not None:
            path, may_be_table = expanded(self.data_root), self.dataset == "folder"
            if not path.is_dir() and not (may_be_table and is_table(path)):
                table = " or a table .csv" if may_be_table else ""
                lack = "is a file" if path.exists() else "does not exist"
                raise BadUsage(
                    f"--data-root: want the folder{table} of {self.dataset}, got {self.data_root}, which {lack}"
                )
            if path.is_dir() and self.dataset == "folder" and not any(entry.is_dir() for entry in path.iterdir()):
                raise BadUsage(
                    f"--data-root: want folders ROOT/<domain>/<class>/*.jpg, got {self.data_root} without folders"
                )
        if self.partition == GIVEN and self.dataset != "folder":
            raise BadUsage(
                f"--partition: given is read from images of your own, want --dataset folder; got {self.dataset}"
            )
        if self.weights is not None and not self.weights.exists():
            raise BadUsage(f"--weights: want a folder or a file, got {self.weights}, which does not exist")

    def _check_parts(self) -> None:
        if "none" in self.attacks and self.attacks != NONE:
            raise BadUsage(f"--attack: want only none, or attacks without none; got {' '.join(self.attacks)}")
        for option, specs in (("--method", self.methods), ("--attack", self.attacks), ("--defense", self.defenses)):
            for previous, spec in zip(("NAME", *specs), specs, strict=False):
                if ":" in spec:
                    continue
                if "=" in spec:
                    joint = "," if ":" in previous else ":"
                    wanted = f"{option} {previous}{joint}{spec}"
                    raise BadUsage(f"{option}: want settings joined to their part, {wanted}; got {spec}")
                if "," in spec:
                    names = spec.replace(",", " ")
                    raise BadUsage(f"{option}: want several separated by blanks, {option} {names}; got {spec}")
        for folder, specs in (
            ("methods", () if self.methods == ALL else self.method_specs),
            ("attacks", () if self.attacks == ALL else self.attack_specs),
            ("defenses", tuple(part for spec in self.defenses for part in spec.split(JOIN))),
        ):
            for spec in specs:
                check(folder, spec)
        for spec in self.method_specs:
            check_settings("methods", split(spec)[0], self.settings)
        for name in self.settings:
            if all(name in split(spec)[1] for spec in self.method_specs):
                raise BadUsage(f"--set: want a field that --method does not set, got {name}")


class Rule(NamedTuple):
    """Options that have no effect, or lack another one, when `case` is true of the given options, and the error message."""

    options: Collection[str]
    case: Callable[[Mapping[str, Any]], bool]
    message: str


def _is_digits(given: Mapping[str, Any]) -> bool:
    return str(given.get("dataset", "digits")) == "digits"


_OF_ARTIFACTS = {"artifact", "groups", "seeds", "out", "fail_on"}
_OF_EVALUATION = {"attacks", "threats", "preset", "seeds", "units_per_domain", "figures", "out", "resume", "fail_on"}
_OF_CHECK = {"recording", "federation", "check", "seeds"}
OPTIONS = {  # by the name of the parsed value
    "methods": "--method",
    "dataset": "--dataset",
    "data_root": "--data-root",
    "image_size": "--image-size",
    "images": "--images",
    "auxiliary": "--auxiliary",
    "units_per_domain": "--units-per-domain",
    "targets": "--target",
    "preset": "--preset",
    "clients": "--clients",
    "partition": "--partition",
    "held_out": "--held-out",
    "settings": "--set",
    "attacks": "--attack",
    "threats": "--threat",
    "defenses": "--defense",
    "inject_bug": "--inject-bug",
    "seeds": "--seed",
    "engine": "--engine",
    "figures": "--figures",
    "jobs": "--jobs",
    "ray": "--ray",
    "device": "--device",
    "backbone": "--backbone",
    "weights": "--weights",
    "keep": "--keep",
    "artifact": "--artifact",
    "groups": "--groups",
    "recording": "--recording",
    "federation": "--federation",
    "check": "--check",
    "out": "--out",
    "fail_on": "--fail-on",
    "resume": "--resume",
    "config": "--config",
    "log": "--log",
    "dry_run": "--dry-run",
    "list": "--list",
}
FLAGS = {"resume", "config", "dry_run", "check", "list", "fail_on"}  # for the command line only
WITHOUT_EFFECT = (
    Rule(OPTIONS.keys() - {"list"}, lambda given: "list" in given, "has no effect with --list"),
    Rule(
        OPTIONS.keys() - _OF_ARTIFACTS,
        lambda given: "artifact" in given,
        "has no effect with --artifact, which trains nothing and runs the attacks that need neither model nor images",
    ),
    Rule({"groups"}, lambda given: "artifact" not in given, "want --artifact with it"),
    Rule(
        OPTIONS.keys() - {"recording", "federation", "check", "dry_run"} - _OF_EVALUATION,
        lambda given: "recording" in given,
        "has no effect with --recording, whose training is over",
    ),
    Rule({"check"}, lambda given: "recording" not in given, "want --recording with it"),
    Rule(
        OPTIONS.keys() - _OF_CHECK, lambda given: "check" in given, "has no effect with --check, which attacks nothing"
    ),
    Rule({"recording"}, lambda given: "federation" not in given, "want --federation with it, a Python file"),
    Rule({"federation"}, lambda given: "recording" not in given, "want --recording with it"),
    Rule({"data_root"}, _is_digits, "has no effect: digits is built in; want --dataset with it"),
    Rule(
        {"image_size"},
        _is_digits,
        f"has no effect: the images of digits have {data.DEFAULT_SIZE} pixels; want --dataset with it",
    ),
    Rule(
        {"threats", "auxiliary", "units_per_domain", "figures", "fail_on"},
        lambda given: given.get("attacks") == ["none"],
        "want an attack to run, got --attack none",
    ),
    Rule(
        {"inject_bug"},
        lambda given: set(given.get("defenses", ["none"])) == {"none"},
        "has no effect without a defense that proves an epsilon; want --defense with it",
    ),
    Rule({"resume", "log"}, lambda given: "dry_run" in given, "has no effect with --dry-run"),
    Rule({"resume"}, lambda given: "out" not in given, "want --out, the folder to continue in"),
)


def check_effects(given: Mapping[str, Any]) -> None:
    """Raises BadUsage if a given option would have no effect."""
    for rule in WITHOUT_EFFECT:
        if rule.case(given):
            for name in OPTIONS:
                if name in given and name in rule.options:
                    raise BadUsage(f"{OPTIONS[name]}: {rule.message}")


def settings(items: Sequence[str]) -> dict[str, str]:
    """The values of ``FIELD=VALUE`` items by field."""
    values: dict[str, str] = {}
    for previous, item in zip(("", *items), items, strict=False):
        name, equals, value = item.partition("=")
        if previous.endswith(",") and not equals:
            raise BadUsage(f"--set: want the values of a sweep without blanks, {previous}{item}; got {previous} {item}")
        if not name or not equals:
            raise BadUsage(f"--set: want FIELD=VALUE, got {item!r}")
        if ":" in name:
            raise BadUsage(f"--set: want a field of every method, got {item}; of one alone: --method {item}")
        if name in values:
            raise BadUsage(f"--set: want each field once, got {name}={values[name]} and {item}")
        values[name] = value
    return values


def swept(specs: Sequence[str], values: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The specification of each method, once for each combination of the values of sweeps; and the settings without sweeps.

    A sweep is a setting with several values, joined by commas. Fields of paths are never sweeps.

    Args:
        specs: Specifications of methods; a sweep leaves out the methods that set its field themselves.
        values: The values of settings by field.
    """
    sweeps = {name: value.split(",") for name, value in values.items() if "," in value and not _is_path(specs, name)}
    for name, choices in sweeps.items():
        if not all(value.strip() for value in choices):
            raise BadUsage(f"--set: want a value before and after each comma, got {name}={values[name]}")
    rows = []
    for spec in specs:
        colon, fixed = "," if ":" in spec else ":", split(spec)[1]
        named = [[f"{name}={value.strip()}" for value in sweeps[name]] for name in sweeps if name not in fixed]
        rows += [f"{spec}{colon}{','.join(combination)}" if combination else spec for combination in product(*named)]
    return tuple(rows), {name: value for name, value in values.items() if name not in sweeps}


def _is_path(specs: Sequence[str], field: str) -> bool:
    """Whether this field of one of the methods holds a path."""
    method_fields = [(fields("methods", split(spec)[0]) or {}).get(field) for spec in specs]
    return any("Path" in described.type for described in method_fields if described is not None)


def _spelled(name: str, known: Iterable[str]) -> str:
    """The known name that this one stands for; itself where it stands for none."""
    return same_name(name, known) or name


def _spelled_before_colon(text: str, known: Iterable[str]) -> str:
    name, colon, rest = text.partition(":")
    return f"{_spelled(name, known)}{colon}{rest}"


def _spelled_spec(spec: str, folder: str, words: Iterable[str] = ()) -> str:
    """The specification with the part's name as it is known, or one of these words."""
    return with_plain_numbers(_spelled_before_colon(spec, (*words, *names_in(folder))))


def check_choice(option: str, value: str, known: Sequence[str]) -> None:
    """Raises BadUsage, with the known values, if this is none of them."""
    if value not in known:
        raise BadUsage(f"{option}: want one of {', '.join(known)}; got {value!r}{did_you_mean(value, known)}")
