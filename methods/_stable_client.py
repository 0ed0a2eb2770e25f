"""StableFDG's client: shares its style, and trains with style shifting, exploration, mixing and the highlighter.

Reference: Park et al., "StableFDG", NeurIPS 2023, Algorithm 1, Steps 1-5.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import ClientReply, StyleDraft, StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.data.pixels import as_images
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.state import Resumable

from ._federation import Batch, augment, batches, shared_state, train
from ._stable_batch import StyledBatch, next_of_class, partners
from ._stable_settings import StableSettings


class StableFDGClient(Resumable):
    """Answers ``style`` with its style information and ``fit`` with its trained model."""

    checkpointed: ClassVar[tuple[str, ...]] = ("model", "own", "round", "log")

    def __init__(self, method: StableSettings, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.model = method.model(federation, rng).to(self.device)
        self.own: StyleStatistics | None = None
        self.styles: Sequence[StyleStatistics] = ()  # of other clients, in this round
        self.round = 0
        self.log: dict[str, tuple[float, int]] = {}
        self.settings = method.at_stages_of(self.model.backbone)
        self.classes = federation.classes

    def style(self, message: Message) -> ClientReply:
        """Style Phi_n of the local samples under the received global model (Eq. 2-3)."""
        self._receive(message)
        layer, rule = self.settings.style_layer, self.settings.rule
        self.model.eval()
        mean, std = self.method.styles().of_client(self.model, self._style_images(), layer, rule)
        draft = StyleDraft(
            client=self.data.client,
            round=self.round,
            mean=mean,
            std=std,
            variances=True,
            granularity="client",
            at=layer,
            rule=rule.name,
        )
        self.own = draft.finish()
        return [draft]

    def fit(self, message: Message) -> Message:
        """The model after E local epochs of Steps 2-5 and the highlighter."""
        self._receive(message)
        received = [artifact for artifact in message if isinstance(artifact, StyleStatistics)]
        self.styles = received if self.round > 0 or self.method.style_mode == "eval" else []
        train(self.model, self.loss, self.data, self.method, self.round, self.rng)
        trained = shared_state(self.model, self.data.client, self.round, self.method)
        return [trained, *self.method.counted(self.data, self.round)]

    def _receive(self, message: Message) -> None:
        for artifact in message:
            if isinstance(artifact, ModelState):
                artifact.load_into(self.model)
                self.round = artifact.round

    def _style_images(self) -> Tensor:
        """Images (m, 3, H, W) whose style is shared: all, or in the released code one augmented, shuffled epoch."""
        if not self.method.code_compat:
            return as_images(self.data.pixels)
        index = torch.cat(list(batches(len(self.data), self.method.batch_size, self.rng)))
        return as_images(augment(self.data.pixels[index], self.data.flip, self.data.translate, self.rng))

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of one mini-batch under Steps 2-5 and the highlighter, with the styles last received."""
        extra = self._extra_partners(batch) if self.method.attention in ("mix", "cross") else batch.index[:0]
        styled = StyledBatch(
            self.settings,
            self.classes,
            batch.labels,
            batch.index,
            self.styles,
            self.own,
            self.rng,
            extras=len(extra),
            log=self.log,
        )
        images = (
            torch.cat([batch.images, as_images(self.data.pixels[extra]).to(self.device)])
            if len(extra)
            else batch.images
        )
        z = self.model.backbone(images, styled.after())
        labels = torch.cat([styled.labels, self.data.labels[extra].to(self.device)])
        released = self.method.code_compat
        partner = next_of_class(labels) if released else partners(labels, torch.cat([styled.ids, extra]), self.rng)
        partner = partner.to(self.device)
        rows = len(styled.labels)
        if not self.method.qk_norm and self.model.highlighter is not None:
            styled.record("attention_entropy", entropy(self.model.highlighter.scores(z.detach(), partner)))
        return nn.functional.cross_entropy(self.model.classify(z, partner)[:rows], styled.labels)

    def _extra_partners(self, batch: Batch) -> Tensor:
        """For each class with one image in the batch, the index of another local sample of the class, if any."""
        counts = batch.labels.cpu().bincount(minlength=self.classes)
        picks = []
        for label in (counts == 1).nonzero().flatten().tolist():
            of_class = (self.data.labels == label).nonzero().flatten()
            others = of_class[~torch.isin(of_class, batch.index)]
            if len(others):
                picks.append(others[torch.randint(len(others), (1,), generator=self.rng)])
        return torch.cat(picks) if picks else batch.index[:0]


@torch.no_grad()
def entropy(attention: Tensor) -> float:
    """Mean entropy in nats of attention (B, HW): 0 for one-hot attention, ln HW for uniform attention."""
    return float(torch.special.entr(attention).sum(1).mean())
