"""Style statistics as a subject."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.artifact import PEER, Artifact, ModelState, StyleDraft, StyleStatistics
from fdgpriv.evidence import Evidence
from fdgpriv.roles import Defense

from .subject import Craft, Holding, Subject


@dataclass(frozen=True, eq=False)
class StyleCraft(Craft):
    """Styles of images, pooled and defended as the clients do.

    Attributes:
        evidence: Takes styles.
        defense: Of the run.
        template: One artifact of this layer, for its form.
    """

    evidence: Evidence
    defense: Defense
    template: StyleStatistics

    kind = StyleStatistics.kind

    @property
    def jointly(self) -> bool:
        """Whether an image's style depends on the other images of its client."""
        return self.evidence.jointly

    def styles(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and std (N, C) of each image's features, alone or in batches of images like `among`."""
        return self.evidence.styles(images, self.template.at, among)

    def moments(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `styles`, of any images (N, 3, H, W) and with gradients to them: the encoder is public."""
        return self.evidence.moments(images, self.template.at, among)

    def maps(self, images: Tensor) -> Tensor:
        """(N, D): what the rule clusters images by besides their styles; D is 0 where it does not."""
        return self.evidence.maps(images, self.template.at)

    def draft(self, mean: Tensor, std: Tensor, behind: str, maps: Tensor | None = None) -> StyleDraft:
        """A draft of styles (n, C), and maps (n, D) where images are clustered by them, of the template's form."""
        like = self.template
        return StyleDraft(
            client=like.client,
            round=like.round,
            mean=mean,
            std=std,
            variances=len(like.mean_var) > 0,
            behind=behind,
            at=like.at,
            rule=like.rule,
            maps=maps,
        )

    def share(self, draft: StyleDraft, rng: torch.Generator) -> StyleStatistics:
        """What leaves a client instead of the draft."""
        shared = self.defense.protect(draft, rng)
        assert isinstance(shared, StyleStatistics)
        return shared

    def make(
        self, held: Holding, index: Tensor, rng: torch.Generator, *, behind: str = "client", defended: bool = True
    ) -> StyleStatistics:
        mean, std = self.parts(held, index)
        draft = self.draft(mean, std, behind, self.maps(held.images)[index])
        return self.share(draft, rng) if defended else draft.finish()

    def parts(self, held: Holding, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and std (n, C) of each of the images at `index` (n,), as a client takes them that holds just these."""
        if self.jointly and len(index) > 1:
            return self.evidence.of_client(held.images, self.template.at, index)
        mean, std = self.styles(held.images)
        return mean[index], std[index]

    def each(self, held: Holding, index: Tensor, rng: torch.Generator) -> Tensor:
        return torch.cat(self.parts(held, index), dim=1)

    def vector(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        """All that the artifact says, variances as standard deviations: (2C,) or (4C,)."""
        assert isinstance(artifact, StyleStatistics)
        deviations = [artifact.mean_var.clamp_min(0).sqrt(), artifact.std_var.clamp_min(0).sqrt()]
        return torch.cat([artifact.mean, artifact.std, *deviations])

    def flat(self, artifact: Artifact, sent: ModelState | None) -> Tensor:
        assert isinstance(artifact, StyleStatistics)
        return artifact.vector()

    def unflat(self, row: Tensor, sent: ModelState | None) -> StyleStatistics:
        parts = row.chunk(4 if len(self.template.mean_var) else 2)
        mean, std = parts[0], parts[1].clamp_min(0)
        nothing = mean.new_empty(0)
        mean_var, std_var = (parts[2].clamp_min(0), parts[3].clamp_min(0)) if len(parts) == 4 else (nothing, nothing)
        tensors = {"mean": mean, "std": std, "mean_var": mean_var, "std_var": std_var}
        return StyleStatistics.build(tensors, self.template.facts())

    def alike(self, artifact: Artifact, behind: str) -> StyleStatistics:
        return StyleStatistics.build(artifact.tensors(), {**artifact.facts(), "client": PEER, "behind": behind})

    def layers(self) -> tuple[str, ...]:
        return self.evidence.layers()

    def at(self, layer: str) -> "StyleCraft":
        moved = StyleStatistics.build(self.template.tensors(), {**self.template.facts(), "at": layer})
        return replace(self, template=moved)


def style_subject(evidence: Evidence, defense: Defense, repeated: Subject[Craft] | None) -> Subject[Craft]:
    """The style statistics of a run, of its last round and of several together."""
    template = evidence.template
    wire: Mapping[str, Artifact] = evidence.wire if template.level == "client" else {}
    return Subject(
        craft=StyleCraft(evidence, defense, template),
        level=template.level,
        wire=wire,
        clients=tuple(evidence.wire),
        receiver=evidence.receiver,
        earlier=evidence.earlier if template.level == "client" else {},
        repeated=repeated,
    )
