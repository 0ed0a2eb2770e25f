"""The preset `paper` is each paper's own set-up, as printed or, where the paper is silent, as its released code has it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from factories import refused

from fdgpriv.audit import main
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.training import Cell, train
from fdgpriv.utils.console import ProgressLog

# Of PACS, three source domains. Federation: clients, partition, backbone, side of the images.
FEDERATIONS = {
    "stablefdg": (30, "single", "resnet18", 224),  # section 4.1: N = 30, ten clients a domain, ResNet-18
    "fedavg": (30, "single", "resnet18", 224),  # the baseline of the same section
    "ccst": (3, "single", "resnet50", 222),  # sections 3 and 4.2: a client is a domain; 222 px: released code
    "pardon": (100, "heterogeneity:0.1", "resnet50", 224),  # released config: num_clients 100, iid 0.1
    "lsi": (3, "single", "resnet50", 256),  # section IV-A: a client is a domain, ResNet-50; 256 px: released code
    "fedsr": (3, "single", "resnet18", 224),  # released code: a rank is a domain
    "feddg_ga": (3, "single", "resnet18", 224),  # released code
    "hfedf": (3, "domains:1", "small_resnet", 32),  # section 5.1: N = number of source domains, 32 x 32, its own CNN
    "pfedhn": (3, "domains:1", "small_resnet", 32),  # as hFedF compares with it
}
TRAINING: dict[str, dict[str, Any]] = {
    "stablefdg": {  # section 4.1, App. G
        "rounds": 50, "participants": 10, "local_epochs": 5, "batch_size": 32, "lr": 1e-3, "momentum": 0.9,
        "weight_decay": 5e-4, "schedule": "cosine", "exploration": 3.0, "image_changes": "flip_translate",
    },
    "fedavg": {
        "rounds": 50, "participants": 10, "local_epochs": 5, "batch_size": 32, "lr": 1e-3, "momentum": 0.9,
        "weight_decay": 5e-4, "schedule": "cosine", "image_changes": "flip_translate",
    },
    "ccst": {  # section 4.2; batch, SGD and crops: released code
        "rounds": 500, "participants": None, "local_epochs": 1, "batch_size": 64, "lr": 1e-3, "momentum": 0.0,
        "weight_decay": 0.0, "schedule": "constant", "augmentation": 3, "keep_original": False, "style": "overall",
        "alpha": 1.0, "codec": "adain_vgg", "selection": "validation", "image_changes": "crop", "images_per_style": 32,
        "weights": "uniform", "side": 512, "split": "before", "style_block": 1, "own": True,
    },
    "pardon": {  # released config: fraction 0.2, num_rounds 50, batch_size 32; released code: Adam 3e-5, BatchNorm frozen
        "rounds": 50, "participants": 20, "local_epochs": 1, "batch_size": 32, "optimizer": "adam", "lr": 3e-5,
        "weight_decay": 0.0, "schedule": "constant", "buffers": "freeze", "alpha": 0.5, "margin": 0.3,
        "codec": "adain_vgg", "image_changes": "crop_colour", "contrastive_weight": 0.75, "regulariser_weight": 0.2,
        "local_partition": "last", "server_partition": "first", "cluster_by": "maps", "client_style": "mixture",
        "median": "lower",
    },
    "lsi": {  # section IV-A.3; image changes: released code
        "rounds": 20, "participants": None, "local_epochs": 10, "batch_size": 32, "lr": 1e-3, "momentum": 0.9,
        "weight_decay": 5e-4, "schedule": "constant", "latent_dim": 512, "invariance": 1.0,
        "image_changes": "crop_colour", "hidden": 1024, "inversion_steps": 10_000, "inversion_lr": 1e-4,
        "inversion_batch": 32, "inversion_batches": 200, "translator_steps": 200_000, "translator_batch": 16,
        "translator_lr": 1e-4, "rec_weight": 10, "cls_weight": 1, "gp_weight": 10, "critic_steps": 5,
        "inversion_labels": "marginal",  # Eq. 4: y ~ P_d
        "dropout": "all", "head_weight": 0.0,  # "each layer"; Eq. 13 has no loss of the heads
        "importance_output": "paper",  # Eq. 17
    },
    "fedsr": {  # released code, but for the weight of the information term, which is the paper's
        "rounds": 1000, "participants": None, "local_steps": 5, "batch_size": 64, "lr": 0.01, "momentum": 0.9,
        "weight_decay": 5e-4, "schedule": "constant", "norm_weight": 0.01, "information_weight": 1e-3,
        "image_changes": "crop_colour", "weights": "uniform",
    },
    "feddg_ga": {  # released code, but for the rule of the weights, which is the paper's
        "rounds": 40, "participants": None, "local_epochs": 5, "batch_size": 16, "lr": 1e-3, "momentum": 0.9,
        "weight_decay": 5e-4, "schedule": "step_late", "step": 0.2, "code_compat": False, "metric": "loss",
        "image_changes": "crop_strong_colour", "weights": "uniform",
    },
    "hfedf": {  # section 5.1 and Table 10, PACS
        "rounds": 200, "participants": None, "local_epochs": 2, "batch_size": 64, "lr": 1e-3, "weight_decay": 1e-3,
        "server_lr": 1e-3, "server_weight_decay": 1e-5, "ema_decay": 0.95,
        "client_optimizer": "adam", "image_changes": "crop_colour",  # not given; as FedAvg beside it
        "schedule": "constant", "server_schedule": "constant", "local_steps": None, "server_optimizer": "adam",
        "hidden": 50, "depth": 3, "slope": 0.01, "ema": "replace",
        "embedding_std": 0.1,  # not given; "quasi-global" (section 5.2) wants them near each other
    },
    "pfedhn": {  # section 5.1 and Table 10, PACS
        "rounds": 3 * 200, "participants": 1,  # asynchronous: one random client per step, 200 trainings of each of three
        "local_epochs": 2, "batch_size": 64, "lr": 1e-3, "weight_decay": 1e-5,
        "server_lr": 1e-2, "server_weight_decay": 1e-3, "local_steps": None,
        "client_optimizer": "adam", "image_changes": "crop_colour",  # as hFedF
        "server_schedule": "constant", "momentum": 0.9, "hidden": 100, "slope": 0.0,
    },
}  # fmt: skip


def setup(config: AuditConfig, spec: str, domains: int = 3) -> tuple[int, str, str, int]:
    found = config.setup(spec, domains)
    return found.clients, found.partition, found.backbone, found.image_size


@pytest.mark.parametrize("name", FEDERATIONS)
def test_paper_is_each_papers_own_setup(name: str) -> None:
    config = AuditConfig(methods=(name,), dataset="pacs", preset="paper")
    assert setup(config, name) == FEDERATIONS[name]
    clients = FEDERATIONS[name][0]
    assert setup(config, name, 5)[0] == (5 if clients == 3 else clients)  # where a client is a domain
    method = config.method(name)
    assert {field: getattr(method, field) for field in TRAINING[name]} == TRAINING[name]
    assert method.disclosure().styles.frozen_encoder == (name in ("ccst", "pardon"))
    given = {"clients": 7, "partition": "dirichlet:1", "backbone": "densenet121", "image_size": 64}
    assert setup(replace(config, **given), name) == (7, "dirichlet:1", "densenet121", 64)  # the command line wins
    digits = replace(config, dataset="digits")  # these keep their size and network
    assert setup(digits, name) == (*FEDERATIONS[name][:2], "small_resnet", 32)
    for preset, count in (("quick", 6), ("default", 30)):  # one federation for all methods
        assert setup(replace(config, preset=preset), name) == (count, "single", "small_resnet", 32)
    assert setup(replace(config, preset="quick"), name, 9)[0] == 9  # at least one client a domain


def test_methods_of_different_image_sizes_are_refused() -> None:
    config = AuditConfig(methods=("stablefdg", "ccst"), dataset="pacs", preset="paper")
    with refused("^--image-size: want one size for all .* stablefdg 224, ccst 222 pixels; .* or give --image-size$"):
        config.load()
    with refused("folder of pacs"):  # past the sizes
        replace(config, image_size=64).load()


def made_up(count: int, side: int = 32) -> Dataset:
    rng = torch.Generator().manual_seed(0)
    domains = [
        Domain(f"d{i}", torch.rand(count, 3, side, side, generator=rng), torch.arange(count) % 4) for i in range(4)
    ]
    return Dataset("digits", tuple("abcd"), tuple(domains), "d0", "noise", "noise")


def test_each_method_of_a_call_has_its_own_federation() -> None:
    methods = ("ccst", "stablefdg", "hfedf")
    config = AuditConfig(methods=methods, preset="paper", attacks=(), device="cpu")
    dataset = made_up(90)
    for spec, clients in (("ccst", 3), ("stablefdg", 30), ("hfedf", 3)):
        population = config.populate(dataset, spec, "d0", 0)
        assert len(population.clients) == clients
        assert config.federation(dataset, list(population.clients), 0, spec).clients == tuple(population.clients)
    told, own, random = config.as_config(3)["setup"], "the method's own", "random initialisation"
    common = {
        "image_size": 32,
        "held_out": 0.1,
        "weights": random,
        "metrics": ["digits-extractor-1", "lpips[digits-extractor-1]"],
    }
    assert json.loads(json.dumps(told)) == {
        "ccst": {"clients": 3, "partition": "single", "backbone": "small_resnet", **common},
        "stablefdg": {"clients": 30, "partition": "single", "backbone": "small_resnet", **common},
        "hfedf": {"clients": 3, "partition": "domains:1", "backbone": own, **common},
    }


@pytest.mark.parametrize(("attacks", "withheld"), [((), 0), (("all",), int(0.25 * 90))])
def test_images_are_withheld_only_for_attacks(attacks: tuple[str, ...], withheld: int) -> None:
    population = AuditConfig(methods=("ccst",), preset="paper", attacks=attacks).populate(made_up(90), "ccst", "d0", 0)
    for name in population.sources:
        count = population.images(name)
        assert count.public + count.shadow == withheld
        assert (count.train, count.held_out) == (90 - withheld - int(0.1 * (90 - withheld)), int(0.1 * (90 - withheld)))


@pytest.mark.parametrize(
    ("asked", "shadows", "public"),
    [  # outline, scan and type have 599, 599 and 600 images; three clients have 150 or 75 of 200
        ({"preset": "quick", "clients": 3}, 3 * 3, 3 * (50 - 3 * 8)),
        ({"preset": "quick", "clients": 3, "images": 200}, 2 * 3 + 3, 3 * (50 - 25)),
        ({"preset": "quick", "clients": 3, "auxiliary": 60}, 2 * 3, 3 * 60),
        ({"preset": "quick", "clients": 3, "units_per_domain": 3}, 2 * 3, 3 * 50),
        ({"clients": 6, "images": 200, "auxiliary": 180}, 3 * 3, 3 * 180),
        ({"clients": 6}, 2 * 3, None),
        ({"clients": 6, "units_per_domain": 1}, 0, None),
        ({"clients": 6, "images": 200, "units_per_domain": 20}, 5 * 3, None),
    ],
)
def test_images_left_out_serve_attacks(asked: dict[str, Any], shadows: int, public: int | None) -> None:
    dataset, config = AuditConfig(targets=("blend",), **asked).load()
    population = config.populate(dataset, "stablefdg", "blend", 0)
    assert len(population.shadows) == shadows
    assert public is None or sum(map(len, population.auxiliary.values())) == public


def test_the_units_that_the_images_make_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wanted, printed in (
        (7, "d1 6, d2 6, d3 6; the images that are left over make no 7\n"),  # 69 are left out; two clients have 15 each
        (None, ""),
    ):
        config = AuditConfig(
            methods=("fedavg",), settings={"rounds": "1", "local_epochs": "1"}, clients=6, units_per_domain=wanted,
            attacks=("membership",), device="cpu",
        )  # fmt: skip
        folder = tmp_path / str(wanted)
        train(config, made_up(109).few(40), Cell("fedavg", "d0", 0, "none"), folder, ProgressLog(), 1)
        _, shadows, counts = capsys.readouterr().err.partition("clients and shadow clients: ")
        assert counts.startswith(printed)
        assert bool(shadows) == bool(printed)


def test_results_count_the_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["--method", "fedavg", "--preset", "quick", "--clients", "3", "--out", str(out)]
    words += ["--set", "rounds=1", "local_epochs=1"]
    assert main([*words, "--attack", "none"]) == 0
    written = json.loads((out / "results.json").read_text(encoding="utf-8"))
    each = {"train": 180, "held_out": 20, "public": 0, "shadow": 0, "unused": 0}
    assert written["runs"][0]["images"] == {
        "train": 540, "held_out": 60, "public": 0, "shadow": 0, "unused": 0,
        "domains": dict.fromkeys(("outline", "scan", "type"), each),
    }  # fmt: skip
    assert "none is withheld for attacks" in (out / "report.md").read_text(encoding="utf-8")
    assert written["config"]["setup"]["fedavg"]["clients"] == 3
    capsys.readouterr()
    assert main([*words, "--attack", "domain_inference", "--resume"]) == 2
    assert "attacks: was [], now ['domain_inference']" in capsys.readouterr().err


def test_the_held_out_share_is_set_for_all_methods() -> None:
    """CCST on Office-Home and Camelyon17 splits 4:1 (section 4.2)."""
    config = AuditConfig(methods=("ccst", "lsi"), preset="paper", attacks=(), held_out=0.2, device="cpu")
    for spec in config.methods:
        population = config.populate(made_up(90), spec, "d0", 0)
        for data in population.clients.values():
            assert (len(data), len(data.held_out_labels)) == (72, 18)
        assert config.federation(made_up(90), list(population.clients), 0, spec).held_out == 0.2
        assert config.as_config(3)["setup"][spec]["held_out"] == 0.2
