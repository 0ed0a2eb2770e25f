"""What every method promises: one seed names one run, and few images, one class or one client are enough."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import COVERING, mostly_slow
from factories import equal, federation, finite, network, run, run_afresh, run_on, seeded, small

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.transcript import Transcript
from fdgpriv.method import Method
from fdgpriv.models.batchnorm import with_fresh_statistics
from fdgpriv.results.utility import logits

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


def striped(client: str) -> ClientData:
    """Nine images of three classes: horizontal stripes, vertical stripes, and a chequerboard."""
    even, labels = torch.arange(8) % 2, torch.arange(11) % 3
    rows, columns = even[:, None].expand(8, 8), even[None].expand(8, 8)
    patterns = torch.stack([rows, columns, (rows - columns).abs()]).float()
    noise = torch.rand(11, 3, 8, 8, generator=seeded(int(client[-1])))
    images = 0.2 + 0.6 * patterns[labels][:, None] + 0.1 * noise
    return ClientData(client, images[:9], labels[:9], images[9:], labels[9:], 3)


LONGER: dict[str, dict[str, Any]] = {
    "fedsr": {"rounds": 20},
    "fpl": {"rounds": 40},
    "lsi": {"rounds": 40},
    "pardon": {"rounds": 40, "lr": 0.03},
    "pfedhn": {"rounds": 40, "local_steps": 10},
    "rsc": {"rounds": 40},
    "stablefdg": {"rounds": 40},
}


@pytest.mark.parametrize("name", mostly_slow(Method.names(), {*Method.names()} - {"pfedhn"}))
def test_the_returned_model_has_learned(name: str) -> None:
    """The model that is evaluated is the one that was trained: it recognises nearly all images of easy classes."""
    method = small(name, **LONGER.get(name, {"rounds": 10}))
    world = federation(3, build=BUILD)
    data = {client: striped(client) for client in world.clients}
    returned = run_on(method, world, data).model
    correct = 0
    for client, images in data.items():
        model = method.model_of(returned, client) if method.personal else returned
        if method.local_statistics:
            model = with_fresh_statistics(model, images.pixels, 64)
        correct += int((logits(model, images.pixels).argmax(1) == images.labels).sum())
    assert correct >= 24  # of 27
