"""What models say of images: of the suspects they are asked about, and of public images."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fdgpriv.artifact import STATISTICS, Artifact, ModelState
from fdgpriv.exam import Question
from fdgpriv.exam.heard import Heard
from fdgpriv.utility import logits

_TRUSTED = 0.5  # accuracy on public images


@dataclass(frozen=True, eq=False)
class Told:
    """Logits (S, N, K) of S models on the images of the pool at `index` (N,), sorted, and (S, M, K) on public ones."""

    index: Tensor
    suspects: Tensor
    public: Tensor

    def of(self, suspects: Tensor) -> Tensor:
        """(S, n, K), of some of them."""
        return self.suspects[:, torch.searchsorted(self.index, suspects)]


@dataclass(frozen=True, eq=False)
class Asking:
    """Asks models, one after the other, first of all those that senders were sent.

    A model sent is trusted where it is right on half of the public images. Then suspects have the labels it gives them,
    and every model trained of it is asked with its BatchNorm statistics; a model trained of none has its own.

    Attributes:
        network: That the models are states of.
        device: Where.
        pool: (P, 3, H, W) the images that suspects are of.
        images, labels_of_images: Public, (M, 3, H, W) and (M,).
        heard: What artifacts said before, of this pool.
    """

    network: nn.Module
    device: torch.device
    pool: Tensor
    images: Tensor
    labels_of_images: Tensor
    heard: Heard
    _before: dict[int, Told] = field(default_factory=dict, init=False)
    _trusted: set[int] = field(default_factory=set, init=False)

    def meet(self, questions: Sequence[Question]) -> None:
        """Ask the models that were sent about the suspects of these questions; once, before all else."""
        for sent in {id(one.sent): sent_to(one) for one in questions}.values():
            mine = [question for question in questions if question.sent is sent]
            told = self._before[id(sent)] = self.about([sent], mine, sent, public=True)
            if float((told.public[0].argmax(1) == self.labels_of_images).float().mean()) >= _TRUSTED:
                self._trusted.add(id(sent))

    def before(self, question: Question) -> Tensor:
        """(N, K): what the model sent says of the question's suspects."""
        return self._before[id(question.sent)].of(question.suspects)[0]

    def labels(self, question: Question, own: Tensor) -> Tensor:
        """(N,): classes of the suspects as far as they are known, with what the trained model says of them (N, K)."""
        return (self.before(question) if id(question.sent) in self._trusted else own).argmax(1)

    def about(
        self, states: Sequence[ModelState], questions: Sequence[Question], sent: ModelState | None, public: bool
    ) -> Told:
        """What models say of all suspects of these questions, and of public images where wanted; as `logits`."""
        index = all_suspects(questions)
        images = torch.cat([self.pool[index], self.images if public else self.images[:0]])
        told = self.logits(states, images, sent)
        return Told(index, told[:, : len(index)], told[:, len(index) :])

    def about_one(
        self, artifact: Artifact, state: ModelState, questions: Sequence[Question], sent: ModelState, public: bool
    ) -> Told:
        """As `about`, of one model, which an artifact that all these questions are of tells."""
        index = all_suspects(questions)
        under = sent if id(sent) in self._trusted else None
        suspects = self.heard.of(artifact, under, index, lambda some: self.logits([state], self.pool[some], sent)[0])
        of_public = self.logits([state], self.images, sent) if public else suspects[None, :0]
        return Told(index, suspects[None], of_public)

    @torch.no_grad()
    def logits(self, states: Sequence[ModelState], images: Tensor, sent: ModelState | None) -> Tensor:
        """(S, N, K) of models trained of the one sent, or from the start for None, finite whatever they hold."""
        common = sent.state if sent is not None and id(sent) in self._trusted else {}
        theirs = {name: tensor for name, tensor in common.items() if name.endswith(STATISTICS)}
        told = []
        for state in states:
            replace(state, state=state.state | theirs).load_into(self.network)
            told.append(logits(self.network, images, self.device))
        return torch.stack(told).nan_to_num(0.0, 1e6, -1e6)


def sent_to(question: Question) -> ModelState:
    """The model that the sender was sent."""
    assert question.sent is not None
    return question.sent


def all_suspects(questions: Sequence[Question]) -> Tensor:
    """(N,): the suspects of these questions, sorted indices into the pool."""
    index: Tensor = torch.cat([question.suspects for question in questions]).unique()
    return index
