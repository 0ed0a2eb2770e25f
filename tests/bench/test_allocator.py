"""What keeping freed memory for the next tensor saves, on photographs. Prints; asserts nothing about time. `make bench`."""

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
images = torch.rand(192, 3, 96, 96).to(memory_format=torch.channels_last)

def network():
    half = (0.5,) * 3
    found = backbone("efficientnet_lite0", mean=half, std=half, rng=generator(0))
    return found.to(memory_format=torch.channels_last)

@torch.no_grad()
def forward():
    features = network().eval()
    for part in images.split(28):
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
def test_freed_memory_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def seconds(how: str) -> list[float]:
        command = [sys.executable, "-c", PASSES, how]
        return list(map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))

    runs = [(seconds("returned"), seconds("kept")) for _ in range(ROUNDS)]
    with capsys.disabled():
        for i, step in enumerate(("forward pass to stride 8", "training step")):
            ratios = sorted(kept[i] / returned[i] for returned, kept in runs)
            print(f"\n{step}, photographs of 96 px, kept / returned: {ratios[ROUNDS // 2]:.2f} of the seconds")
