"""The role Method: a federated learning method's model, server and client."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import nn

from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.ask import Server
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.setup import Setup
from fdgpriv.registry import Role


class Method(Role):
    """A federated learning method: what the server does with answers, and what a client answers.

    `model`, `server`, `client`, `presets` and `rounds` suffice to train it and to attack what it shares; a fuller
    `disclosure` opens more attacks.

    Attributes:
        presets: By preset of the audit, the fields that it sets.
        paper_setup: The federation of the paper's experiments, for the preset ``paper``.
        personal: Whether each client is sent a model of its own.
        rounds: How many.
    """

    folder = "methods"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    paper_setup: ClassVar[Setup] = Setup()
    personal: ClassVar[bool] = False

    rounds: int

    @abstractmethod
    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        """The global model as it starts: a public fact."""

    @abstractmethod
    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        """The paper's server: yields Ask, receives answers, returns the trained global model."""

    @abstractmethod
    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> object:
        """The paper's client: an object with one method for each verb."""

    def disclosure(self) -> Disclosure:
        """What else an audit may know of it: how often its artifacts leave a client, and how they come to be."""
        return Disclosure(self.name(), self.rounds)

    def model_of(self, model: nn.Module, client: str) -> nn.Module:
        """The model that `client` ends with, of what the server returned: here the global one."""
        return model

    def check(self, model: nn.Module) -> None:
        """Raises ValueError where a setting does not fit the model that was built."""
        return

    def check_data(self, data: ClientData) -> None:
        """Raises ValueError where a setting does not fit what a client holds; asked before anything is trained."""
        return

    def cut_to(self, clients: int) -> Self:
        """This method for a federation of so few clients, with what presumes more of them cut, as adversaries train it."""
        return self
