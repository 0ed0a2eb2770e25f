"""LSI: latent space inversion of heads, a translator for domain invariance, and importance-weighted averaging.

Palakkadavath et al., "Federated domain generalization with latent space inversion". The paper has one client per source
domain (``--clients 3 --backbone resnet50``); d is a client's index in the federation, which is public.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import (
    STATISTICS,
    BatchNormStatistics,
    ClassifierHead,
    ImportanceWeights,
    ModelState,
    RepresentationTranslator,
)
from fdgpriv.artifacts.statistics import LabelMarginal, SampleCount, ValidationMetrics
from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Answers, Request, Server
from fdgpriv.federation.state import Resumable
from fdgpriv.federation.upload import ExpectedArtifact
from fdgpriv.utils.global_rng import global_draws

from . import _expected_answers
from ._federation import answered, average, model_state, shared_state
from ._importance import buffers, combined, effective_clients, summed
from ._latent_classifier import Head, LatentClassifier
from ._latent_inversion import Latents, labels_for, starts_for
from ._lsi_client import LSIClient
from ._lsi_settings import LSISettings
from ._translator import Discriminator, Synthesised, Translator, TranslatorTraining
from ._translator_quality import training_warning, translator_quality


@dataclass(frozen=True)
class LSI(LSISettings):
    """Five stages: clients pretrain (1), the server inverts their heads (2) and trains a translator (3), clients train with
    it (4), the server averages by importance (5). Stages 1 to 3 happen once, 4 and 5 in every round.

    Presets for the digits: `default` trains stage 1 for 20 epochs at lr 0.02, until each head fits its client's training
    images; inverts 8 batches of 32 latents per client in 300 steps; and trains the translator for 2,000 steps at a larger
    learning rate than the paper's. `quick` only exercises the code: its heads are undertrained, and claims that depend on
    them are not decided. Both recompute BatchNorm statistics for each aggregated model (`recalibrate_bn`): clients trained
    from scratch diverge, and importance-weighted parameters do not fit averaged statistics.

    The training log has figures on each stage, listed in `docs/methods.md`.
    """

    def model(self, federation: Federation, rng: torch.Generator) -> LatentClassifier:
        return LatentClassifier(federation.backbone(rng), self.latent_dim, federation.classes, rng)

    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> LSIClient:
        return LSIClient(self, self.model(federation, rng), federation, data, rng)

    def disclosure(self) -> Disclosure:
        often = {
            ModelState.kind: self.rounds,
            ImportanceWeights.kind: self.rounds * (self.aggregation != "mean"),
            ValidationMetrics.kind: self.rounds * (self.select == "validation"),
            BatchNormStatistics.kind: self.rounds * self.recalibrate_bn,
            ClassifierHead.kind: int(self.invariance > 0),
            LabelMarginal.kind: int(self.invariance > 0 and self.inversion_labels == "marginal"),
            SampleCount.kind: int(self.weights == "samples"),
        }
        uploads = tuple(kind for kind, times in often.items() if times)
        individual = tuple(kind for kind in uploads if kind != BatchNormStatistics.kind)
        named = tuple(kind for kind in uploads if kind == SampleCount.kind)  # sent once, for the weights of all rounds
        common = replace(super().disclosure(), otherwise=0, often=often, uploads=uploads, individual=individual)
        return replace(common, named=named, signed_importances=self.importance_sign == "signed")

    def training_warning(self, log: Mapping[str, float]) -> str | None:
        return training_warning(log) if self.invariance else None

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        model = self.model(federation, rng)
        shared = yield from self._pretrain(federation, model)
        for _ in federation.stage("translator", shared=shared) if self.invariance else ():
            translator, figures = self.translator(federation, shared, rng)
            message: Message = [RepresentationTranslator.of(translator, SERVER, 0)]
            yield Request("adopt", dict.fromkeys(federation.clients, message), diagnostics=figures, wanted=())
        best, sizes, log = Best(model), _sizes(shared), dict[str, float]()
        for round in federation.rounds(self.rounds, model=model, best=best, sizes=sizes, log=log):
            clients = federation.sample(self.participants, rng)
            answers = yield self._fit_request(model, round, clients, log)
            best.update(answers)
            if self.aggregation != "mean":
                importances = [artifact.state for artifact in answered(answers, ImportanceWeights).values()]
                log[f"effective_clients_round_{round + 1}"] = effective_clients(importances)
            weights = [sizes[client] for client in clients] if sizes else None
            merged = yield from self._aggregate(model, round, answers, weights)
            model.load_state_dict(merged, strict=False)
            if self.recalibrate_bn:
                yield from self._recalibrate(model, round, clients, weights)
        best.update((yield self._validation_request(federation, model, log)))
        return best.model()

    def _fit_request(self, model: nn.Module, round: int, clients: Sequence[str], log: Mapping[str, float]) -> Request:
        """Stage 4: clients train from the global model; in round 0, from their models of stage 1."""
        current = shared_state(model, SERVER, round, self)
        messages: dict[str, Message] = {client: [current] if round else [] for client in clients}
        return Request("fit", messages, diagnostics=log, wanted=self._expected_fit(model, current))

    def _validation_request(self, federation: Federation, model: nn.Module, log: Mapping[str, float]) -> Request:
        """Clients evaluate the last model, if the best model is selected by validation."""
        last = shared_state(model, SERVER, self.rounds, self)
        clients = federation.clients if self.select == "validation" else ()
        messages: dict[str, Message] = {client: [last] for client in clients}
        expected = [_expected_answers.accuracy(torch.float64, least=0)]
        return Request("validate", messages, diagnostics=log, wanted=expected)

    def _pretrain(self, federation: Federation, model: LatentClassifier) -> Generator[Request, Answers, Answers]:
        """Stage 1: what each client shares of its own pretraining."""
        start, shared = shared_state(model, SERVER, 0, self), Answers()
        expected = self._expected_pretrain(model, federation.classes)
        for _ in federation.stage("pretrain"):
            messages: dict[str, Message] = {client: [start] for client in federation.clients}
            shared.update((yield Request("pretrain", messages, wanted=expected)))
        return shared

    def _recalibrate(
        self, model: nn.Module, round: int, clients: Sequence[str], weights: list[float] | None
    ) -> Generator[Request, Answers, None]:
        """Loads into `model` the clients' average of its BatchNorm statistics on their data."""
        aggregated = shared_state(model, SERVER, round, self)
        known_weights = dict(zip(clients, weights, strict=True)) if weights else None
        expected = [_expected_statistics(aggregated)]
        messages: dict[str, Message] = {client: [aggregated] for client in clients}
        answers = yield Request("recalibrate", messages, reduce="mean", weights=known_weights, wanted=expected)
        statistics = [artifact.state for artifact in answered(answers, BatchNormStatistics).values()]
        model.load_state_dict(buffers(statistics, weights), strict=False)

    def _expected_pretrain(self, model: LatentClassifier, classes: int) -> list[ExpectedArtifact]:
        """Expected artifacts in an answer to stage 1."""
        expected = []
        if self.invariance:
            expected.append(ExpectedArtifact(ClassifierHead.of(model.head, SERVER, 0)))
            if self.inversion_labels == "marginal":
                expected.append(ExpectedArtifact(LabelMarginal(client=SERVER, round=0, share=torch.zeros(classes))))
        return expected + self.expected_count()

    def _expected_fit(self, model: nn.Module, current: ModelState) -> list[ExpectedArtifact]:
        """Expected artifacts in an answer to stage 4, for training from this model state."""
        expected = []
        if self.aggregation != "mean":
            parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
            template = ImportanceWeights(client=SERVER, round=current.round, state=parameters)
            expected.append(ExpectedArtifact(template, signed=self.importance_sign == "signed"))
        if self.normaliser == "server":
            expected.append(ExpectedArtifact(current))
        if self.select == "validation" and current.round:
            expected.append(_expected_answers.accuracy(torch.float64, least=0))
        return expected

    def translator(
        self, federation: Federation, answers: Answers, rng: torch.Generator
    ) -> tuple[Translator, dict[str, float]]:
        """Stages 2 and 3: a translator trained on latents inverted from the heads, and figures for the training log."""
        data, heads, bn_loss = self.synthesised(federation, answers, rng)
        clients = len(federation.clients)
        translator = Translator(self.latent_dim, clients, self.translator_settings, rng).to(federation.device)
        discriminator = Discriminator(self.latent_dim, clients, self.translator_settings, rng).to(federation.device)
        TranslatorTraining(translator, discriminator, data, heads, self.translator_settings, rng).run()
        return translator, {"bn_loss": bn_loss} | translator_quality(translator, data, heads)

    def synthesised(
        self, federation: Federation, answers: Answers, rng: torch.Generator
    ) -> tuple[Synthesised, list[Head], float]:
        """Stage 2: latents of all clients, the heads they were inverted from, and Eq. 5 averaged over batches."""
        shared, marginals = answered(answers, ClassifierHead), answered(answers, LabelMarginal)
        settings, is_fresh = self.inversion, self.inversion_start == "fresh"
        heads, labels, starts = [], [], list[Tensor]()
        for client in federation.clients:
            with global_draws():
                head = Head(self.latent_dim, federation.classes)
            shared[client].load_into(head)
            heads.append(head.to(federation.device))
            share = marginals[client].share if client in marginals else torch.ones(federation.classes)
            labels.append(labels_for(settings, share, rng))
            if is_fresh or not starts:
                starts.append(starts_for(settings, self.latent_dim, rng))
        current = Latents(settings, torch.stack(starts).to(federation.device))
        all_labels = torch.stack(labels).to(federation.device)
        synthesised, losses = [], []
        for clients_part in [slice(None)] if is_fresh else [slice(i, i + 1) for i in range(len(heads))]:
            losses.append(current.fit(heads[clients_part], all_labels[clients_part]))
            synthesised.append(current.value.detach().flatten(0, 2).clone())
        latents = torch.cat(synthesised)
        clients = torch.arange(len(heads), device=federation.device).repeat_interleave(len(latents) // len(heads))
        return Synthesised(latents, all_labels.flatten(), clients), heads, float(torch.cat(losses).mean())

    def _aggregate(
        self, model: nn.Module, round: int, answers: Answers, weights: list[float] | None
    ) -> Generator[Request, Answers, dict[str, Tensor]]:
        """Stage 5: the next global model's tensors; asks clients once more if they normalise."""
        importances = [artifact.state for artifact in answered(answers, ImportanceWeights).values()]
        if self.normaliser == "clients":
            total = {name: tensor.float() for name, tensor in summed(importances).items()}
            artifact = ImportanceWeights(client=SERVER, round=round, state=total)
            expected = [ExpectedArtifact(shared_state(model, SERVER, round, self))]
            own_importances = answered(answers, ImportanceWeights)
            answers = yield Request(
                "weigh",
                {client: [artifact, own_importances[client]] for client in answers},
                reduce="mean",
                wanted=expected,
            )
        states = list(model_state(answers).values())
        parameters = [{name: state[name] for name, _ in model.named_parameters()} for state in states]
        if self.aggregation == "mean":
            merged = average(parameters, weights)
        elif self.normaliser == "clients":
            merged = {name: tensor.float() for name, tensor in summed(parameters).items()}
        else:
            merged = combined(parameters, importances)
        if self.aggregation == "literal":
            merged = {name: tensor / len(states) for name, tensor in merged.items()}
        return merged | buffers(states, weights)


def _sizes(answers: Answers) -> dict[str, float]:
    """By client, the shared number of training images."""
    return {client: float(sent.count) for client, sent in answered(answers, SampleCount).items()}


def _expected_statistics(state: ModelState) -> ExpectedArtifact:
    """Template of recomputed BatchNorm statistics, with counters from 0."""
    zeros = {name: torch.zeros_like(t) for name, t in state.state.items() if name.rpartition(".")[2] in STATISTICS}
    return ExpectedArtifact(BatchNormStatistics(client=SERVER, round=state.round, state=zeros))


class Best(Resumable):
    """The global model with the highest validation accuracy so far; the last model if no client has held-out images."""

    checkpointed: ClassVar[tuple[str, ...]] = ("_accuracy", "_state")

    def __init__(self, model: nn.Module) -> None:
        self._model, self._accuracy = model, -1.0
        self._state: dict[str, Tensor] = {}

    def update(self, answers: Answers) -> None:
        """Keeps the current model if its mean accuracy in the answers is at least the best so far; call before averaging."""
        accuracies = [float(sent.accuracy) for sent in answered(answers, ValidationMetrics).values()]
        if accuracies and (mean := sum(accuracies) / len(accuracies)) >= self._accuracy:
            self._accuracy = mean
            self._state = {name: tensor.clone() for name, tensor in self._model.state_dict().items()}

    def model(self) -> nn.Module:
        """The model with the best state loaded."""
        if self._state:
            self._model.load_state_dict(self._state)
        return self._model
