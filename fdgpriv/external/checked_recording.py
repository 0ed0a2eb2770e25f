"""Runs all checks of a recorded training, within a given time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from time import perf_counter

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import as_images, as_stored
from fdgpriv.external import recording_checks
from fdgpriv.external.recorded_changes import (
    MODELS,
    ComparedClient,
    RecordedClientSimulator,
    SharedModel,
    shared_models,
)
from fdgpriv.external.recorded_method import Features, Network, Train
from fdgpriv.external.recorded_population import GivenFederation
from fdgpriv.external.recording_checks import Alternative, LabelFit, StatisticsSent
from fdgpriv.federation.transcript import Transcript
from fdgpriv.results.recording_check import RecordingCheck, RecordingChecks
from fdgpriv.utils.failures import one_line
from fdgpriv.utils.global_rng import global_draws

SECONDS = 60.0  # of simulated clients
_CONVERTED_CLIENTS = 5  # whose changes are simulated under other conversions of images
_DIGESTED = torch.zeros(0, dtype=torch.uint8)

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CIFAR = ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))


@dataclass(frozen=True, eq=False)
class RecordedEvidence:
    """What the checks compare.

    Attributes:
        transcript: The recording.
        images: The images as given.
        clients: By name, its images as the evaluator takes them.
        network: The network, with the conversion of images.
        train: The user's training; None if not given.
        normalized: Whether a conversion was given.
        not_evaluated: By name of a series of artifacts that cannot be evaluated, the reason.
        statistics: Of BatchNorm, as the server sent them after each round.
        misplaced: Rounds of models that are the mean of the uploads of another round than the one before, and that round.
    """

    transcript: Transcript
    images: GivenFederation
    clients: Mapping[str, ClientData]
    network: Network
    train: Train | None
    normalized: bool
    not_evaluated: Mapping[str, str]
    statistics: Sequence[StatisticsSent]
    misplaced: Sequence[tuple[int, int]]

    def checks(self, seconds: float = SECONDS) -> RecordingChecks:
        """All checks; those of simulated clients on as many clients as the time allows, at least two.

        Raises:
            ValueError: The training raises an exception, or does not change the model.
        """
        models = shared_models(self.transcript, self.images.domain_of)
        fits = [fit for model in models if (fit := self._label_fit(model)) is not None]
        checks = [
            *self._of_images(),
            *self._questions(),
            recording_checks.labels(fits, self.images.class_names or tuple(map(str, range(self._classes)))),
            recording_checks.rounds(self.misplaced),
            recording_checks.buffers(self.statistics),
        ]
        if self.train is None or self.not_evaluated.keys() & {*MODELS} or not models:
            return _in_order(checks)
        return _in_order([*checks, *self._of_changes(self.train, models, seconds)])

    @property
    def _classes(self) -> int:
        return next(iter(self.clients.values())).classes

    def _of_images(self) -> list[RecordingCheck]:
        """The checks of numbers and equality of images."""
        counts = [
            (record.sender, record.round, int(artifact.count))
            for record, artifact in self.transcript.of_kind(SampleCount.kind)
            if isinstance(artifact, SampleCount) and record.receiver == SERVER
        ]
        private = {name: set(_digests(images.pixels)) for name, images in self.images.clients.items()}
        public = {name: _digests(images.pixels) for name, images in self.images.public.items()}
        return [
            recording_checks.sample_counts(counts, {name: len(data) for name, data in self.clients.items()}),
            recording_checks.public_images(private, public),
            recording_checks.clients_in_common(private),
        ]

    def _questions(self) -> list[RecordingCheck]:
        """A note for each reason for which artifacts are not evaluated."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.not_evaluated.items():
            by_reason.setdefault(reason, []).append(name)
        return [
            RecordingCheck(
                check="questions", outcome="note", sentence=f"all questions about {', '.join(names)} are lost: {reason}"
            )
            for reason, names in by_reason.items()
        ]

    def _label_fit(self, shared: SharedModel) -> LabelFit | None:
        """How the labels of a client fit the model that it sent; None if it sent a part of a model."""
        model = self.network.new()
        if not {name for name, _ in model.named_parameters()} <= shared.sent.keys():
            return None
        model.load_state_dict(shared.sent, strict=False)
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train()
        data = self.clients[shared.client]
        try:
            with torch.no_grad(), global_draws():
                log_probabilities = model(as_images(data.pixels)).log_softmax(1)
        except Exception:  # BatchNorm on a batch of too few values
            return None
        return (
            LabelFit.of(shared.client, log_probabilities, data.labels) if log_probabilities.isfinite().all() else None
        )

    def _of_changes(self, train: Train, models: Sequence[SharedModel], seconds: float) -> list[RecordingCheck]:
        """The checks of recorded changes against simulated ones."""
        start = perf_counter()
        simulator = RecordedClientSimulator(train, self.network, self.clients)
        inputs = self._checked_train(simulator, models[0])
        clients = list(simulator.all_of(models, 0.7 * seconds))
        recorded = len(models)
        extent = f"{len(clients)} of {recorded} clients"
        why = "" if len(clients) == recorded else f", as many as {seconds:.0f} s allow"
        checks = [
            RecordingCheck(check="simulated", outcome="pass", sentence=f"{extent} were simulated{why}"),
        ]
        sizes = {name: len(data) for name, data in self.clients.items()}
        for check in (
            recording_checks.direction,
            recording_checks.names,
            partial(recording_checks.weights, sizes=sizes),
        ):
            checks.append(check(clients))
            if (
                checks[-1].outcome == "error"
            ):  # changes of other images tell of the training only if a conversion explains them
                left = seconds - (perf_counter() - start)
                conversions = self._normalisation(simulator, models, clients, inputs, left)
                return [*checks, *(check for check in conversions if check.outcome == "error")]
        return [
            *checks,
            *self._normalisation(simulator, models, clients, inputs, seconds - (perf_counter() - start)),
            recording_checks.steps(clients),
            recording_checks.uploads(clients),
        ]

    def _checked_train(self, simulator: RecordedClientSimulator, shared: SharedModel) -> list[Tensor]:
        """Runs the training once; returns batches that the network got.

        Raises:
            ValueError: The training raises an exception, or does not change the model.
        """
        inputs = list[Tensor]()
        try:
            change = simulator.change(shared, 0, inputs=inputs)
        except Exception as error:
            wanted = "train: want train(model, images, labels, round, rng), which trains model in place"
            raise ValueError(f"{wanted}; got {one_line(error)}") from error
        if not change.length > 0:
            raise ValueError(f"train: want the model trained in place, got a change of {change.length:g}")
        return inputs

    def _normalisation(
        self,
        simulator: RecordedClientSimulator,
        models: Sequence[SharedModel],
        clients: Sequence[ComparedClient],
        inputs: Sequence[Tensor],
        seconds: float,
    ) -> list[RecordingCheck]:
        """The check of the conversion of images; others are simulated only if that given fits worse than it should."""
        converted = self.network.adapted(as_images(self.clients[models[0].client].pixels))
        end = perf_counter() + seconds
        fit = recording_checks.misfit(clients)
        used = list(zip(models, clients, strict=False))[:_CONVERTED_CLIENTS]
        name = "normalize as given" if self.normalized else "images in [0, 1] (no normalize)"
        given = Alternative(
            name,
            tuple(recording_checks.deviation(client.recorded, client.simulated) for _, client in used),
            self._loss([model for model, _ in used], self.network),
        )
        alternatives = list[Alternative]()
        for other, adapt in self._conversions() if fit.is_large else ():
            if alternatives and perf_counter() > end:
                break
            network = self.network.adapted_by(adapt)
            deviations = tuple(
                recording_checks.deviation(client.recorded, simulator.change(model, 2 * number, adapt))
                for number, (model, client) in enumerate(used)
            )
            alternatives.append(Alternative(other, deviations, self._loss([model for model, _ in used], network)))
        is_whole = {name for name, _ in self.network.new().named_parameters()} <= models[0].received.keys()
        return [
            recording_checks.inputs(inputs, converted),
            recording_checks.normalisation(given, alternatives, fit.control, is_whole),
        ]

    def _conversions(self) -> list[tuple[str, Features]]:
        """Common conversions of images in [0, 1], by name, the commonest first."""
        channels = self.images.channels

        def standardised(mean: Sequence[float], std: Sequence[float]) -> Features:
            centre, scale = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
            return lambda x: (x - centre) / scale

        pixels = torch.cat([as_images(data.pixels[:64]) for data in self.clients.values()])[:, :channels]
        own = standardised(pixels.mean((0, 2, 3)).tolist(), pixels.std((0, 2, 3)).clamp_min(1e-6).tolist())
        plain: list[tuple[str, Features]] = [
            ("(x - 0.5) / 0.5", lambda x: (x - 0.5) / 0.5),
            ("255 * x", lambda x: 255 * x),
            ("x / 255", lambda x: x / 255),
            ("mean and std of the clients' images", own),
            ("mean and std of each image", _standardised_by_image),
            ("x - 0.5", lambda x: x - 0.5),
            ("1 - x", lambda x: 1 - x),
        ]
        if self.normalized:
            plain.insert(0, ("x, not normalised", lambda x: x))
        if channels == 3:
            plain.insert(1, ("ImageNet's mean and std", standardised(*_IMAGENET)))
            plain += [
                ("CIFAR-10's mean and std", standardised(*_CIFAR)),
                ("channels in reverse order", lambda x: x.flip(1)),
            ]
            return plain
        plain.insert(1, ("MNIST's mean and std", standardised((0.1307,), (0.3081,))))
        return [(name, _of_one_channel(adapt)) for name, adapt in plain]

    def _loss(self, models: Sequence[SharedModel], network: Network) -> float:
        """Median loss of the models that clients sent, on their images, in evaluation mode."""
        losses = []
        for shared in models:
            model = network.new()
            model.load_state_dict(shared.sent, strict=False)
            data = self.clients[shared.client]
            with torch.no_grad(), global_draws():
                losses.append(float(nn.functional.cross_entropy(model.eval()(as_images(data.pixels)), data.labels)))
        return float(torch.tensor(losses).median())


def _standardised_by_image(images: Tensor) -> Tensor:
    std, mean = torch.std_mean(images, dim=(2, 3), keepdim=True)
    return (images - mean) / std.clamp_min(1e-6)


def _of_one_channel(adapt: Features) -> Features:
    return lambda images: adapt(images[:, :1])


def _digests(pixels: Tensor) -> list[bytes]:
    """A hash of each image in 8 bits per channel."""
    stored = as_stored(pixels, _DIGESTED) if pixels.is_floating_point() else pixels
    return [sha256(image.numpy()).digest() for image in stored.contiguous()]


def _in_order(checks: Sequence[RecordingCheck]) -> RecordingChecks:
    """The checks, errors that explain others first: reversed updates fit no labels, and swapped images no numbers."""
    explaining = ("rounds", "normalisation", "labels", "direction", "names", "inputs")

    def place(check: RecordingCheck) -> int:
        if check.outcome != "error" or check.check not in explaining:
            return len(explaining)
        return -1 if recording_checks.REVERSED in check.sentence else explaining.index(check.check)

    return RecordingChecks(sorted(checks, key=place))
