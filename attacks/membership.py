"""Membership: was this image trained on, judged by a client's training in one round or by the model of all?

References: as in `_lira.py`; AUDIT 5.6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fdgpriv.artifact import ModelState
from fdgpriv.exam import Guess, Question, View
from fdgpriv.exam.heard import first_tensor
from fdgpriv.states import ModelUpdate
from fdgpriv.subjects import Craft, SharedModelCraft, Subject, TrainingCraft

from ._asking import Asking, Told, sent_to
from ._lira import likelihood, log_odds, offline, online, rmia
from ._membership import MembershipAttack, blind, like_the_mean
from ._reading import held, public_images
from ._shadow_federations import shadow_federations
from ._shadows import Shadows

STATISTICS = ("auto", "lira", "rmia", "change", "loss")
_PUBLIC = 100  # public images that are looked at: to trust the model sent, and for RMIA to compare with


@dataclass(frozen=True)
class Membership(MembershipAttack):
    """Scores each suspect by how sure the trained model is of it, against shadow models trained without it.

    Shadows of a client begin with the model that it was sent, hold as many public images as are behind the artifact (of
    one domain where one has so many), and pass through the run's defense. A suspect's label is unknown to all roles
    here: the class that the model sent gives it stands in, or, where that model is right on fewer than half of the
    public images, the class that the trained model gives it, which flatters non-members.

    All models are looked at with the BatchNorm statistics of the model sent, where that is trusted with labels: these
    drift towards whatever a client holds, which hides what its gradients did.

    Shadows of the model that the server sends out are whole federations, trained from the start with the run's method
    and defense on public images alone, and looked at with their own statistics. They cost trainings, so that `auto` has
    the model's own loss there.

    Attributes:
        statistic: ``lira``; ``rmia``; ``change`` of log-odds from the model sent; ``loss`` of the trained model, as
            log-odds; ``auto`` is lira, and loss of the model that the server sends out.
        online: LiRA with shadows that saw half of the suspects each; trained anew for each line of suspects. No
            federation is trained so.
        shadows: Of each number of images; a quarter where every client was sent a model of its own. Of the model that
            the server sends out, federations in all.
        gamma: RMIA's.
        a: RMIA's, offline.
    """

    reads: ClassVar[tuple[str, ...]] = (ModelState.kind, ModelUpdate.kind, "global_model")
    sizes: ClassVar[tuple[int | None, ...]] = (1, 20, None)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"shadows": 2}}

    statistic: str = "auto"
    online: bool = False
    shadows: int = 4
    gamma: float = 1.0
    a: float = 0.3

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            raise ValueError(f"membership.statistic: want one of {', '.join(STATISTICS)}; got {self.statistic!r}")
        if self.shadows < 2:
            raise ValueError(f"membership.shadows: want at least 2, got {self.shadows}")
        if self.online and self.statistic not in ("auto", "lira"):
            raise ValueError(f"membership.online: want statistic=lira, got {self.statistic}")
        if self.gamma <= 0 or not 0 <= self.a <= 1:
            raise ValueError(f"membership: want gamma above 0 and a in [0, 1], got {self.gamma} and {self.a}")

    def sizes_on(self, subject: Subject[Craft]) -> tuple[int | None, ...]:
        return (1, None) if subject.own_models else self.sizes

    def refuses(self, subject: Subject[Craft]) -> str | None:
        if self.online and self.statistic == "lira" and isinstance(subject.craft, SharedModelCraft):
            return "shadow federations never hold a suspect, so membership.online has nothing to compare with here"
        return None

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        images, _ = public_images(view)
        guesses = _Reader(self, view, rng).read(questions)
        return guesses, blind(like_the_mean(view.candidates, images), rng)


@dataclass(eq=False)
class _Reader:
    """Reads all questions of a sitting; what several have in common is computed once."""

    attack: Membership
    view: View
    rng: torch.Generator

    def __post_init__(self) -> None:
        self.craft = self.view.craft(TrainingCraft)
        self.makes = Shadows(self.craft, held(self.view), self.rng)
        self.halves: dict[object, tuple[Tensor, Tensor]] = {}
        self.public = torch.randperm(len(self.makes.labels), generator=self.rng)[:_PUBLIC]
        public = self.makes.images[self.public], self.makes.labels[self.public]
        self.asks = Asking(
            self.craft.network(), self.craft.federation.device, self.view.candidates, *public, self.view.heard
        )
        self.of_all = isinstance(self.craft, SharedModelCraft)
        self.statistic = self.attack.statistic
        if self.statistic == "auto":
            self.statistic = "loss" if self.of_all else "lira"

    def read(self, questions: Sequence[Question]) -> list[Guess]:
        """A score (N,) of each question's suspects."""
        by_start: dict[tuple[int, int], list[Question]] = {}
        by_artifact: dict[int, list[Question]] = {}
        for question in questions:
            by_start.setdefault(self._start(question), []).append(question)
            by_artifact.setdefault(first_tensor(question.artifact), []).append(question)
        own_models = len({sent for sent, _ in by_start}) > 1
        count = max(2, self.attack.shadows // 4) if own_models else self.attack.shadows
        self.asks.meet(questions)
        if self.of_all and self.statistic in ("lira", "rmia"):
            compared: dict[tuple[int, int], Told | None] = dict.fromkeys(by_start, self._federations(questions))
        else:
            compared = {start: self._compared(some, count) for start, some in by_start.items()}
        found: dict[Question, Tensor] = {}
        for some in by_artifact.values():
            sent = sent_to(some[0])
            model = self.craft.after(some[0].artifact, sent)
            told = self.asks.about_one(some[0].artifact, model, some, sent, self.statistic == "rmia")
            found |= {one: self._score(one, told, compared[self._start(one)], count).nan_to_num(0.0) for one in some}
        return [found[question] for question in questions]

    def _about(self, states: Sequence[ModelState], questions: Sequence[Question], sent: ModelState | None) -> Told:
        """What these models, trained of the one sent, say; of public images too where they are compared with."""
        return self.asks.about(states, questions, sent, self.statistic == "rmia")

    def _start(self, question: Question) -> tuple[int, int]:
        """What shadows hang on: the model that was sent, and how many images they hold."""
        sizes = torch.tensor(self.view.sizes)
        return id(question.sent), int(sizes[(sizes - question.images_behind).abs().argmin()])

    def _compared(self, questions: Sequence[Question], count: int) -> Told | None:
        """What the shadows say of these questions' suspects, where they did not see any."""
        if self.statistic in ("change", "loss") or self.attack.online:
            return None
        size = self._start(questions[0])[1]
        drawn = [self.makes.draw(size, turn) for turn in range(count)]
        sent = sent_to(questions[0])
        told = self._about(self.makes.of(drawn, sent), questions, sent)
        return self._unseen(told, torch.stack([torch.isin(self.public, index) for index in drawn]))

    def _federations(self, questions: Sequence[Question]) -> Told:
        """What shadow federations say of all suspects, none of which they saw."""
        federations = shadow_federations(self.view, self.attack.shadows)
        told = self._about([state for one in federations for state in one.sent], questions, None)
        return self._unseen(told, torch.stack([one.saw[self.public] for one in federations for _ in one.sent]))

    def _unseen(self, told: Told, saw: Tensor) -> Told:
        """The same, NaN of the public images that a shadow saw (S, M), where these are compared with."""
        if self.statistic != "rmia":
            return told
        return Told(told.index, told.suspects, told.public.masked_fill(saw[:, :, None], torch.nan))

    def _score(self, question: Question, told: Told, compared: Told | None, count: int) -> Tensor:
        suspects, name = question.suspects, self.statistic
        (own,) = told.of(suspects)
        labels = self.asks.labels(question, own)
        phi = log_odds(own, labels)
        if name == "loss":
            return phi
        if name == "change":
            return phi - log_odds(self.asks.before(question), labels)
        if compared is None:
            shadows, saw = self._half_seen(question, labels, count)
            return online(phi, log_odds(shadows, labels), saw)
        others = compared.of(suspects)
        if name == "lira":
            return offline(phi, log_odds(others, labels))
        known = self.makes.labels[self.public]
        unseen = likelihood(compared.public, known).nanmean(0).nan_to_num(1.0)
        mean = likelihood(others, labels).mean(0)
        public = likelihood(told.public[0], known)
        return rmia(likelihood(own, labels), mean, public, unseen, self.attack.gamma, self.attack.a)

    def _half_seen(self, question: Question, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Logits (S, N, K) of shadows that held some of the suspects each, and which saw which (S, N)."""
        key = (self._start(question), id(question.suspects), tuple(labels.tolist()))
        if key not in self.halves:
            images = self.view.candidates[question.suspects]
            states, saw = self.makes.with_some_of(images, labels, key[0][1], sent_to(question), count)
            self.halves[key] = self.asks.logits(states, images, sent_to(question)), saw
        return self.halves[key]
