"""Figures that decide claims without an attack: a class by its colour, a key by algebra, the size of an image."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_ledger_bytes import federation

from fdgpriv.claims.colour_class import colour_class
from fdgpriv.claims.embedding_key import embedding_key
from fdgpriv.claims.sizes import sizes
from fdgpriv.data.dataset import ClientData
from fdgpriv.method import Method


def images(n: int, shift: float, seed: int, name: str = "a") -> ClientData:
    """Images of two classes, four of the first to one of the second, of which the second is lighter by `shift`."""
    rng = torch.Generator().manual_seed(seed)
    labels = (torch.arange(n) % 5 == 0).long()
    pixels = 0.4 * torch.rand(n, 3, 8, 8, generator=rng) + shift * labels[:, None, None, None]
    return ClientData(name, pixels, labels, pixels[:0], labels[:0], 2)


def measured(shift: float, method: str = "ccst") -> dict[str, float]:
    clients = {name: images(size, shift, size, name) for name, size in (("a", 40), ("b", 100), ("c", 60))}
    population = SimpleNamespace(auxiliary={"x": images(100, shift, 1), "y": images(100, shift, 2)}, clients=clients)
    evaluator: Any = SimpleNamespace(method=Method.named(method)(), population=population)
    return colour_class(evaluator)


def test_colour_reveals_classes_that_differ_in_it() -> None:
    told, untold = measured(0.2), measured(0.0)
    assert told["colour_accuracy"] == 1.0
    assert untold["colour_accuracy"] == pytest.approx(0.5)  # balanced: always the first class, which four of five have
    assert untold["colour_accuracy_n"] == 3
    assert measured(0.2, "pardon") == {}


def test_a_gradient_reveals_the_embedding() -> None:
    method = Method.named("hfedf").configured({"hidden": 4, "embedding_dim": 3})
    evaluator: Any = SimpleNamespace(method=method, federation=federation(2), seed=0)
    errors = embedding_key(evaluator)
    assert errors["key_error"] < 1e-4
    assert errors["update_error"] < 1e-6
    evaluator.method = Method.named("fedavg")()
    assert embedding_key(evaluator) == {}


@pytest.mark.parametrize(
    ("method", "buffers", "compared"), [("lsi", "share", 0), ("lsi", "keep_local", 38_560), ("ccst", "share", None)]
)
def test_sizes_are_of_one_image_and_of_fedavg_s_model(method: str, buffers: str, compared: int | None) -> None:
    made = Method.named(method).configured({"buffers": buffers})
    evaluator: Any = SimpleNamespace(method=made, federation=federation(2))
    known = {} if compared is None else {"fedavg_bytes": 44_758_972.0 - compared, "backbone_parameters": 11_176_512.0}
    assert sizes(evaluator) == {"image_numbers": 3.0 * 32 * 32} | known
