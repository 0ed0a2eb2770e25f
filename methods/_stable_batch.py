"""One training forward pass of StableFDG: style shifting, exploration and mixing between stages, attention partners.

Reference: Park et al., "StableFDG", NeurIPS 2023, Algorithm 1 and section 3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.artifacts.moments import DASSL, PAPER_EPS, StyleRule
from fdgpriv.artifacts.style import StyleStatistics

from ._stable_style import beta, explore, explore_and_mix, kmeans_plus_plus, mix, shift, water_fill

RELEASED_SHIFTS = 16  # samples per batch shifted by the released code; the rest get their cluster's style


@dataclass(frozen=True)
class StyleLearning:
    """Settings of style-based learning.

    Attributes:
        layer: The stage after which styles are shifted.
        explore_layers: The stages after which styles are explored and mixed.
        p: Probability of shifting, and of exploring at each layer.
        alpha: Exploration level.
        oversample_size: O, samples appended; None for the batch size.
        balanced: Append samples class-balanced by water-filling, otherwise at random.
        kmeans: Samples chosen by k-means++ seeding keep their style, otherwise random ones.
        literal: Draw the shifted style as in the text of Step 2: noise with the client's own variance, times the variance
            of the received style.
        center_concat: Extrapolate around the mean style of batch and appended samples, otherwise of the batch.
        clamp: Clamp extrapolated stds at 0.
        mixing: A sample's own style has weight Beta(mixing, mixing).
        released: As in the released code: cluster centres replace the styles of the first samples; exploration happens at
            the first active layer only, and in one AdaIN with mixing; variances are unbiased.
        classes: K.
    """

    layer: str
    explore_layers: tuple[str, ...]
    p: float
    alpha: float
    oversample_size: int | None
    balanced: bool
    kmeans: bool
    literal: bool
    center_concat: bool
    clamp: bool
    mixing: float
    released: bool
    classes: int

    @property
    def rule(self) -> StyleRule:
        """How means and stds of features are computed."""
        return DASSL if self.released else PAPER_EPS


@dataclass
class StyledBatch:
    """State of one forward pass: `after` is passed to the backbone; then `labels` and `ids` describe the output rows.

    Attributes:
        how: The settings.
        labels: (B,), or (B + O,) once samples are appended.
        ids: Index of each row's image in the local data, of the same shape.
        styles: The styles received from other clients.
        own: The client's own style information, for `literal`.
        rng: For all random draws.
        extras: Rows at the end that are only attention partners, excluded from style learning.
        log: Running (sum, count) of logged figures.
    """

    how: StyleLearning
    labels: Tensor
    ids: Tensor
    styles: Sequence[StyleStatistics]
    own: StyleStatistics | None
    rng: torch.Generator
    extras: int = 0
    log: dict[str, tuple[float, int]] = field(default_factory=dict)
    _appended: int = 0
    _explored: bool = False

    def after(self) -> Mapping[str, Callable[[Tensor], Tensor]]:
        """Functions to apply after each stage."""
        layers = dict.fromkeys((self.how.layer, *self.how.explore_layers))
        return {layer: lambda features, layer=layer: self._at(layer, features) for layer in layers}  # type: ignore[misc]

    def _at(self, layer: str, features: Tensor) -> Tensor:
        body, tail = features[: len(features) - self.extras], features[len(features) - self.extras :]
        if layer == self.how.layer and self.styles and self._active():
            body = self._shift(body)
        if layer in self.how.explore_layers and self._active():
            body = self._explore_and_mix(body)
        return torch.cat([body, tail]) if self.extras else body

    def _active(self) -> bool:
        return bool(torch.rand((), generator=self.rng) < self.how.p)

    def _shift(self, features: Tensor) -> Tensor:
        mean, std = self._sample_styles(len(features))
        mean, std = mean.to(features.device), std.to(features.device)
        own = torch.cat(self.how.rule(features.detach()), dim=1)
        if self.how.released:
            return self._shift_as_released(features, own, mean, std)
        keep = len(features) // 2
        kept = (
            kmeans_plus_plus(own, keep, self.rng)
            if self.how.kmeans
            else torch.randperm(len(features), generator=self.rng)[:keep]
        )
        return shift(features, kept, mean, std)

    def _shift_as_released(self, features: Tensor, own: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """One k-means step from B - 16 seeds; the first B - 16 samples get the centres' styles, the rest are shifted."""
        k = len(features) - RELEASED_SHIFTS
        if k < 1:
            raise ValueError(
                f"want more than {RELEASED_SHIFTS} samples to shift as the released code does, got {len(features)}"
            )
        seeds = own[kmeans_plus_plus(own, k, self.rng).to(own.device)]
        nearest = torch.cdist(own, seeds).argmin(1)
        centers = torch.stack([own[nearest == c].mean(0) if bool((nearest == c).any()) else seeds[c] for c in range(k)])
        center_mean, center_std = centers.chunk(2, dim=1)
        mean, std = torch.cat([center_mean, mean[k:]]), torch.cat([center_std, std[k:]])
        return shift(features, torch.empty(0, dtype=torch.int64), mean, std, self.how.rule)

    def _sample_styles(self, size: int) -> tuple[Tensor, Tensor]:
        """Mean and std (size, C) per sample, drawn around one of the received styles."""
        which = torch.randint(len(self.styles), (size,), generator=self.rng)
        center = torch.stack([torch.stack([s.mean, s.std]) for s in self.styles])[which]
        spread = torch.stack([torch.stack([s.mean_var, s.std_var]) for s in self.styles])[which]
        noise = torch.randn(center.shape, generator=self.rng)
        if self.how.literal and self.own is not None:
            noise = noise * torch.stack([self.own.mean_var, self.own.std_var]).sqrt()
            drawn = center + noise * spread
        else:
            drawn = center + noise * spread.clamp_min(0).sqrt()
        return drawn[:, 0], drawn[:, 1].clamp_min(0)

    def _explore_and_mix(self, features: Tensor) -> Tensor:
        features = self._append(features)
        batch, how = len(features) - self._appended, self.how
        partner = torch.randperm(len(features), generator=self.rng)
        weight = beta(how.mixing, len(features), self.rng)
        center = len(features) if how.center_concat else batch
        negative = how.clamp, self._record_negative
        explored, self._explored = self._explored, True
        if how.released:
            appended = 0 if explored else self._appended
            return explore_and_mix(features, appended, center, how.alpha, partner, weight, *negative)
        if self._appended:
            tail = explore(features[batch:], features[:center], how.alpha, *negative)
            features = torch.cat([features[:batch], tail])
        return mix(features, partner, weight)

    def _append(self, features: Tensor) -> Tensor:
        size = len(features) if self.how.oversample_size is None else self.how.oversample_size
        if self._explored or size == 0:
            return features
        if self.how.balanced:
            index = water_fill(self.labels, size, self.how.classes, self.rng)
        else:
            index = torch.randint(len(features), (size,), generator=self.rng)
        self._appended = size
        self.labels = torch.cat([self.labels, self.labels[index.to(self.labels.device)]])
        self.ids = torch.cat([self.ids, self.ids[index]])
        return torch.cat([features, features[index.to(features.device)]])

    def record(self, name: str, value: float) -> None:
        """Adds a value to the running mean of this figure in the log."""
        total, count = self.log.get(name, (0.0, 0))
        self.log[name] = (total + value, count + 1)

    def _record_negative(self, new_std: Tensor) -> None:
        self.record("negative_std_share", float((new_std < 0).float().mean()))


def next_of_class(labels: Tensor) -> Tensor:
    """For each row (B,) the next row of its class, for the last the first: itself if it is the only one. As released."""
    labels = labels.cpu()
    partner = torch.arange(len(labels))
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero().flatten()
        partner[rows] = rows.roll(-1)
    return partner


def partners(labels: Tensor, ids: Tensor, rng: torch.Generator) -> Tensor:
    """For each row (B,) a random row of its class: of another image if possible, else a copy, else itself."""
    labels, ids = labels.cpu(), ids.cpu()
    same = labels[:, None] == labels[None, :]
    other_image = same & (ids[:, None] != ids[None, :])
    other_row = same & ~torch.eye(len(labels), dtype=torch.bool)
    choices = torch.where(other_image.any(1, keepdim=True), other_image, other_row)
    choices = torch.where(choices.any(1, keepdim=True), choices, same)
    return torch.multinomial(choices.float(), 1, generator=rng).flatten()
