"""Local SGD, model averaging and learning-rate schedules, shared by all methods."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import STATISTICS, ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.averaging import average as average
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.local_training import PLAIN, LocalTraining, Loss, Workload
from fdgpriv.federation.local_training import Batch as Batch
from fdgpriv.federation.request import Answers
from fdgpriv.method import Method
from fdgpriv.models.cpu_io import device_of
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt

from ._augmentation import ImageChanges, augmented
from ._augmentation import augment as augment

Schedule = Literal["constant", "cosine", "step20", "step_late"]
SCHEDULES: dict[Schedule, Callable[[int, int], float]] = {
    "constant": lambda round, rounds: 1.0,
    "cosine": lambda round, rounds: 0.5 * (1 + math.cos(math.pi * round / rounds)),
    "step20": lambda round, rounds: 0.1 ** (round // 20),
    "step_late": lambda round, rounds: 1.0 if 5 * round < 4 * rounds else 0.1,
}


Buffers = Literal["share", "keep_local", "freeze", "freeze_backbone"]
A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True)
class LocalSGD(Method):
    """The hyperparameters of local SGD and plain averaging.

    Attributes:
        rounds: T.
        participants: Clients per round; None for all.
        local_epochs: E, passes over the local data per round.
        batch_size: B.
        lr, momentum, weight_decay: Hyperparameters of SGD.
        schedule: Learning rate over rounds: constant, cosine, step20 (x 0.1 every 20 rounds), or step_late (x 0.1 in the
            last fifth of the rounds).
        buffers: BatchNorm statistics are shared (``share``), kept by each client (``keep_local``: an evaluation of the
            global model recomputes them), or never updated (``freeze``: BatchNorm always in evaluation mode;
            ``freeze_backbone``: only that of the backbone).
        image_changes: Augmentation of training images: ``flip_translate`` (if the dataset allows them), ``crop`` (random
            crops of at least 0.8 of the area, flips), ``crop_colour`` (crops of at least 0.7, flips, colour jitter of 0.3,
            grayscale), ``crop_strong_colour`` (the same with a jitter of 0.4), or ``none``.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {
            "rounds": 2,
            "participants": None,
            "local_epochs": 1,
            "batch_size": 32,
            "lr": 0.1,
            "schedule": "constant",
        },
        "default": {
            "rounds": 16,
            "participants": None,
            "local_epochs": 2,
            "batch_size": 12,
            "lr": 0.1,
            "schedule": "cosine",
        },
        "paper": {},
    }

    local_training: ClassVar[LocalTraining] = PLAIN

    rounds: PositiveInt = 50
    participants: PositiveInt | None = 10
    local_epochs: PositiveInt = 5
    batch_size: PositiveInt = 32
    lr: PositiveFloat = 1e-3
    momentum: NonNegativeFloat = 0.9
    weight_decay: NonNegativeFloat = 5e-4
    schedule: Schedule = "cosine"
    buffers: Buffers = "share"
    image_changes: ImageChanges = "flip_translate"

    @property
    def frozen(self) -> bool:
        """Whether the backbone's BatchNorm statistics are never updated."""
        return self.buffers.startswith("freeze")

    @property
    def local_statistics(self) -> bool:
        return self.buffers == "keep_local"

    def withheld(self, model: nn.Module, sender: str) -> frozenset[str]:
        """Names of the tensors of `model` that `sender`, a client or the server, does not share."""
        if self.buffers != "keep_local":
            return frozenset()
        return frozenset(name for name in model.state_dict() if name.rpartition(".")[2] in STATISTICS)

    @property
    def coupling(self) -> str | None:
        """Why the loss of a mini-batch is not a mean of losses of single images; None if it is."""
        return "its client loss is not declared to be a mean over images"

    @property
    def elementwise_optimizer(self) -> bool:
        return self.local_training.elementwise

    def trained_by(self, local_training: LocalTraining) -> Self:
        """This method with another local training, which copies made by `dataclasses.replace` keep."""
        attributes = {
            "local_training": local_training,
            "installed_as": self.name(),
            "__module__": type(self).__module__,
        }
        subclass: type[Self] = type(type(self).__name__, (type(self),), attributes)
        return subclass(**{field.name: getattr(self, field.name) for field in fields(self)})

    def undefended(self) -> Self:
        plain = self.local_training.undefended()
        return self if plain is self.local_training else self.trained_by(plain)

    def check_data(self, data: ClientData) -> None:
        self.local_training.check(self.workload(data))

    def workload(self, data: ClientData) -> Workload:
        """The local training of a client with these data."""
        return Workload(len(data), data.copies, self.batch_size, self.rounds, self.passes)

    def disclosure(self) -> Disclosure:
        uploads = (ModelState.kind,)
        return Disclosure(self.name(), self.rounds, uploads=uploads, training=self, participants=self.participants)

    def lr_at(self, round: int) -> float:
        """Learning rate in this round."""
        return self.lr * SCHEDULES[self.schedule](round, self.rounds)

    def new_optimizer(self, model: nn.Module, round: int) -> torch.optim.Optimizer:
        """A new client optimiser for this round."""
        return torch.optim.SGD(model.parameters(), self.lr_at(round), self.momentum, weight_decay=self.weight_decay)

    def train_plainly(self, model: nn.Module, data: ClientData, round: int, rng: torch.Generator) -> None:
        """Trains `model` in place as a client does in this round, with cross-entropy only."""

        def loss(batch: Batch) -> Tensor:
            return nn.functional.cross_entropy(model(batch.images), batch.labels)

        train(model, loss, data, self, round, rng)

    def plain_batches(self, data: ClientData, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """The augmented batches of `train_plainly`, one per step: images (B, 3, H, W) and labels (B,)."""
        for batch in mini_batches(data, self, rng):
            yield batch.images, batch.labels

    def ready(self, model: nn.Module, n: int) -> None:
        """Sets `model` to the training mode of a client with n images.

        BatchNorm stays in evaluation mode if batches have one image, which has no batch statistics.
        """
        model.train()
        all_frozen = self.buffers == "freeze" or min(self.batch_size, n) == 1
        if not (all_frozen or self.frozen):
            return
        for module in (model if all_frozen else cast(nn.Module, model.backbone)).modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()

    def steps(self, n: int) -> int:
        """Mini-batches per round of a client with n images."""
        return sum(1 for _ in self.passes(n, torch.Generator()))

    def passes(self, n: int, rng: torch.Generator) -> Iterator[Tensor]:
        """The mini-batches of one round, as indices into n samples: E shuffled passes."""
        for _ in range(self.local_epochs):
            yield from batches(n, self.batch_size, rng)


def train(
    model: nn.Module,
    loss: Loss,
    data: ClientData,
    settings: LocalSGD,
    round: int,
    rng: torch.Generator,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Local training: E epochs of SGD on `loss(batch)`.

    Args:
        model: Trained in place, left in train mode.
        loss: Loss of one mini-batch.
        data: The client's data.
        settings: E, B and the optimiser's hyperparameters.
        round: Sets the learning rate.
        rng: For the mini-batches, augmentation and, under some defenses, noise.
        optimizer: Keeps its state from earlier rounds; None for a new one.
    """
    settings.ready(model, len(data))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # 1.2 times the images/s on a CPU
    is_new = optimizer is None
    if optimizer is None:
        optimizer = settings.new_optimizer(model, round)
    for group in optimizer.param_groups:
        group["lr"] = settings.lr_at(round)
    workload, device = settings.workload(data), device_of(model)
    for batch in mini_batches(data, settings, rng):
        images = batch.images.to(device, memory_format=torch.channels_last)
        optimizer.zero_grad()
        device_batch = Batch(batch.index, images, batch.labels.to(device))
        settings.local_training.backward(model, loss, device_batch, workload, rng)
        optimizer.step()
    optimizer.zero_grad()  # frees the gradients: there may be many clients
    if is_new:
        optimizer.state.clear()  # it is part of a cycle, and would be freed at the next collection of garbage


def mini_batches(data: ClientData, settings: LocalSGD, rng: torch.Generator) -> Iterator[Batch]:
    """The augmented mini-batches of one round."""
    for index in settings.local_training.batches(settings.workload(data), rng):
        yield Batch(index, augmented(data.pixels[index], data, settings.image_changes, rng), data.labels[index])


def batches(n: int, size: int, rng: torch.Generator) -> Iterator[Tensor]:
    """A shuffled pass over n samples in batches of `size`, without the last incomplete batch; one batch if n < `size`.

    BatchNorm statistics of a few images are unreliable. Of the released codes only StableFDG's, by Dassl's loader, drops it.
    Shuffling drops each image with equal probability.
    """
    used = max(1, n // size) * size
    yield from torch.randperm(n, generator=rng)[:used].split(size)


def drawn_batches(n: int, size: int, steps: int, rng: torch.Generator) -> Iterator[Tensor]:
    """`steps` batches of min(n, `size`) of n samples, each drawn independently of the others."""
    for _ in range(steps):
        yield torch.randperm(n, generator=rng)[:size]


def batch_count(n: int, size: int) -> int:
    """Number of batches that `batches` yields for n samples."""
    return max(1, n // size)


def answered(answers: Answers, kind: type[A]) -> dict[str, A]:
    """By client, the artifact of this kind in its answer; clients without one are left out."""
    return {
        client: artifact for client, message in answers.items() for artifact in message if isinstance(artifact, kind)
    }


def model_state(answers: Answers) -> dict[str, dict[str, Tensor]]:
    """By client, the model state in its answer."""
    return {client: artifact.state for client, artifact in answered(answers, ModelState).items()}


def shared_state(model: nn.Module, sender: str, round: int, settings: LocalSGD) -> ModelState:
    """The model state that `sender` shares, without the tensors that it withholds."""
    return ModelState.of(model, sender, round).without(settings.withheld(model, sender))


def load_average(
    model: nn.Module, states: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | None = None
) -> None:
    """Loads the average of the shared states into `model`; entries that were not shared are unchanged."""
    model.load_state_dict(average(states, weights), strict=False)
