"""The examination of an adversary: what it is asked, what it may use, and the truth it never sees.

The evaluator lays out questions, each an artifact to read: the target's own, and those of the controls in its place, all
alike to the adversary. `View` is what the threat model grants; `Truth` stays here until the guesses are in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fdgpriv.artifact import StyleDraft, StyleStatistics
from fdgpriv.federation import Domain
from fdgpriv.finch import compact
from fdgpriv.style import StyleRule
from fdgpriv.threat import Capability, ThreatModel

Guess = Tensor  # an image (3, H, W), scores of candidates (T, N), of domains (D,), of classes (K,), a distribution (K,)


@dataclass(frozen=True, eq=False)
class Question:
    """One artifact to read.

    Attributes:
        artifact: The style statistics; whose they are is not said.
        images_behind: How many images were averaged into it (public, as in the accounting).
        candidates: (T, N) indices into `View.candidates`: T line-ups, in each of which one image may be behind it.
    """

    artifact: StyleStatistics
    images_behind: int
    candidates: Tensor


@dataclass(frozen=True, eq=False)
class Truth:
    """What a question's guess is scored against.

    Attributes:
        images: (n, 3, H, W) the images behind the target's artifact, or a fixed draw of them where there are many.
        labels: (n,) of those images.
        histogram: (K,) label distribution of all images behind it.
        domain: Index of the main domain among the sources.
        positions: (T,) where in each line-up the true image stands.
        candidates: (T, N) indices into the pool: the line-ups.
        pool: (P, 3, H, W) all candidate images, one tensor for all truths.
    """

    images: Tensor
    labels: Tensor
    histogram: Tensor
    domain: int
    positions: Tensor
    candidates: Tensor
    pool: Tensor

    @property
    def line_up(self) -> Tensor:
        """(N, 3, H, W): the first line-up's images."""
        return self.pool[self.candidates[0]]


@dataclass(frozen=True, eq=False)
class View:
    """What one adversary has: public facts, auxiliary data, and no more than its threat model grants.

    Attributes:
        threat: The threat model.
        classes: K.
        sources: Names of the source domains.
        sizes: The numbers of images behind artifacts that it will meet.
        image_size: H = W.
    """

    threat: ThreatModel
    classes: int
    sources: tuple[str, ...]
    sizes: tuple[int, ...]
    image_size: int
    _auxiliary: tuple[Domain, ...]
    _styles: Callable[[Tensor], tuple[Tensor, Tensor]]
    _share: Callable[[StyleDraft, torch.Generator], StyleStatistics]
    _maps: Callable[[Tensor], Tensor]
    _template: StyleStatistics
    _candidates: Tensor

    @property
    def auxiliary(self) -> tuple[Domain, ...]:
        """Labelled images by domain; leaked ones of the clients among them where the threat model has pairs."""
        return self._auxiliary

    @property
    def candidates(self) -> Tensor:
        """(P, 3, H, W): the images that line-ups are made of."""
        self.threat.require(Capability.HAS_CANDIDATES)
        return self._candidates

    def styles(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and std (N, C) of each image's features, as clients compute them."""
        self.threat.require(Capability.KNOWS_ENCODER)
        return self._styles(images)

    def maps(self, images: Tensor) -> Tensor:
        """(N, D): what clients cluster images by besides their styles; D is 0 where they do not."""
        self.threat.require(Capability.KNOWS_ENCODER)
        return self._maps(images)

    def share(self, mean: Tensor, std: Tensor, rng: torch.Generator, maps: Tensor | None = None) -> StyleStatistics:
        """The artifact that a client holding images of these styles (n, C) and maps would have shared, defense included."""
        self.threat.require(Capability.KNOWS_DEFENSE)
        return self._share(draft_like(self._template, mean, std, "client", maps), rng)


def styles_of(images: Tensor, features: Callable[[Tensor], Tensor], rule: StyleRule) -> tuple[Tensor, Tensor]:
    """Mean and std (N, C) of the features of images (N, 3, H, W), in parts that fit in memory."""
    mean, std, _ = styles_and_maps_of(images, features, rule)
    return mean, std


@torch.no_grad()
def styles_and_maps_of(
    images: Tensor, features: Callable[[Tensor], Tensor], rule: StyleRule
) -> tuple[Tensor, Tensor, Tensor]:
    """As `styles_of`, and what the rule clusters images by besides, (N, D) with D <= N; D is 0 where it does not."""
    parts = [(*rule(made), rule.maps(made)) for part in images.split(256) for made in [features(part)]]
    mean, std, maps = (torch.cat(part) for part in zip(*parts, strict=True))
    return mean, std, compact(maps)


def draft_like(
    template: StyleStatistics, mean: Tensor, std: Tensor, behind: str, maps: Tensor | None = None
) -> StyleDraft:
    """A draft of styles (n, C), and maps (n, D) where images are clustered by them, for an artifact of the template's form."""
    return StyleDraft(
        client=template.client,
        round=template.round,
        mean=mean,
        std=std,
        variances=len(template.mean_var) > 0,
        behind=behind,
        at=template.at,
        rule=template.rule,
        maps=maps,
    )


@dataclass(frozen=True, eq=False)
class Asked:
    """One question on a target, and the truth it is scored against."""

    question: Question
    truth: Truth


@dataclass(frozen=True, eq=False)
class Item:
    """One target of the examination.

    Attributes:
        unit: The independent unit's name: a client, or one artifact of one.
        client: Whose it is.
        size: Images behind the target's artifact; None for the whole client.
        truth: Of the target.
        asked: By name, what is read in its place: ``attack``, then controls and bounds; each may be asked several
            times, and the scores are averaged.
        given: By name, guesses that need no adversary, with the truth they are scored against (``nearest_own``).
    """

    unit: str
    client: str
    size: int | None
    truth: Truth
    asked: Mapping[str, Sequence[Asked]]
    given: Mapping[str, Sequence[tuple[Guess, Truth]]]


@dataclass(frozen=True, eq=False)
class Sitting:
    """One adversary and the items it is examined on."""

    view: View
    items: Sequence[Item]
