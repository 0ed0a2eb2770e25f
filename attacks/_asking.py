"""What models say of images: of the suspects they are asked about, and of public images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import torch
from torch import Tensor, nn

from fdgpriv.artifact import STATISTICS, Artifact, ModelState
from fdgpriv.exam import Question
from fdgpriv.once import Once
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


@dataclass(eq=False)
class Heard:
    """What one model says of the images of a pool: each is asked about once, whoever asks and among whichever others.

    Attributes:
        of_whom: What tells the model, kept so that nothing else takes its place in memory.
    """

    of_whom: tuple[Artifact, ModelState]
    _logits: Tensor = field(default_factory=lambda: torch.empty(0, 0), init=False)
    _known: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.bool), init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def of(self, index: Tensor, pool: int, ask: Callable[[Tensor], Tensor]) -> Tensor:
        """Logits (N, K) of the images at `index` (N,) of a pool of so many; `ask` says those (n, K) of some (n,)."""
        with self._lock:
            if not len(self._known):
                self._known = torch.zeros(pool, dtype=torch.bool)
            if len(missing := index[~self._known[index]]):
                said = ask(missing)
                if not len(self._logits):
                    self._logits = said.new_empty(pool, said.shape[1])
                self._logits[missing], self._known[missing] = said, True
            return self._logits[index]


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
        heard: What was asked of artifacts before, of this pool.
    """

    network: nn.Module
    device: torch.device
    pool: Tensor
    images: Tensor
    labels_of_images: Tensor
    heard: Once[Heard]
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
        index = torch.cat([question.suspects for question in questions]).unique()
        images = torch.cat([self.pool[index], self.images if public else self.images[:0]])
        told = self.logits(states, images, sent)
        return Told(index, told[:, : len(index)], told[:, len(index) :])

    def about_one(
        self, artifact: Artifact, state: ModelState, questions: Sequence[Question], sent: ModelState, public: bool
    ) -> Told:
        """As `about`, of one model, which an artifact that all these questions are of tells."""
        index = torch.cat([question.suspects for question in questions]).unique()
        key = (first_tensor(artifact), id(sent) if id(sent) in self._trusted else None)
        heard = self.heard.get(key, lambda: Heard((artifact, sent)))
        suspects = heard.of(index, len(self.pool), lambda some: self.logits([state], self.pool[some], sent)[0])
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


def first_tensor(artifact: Artifact) -> int:
    """Names an artifact by its first tensor, which is the same wherever it stands."""
    return id(next(iter(artifact.tensors().values())))
