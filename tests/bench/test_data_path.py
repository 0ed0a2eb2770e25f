"""Starting from the image cache against decoding, and a checkpoint against a round, within one run. `make bench`."""

from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
import torch
from PIL import Image

from fdgpriv import data
from fdgpriv.config import AuditConfig
from fdgpriv.defense import Defense
from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import populate
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire

pytestmark = pytest.mark.bench
IMAGES, FILE, SIDE = 500, 227, 96  # per class; pixels
ROUNDS = 3


def test_loading_against_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    for place in ("a/x", "a/y", "b/x", "b/y"):
        (tmp_path / "data" / place).mkdir(parents=True)
        for i in range(IMAGES):
            coarse = torch.randint(256, (3, 24, 24), generator=rng, dtype=torch.uint8)
            picture = Image.fromarray(coarse.permute(1, 2, 0).contiguous().numpy()).resize((FILE, FILE))
            picture.save(tmp_path / "data" / place / f"{i}.jpg")
    monkeypatch.setenv("FDGPRIV_CACHE", str(tmp_path / "cache"))
    times = []
    for _ in range(4):
        start = perf_counter()
        data.load("folder", root=tmp_path / "data", image_size=SIDE)
        times.append(perf_counter() - start)
    build, load = times[0], median(times[1:])
    print(
        f"\n{4 * IMAGES} JPEG files of {FILE} px at {SIDE} px: decoded and stored in {build:.2f} s, loaded in {load:.3f} s"
    )
    print(f"loading / building: {load / build:.3f}")


@pytest.mark.parametrize("name", ["fedavg", "stablefdg", "hfedf"])
def test_a_checkpoint_against_a_round(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, dataset = AuditConfig().checked(), data.load("digits")
    population = populate(dataset, dataset.default_target, "single", 15, 0)
    method = config.method(f"{name}:rounds={ROUNDS}")
    federation = config.federation(dataset, list(population.clients), 0)
    spent: list[float] = []
    save = Checkpoints.save

    def timed(self: Checkpoints, stage: str, index: int, state: object, transcript: Transcript) -> None:
        start = perf_counter()
        save(self, stage, index, state, transcript)
        spent.append(perf_counter() - start)

    monkeypatch.setattr(Checkpoints, "save", timed)
    monkeypatch.setattr(Checkpoints, "due", property(lambda self: True))
    wire = Wire({c: len(d) for c, d in population.clients.items()}, Defense.named("none")())
    start = perf_counter()
    LocalEngine(2, checkpoints=Checkpoints(tmp_path, {})).run(method, federation, population.clients, wire)
    round = (perf_counter() - start - sum(spent)) / ROUNDS
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) / 1e6
    print(f"\n{name}: a checkpoint of 15 clients takes {median(spent):.3f} s ({size:.0f} MB), a round {round:.2f} s")
    print(f"checkpoint / round: {median(spent) / round:.3f}")
