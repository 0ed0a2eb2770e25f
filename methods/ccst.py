"""CCST: clients share styles once, and train on their images redrawn in them (Chen et al., "CCST", WACV 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Artifact, Message
from fdgpriv.artifacts.style import AmplitudeSpectrum, Outgoing, StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.ask import Ask, Server
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import MOST, Wanted
from fdgpriv.utils.fields import Fraction, NonNegativeFloat, PositiveInt

from ._averaging import AveragingClient, FederatedAveraging, Selection, Weighting
from ._ccst_bank import Bank
from ._ccst_styles import CODECS, AmplitudeStyle, Codec, FeatureStyle, Style
from ._codec import EncodedStyles, codec_on
from ._federation import Schedule

_FROM_SCRATCH = {"momentum": 0.9, "weight_decay": 5e-4, "keep_original": True, "local_epochs": 1}


@dataclass(frozen=True)
class CCST(FederatedAveraging):
    """The defaults are the paper's on PACS (section 4.2), and its released code's where it is silent, except `codec`.

    The preset ``paper`` takes AdaIN's own codec. ``quick`` and ``default`` have K = 3 as the paper, `keep_original`, because
    with more clients than K few images would otherwise keep their original, and one local epoch, because K copies cost K
    times the steps of an epoch.

    Attributes:
        style: ``overall``, one of all a client's images, or ``single``, of each of ceil(n / images_per_style) images.
        style_of: ``features``, or ``amplitude`` of the Fourier spectrum (Appendix E).
        augmentation: K, how many of the N clients' styles each image is redrawn in, its own client's (a copy) included.
        keep_original: Each image's K copies are its original and K - 1 in other clients' styles. Otherwise the K styles are
            drawn among all N (Algorithm 1), so that an image keeps its original with probability K / N: always where N = K,
            as in the paper. A client does not know domains: a style drawn among others may be of its own domain.
        images_per_style: Images for each single style that a client shares.
        style_block: Consecutive images that have a single style drawn together; 32 in the released code.
        own: Whether a client's own style is among those drawn.
        alpha: How far images go to the other style.
        window: Of amplitudes: half the square of low frequencies exchanged, as a share of the side; 0.5 is all, 0 only
            the mean colour (what FedDG's released loader exchanges).
        codec: ``small``, which comes with fdgpriv, or ``adain_vgg``.
        codec_weights: The folder of AdaIN's two files; none looks among torch's own checkpoints.
        side: Pixels to which images are resized for styles and redrawing; none leaves them. The released code's are 512.
        quantise: Redrawn images in 8 bits, as if saved.
        split: Held-out images are set apart ``before`` any style is taken or drawn, or ``after``, as in the released
            code: styles are then of all images, and copies of one image train and validate. The ledger counts training
            images only.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**FederatedAveraging.presets["quick"], **_FROM_SCRATCH},
        "default": {**FederatedAveraging.presets["default"], **_FROM_SCRATCH},
        "paper": {"codec": "adain_vgg", "image_changes": "crop"},
    }
    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet50", image_size=222)

    rounds: PositiveInt = 500
    participants: PositiveInt | None = None
    local_epochs: PositiveInt = 1
    batch_size: PositiveInt = 64
    momentum: NonNegativeFloat = 0.0
    weight_decay: NonNegativeFloat = 0.0
    schedule: Schedule = "constant"
    weighting: Weighting = "uniform"
    selection: Selection = "validation"
    style: Literal["overall", "single"] = "overall"
    style_of: Literal["features", "amplitude"] = "features"
    augmentation: PositiveInt = 3
    keep_original: bool = False
    images_per_style: PositiveInt = 32
    style_block: PositiveInt = 1
    own: bool = True
    alpha: Fraction = 1.0
    window: Annotated[float, Field(ge=0, le=0.5)] = 0.5
    codec: Codec = "small"
    codec_weights: Path | None = None
    side: PositiveInt | None = None
    quantise: bool = False
    split: Literal["before", "after"] = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_original and (self.augmentation < 2 or not self.own):
            raise ValueError(
                "ccst.keep_original: want augmentation of at least 2 and own=true, for the original and other styles; "
                f"got augmentation={self.augmentation}, own={str(self.own).lower()}; or set keep_original=false"
            )

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        domains = len(federation.clients) - int(not self.own)
        if self.augmentation > domains:
            whose = "clients" if self.own else "other clients"
            raise ValueError(f"ccst.augmentation: want at most as many as {whose} ({domains}), got {self.augmentation}")
        step, least = CODECS[self.codec]
        side = federation.image_size if self.side is None else self.side
        if self.style_of == "features" and (side % step or side < least):
            wanted = f"at least {least} px" + (f" and a multiple of {step}" if step > 1 else "")
            raise ValueError(f"ccst.side: want {wanted} for the codec {self.codec}, got {side}")
        return super().model(federation, rng)

    def cut_to(self, clients: int) -> Self:
        copies = min(self.augmentation, max(1, clients - int(not self.own)))
        return replace(self, augmentation=copies, keep_original=self.keep_original and copies > 1)

    def check(self, model: nn.Module) -> None:
        self.styles(torch.device("cpu"))  # its weights may be missing

    def styles(self, device: torch.device) -> Style:
        """What is taken as style."""
        return AmplitudeStyle(self.window) if self.style_of == "amplitude" else self._feature_style(device)

    def _feature_style(self, device: torch.device) -> FeatureStyle:
        return FeatureStyle(codec_on(device, self.codec, self.codec_weights), self.side, device)

    def disclosure(self) -> Disclosure:
        shared = AmplitudeSpectrum.kind if self.style_of == "amplitude" else StyleStatistics.kind
        kinds = (AmplitudeSpectrum.kind, StyleStatistics.kind)
        return replace(
            super().disclosure(),
            often={kind: int(kind == shared) for kind in kinds},
            sent_as=dict.fromkeys(kinds, "style_bank"),
            single_image_kinds=frozenset(kinds if self.style == "single" else ()),
            styles=EncodedStyles(lambda model: self._feature_style(torch.device("cpu"))),
        )

    def steps(self, n: int) -> int:
        return super().steps(self.augmentation * n)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        wanted = [self._wanted_styles(federation.image_size)]
        styles = yield Ask("style", {client: [] for client in federation.clients}, wanted=wanted)
        bank: list[Artifact] = [style for client in federation.clients for style in styles[client]]
        yield Ask("stylise", dict.fromkeys(federation.clients, bank), wanted=())
        return (yield from super().server(federation, rng))

    def _wanted_styles(self, image_size: int) -> Wanted:
        """The styles that a client answers with; of single images, as many as the largest client would share."""
        how = self.styles(torch.device("cpu"))
        if self.style == "overall":
            return how.wanted(image_size, "client", 1)
        return how.wanted(image_size, "image", -(-MOST // self.images_per_style))

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "CCSTClient":
        return CCSTClient(self, federation, data, rng)


class CCSTClient(AveragingClient):
    """Answers ``style`` with its styles and ``stylise`` by redrawing its images; what it redrew it trains on."""

    def __init__(self, method: CCST, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        super().__init__(method, federation, data, rng)
        self.how, self.taken = method, method.styles(self.device)
        if method.split == "after":
            images, labels = (
                torch.cat([data.images, data.held_out_images]),
                torch.cat([data.labels, data.held_out_labels]),
            )
            self.data = replace(data, images=images, labels=labels)

    def style(self, message: Message) -> Outgoing:
        """Its overall style, or those of single images drawn without replacement: Eq. 6-8."""
        n = len(self.data)
        if self.how.style == "overall":
            return self.taken.share(self.data.client, self.data.images, [torch.arange(n)], "client")
        drawn = torch.randperm(n, generator=self.rng)[: -(-n // self.how.images_per_style)]
        return self.taken.share(self.data.client, self.data.images, drawn.split(1), "image")

    def stylise(self, message: Message) -> Message:
        """Algorithm 1, once; the server is told nothing."""
        how, data = self.how, self.data
        bank = Bank.of(message, data.client, how.own)
        domains, styles = bank.draw(len(data), how.augmentation, how.style_block, self.rng, how.keep_original)
        images = bank.transfer(data.images, domains, styles, self._redraw)
        labels = data.labels.repeat_interleave(how.augmentation)
        self.data = replace(data, images=images, labels=labels)
        if how.split == "after":
            self._split(how.augmentation * len(data.held_out_labels))
        return []

    def _redraw(self, images: Tensor, styles: Sequence[Artifact]) -> Tensor:
        redrawn = self.taken.redraw(images, styles, self.how.alpha)
        return (255 * redrawn).round() / 255 if self.how.quantise else redrawn

    def _split(self, held_out: int) -> None:
        """Set so many of the redrawn images apart."""
        order = torch.randperm(len(self.data), generator=self.rng)
        out, kept, data = order[:held_out], order[held_out:], self.data
        self.data = replace(
            data,
            images=data.images[kept],
            labels=data.labels[kept],
            held_out_images=data.images[out],
            held_out_labels=data.labels[out],
        )
