"""COPA: one feature extractor, and every client's head for everyone (Wu and Gong, ICCV 2021), as CCST's paper describes it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.local_tensors import LocalModule, tensors_of
from fdgpriv.artifacts.parameters import ClassifierHead, ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers
from fdgpriv.federation.setup import Setup
from fdgpriv.models.backbone import After, Backbone, Classifier, drawing_from
from fdgpriv.utils.fields import NonNegativeFloat, PositiveInt
from fdgpriv.utils.seeds import generator

from ._averaging import Aggregation, AveragingClient, FederatedAveraging
from ._federation import Batch, answered, load_average

_HEAD, _ENSEMBLE = "head.", "ensemble."  # prefixes of the names of tensors: of a client's head, and of all heads


@dataclass(frozen=True)
class COPA(FederatedAveraging):
    """Collaborative optimisation and aggregation, built from the description in CCST's paper: there is no released code.

    It says: only the extractor is averaged, every client's classifier head is kept and sent to all, and predictions are
    the ensemble of heads. Ours are: the ensemble is the mean of the heads' probabilities; each client adds to its
    cross-entropy the mean of those of the other clients' heads, which stay fixed, on its features; all heads begin alike.
    The batch and instance normalisation that the paper proposes is left out. Training is FedAvg's.

    A client holds the extractor, its own head and those of all other clients: their ensemble is the global model that is
    evaluated, and attacked.

    Attributes:
        heads_weight: Weight of the other clients' heads in a client's loss; 0 trains on its own head alone.
    """

    paper_setup: ClassVar[Setup] = Setup(clients_per_domain=1, partition="single", backbone="resnet18", image_size=224)

    participants: PositiveInt | None = None
    heads_weight: NonNegativeFloat = 1.0

    @property
    def coupling(self) -> str:
        return "the gradients of single images for the heads that its clients keep are not known"

    def withheld(self, model: nn.Module, sender: str) -> frozenset[str]:
        ensemble = tensors_of(model, HeadEnsemble)
        return super().withheld(model, sender) | ensemble | (tensors_of(model, OwnHead) if sender == SERVER else set())

    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        backbone = federation.backbone(rng)
        same_for_all = generator(federation.seed, 65)
        model = EnsembleClassifier(backbone, federation.classes, len(federation.clients), same_for_all)
        return self.local_training.network(model)

    def disclosure(self) -> Disclosure:
        common, named = super().disclosure(), (ModelState.kind,)
        return replace(common, individual=common.uploads, named=named, global_model=ensemble)

    def aggregation(self, federation: Federation) -> "COPAAggregation":
        return COPAAggregation(self, federation.clients)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> "COPAClient":
        return COPAClient(self, federation, data, rng)


def ensemble(extractor: ModelState, heads: Sequence[ClassifierHead]) -> ModelState:
    """The model that a client holds: an extractor and the ensemble of at least one head.

    Its single head, with which training would continue, is the mean of all.
    """
    weight, bias = (torch.stack([head.state[name] for head in heads]) for name in ("weight", "bias"))
    joined = {"weight": weight, "bias": bias, "known": torch.ones(len(heads), dtype=torch.int64)}
    state = {f"{_HEAD}{name}": joined[name].mean(0) for name in ("weight", "bias")}
    state |= {f"{_ENSEMBLE}{name}": tensor for name, tensor in joined.items()}
    return replace(extractor, state=extractor.state | state)


class OwnHead(LocalModule, nn.Linear):
    """A client's head, which the server does not send back."""


class HeadEnsemble(LocalModule):
    """The heads of N clients; the log of the mean of their probabilities.

    Args:
        clients: N.
        classes: K.
        width: D.
    """

    def __init__(self, clients: int, classes: int, width: int) -> None:
        super().__init__()
        self.weight: Tensor
        self.bias: Tensor
        self.known: Tensor
        self.register_buffer("weight", torch.zeros(clients, classes, width))
        self.register_buffer("bias", torch.zeros(clients, classes))
        self.register_buffer("known", torch.zeros(clients, dtype=torch.int64))  # 1, or 0

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *arguments: Any) -> None:
        """Loads the heads of any number of clients: an adversary's own federations have fewer."""
        for name, buffer in list(self.named_buffers()):
            if prefix + name in state_dict:
                setattr(self, name, buffer.new_empty(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def forward(self, features: Tensor) -> Tensor:
        """Log-probabilities (B, K) of features (B, D), of the heads that are known."""
        known = self.known.bool()
        logits = torch.einsum("nkd,bd->nbk", self.weight[known], features) + self.bias[known][:, None]
        mean: Tensor = logits.log_softmax(2).logsumexp(0) - known.sum().log()
        return mean


class EnsembleClassifier(Classifier):
    """A backbone with one client's head, and, once any are known, the ensemble of all heads in evaluation mode."""

    def __init__(self, backbone: Backbone, classes: int, clients: int, rng: torch.Generator) -> None:
        super().__init__(backbone, classes, rng)
        with drawing_from(rng):
            self.head = OwnHead(backbone.out_channels, classes)
        self.ensemble = HeadEnsemble(clients, classes, backbone.out_channels)

    def forward(self, images: Tensor, after: After | None = None) -> Tensor:
        features = self.embedding(images, after)
        is_ensemble = not self.training and bool(self.ensemble.known.any())
        logits: Tensor = (self.ensemble if is_ensemble else self.head)(features)
        return logits


class COPAAggregation(Aggregation):
    """Averages extractors, and keeps every client's latest head for the others."""

    checkpointed: ClassVar[tuple[str, ...]] = ("heads",)

    def __init__(self, method: COPA, clients: Sequence[str]) -> None:
        super().__init__(method)
        self.clients, self.heads = clients, dict[str, ClassifierHead]()

    def relayed(self, client: str) -> Message:
        return [head for name, head in self.heads.items() if name != client]

    def merge(self, model: nn.Module, answers: Answers, round: int) -> None:
        shared = answered(answers, ModelState)
        for name, state in shared.items():
            head = {key.removeprefix(_HEAD): t.clone() for key, t in state.state.items() if key.startswith(_HEAD)}
            self.heads[name] = ClassifierHead(client=name, round=round, state=head)
        extractors = [state.without([key for key in state.state if key.startswith(_HEAD)]) for state in shared.values()]
        load_average(model, [extractor.state for extractor in extractors], self.method.weights_in(answers))
        assert isinstance(model, EnsembleClassifier)
        for name, latest in self.heads.items():
            position = self.clients.index(name)
            model.ensemble.weight[position] = latest.state["weight"]
            model.ensemble.bias[position] = latest.state["bias"]
            model.ensemble.known[position] = 1


class COPAClient(AveragingClient):
    """Answers ``fit`` with its extractor and head, trained beside the heads of the other clients."""

    method: COPA
    model: EnsembleClassifier

    def __init__(self, method: COPA, federation: Federation, data: ClientData, rng: torch.Generator) -> None:
        super().__init__(method, federation, data, rng)
        self.others: list[tuple[Tensor, Tensor]] = []

    def fit(self, message: Message) -> Message:
        heads = [artifact.state for artifact in message if isinstance(artifact, ClassifierHead)]
        self.others = [(head["weight"].to(self.device), head["bias"].to(self.device)) for head in heads]
        return super().fit(message)

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of its own head and, weighted, the mean of those of the other heads on the same features."""
        features = self.model.embedding(batch.images)
        loss = nn.functional.cross_entropy(self.model.head(features), batch.labels)
        if not self.others:
            return loss
        others = [
            nn.functional.cross_entropy(nn.functional.linear(features, *head), batch.labels) for head in self.others
        ]
        return loss + self.method.heads_weight * torch.stack(others).mean()
