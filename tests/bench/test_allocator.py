"""What small batches and keeping freed memory save, on photographs. Prints; asserts nothing about time. `make bench`."""

import subprocess
import sys

import pytest
from conftest import pretrained

pytestmark = pytest.mark.bench
ROUNDS = 3
PASSES = """
import sys, torch
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from fdgpriv.models.backbone import backbone
from fdgpriv.utils.memory import reuse_freed
from fdgpriv.utils.seeds import generator
if sys.argv[1] == "kept":
    reuse_freed()
torch.set_num_threads(1)
images = torch.rand(454, 3, 96, 96).to(memory_format=torch.channels_last)

def network():
    half = (0.5,) * 3
    found = backbone("efficientnet_lite0", mean=half, std=half, rng=generator(0))
    return found.to(memory_format=torch.channels_last)

@torch.no_grad()
def forward():
    features = network().eval()
    for part in images.split(int(sys.argv[2])):
        features.features(part, "stride8")

def training():
    trained = network().train()
    for part in images[:64].split(16):
        trained(part).mean().backward()
        trained.zero_grad()

with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool:
    for step in (forward, training):
        pool.submit(step).result()
        start = perf_counter()
        pool.submit(step).result()
        print(perf_counter() - start)
"""


@pretrained
def test_small_batches_and_kept_memory(capsys: pytest.CaptureFixture[str]) -> None:
    def seconds(how: str, at_once: str) -> list[float]:
        command = [sys.executable, "-c", PASSES, how, at_once]
        return list(map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))

    runs = [(seconds("returned", "227"), seconds("returned", "28"), seconds("kept", "28")) for _ in range(ROUNDS)]
    with capsys.disabled():
        for i, step in enumerate(("forward pass to stride 8", "training step")):
            many, few, kept = (sorted(ways[i] for ways in way)[ROUNDS // 2] for way in zip(*runs, strict=True))
            print(f"\n{step}, photographs of 96 px, seconds over those of 227 at once, freed memory returned:")
            print(f"    28 at once {few / many:.2f}, and freed memory kept {kept / many:.2f}")
