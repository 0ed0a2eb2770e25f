"""Central training: one model on the pooled images of all clients, the papers' upper reference."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fdgpriv.artifacts.artifact import SERVER, Message
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Request, Server
from fdgpriv.federation.upload import ExpectedArtifact

from ._federation import answered, shared_state
from ._unfederated import UnfederatedSGD


@dataclass(frozen=True)
class Central(UnfederatedSGD):
    """Plain training at one place, where all images are; as many passes over them as FedAvg's clients make.

    Only the model after the last round is released, once: it crosses to the server and from there to everybody. That the
    images had to be collected is not audited. The learning rate changes, and the optimiser is new, after every `local_epochs`
    passes.
    """

    pools_images: ClassVar[bool] = True

    def disclosure(self) -> Disclosure:
        return replace(super().disclosure(), often={ModelState.kind: 1})

    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        (trainer,) = federation.clients
        model = self.model(federation, rng)
        for round in federation.rounds(self.rounds):
            start: Message = [shared_state(model, SERVER, 0, self)] if round == 0 else []
            yield Request("train", {trainer: start}, number=round, wanted=())
        expected = [ExpectedArtifact(shared_state(model, SERVER, 0, self))]
        answers = yield Request("release", {trainer: []}, number=self.rounds - 1, wanted=expected)
        answered(answers, ModelState)[trainer].load_into(model)
        yield Request("publish", {trainer: [shared_state(model, SERVER, self.rounds, self)]}, wanted=())
        return model
