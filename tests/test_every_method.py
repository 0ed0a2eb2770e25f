"""What every method promises: one seed names one run, and few images, one class or one client are enough."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import COVERING, mostly_slow
from factories import equal, finite, network, run, run_afresh, small

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.federation.transcript import Transcript
from fdgpriv.method import Method

BUILD = network(1, 1, 2, 1)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in Method.names()),
    ("ccst", {"style": "single", "images_per_style": 2}),
    ("ccst", {"style_of": "amplitude"}),
    ("ccst", {"style_of": "amplitude", "style": "single", "images_per_style": 2}),
    ("hfedf", {"embedding": "autoencoder", "autoencoder_epochs": 1}),
    ("lsi", {"recalibrate_bn": True}),
    ("lsi", {"normaliser": "clients"}),
    ("lsi", {"code_compat": True}),
]
QUICK = [(name, {}) for name in Method.names() if name != "pfedhn"]  # which trains as hFedF does
each = pytest.mark.parametrize(("name", "settings"), mostly_slow(VARIANTS, QUICK), ids=str)


@each
def test_a_seed_names_a_run_however_many_work(name: str, settings: dict[str, Any]) -> None:
    method, more = small(name, **settings), {"build": BUILD, "flip": True, "translate": 0.25}
    one = run(method, 5, 3, 7, **more)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    two = run_afresh(method, 5, 3, 7, workers=3, **more)
    assert torch.equal(before, torch.random.get_rng_state())
    assert equal(one.state, two.state)
    assert len(one.transcript.records) == len(two.transcript.records)
    for index, artifact in one.transcript.kept.items():
        assert equal(artifact.tensors(), two.transcript.kept[index].tensors())
    assert finite(one.state)


@pytest.mark.parametrize("name", mostly_slow(Method.names(), COVERING))
def test_another_seed_names_another_run(name: str) -> None:
    states = [run(small(name), 5, 3, 7, build=BUILD, flip=True, translate=0.25, seed=seed).state for seed in (0, 1)]
    assert not equal(*states)


@each
def test_what_crossed_is_read_back_from_disk(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    transcript = run(small(name, **settings), 5, 3, 7, build=BUILD, flip=True, translate=0.25).transcript
    transcript.save(tmp_path)
    back = Transcript.load(tmp_path)
    assert back.records == transcript.records
    for index, artifact in transcript.kept.items():
        assert back.kept[index].facts() == artifact.facts()
        assert equal(back.kept[index].tensors(), artifact.tensors())


@each
def test_what_clients_send_is_disclosed(name: str, settings: dict[str, Any]) -> None:
    method = small(name, **settings)
    records = run(method, 5, 3, 7, build=BUILD, flip=True, translate=0.25).transcript.records
    assert {record.kind for record in records if record.receiver == SERVER} == set(method.disclosure().uploads)


@each
@pytest.mark.parametrize("sizes", [pytest.param((1,), marks=pytest.mark.slow), (1, 1, 2)], ids=str)
def test_one_image_of_one_class_is_enough(name: str, settings: dict[str, Any], sizes: tuple[int, ...]) -> None:
    own = {"augmentation": 1} if name == "ccst" and len(sizes) == 1 else {}
    method = small(name, **settings, **own)
    ran = run(method, *sizes, build=BUILD, labels=(0,) * 4)
    assert finite(ran.state)
    clients = {f"client-{i}" for i in range(len(sizes))} if method.federated else set()
    assert {record.sender for record in ran.transcript.records} >= clients
