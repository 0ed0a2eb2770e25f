"""Compares gradient inversion with the package breaching on the same updates: labels recovered, and PSNR and LPIPS of images.

    python -m fdgpriv.audit --method fedavg --attack none --out out/fedavg
    python examples/compare_breaching.py out/fedavg --updates 20 --iterations 60

An update is one gradient of 1, 4 or 8 images of one client, or the method's own training on 8 or 32 images, of the first
and of the last recorded global model. Both sides read the same change of the parameters. BatchNorm's batch statistics,
which the shared buffers reveal, replace breaching's buffers. Images are reconstructed with their true labels by breaching
(`deepleakage` optimises labels, too), with estimated labels by fdgpriv, which has public images; breaching has no use for
any. Seconds are of one update, those for what is learned from public images divided among the updates.
"""

import argparse
import contextlib
import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv import data
from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.attack import Attack
from fdgpriv.config import AuditConfig
from fdgpriv.defense import Defense
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.transcript import Transcript
from fdgpriv.metrics.matching import pairs
from fdgpriv.metrics.networks import SHIPPED
from fdgpriv.metrics.pixels import EXACT_DB, psnr_per_image
from fdgpriv.results.finding import Results
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.tasks.images import Images
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.torchvision_import import load_torchvision

batchnorm: Any = import_module("fdgpriv.attacks._batchnorm")
batch_labels: Any = import_module("fdgpriv.attacks._batch_labels")

INSTALL = "want the package breaching 0.1.2: pip install breaching==0.1.2 hydra-core, in an environment of its own"
ONE_STEP = {
    "local_epochs": 1,
    "batch_size": 10_000,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "image_changes": "none",
    "lr": 0.1,
}
STRATEGIES = ("iDLG", "analytic", "yin", "wainakh-simple", "wainakh-whitebox", "bias-corrected", "bias-text")
CONFIGURATIONS = ("invertinggradients", "modern", "seethroughgradients", "deepleakage")


class Metadata(dict[str, Any]):
    """What breaching is told of images: it reads both keys and attributes."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


@dataclass(frozen=True, eq=False)
class Update:
    """One client's model, the images (n, 3, H, W) and labels (n,) that it was trained on, and what the change tells.

    Attributes:
        change: By parameter, received minus trained, in units of the gradient.
        moments: By BatchNorm layer, the batch statistics that the buffers reveal.
    """

    artifact: Artifact
    images: Tensor
    labels: Tensor
    change: Mapping[str, Tensor]
    moments: Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Setting:
    """Updates of n images from one received model, and the adversary that reads them."""

    adversary: Adversary
    simulator: TrainingSimulator
    received_model: ModelState
    updates: Sequence[Update]
    n: int

    @property
    def model(self) -> nn.Module:
        """The received model, in evaluation mode."""
        model = self.simulator.network().eval()
        self.received_model.load_into(model)
        return model


def evaluator_of(folder: Path, one_step: bool) -> Evaluator:
    """The evaluator of a run's first training, whose adversaries simulate one gradient if `one_step`."""
    config: Any = Results.load(folder / "results.json").config
    (name,), target, seed = config["methods"], config["targets"][0], config["seeds"][0]
    audit = AuditConfig(
        methods=(name,), targets=(target,), seeds=(seed,), preset=config["preset"], device="cpu"
    ).checked()
    dataset = data.load("digits")
    population = audit.populate(dataset, name, target, seed)
    federation = audit.federation(dataset, list(population.clients), seed, name)
    method: Any = audit.method(name)
    method = replace(method, **ONE_STEP) if one_step else method
    transcript = Transcript.load(next((folder / "transcript").iterdir()))
    return Evaluator(
        population, method, federation, Defense.named("none")(), transcript, seed, dict.fromkeys((1, 4, 8, 32), 1)
    )


def settings(evaluator: Evaluator, sizes: Sequence[int], number: int) -> Iterator[tuple[str, Setting]]:
    """By the round of the received model, `number` updates of each size."""
    target = evaluator.series(ModelState.kind)
    simulator = target.simulator
    assert isinstance(simulator, TrainingSimulator)
    assert simulator.first is not None
    last = next(iter(target.received_model.values()))
    clients = list(evaluator.population.clients.values())
    for received_model in (simulator.first.received_model, last):
        assert received_model is not None
        model = simulator.network()
        for n in sizes:
            adversary = evaluator.adversaries(target, threat("server"), (n,), Images())[0].adversary
            updates = []
            for turn in range(number):
                client, rng = clients[turn % len(clients)], generator(7, turn, n)
                index = torch.randperm(len(client), generator=rng)[:n]
                images = ClientImages(client.images, client.labels, received_model)
                made = simulator.simulate(ClientSample(images, index), rng)
                after = simulator.after(made, received_model).state
                rate = simulator.plain.new_optimizer(model, simulator.round).param_groups[0]["lr"]
                change = {name: tensor / rate for name, tensor in simulator.change(made, received_model).items()}
                batches = batchnorm.batches_seen(after, received_model.state)
                moments = batchnorm.revealed(model, after, received_model.state, batches)
                updates.append(Update(made, client.images[index], client.labels[index], change, moments))
            yield f"round {received_model.round}", Setting(adversary, simulator, received_model, updates, n)


@cache
def configured(configuration: str, *options: str) -> Any:
    """The package's configuration."""
    return import_module("breaching").get_attack_config(configuration, list(options))


def attacker(
    setting: Setting, update: Update, labels: Tensor | None, configuration: str, options: Sequence[str]
) -> Any:
    """The package's attack and its two arguments."""
    model = setting.model
    with torch.no_grad():
        for name, layer in batchnorm.bn_layers(model).items():
            if name in update.moments:
                layer.running_mean.copy_(update.moments[name][0])
                layer.running_var.copy_(update.moments[name][1])
    config = configured(configuration, *options)
    shape = tuple(update.images.shape[1:])
    about = Metadata(shape=shape, modality="vision", task="classification", classes=setting.adversary.classes)
    sent = [{"parameters": list(model.parameters()), "buffers": list(model.buffers()), "metadata": about}]
    told = {"num_data_points": setting.n, "labels": labels, "local_hyperparams": None}
    gradients = [update.change[name].clone() for name, _ in model.named_parameters()]
    torch.manual_seed(1)
    attack = import_module("breaching").attacks.prepare_attack(deepcopy(model), nn.CrossEntropyLoss(), config)
    attack.data_shape = shape
    return attack, sent, [{"gradients": gradients, "buffers": None, "metadata": told}]


def our_labels(estimator: Any, update: Update) -> Tensor:
    """(n,) in ascending order."""
    counts = (estimator(update.artifact) * len(update.labels)).round().long()
    return torch.repeat_interleave(torch.arange(len(counts)), counts)


def equal_numbers(classes: int, update: Update) -> Tensor:
    """(n,) labels that occur equally often: a guess without the update."""
    return torch.arange(len(update.labels)) * classes // len(update.labels)


def their_labels(setting: Setting, update: Update, strategy: str) -> Tensor:
    attack, sent, shared = attacker(setting, update, None, "invertinggradients", [f"label_strategy={strategy}"])
    found: Tensor = attack.prepare_attack(sent, shared)[1]
    return found.flatten()[: setting.n].long()


def our_images(setting: Setting, options: Mapping[str, Any]) -> Sequence[Tensor]:
    """The images (n, 3, H, W) of each update."""
    attack = Attack.named("gradient_inversion").configured({"most": setting.n, **options})
    none = torch.zeros(0, dtype=torch.int64)
    seen = [Observation(one.artifact, setting.n, none[None], none, setting.received_model) for one in setting.updates]
    return [torch.as_tensor(images) for images in attack.infer(setting.adversary, seen, generator(3))]


def mean_images(setting: Setting) -> Sequence[Tensor]:
    """The mean of the public images: a guess without the update."""
    mean = setting.adversary.public_images[0].mean(0).expand(setting.n, -1, -1, -1)
    return [mean] * len(setting.updates)


def all_their_images(setting: Setting, configuration: str, iterations: int) -> Sequence[Tensor]:
    """The images (n, 3, H, W) of each update."""
    return [their_images(setting, update, configuration, iterations) for update in setting.updates]


def their_images(setting: Setting, update: Update, configuration: str, iterations: int) -> Tensor:
    labels = None if configuration == "deepleakage" else update.labels.sort().values
    if configuration == "deepleakage":
        iterations = max(1, iterations // 20)  # L-BFGS evaluates up to 20 times in each
    options = [f"optim.max_iterations={iterations}"]
    attack, sent, shared = attacker(setting, update, labels, configuration, options)
    found: Tensor = attack.reconstruct(sent, shared, {})[0]["data"]
    return found.detach().clamp(0, 1).nan_to_num(0.5)


def labels_table(evaluators: Mapping[str, Evaluator], number: int) -> Iterator[list[str]]:
    yield ["update", "received model", "n", "fdgpriv", "equal numbers", *STRATEGIES]
    for form, evaluator in evaluators.items():
        for round_name, setting in settings(evaluator, (1, 4, 8) if form == "one step" else (8, 32), number):
            estimator = batch_labels.LabelEstimator(setting.adversary, setting.received_model, setting.n, 150)
            ways: dict[str, Callable[[Update], Tensor]] = {
                "fdgpriv": partial(our_labels, estimator),
                "equal": partial(equal_numbers, setting.adversary.classes),
            }
            ways |= {name: partial(their_labels, setting, strategy=name) for name in STRATEGIES}
            row = [form, round_name, str(setting.n)]
            for way in ways.values():
                try:
                    row.append(interval([right(way(update), update.labels) for update in setting.updates]))
                except Exception as error:
                    row.append(f"fails: {type(error).__name__}")
            yield row


def images_table(evaluator: Evaluator, sizes: Sequence[int], number: int, iterations: int) -> Iterator[list[str]]:
    yield ["received model", "n", "attack", "PSNR, dB", "LPIPS", "seconds an update"]
    alone = {"steps": iterations, "prior": 0.0, "tv": 0.01, "lr": 0.1, "signed": True}
    for round_name, setting in settings(evaluator, sizes, number):
        ways: dict[str, Callable[[], Sequence[Tensor]]] = {
            "public mean image": partial(mean_images, setting),
            "fdgpriv, default": partial(our_images, setting, {}),
            f"fdgpriv, steps={iterations}, prior=100": partial(
                our_images, setting, {"steps": iterations, "prior": 100.0}
            ),
            f"fdgpriv, steps={iterations}, prior=0, tv=0.01, lr=0.1, signed=True": partial(our_images, setting, alone),
            **{
                f"breaching, {name}, {iterations} iterations": partial(all_their_images, setting, name, iterations)
                for name in CONFIGURATIONS
            },
        }
        for name, way in ways.items():
            row, start = [round_name, str(setting.n), name], perf_counter()
            try:
                found = way()
                seconds = (perf_counter() - start) / len(found)
                matched = [pairs(images, update.images) for images, update in zip(found, setting.updates, strict=True)]
                decibels = [float(psnr_per_image(*pair).clamp_max(EXACT_DB).mean()) for pair in matched]
                with torch.no_grad():
                    distances = [float(SHIPPED.distances[0](2 * a - 1, 2 * b - 1).mean()) for a, b in matched]
                yield [*row, interval(decibels), interval(distances), f"{seconds:.2f}"]
            except Exception as error:
                yield [*row, f"fails: {type(error).__name__}", "", ""]


def right(found: Tensor, true: Tensor) -> float:
    """Share of the labels that are right, in any order."""
    return (Counter(found.tolist()) & Counter(true.tolist())).total() / len(true)


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % t interval over updates."""
    found = mean_interval(values)
    return f"{found.value:.3g} [{found.lower:.3g}, {found.upper:.3g}]"


def printed(rows: Iterator[list[str]]) -> None:
    """Prints a Markdown table, row by row; what breaching prints is dropped."""
    for place in count():
        with contextlib.redirect_stdout(io.StringIO()):
            row = next(rows, None)
        if row is None:
            return
        print(f"| {' | '.join(row)} |", *([f"|{'---|' * len(row)}"] if place == 0 else []), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run of one method on digits")
    parser.add_argument("--updates", type=int, default=20, help="updates of each setting whose labels are compared")
    parser.add_argument("--images", type=int, default=4, help="updates whose images are reconstructed; 0 for none")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 8], help="of these numbers of images")
    parser.add_argument("--iterations", type=int, default=60, help="of each reconstruction")
    options = parser.parse_args()
    load_torchvision()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    try:
        import_module("breaching")
    except ImportError as error:
        raise SystemExit(f"{INSTALL} ({error})") from None
    torch.set_num_threads(1)
    one_step = evaluator_of(options.run, one_step=True)
    if options.updates:
        evaluators = {"one step": one_step, "as trained": evaluator_of(options.run, one_step=False)}
        printed(labels_table(evaluators, options.updates))
    if options.images:
        print()
        printed(images_table(one_step, options.sizes, options.images, options.iterations))


if __name__ == "__main__":
    main()
