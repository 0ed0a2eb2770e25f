"""Inversions against their bounds, and against the package breaching. Prints; asserts nothing about time. `make bench`.

The package (Geiping et al.: `pip install breaching==0.1.2 hydra-core`) is used where it imports.
"""

from collections.abc import Callable
from importlib import import_module
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_gradient_inversion import SmallCnn
from torch import Tensor, nn

from fdgpriv import data
from fdgpriv.attack import Attack
from fdgpriv.metrics.pixels import psnr_per_image
from fdgpriv.models.backbone import Classifier, backbone
from fdgpriv.utils.seeds import generator

pytestmark = pytest.mark.bench
descent: Any = import_module("fdgpriv.attacks._inversion")
bn: Any = import_module("fdgpriv.attacks._batchnorm")
STEPS, REPEATS = 20, 5
IMAGES, ITERATIONS = 3, 150


def seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_the_loop_against_forward_and_backward_alone(batch: int, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    rng = generator(0)
    model = Classifier(backbone("small_resnet", mean=(0.5,) * 3, std=(0.5,) * 3, rng=rng), 10, rng).eval()
    images = torch.rand(batch, 3, 32, 32, generator=rng)
    labels = torch.zeros(batch, dtype=torch.int64)

    def objective(prediction: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(prediction), labels, reduction="none")

    def bare() -> None:
        prediction = images.clone().requires_grad_()
        for _ in range(STEPS):
            torch.autograd.grad(objective(prediction).sum(), prediction)

    def ours() -> None:
        descent.descend(objective, [images], STEPS, 0.1)

    bare(), ours()
    pairs = [(seconds(bare), seconds(ours)) for _ in range(REPEATS)]
    ratio = median(b / o for b, o in pairs)
    with capsys.disabled():
        print(
            f"\n{batch} images: {STEPS / median(o for _, o in pairs):.1f} iterations/s, {ratio:.2f} of forward plus backward"
        )
        print("    alone (goal: at least 0.9)")


def test_gradient_inversion_against_breaching(capsys: pytest.CaptureFixture[str]) -> None:
    """The same network, images and gradients for both: PSNR and seconds per iteration."""
    breaching = pytest.importorskip("breaching", exc_type=ImportError)
    torch.set_num_threads(1)
    model = SmallCnn(10, generator(0)).eval()
    loss = nn.CrossEntropyLoss()
    domains = data.load("digits").domains
    rows: dict[str, list[tuple[float, float]]] = {}
    for number in range(IMAGES):
        image, label = domains[number].images[:1], domains[number].labels[:1]
        names = [name for name, _ in model.named_parameters()]
        gradient = torch.autograd.grad(loss(model(image), label), list(model.parameters()))
        change = dict(zip(names, gradient, strict=True))

        def ours(change: dict[str, Tensor] = change, label: Tensor = label) -> Tensor:
            part: Any = Attack.named("gradient_inversion")
            attack = part(steps=ITERATIONS, lr=0.1, signed=True, tv=0.0, prior=0.0, bn=0.0)
            grey = torch.full((1, 3, 32, 32), 0.5)
            found: Tensor = attack.inverted(model, change, label, {}, grey, 0.0, True, generator(1))
            return found

        def theirs(tv: float, gradient: Any = gradient, label: Tensor = label) -> Tensor:
            steps = f"optim.max_iterations={ITERATIONS}"
            config = breaching.get_attack_config(
                "invertinggradients", [steps, f"regularization.total_variation.scale={tv}"]
            )
            about = SimpleNamespace(shape=(3, 32, 32), modality="vision")
            told = {"num_data_points": 1, "labels": label, "local_hyperparams": None}
            sent = [{"parameters": list(model.parameters()), "buffers": [], "metadata": about}]
            shared = [{"gradients": list(gradient), "buffers": None, "metadata": told}]
            torch.manual_seed(1)
            attacker = breaching.attacks.prepare_attack(model, loss, config)
            found: Tensor = attacker.reconstruct(sent, shared, {})[0]["data"]
            return found

        runs = {"ours": ours, "breaching": lambda: theirs(0.2), "breaching without TV": lambda: theirs(0.0)}
        for name, run in runs.items():
            start = perf_counter()
            found = run().clamp(0, 1)
            spent = (perf_counter() - start) / ITERATIONS
            rows.setdefault(name, []).append((float(psnr_per_image(found, image)), spent))
    with capsys.disabled():
        print(f"\ngradient inversion, {ITERATIONS} iterations, {IMAGES} single images, small CNN without BatchNorm:")
        for name, found_rows in rows.items():
            decibels = ", ".join(f"{value:.1f}" for value, _ in found_rows)
            print(f"    {name}: PSNR {decibels} dB, {1e3 * median(s for _, s in found_rows):.1f} ms an iteration")
