"""CCST: clients share styles once, and train on images stylised with other clients' styles (Chen et al., WACV 2023)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import MAX_COUNT, Artifact, Message
from fdgpriv.artifacts.style import AmplitudeSpectrum, ClientReply, StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import joined
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Request, Server
from fdgpriv.federation.setup import Setup
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.utils.fields import Fraction, NonNegativeFloat, PositiveInt

from ._averaging import AveragingClient, FederatedAveraging, Selection
from ._ccst_bank import Bank
from ._codec import LEAST_SIDE, STRIDE, Codec, EncodedStyles, codec_on
from ._federation import Schedule
from ._style_transfer import AmplitudeStyle, FeatureStyle, Style
from ._tent import batchnorm_layers, tent_logits
from ._weights import Weights

_FROM_SCRATCH = {"momentum": 0.9, "weight_decay": 5e-4, "keep_original": True, "local_epochs": 1}


@dataclass(frozen=True)
class CCST(FederatedAveraging):
    """The preset ``paper`` is the paper's text on PACS (sections 3 and 4.2, Algorithm 1) and, where it says nothing, the
    released code: batches of 64, no momentum or weight decay, equal weights of clients, the codec's images of 512 px,
    random crops of 222 px. The class's defaults differ from it in `codec`, `side` and `image_changes`.

    Where the released code departs from the text, `split` and `style_block` follow the text. Stylised images are stored as
    the images are, with 8 bits a channel if read from files; the released code saves them as JPEG or PNG files of 512 px,
    here they have the images' own size. ``quick`` and ``default`` have `keep_original`, as with more than K clients few
    images would keep their original, and one local epoch, which has K times the usual steps.

    Attributes:
        style: ``overall``, one style of all a client's images, or ``single``, of ceil(n / images_per_style) images each.
        style_of: ``features``, or ``amplitude`` of the Fourier spectrum (Appendix E).
        augmentation: K, number of the N clients' styles per image; the own client's style means an unchanged copy.
        keep_original: Each image's K copies are the original and K - 1 in other clients' styles. Otherwise the K styles are
            drawn among all N (Algorithm 1), keeping the original with probability K / N (1 in the paper).
        images_per_style: Images per single style that a client shares.
        style_block: Consecutive images that share each drawn single style: 1 in Algorithm 1, a batch (6 or 32) in the
            released code, which draws the styles there and shares no bank.
        own: Whether a client's own style is among those drawn.
        alpha: Transfer strength in [0, 1].
        window: For amplitudes: half the side of the square of low frequencies exchanged, as a share of the image's side;
            0.5 is all, 0 only the mean colour (as in FedDG's released loader).
        codec: Style encoder and decoder: ``digits`` and ``photo``, for photographs, are included in fdgpriv; ``adain_vgg`` is
            the paper's. An audit of a dataset other than ``digits`` uses ``photo`` by default.
        codec_weights: Folder of AdaIN's two files; none uses torch's checkpoint folder.
        side: Pixels to which images are resized for style transfer; none keeps their size. 512 in every command of the
            released code (its default is 222), which the paper does not mention.
        split: Split off held-out images ``before`` style transfer (section 4.2 splits each client's images, and Algorithm 1
            redraws the training set), or ``after``, as in the released code: then copies of one image may be in training
            and validation. The ledger counts training images only.
        tent: Evaluate the final model also adapted to the target's images by Tent, in batches of at least `batch_size`, by
            Adam at 1e-3 in one pass, as in Tent's paper; the released code has SGD at 1e-4 and several passes.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**FederatedAveraging.presets["quick"], **_FROM_SCRATCH},
        "default": {**FederatedAveraging.presets["default"], **_FROM_SCRATCH},
        "paper": {"codec": "adain_vgg", "side": 512, "image_changes": "crop"},
    }
    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet50", image_size=222)

    rounds: PositiveInt = 500
    participants: PositiveInt | None = None
    local_epochs: PositiveInt = 1
    batch_size: PositiveInt = 64
    momentum: NonNegativeFloat = 0.0
    weight_decay: NonNegativeFloat = 0.0
    schedule: Schedule = "constant"
    weights: Weights = "uniform"
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
    codec: Codec = "digits"
    codec_weights: Path | None = None
    side: PositiveInt | None = None
    split: Literal["before", "after"] = "before"
    tent: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_original and (self.augmentation < 2 or not self.own):
            raise ValueError(
                "ccst.keep_original: want augmentation of at least 2 and own=true, for the original and other styles; "
                f"got augmentation={self.augmentation}, own={str(self.own).lower()}; or set keep_original=false"
            )

    @property
    def coupling(self) -> str | None:
        if self.split == "after":
            return "with split=after the copies of one image are apart, and some are held out"
        return None

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        domains = len(federation.clients) - int(not self.own)
        if self.augmentation > domains:
            whose = "clients" if self.own else "other clients"
            raise ValueError(f"ccst.augmentation: want at most as many as {whose} ({domains}), got {self.augmentation}")
        stride, min_side = STRIDE[self.codec], LEAST_SIDE[self.codec]
        side = federation.image_size if self.side is None else self.side
        if self.style_of == "amplitude" and self.side is not None:
            raise ValueError(
                f"ccst.side: want none with style_of=amplitude, whose spectra have the images' size, got {side}"
            )
        if self.style_of == "features" and (side % stride or side < min_side):
            valid = f"at least {min_side} px" + (f" and a multiple of {stride}" if stride > 1 else "")
            raise ValueError(f"ccst.side: want {valid} for the codec {self.codec}, got {side}")
        return super().model(federation, rng)

    def for_clients(self, clients: int) -> Self:
        copies = min(self.augmentation, max(1, clients - int(not self.own)))
        return replace(self, augmentation=copies, keep_original=self.keep_original and copies > 1)

    def check(self, model: nn.Module) -> None:
        self.styles(torch.device("cpu"))  # raises if the codec's weights are missing
        if self.tent and not batchnorm_layers(model):
            raise ValueError(
                "ccst.tent: want a network with BatchNorm, whose scales and shifts Tent trains, got one without"
            )

    def adapted_logits(self, model: nn.Module, images: Tensor) -> Tensor | None:
        return tent_logits(model, images, self.batch_size) if self.tent and len(images) > 1 else None

    def styles(self, device: torch.device) -> Style:
        """The style representation."""
        return AmplitudeStyle(self.window) if self.style_of == "amplitude" else self._feature_style(device)

    def _feature_style(self, device: torch.device) -> FeatureStyle:
        return FeatureStyle(codec_on(device, self.codec, self.codec_weights), self.side, device)

    def disclosure(self) -> Disclosure:
        shared = AmplitudeSpectrum.kind if self.style_of == "amplitude" else StyleStatistics.kind
        kinds = (AmplitudeSpectrum.kind, StyleStatistics.kind)
        common = super().disclosure()
        return replace(
            common,
            uploads=(shared, *common.uploads),
            individual=(shared,),
            often={kind: int(kind == shared) for kind in kinds},
            sent_as=dict.fromkeys(kinds, "style_bank"),
            single_image_kinds=frozenset(kinds if self.style == "single" else ()),
            styles=EncodedStyles(lambda model: self._feature_style(torch.device("cpu"))),
        )

    def steps(self, n: int) -> int:
        return super().steps(self.augmentation * n)

    def train_plainly(self, model: nn.Module, data: ClientData, round: int, rng: torch.Generator) -> None:
        super().train_plainly(model, self._copied(data), round, rng)

    def plain_batches(self, data: ClientData, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        return super().plain_batches(self._copied(data), rng)

    def _copied(self, data: ClientData) -> ClientData:
        """As many copies of each image as clients make, all in its own style: a client alone has no other styles."""
        copies = self.augmentation
        pixels, labels = data.pixels.repeat_interleave(copies, dim=0), data.labels.repeat_interleave(copies)
        return data if data.copies > 1 else replace(data, pixels=pixels, labels=labels, copies=copies)

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        expected = [self._expected_styles(federation.image_size)]
        for _ in federation.stage("styles"):
            styles = yield Request("style", {client: [] for client in federation.clients}, wanted=expected)
            bank: list[Artifact] = [style for client in federation.clients for style in styles[client]]
            yield Request("stylise", dict.fromkeys(federation.clients, bank), wanted=())
        return (yield from super().server(federation, rng))

    def _expected_styles(self, image_size: int) -> ExpectedArtifact:
        """Template of a client's answer; for single images, up to as many styles as the largest client would share."""
        style = self.styles(torch.device("cpu"))
        if self.style == "overall":
            return style.expected(image_size, "client", 1)
        return style.expected(image_size, "image", -(-MAX_COUNT // self.images_per_style))

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "CCSTClient":
        return CCSTClient(self, federation, data, rng)


class CCSTClient(AveragingClient):
    """Answers ``style`` with its styles, and ``stylise`` by replacing its training images with stylised copies."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model", "bank", "before")

    method: CCST

    def __init__(self, method: CCST, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        super().__init__(method, federation, data, rng)
        self.representation = method.styles(self.device)
        self.bank: Message = []  # the styles received,
        self.before: Tensor | None = None  # and the generator's state then: a checkpoint repeats the style transfer
        if method.split == "after":
            pixels = joined([data.pixels, data.held_out_pixels])
            labels = torch.cat([data.labels, data.held_out_labels])
            self.data = replace(data, pixels=pixels, labels=labels)

    def style(self, message: Message) -> ClientReply:
        """The overall style, or styles of single images drawn without replacement (Eq. 6-8)."""
        n, pixels = len(self.data), self.data.pixels
        if self.method.style == "overall":
            return self.representation.share(self.data.client, pixels, [torch.arange(n)], "client")
        chosen = torch.randperm(n, generator=self.rng)[: -(-n // self.method.images_per_style)]
        return self.representation.share(self.data.client, pixels, chosen.split(1), "image")

    def stylise(self, message: Message) -> Message:
        """Algorithm 1; shares nothing. Where fewer domains' styles arrive than copies are wanted, there is one of each."""
        self.bank, self.before = message, self.rng.get_state()
        method, data = self.method, self.data
        bank = Bank.of(message, data.client, method.own)
        domains, styles = bank.draw(len(data), method.augmentation, method.style_block, self.rng, method.keep_original)
        pixels = bank.transfer(data.pixels, domains, styles, self._apply)
        copies = domains.shape[1]
        self.data = replace(data, pixels=pixels, labels=data.labels.repeat_interleave(copies), copies=copies)
        if method.split == "after":
            self._split(copies * len(data.held_out_labels))
        return []

    def resumed(self) -> None:
        if self.before is not None:
            self.rng.set_state(self.before)
            self.stylise(self.bank)

    def _apply(self, images: Tensor, styles: Sequence[Artifact]) -> Tensor:
        return self.representation.apply(images, styles, self.method.alpha)

    def _split(self, held_out: int) -> None:
        """Moves `held_out` random stylised images to the held-out set."""
        order = torch.randperm(len(self.data), generator=self.rng)
        held_out_index, training_index, data = order[:held_out], order[held_out:], self.data
        self.data = replace(
            data,
            pixels=data.pixels[training_index],
            labels=data.labels[training_index],
            held_out_pixels=data.pixels[held_out_index],
            held_out_labels=data.labels[held_out_index],
            copies=1,
        )
