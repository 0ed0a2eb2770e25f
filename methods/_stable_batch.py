"""One training forward pass of StableFDG: style shifting, exploration and mixing between stages, attention partners.

Reference: Park et al., "StableFDG", NeurIPS 2023, Algorithm 1 and section 3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.artifacts.style import StyleStatistics

from ._stable_settings import RELEASED_SHIFTS, StableSettings
from ._stable_style import beta, explore, explore_and_mix, kmeans_plus_plus, mix, shift, water_fill


@dataclass
class StyledBatch:
    """State of one forward pass: `after` is passed to the backbone; then `labels` and `ids` describe the output rows.

    Attributes:
        settings: Hyperparameters, whose layers are stages of the backbone.
        classes: K.
        labels: (B,), or (B + O,) once samples are appended.
        ids: Index of each row's image in the local data, of the same shape.
        styles: The styles received from other clients.
        own: The client's own style information, for `literal_shift`.
        rng: For all random draws.
        extras: Rows at the end that are only attention partners, excluded from style learning.
        log: Running (sum, count) of logged figures.
    """

    settings: StableSettings
    classes: int
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
        layers = dict.fromkeys((self.settings.style_layer, *self.settings.explore_layers))
        return {layer: lambda features, layer=layer: self._at(layer, features) for layer in layers}  # type: ignore[misc]

    def _at(self, layer: str, features: Tensor) -> Tensor:
        body, tail = features[: len(features) - self.extras], features[len(features) - self.extras :]
        if layer == self.settings.style_layer and self.styles and self._active():
            body = self._shift(body)
        if layer in self.settings.explore_layers and self._active():
            body = self._explore_and_mix(body)
        return torch.cat([body, tail]) if self.extras else body

    def _active(self) -> bool:
        return bool(torch.rand((), generator=self.rng) < self.settings.p)

    def _shift(self, features: Tensor) -> Tensor:
        mean, std = self._sample_styles(len(features))
        mean, std = mean.to(features.device), std.to(features.device)
        styles = torch.cat(self.settings.rule(features.detach()), dim=1)
        if self.settings.code_compat:
            return self._shift_as_released(features, styles, mean, std)
        n_kept = len(features) // 2
        kept_index = (
            kmeans_plus_plus(styles, n_kept, self.rng)
            if self.settings.shift_select == "kmeans++"
            else torch.randperm(len(features), generator=self.rng)[:n_kept]
        )
        return shift(features, kept_index, mean, std)

    def _shift_as_released(self, features: Tensor, styles: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """One k-means step from B - 16 seeds; the first B - 16 samples get the centres' styles, the rest are shifted."""
        k = len(features) - RELEASED_SHIFTS
        if k < 1:
            raise ValueError(
                f"want more than {RELEASED_SHIFTS} samples to shift as the released code does, got {len(features)}"
            )
        seeds = styles[kmeans_plus_plus(styles, k, self.rng).to(styles.device)]
        nearest = torch.cdist(styles, seeds).argmin(1)
        centers = torch.stack(
            [
                styles[nearest == center].mean(0) if bool((nearest == center).any()) else seeds[center]
                for center in range(k)
            ]
        )
        center_mean, center_std = centers.chunk(2, dim=1)
        mean, std = torch.cat([center_mean, mean[k:]]), torch.cat([center_std, std[k:]])
        return shift(features, torch.empty(0, dtype=torch.int64), mean, std, self.settings.rule)

    def _sample_styles(self, size: int) -> tuple[Tensor, Tensor]:
        """Mean and std (size, C) per sample, drawn around a random received style for each sample."""
        style_index = torch.randint(len(self.styles), (size,), generator=self.rng)
        center = torch.stack([torch.stack([style.mean, style.std]) for style in self.styles])[style_index]
        variance = torch.stack([torch.stack([style.mean_var, style.std_var]) for style in self.styles])[style_index]
        noise = torch.randn(center.shape, generator=self.rng)
        if self.settings.literal_shift and self.own is not None:
            noise = noise * torch.stack([self.own.mean_var, self.own.std_var]).sqrt()
            sampled = center + noise * variance
        else:
            sampled = center + noise * variance.clamp_min(0).sqrt()
        return sampled[:, 0], sampled[:, 1].clamp_min(0)

    def _explore_and_mix(self, features: Tensor) -> Tensor:
        features = self._append(features)
        batch, settings = len(features) - self._appended, self.settings
        partner = torch.randperm(len(features), generator=self.rng)
        weight = beta(settings.mixing, len(features), self.rng)
        center = len(features) if settings.center == "concat" else batch
        clamping = settings.clamp_sigma, self._record_negative
        was_explored, self._explored = self._explored, True
        if settings.code_compat:
            appended = 0 if was_explored else self._appended
            return explore_and_mix(features, appended, center, settings.exploration, partner, weight, *clamping)
        if self._appended:
            explored = explore(features[batch:], features[:center], settings.exploration, *clamping)
            features = torch.cat([features[:batch], explored])
        return mix(features, partner, weight)

    def _append(self, features: Tensor) -> Tensor:
        size = len(features) if self.settings.oversample_size is None else self.settings.oversample_size
        if self._explored or size == 0:
            return features
        if self.settings.oversample == "balanced":
            index = water_fill(self.labels, size, self.classes, self.rng)
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
    """The next row of its class for each row (B,); the first for the last, itself if there is no other. As released."""
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
