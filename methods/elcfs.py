"""FedDG-ELCFS: clients share the amplitude spectrum of each image, and train episodes on mixed ones (Liu et al., CVPR 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from fdgpriv.artifacts.artifact import MAX_COUNT, Message
from fdgpriv.artifacts.style import AmplitudeSpectrum
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Request, Server
from fdgpriv.federation.setup import Setup
from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt

from ._averaging import ClientOptimizer, FederatedAveraging, StatefulClient
from ._ccst_bank import Bank
from ._federation import Batch, Buffers, Schedule
from ._style_transfer import AmplitudeStyle

_FROM_SCRATCH = {"optimizer": "sgd", "meta_lr": 0.1, "window": 0.1}


@dataclass(frozen=True)
class ELCFS(FederatedAveraging):
    """Episodic learning in continuous frequency space; the defaults are the paper's, for segmentation at 384 px.

    The paper adds 0.1 times a contrastive loss between embeddings of contours and background. An image with one label has
    no contour: that term is left out, as in the benchmark of Bai et al. (ICLR 2024).

    BatchNorm statistics stay with the clients (``buffers=keep_local``): the released code averages parameters alone. A
    client's optimiser keeps its state from round to round, as there.

    Attributes:
        window: Half the side of the square of low frequencies that is interpolated, as a share of the image's side; 0 is
            the mean colour alone, as in the released loader. ``quick`` and ``default`` have 0.1, at 32 px the 7 x 7
            frequencies that the paper's 0.01 is at 384 px.
        meta_lr: Step size of the inner update of an episode.
        meta_clip: Largest entry of the gradient in the inner update (released code).
        second_order: Differentiate the outer loss through the inner gradient as well; the released code does not.
        images_per_spectrum: A client shares the spectra of one in so many of its images, drawn once. 1 in the paper; of
            those shared, the released loader reads an eighth.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**FederatedAveraging.presets["quick"], **_FROM_SCRATCH},
        "default": {**FederatedAveraging.presets["default"], **_FROM_SCRATCH},
        "paper": {},
    }
    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet18", image_size=224)

    rounds: PositiveInt = 100
    participants: PositiveInt | None = None
    local_epochs: PositiveInt = 1
    batch_size: PositiveInt = 5
    weight_decay: NonNegativeFloat = 0.0
    schedule: Schedule = "constant"
    optimizer: ClientOptimizer = "adam"
    buffers: Buffers = "keep_local"
    window: Annotated[float, Field(ge=0, le=0.5)] = 0.01
    meta_lr: PositiveFloat = 1e-3
    meta_clip: PositiveFloat = 100.0
    second_order: bool = True
    images_per_spectrum: PositiveInt = 1

    @property
    def coupling(self) -> str:
        return "an episode's outer loss is taken after a step on all images of the mini-batch"

    @property
    def spectra(self) -> AmplitudeStyle:
        """Computes spectra and interpolates them."""
        return AmplitudeStyle(self.window)

    def disclosure(self) -> Disclosure:
        common, kind = super().disclosure(), AmplitudeSpectrum.kind
        return replace(
            common,
            uploads=(kind, *common.uploads),
            individual=(kind,),
            often={kind: 1},
            sent_as={kind: "style_bank"},
            single_image_kinds=frozenset({kind}),
        )

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        most = -(-MAX_COUNT // self.images_per_spectrum)
        expected = [self.spectra.expected(federation.image_size, "image", most)]
        for _ in federation.stage("spectra"):
            shared = yield Request("share", {client: [] for client in federation.clients}, wanted=expected)
            bank = [spectrum for client in federation.clients for spectrum in shared[client]]
            yield Request("adopt", dict.fromkeys(federation.clients, bank), wanted=())
        return (yield from super().server(federation, rng))

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "ELCFSClient":
        return ELCFSClient(self, federation, data, rng)


class ELCFSClient(StatefulClient):
    """Answers ``share`` with spectra of its images, and ``adopt`` by training with those of other clients from then on."""

    checkpointed: ClassVar[tuple[str, ...]] = (*StatefulClient.checkpointed, "received")

    method: ELCFS

    def __init__(self, method: ELCFS, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        super().__init__(method, federation, data, rng)
        self.received: Message = []
        self.bank = Bank([], None)

    def share(self, message: Message) -> Message:
        """The amplitude spectrum of each image before any augmentation, in random order."""
        n = len(self.data)
        chosen = torch.randperm(n, generator=self.rng)[: -(-n // self.method.images_per_spectrum)]
        return self.method.spectra.share(self.data.client, self.data.pixels, chosen.split(1), "image")

    def adopt(self, message: Message) -> Message:
        """Takes the spectra of all clients; shares nothing."""
        self.received = message
        self.resumed()
        return []

    def resumed(self) -> None:
        self.bank = Bank.of(self.received, self.data.client, with_own=False)

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of the images, plus that of their mixed copies after a step on the former.

        The former alone where no other client's spectrum is received.
        """
        inner = super().loss(batch)
        if not self.bank.domains:
            return inner
        method, parameters = self.method, dict(self.model.named_parameters())
        slopes = torch.autograd.grad(
            inner, list(parameters.values()), retain_graph=True, create_graph=method.second_order
        )
        stepped = {
            name: parameter - method.meta_lr * slope.clamp(-method.meta_clip, method.meta_clip)
            for (name, parameter), slope in zip(parameters.items(), slopes, strict=True)
        }
        outputs: Tensor = functional_call(self.model, stepped, (self.mixed(batch.images),))
        return inner + nn.functional.cross_entropy(outputs, batch.labels)

    def mixed(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), each with its low amplitudes interpolated to those of a random client's random spectrum.

        The interpolation ratio of each image is uniform in [0, 1].
        """
        domains, spectra = self.bank.draw(len(images), 1, 1, self.rng)
        drawn = [
            self.bank.domains[d][s] for d, s in zip(domains.flatten().tolist(), spectra.flatten().tolist(), strict=True)
        ]
        ratio = torch.rand(len(images), 1, 1, 1, generator=self.rng)
        return self.method.spectra.apply(images.cpu(), drawn, ratio).to(images.device)
