"""StableFDG: clients share styles so that all may train on all (Park et al., "StableFDG", NeurIPS 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, Message, ModelState, Outgoing, StyleDraft, StyleStatistics
from fdgpriv.federation import Federation, LocalData
from fdgpriv.roles import Answers, Ask, Server
from fdgpriv.style import DASSL, PAPER_EPS

from ._federation import Batch, FederatedSGD, augment, batches, load_average, model_state, shared_state, train
from ._highlighter import ATTENTIONS, HighlightedClassifier
from ._stable_batch import StyledBatch, StyleLearning, partners

_CHOICES = {
    "sharing": ("random", "farthest"),
    "shift_select": ("kmeans++", "random"),
    "oversample": ("balanced", "random"),
    "center": ("batch", "concat"),
    "attention": ATTENTIONS,
}


@dataclass(frozen=True)
class StableFDG(FederatedSGD):
    """The defaults are the paper's (section 4.1, App. G).

    Attributes:
        exploration: alpha of Eq. 4-5.
        p: Probability of shifting, and at each layer of exploring (App. E.5).
        received: How many other clients' styles a client is sent (App. E.2); 0 shares none.
        sharing: ``random`` one to one without self, or ``farthest`` in style space (App. E.1).
        shift_select: Which half keeps its style: what k-means++ seeding picks, or random (App. E.3).
        oversample, oversample_size: Class-balanced or random, and how many; none for the batch size (App. E.4).
        style_layer: The stage whose output styles are shared and shifted at.
        explore_layers: The stages after which styles are explored and mixed (App. E.6).
        attention, attention_dim, qk_norm: Of the highlighter (App. F; `_highlighter.Highlighter`).
        style_learning: Off leaves attention only (Table 3); nothing is shared then but models.
        mixing: Of Beta(mixing, mixing) in style mixing.
        literal_shift: Step 2 as its text has it, noise of one's own variance times the other's variance.
        center: Extrapolate around the styles of the ``batch`` (Eq. 4-5) or of ``concat``, batch and oversampled (text).
        clamp_sigma: Cut extrapolated stds at 0; Eq. 5 and the released code do not.
        code_compat: As the released code has it: styles of all clients every round, taken in train mode from augmented
            full batches; cluster centres written onto samples; exploration at the first active layer only; a constant
            learning rate; the attention's unused branch sent along.
    """

    exploration: float = 3.0
    p: float = 0.5
    received: int = 1
    sharing: str = "random"
    shift_select: str = "kmeans++"
    oversample: str = "balanced"
    oversample_size: int | None = None
    style_layer: str = "layer1"
    explore_layers: tuple[str, ...] = ("layer1", "layer2", "layer3")
    attention: str = "mix"
    attention_dim: int = 30
    qk_norm: bool = True
    style_learning: bool = True
    mixing: float = 0.1
    literal_shift: bool = False
    center: str = "batch"
    clamp_sigma: bool = False
    code_compat: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"stablefdg.{name}: want one of {', '.join(choices)}; got {getattr(self, name)!r}")
        if not 0 <= self.p <= 1:
            raise ValueError(f"stablefdg.p: want a probability, got {self.p}")
        if not 0 < self.mixing <= 1:
            raise ValueError(f"stablefdg.mixing: want more than 0 and at most 1, got {self.mixing}")
        for name, least in (("attention_dim", 1), ("received", 0), ("oversample_size", 0)):
            if (given := getattr(self, name)) is not None and given < least:
                raise ValueError(f"stablefdg.{name}: want at least {least}, got {given}")

    @property
    def shares_styles(self) -> bool:
        """Whether clients share style information at all."""
        return self.style_learning and self.received > 0

    def lr_at(self, round: int) -> float:
        return self.lr if self.code_compat else super().lr_at(round)

    def releases(self, kind: str) -> int:
        return self.rounds if kind != StyleStatistics.kind or self.shares_styles else 0

    def model(self, federation: Federation, rng: torch.Generator) -> HighlightedClassifier:
        return HighlightedClassifier(
            federation.backbone(rng),
            federation.classes,
            federation.image_size,
            rng,
            dim=self.attention_dim,
            kind=self.attention,
            qk_norm=self.qk_norm,
            released=self.code_compat,
        )

    def check(self, model: nn.Module) -> None:
        assert isinstance(model, HighlightedClassifier)
        for layer in (self.style_layer, *self.explore_layers):
            if layer not in model.backbone.stages:
                raise ValueError(f"stablefdg: want layers of {', '.join(model.backbone.stages)}; got {layer!r}")

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        model: nn.Module = self.model(federation, rng)
        for round in range(self.rounds):
            clients = federation.sample(self.participants, rng)
            state = shared_state(model, SERVER, round, self)
            message: dict[str, Message]
            if self.shares_styles and len(clients) > 1:
                asked = federation.clients if self.code_compat else clients
                styles = styles_in((yield Ask("style", {client: [state] for client in asked})))
                peers = self._peers(clients, styles, rng)
                message = {client: [styles[other] for other in others] for client, others in peers}
            else:
                message = {client: [state] for client in clients}
            states = model_state((yield Ask("fit", message, reduce="mean")))
            load_average(model, list(states.values()))
        return model

    def _peers(
        self, clients: Sequence[str], styles: Mapping[str, StyleStatistics], rng: torch.Generator
    ) -> list[tuple[str, list[str]]]:
        """By client, whose styles it is sent."""
        received = min(self.received, len(clients) - 1)
        if self.sharing == "random":
            orders = derangements(len(clients), received, rng)
            return [(client, [clients[order[i]] for order in orders]) for i, client in enumerate(clients)]
        vectors = torch.stack([styles[client].vector() for client in clients])
        far = torch.cdist(vectors, vectors).fill_diagonal_(-1).argsort(dim=1, descending=True)[:, :received].tolist()
        return [(client, [clients[j] for j in row]) for client, row in zip(clients, far, strict=True)]

    def client(self, federation: Federation, data: LocalData, rng: torch.Generator) -> "StableFDGClient":
        return StableFDGClient(self, federation, data, rng)


class StableFDGClient:
    """Answers ``style`` with its style information and ``fit`` with its trained model."""

    def __init__(self, method: StableFDG, federation: Federation, data: LocalData, rng: torch.Generator) -> None:
        self.method, self.data, self.rng, self.device = method, data, rng, federation.device
        self.model = method.model(federation, rng).to(self.device)
        self.own: StyleStatistics | None = None
        self.round = 0
        self.log: dict[str, tuple[float, int]] = {}
        self.how = StyleLearning(
            layer=method.style_layer,
            explore_layers=method.explore_layers if method.style_learning else (),
            p=method.p if method.style_learning else 0.0,
            alpha=method.exploration,
            oversample_size=method.oversample_size,
            balanced=method.oversample == "balanced",
            kmeans=method.shift_select == "kmeans++",
            literal=method.literal_shift,
            center_concat=method.center == "concat",
            clamp=method.clamp_sigma,
            mixing=method.mixing,
            released=method.code_compat,
            classes=federation.classes,
        )

    def style(self, message: Message) -> Outgoing:
        """Phi_n of the global model it is sent: Eq. 2-3, over all local samples."""
        self._receive(message)
        draft = self._draft_as_released() if self.method.code_compat else self._draft()
        self.own = draft.finish()
        return [draft]

    def fit(self, message: Message) -> Message:
        """The model after E local epochs of Steps 2-5 and the highlighter."""
        self._receive(message)
        styles = [artifact for artifact in message if isinstance(artifact, StyleStatistics)]
        train(
            self.model,
            lambda batch: self._loss(batch, styles),
            self.data,
            self.method,
            self.round,
            self.rng,
            self.device,
            whole_batches=self.method.code_compat,
        )
        return [shared_state(self.model, self.data.client, self.round, self.method)]

    def _receive(self, message: Message) -> None:
        for artifact in message:
            if isinstance(artifact, ModelState):
                artifact.load_into(self.model)
                self.round = artifact.round

    @torch.no_grad()
    def _draft(self) -> StyleDraft:
        self.model.eval()
        moments = [
            PAPER_EPS(self.model.backbone.features(images.to(self.device), self.method.style_layer))
            for images in self.data.images.split(256)
        ]
        mean, std = (torch.cat(parts).cpu() for parts in zip(*moments, strict=True))
        return self._as_draft(mean, std, PAPER_EPS.name)

    @torch.no_grad()
    def _draft_as_released(self) -> StyleDraft:
        self.model.train()
        size = min(self.method.batch_size, len(self.data))
        moments = [
            DASSL(self.model.backbone.features(images.to(self.device), self.method.style_layer))
            for index in batches(len(self.data), size, self.rng)
            if len(index) == size
            for images in [augment(self.data.images[index], self.data.flip, self.data.translate, self.rng)]
        ]
        mean, std = (torch.cat(parts).cpu() for parts in zip(*moments, strict=True))
        return self._as_draft(mean, std, DASSL.name)

    def _as_draft(self, mean: Tensor, std: Tensor, rule: str) -> StyleDraft:
        return StyleDraft(
            client=self.data.client,
            round=self.round,
            mean=mean,
            std=std,
            variances=True,
            behind="client",
            at=self.method.style_layer,
            rule=rule,
        )

    def _loss(self, batch: Batch, styles: Sequence[StyleStatistics]) -> Tensor:
        extra = self._lonely(batch) if self.method.attention in ("mix", "cross") else batch.index[:0]
        styled = StyledBatch(
            self.how, batch.labels, batch.index, styles, self.own, self.rng, extras=len(extra), log=self.log
        )
        images = torch.cat([batch.images, self.data.images[extra].to(self.device)]) if len(extra) else batch.images
        z = self.model.backbone(images, styled.after())
        labels = torch.cat([styled.labels, self.data.labels[extra].to(self.device)])
        partner = partners(labels, torch.cat([styled.ids, extra]), self.rng).to(self.device)
        rows = len(styled.labels)
        if not self.method.qk_norm and self.model.highlighter is not None:
            styled.note("attention_entropy", entropy(self.model.highlighter.scores(z.detach(), partner)))
        return nn.functional.cross_entropy(self.model.classify(z, partner)[:rows], styled.labels)

    def _lonely(self, batch: Batch) -> Tensor:
        """Another local sample for each class that this batch holds one image of, where the client has another."""
        counts = batch.labels.cpu().bincount(minlength=self.how.classes)
        picks = []
        for label in (counts == 1).nonzero().flatten().tolist():
            mine = (self.data.labels == label).nonzero().flatten()
            others = mine[~torch.isin(mine, batch.index)]
            if len(others):
                picks.append(others[torch.randint(len(others), (1,), generator=self.rng)])
        return torch.cat(picks) if picks else batch.index[:0]


@torch.no_grad()
def entropy(attention: Tensor) -> float:
    """Mean entropy in nats of attention (B, HW): 0 where one position takes all, ln HW where all are alike."""
    return float(torch.special.entr(attention).sum(1).mean())


def styles_in(answers: Answers) -> dict[str, StyleStatistics]:
    """By client, the style in its answer."""
    return {
        client: artifact
        for client, message in answers.items()
        for artifact in message
        if isinstance(artifact, StyleStatistics)
    }


def derangements(n: int, count: int, rng: torch.Generator) -> list[list[int]]:
    """`count` permutations of range(n) without fixed points, no two of which agree anywhere.

    One is uniform over all derangements. More are rotations of one random circle by different steps.

    Raises:
        ValueError: n < 2, or count >= n, where there are none.
    """
    if n < 2 or not 0 <= count < n:
        raise ValueError(f"want n >= 2 and at most n - 1 derangements, got n={n}, count={count}")
    if count == 1:
        while True:
            order = torch.randperm(n, generator=rng)
            if not bool((order == torch.arange(n)).any()):
                return [order.tolist()]
    circle = torch.randperm(n, generator=rng)
    place = circle.argsort()
    steps = (torch.randperm(n - 1, generator=rng)[:count] + 1).tolist()
    return [circle[(place + step) % n].tolist() for step in steps]
