"""The papers' other datasets: what docs/methods.md says to add to `--preset paper` gives the papers' settings."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fdgpriv import audit
from fdgpriv.config import AuditConfig
from fdgpriv.data.names import DOMAINS

DOCS = Path(__file__).parent.parent / "docs" / "methods.md"
LOCAL: Mapping[str, Any] = {
    "participants": 10,
    "local_epochs": 5,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "exploration": 3.0,
}
# Clients of as many source domains as the dataset leaves, partition, network, side, share held out; then fields.
RECIPES: Mapping[tuple[str, str], tuple[tuple[int, str, str, int, float], Mapping[str, Any]]] = {
    ("office_home", "stablefdg"): (
        (30, "single", "resnet18", 224, 0.1), {"rounds": 50, "batch_size": 32, "lr": 1e-3, "schedule": "cosine", **LOCAL},
    ),
    ("office_home", "ccst"): (
        (3, "single", "resnet18", 222, 0.2), {"rounds": 500, "local_epochs": 1, "batch_size": 32, "lr": 1e-3, "side": 512},
    ),
    ("office_home", "pardon"): (
        (100, "heterogeneity:0.1", "resnet50", 224, 0.1),
        {"rounds": 50, "participants": 20, "batch_size": 32, "lr": 3e-5, "regulariser_weight": 0.1},
    ),
    ("office_home", "lsi"): (
        (3, "single", "resnet50", 256, 0.1), {"rounds": 20, "local_epochs": 10, "batch_size": 32, "latent_dim": 512},
    ),
    ("office_home", "hfedf"): (
        (3, "domains:1", "small_resnet", 32, 0.1),
        {"rounds": 200, "lr": 1e-3, "weight_decay": 1e-3, "server_lr": 1e-3, "server_weight_decay": 1e-5, "ema_decay": 0.75},
    ),
    ("office_home", "pfedhn"): (
        (3, "domains:1", "small_resnet", 32, 0.1),
        {"lr": 1e-3, "weight_decay": 1e-4, "server_lr": 1e-3, "server_weight_decay": 1e-4},
    ),
    ("vlcs", "stablefdg"): (
        (30, "single", "resnet18", 224, 0.1), {"rounds": 50, "batch_size": 32, "lr": 1e-3, "schedule": "cosine", **LOCAL},
    ),
    ("vlcs", "hfedf"): (
        (3, "domains:1", "small_resnet", 32, 0.1),
        {"lr": 1e-3, "weight_decay": 1e-3, "server_lr": 1e-3, "server_weight_decay": 1e-3, "ema_decay": 0.75},
    ),
    ("vlcs", "pfedhn"): (
        (3, "domains:1", "small_resnet", 32, 0.1),
        {"lr": 1e-3, "weight_decay": 1e-4, "server_lr": 1e-3, "server_weight_decay": 1e-4},
    ),
    ("digits_dg", "stablefdg"): (
        (30, "single", "resnet18", 32, 0.1), {"rounds": 50, "batch_size": 32, "lr": 0.02, "schedule": "step20", **LOCAL},
    ),
    ("domainnet", "stablefdg"): (
        (30, "single", "resnet50", 224, 0.1), {"rounds": 60, "batch_size": 64, "lr": 1e-3, "schedule": "cosine", **LOCAL},
    ),
    ("domainnet", "lsi"): (
        (5, "single", "alexnet", 256, 0.1), {"rounds": 20, "batch_size": 32, "latent_dim": 4096, "hidden": 2048},
    ),
    ("camelyon17", "ccst"): (
        (4, "single", "densenet121", 96, 0.2),
        {"rounds": 100, "local_epochs": 1, "batch_size": 32, "augmentation": 4, "side": 512, "lr": 1e-3},
    ),
    ("iwildcam", "pardon"): ((243, "heterogeneity:0.1", "resnet50", 224, 0.1), {"rounds": 100, "participants": 24}),
}  # fmt: skip


def rows() -> dict[tuple[str, str], str]:
    """By dataset and method, what the table adds to the command."""
    _, _, text = DOCS.read_text(encoding="utf-8").partition("### The papers' other datasets")
    found = {}
    for line in re.findall(r"^\| (`.*) \|$", text.partition("\n## ")[0], re.MULTILINE):
        dataset, methods, *_, add = (cell.strip() for cell in line.split("|"))
        for method in re.findall(r"`(\w+)`", methods):
            found[dataset.split("`")[1], method] = add.strip("`")
    return found


def test_the_table_has_every_dataset_of_every_paper() -> None:
    assert {key for key in rows() if key[1] != "fedavg"} == set(RECIPES)
    assert {dataset for dataset, method in rows() if method == "fedavg"} == {d for d, m in RECIPES if m == "stablefdg"}


@pytest.mark.parametrize(("dataset", "method"), RECIPES)
def test_a_line_gives_the_paper_s_settings(dataset: str, method: str, tmp_path: Path) -> None:
    words = ["--method", method, "--preset", "paper", "--dataset", dataset, "--data-root", str(tmp_path)]
    options = audit._options(audit.parser().options([*words, *rows()[dataset, method].split()]))
    options.check()
    config = AuditConfig(**vars(options))
    setup, fields = RECIPES[dataset, method]
    sources = len(DOMAINS[dataset] or range(244)) - 1
    federated = config.setup(method, sources)
    assert (
        federated.clients, federated.partition, federated.backbone, federated.image_size, federated.held_out,
    ) == setup  # fmt: skip
    trained = config.method(method)
    assert {name: getattr(trained, name) for name in fields} == fields
