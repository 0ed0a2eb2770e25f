"""Artifact kind: style statistics."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import PEER, Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.defense import Defense
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.recorded_styles import RecordedStyles
from fdgpriv.simulation.simulator import ClientSample, InRound, Simulator


@dataclass(frozen=True, eq=False)
class StyleSimulator(Simulator):
    """Computes styles of images, pooled and defended as clients do.

    Attributes:
        recorded_styles: Computes styles.
        defense: The run's defense.
        template: An artifact of this layer, for its form.
    """

    recorded_styles: RecordedStyles
    defense: Defense
    template: StyleStatistics

    kind = StyleStatistics.kind

    @property
    def uses_batch_statistics(self) -> bool:
        """Whether an image's style depends on the other images of its client."""
        return self.recorded_styles.uses_batch_statistics

    def styles(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and std (N, C) of each image's features, alone or with the batch statistics of images like `among`."""
        return self.recorded_styles.styles(images, self.template.at, among)

    def moments(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `styles`, for any images (N, 3, H, W), with gradients: the encoder is public."""
        return self.recorded_styles.moments(images, self.template.at, among)

    def maps(self, images: Tensor) -> Tensor:
        """(N, D): features by which the rule clusters images in addition to styles; D is 0 if it uses none."""
        return self.recorded_styles.maps(images, self.template.at)

    def draft(self, mean: Tensor, std: Tensor, granularity: str, maps: Tensor | None = None) -> StyleDraft:
        """A draft of styles (n, C) in the template's form, with maps (n, D) if images are clustered by them."""
        template = self.template
        return StyleDraft(
            client=template.client,
            round=template.round,
            mean=mean,
            std=std,
            variances=len(template.mean_var) > 0,
            granularity=granularity,
            at=template.at,
            rule=template.rule,
            maps=maps,
        )

    def share(self, draft: StyleDraft, rng: torch.Generator) -> StyleStatistics:
        """The defended artifact of the draft."""
        shared = self.defense.shared(draft, rng)
        assert isinstance(shared, StyleStatistics)
        return shared

    def simulate(self, sample: ClientSample, rng: torch.Generator) -> StyleStatistics:
        mean, std = self.parts(sample)
        draft = self.draft(mean, std, sample.granularity, self.maps(sample.party.images)[sample.index])
        return self.share(draft, rng) if sample.defended else draft.finish()

    def parts(self, sample: ClientSample) -> tuple[Tensor, Tensor]:
        """Mean and std (n, C) of each of the n images, as computed by a client with only these."""
        images, index = sample.party.images, sample.index
        if self.uses_batch_statistics and len(index) > 1:
            return self.recorded_styles.of_client(images, self.template.at, index)
        mean, std = self.styles(images)
        return mean[index], std[index]

    def parts_of_clients(self, images: Tensor, clients: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and std (M, n, C), as `parts`, of M clients with only the images at `clients` (M, n) each."""
        if self.uses_batch_statistics and clients.shape[1] > 1:
            return self.recorded_styles.of_clients(images, self.template.at, clients)
        mean, std = self.styles(images)
        return mean[clients], std[clients]

    def each(self, sample: ClientSample, rng: torch.Generator) -> Tensor:
        return torch.cat(self.parts(sample), dim=1)

    def vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        """All moments, variances as standard deviations: (2C,) or (4C,)."""
        assert isinstance(artifact, StyleStatistics)
        deviations = [artifact.mean_var.clamp_min(0).sqrt(), artifact.std_var.clamp_min(0).sqrt()]
        return torch.cat([artifact.mean, artifact.std, *deviations])

    def to_vector(self, artifact: Artifact, received_model: ModelState | None) -> Tensor:
        assert isinstance(artifact, StyleStatistics)
        return artifact.vector()

    def from_vector(self, row: Tensor, received_model: ModelState | None) -> StyleStatistics:
        parts = row.chunk(4 if len(self.template.mean_var) else 2)
        mean, std = parts[0], parts[1].clamp_min(0)
        empty = mean.new_empty(0)
        mean_var, std_var = (parts[2].clamp_min(0), parts[3].clamp_min(0)) if len(parts) == 4 else (empty, empty)
        tensors = {"mean": mean, "std": std, "mean_var": mean_var, "std_var": std_var}
        return StyleStatistics.build(tensors, self.template.facts())

    def anonymised(self, artifact: Artifact, granularity: str) -> StyleStatistics:
        return StyleStatistics.build(
            artifact.tensors(), {**artifact.facts(), "client": PEER, "granularity": granularity}
        )

    def in_first_round(self) -> InRound | None:
        first = self.recorded_styles.rounds[0]
        return (
            None
            if first is self.recorded_styles
            else InRound(StyleSimulator(first, self.defense, first.template), None)
        )

    def layers(self) -> tuple[str, ...]:
        return self.recorded_styles.layers()

    def at(self, layer: str) -> "StyleSimulator":
        template = StyleStatistics.build(self.template.tensors(), {**self.template.facts(), "at": layer})
        return replace(self, template=template)


def style_series(run: RecordedRun) -> ArtifactSeries[Simulator] | None:
    """The style statistics of a run's last round, with those of the earlier rounds."""
    recorded_styles, defense = run.recorded_styles, run.defense
    if recorded_styles is None:
        return None
    template = recorded_styles.template
    wire: Mapping[str, Artifact] = recorded_styles.wire if template.level == "client" else {}
    return ArtifactSeries(
        simulator=StyleSimulator(recorded_styles, defense, template),
        level=template.level,
        wire=wire,
        clients=tuple(recorded_styles.wire),
        receiver=recorded_styles.receiver,
        receivers=recorded_styles.receivers,
        number=template.round,
        history=tuple(
            EarlierRound(styles.template.round, StyleSimulator(styles, defense, styles.template), styles.wire)
            for styles in recorded_styles.rounds[:-1]
            if template.level == "client"
        ),
        earlier=recorded_styles.earlier if template.level == "client" else {},
    )
