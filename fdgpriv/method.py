"""The role Method: a federated learning method's model, server and client."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Server
from fdgpriv.federation.setup import Setup
from fdgpriv.registry import Role


class Method(Role):
    """A federated learning method: its server and client algorithms.

    `model`, `server`, `client`, `presets` and `rounds` suffice to train it and to attack its artifacts; a more complete
    `disclosure` enables more attacks.

    Attributes:
        presets: By preset of the audit, the fields that it sets.
        paper_setup: The federation of the paper's experiments, for the preset ``paper``.
        personal: Whether clients receive different, personalised models.
        federated: Whether clients and a server train together. Other methods run neither over Flower nor with defenses.
        pools_images: Whether one participant trains on the images of all clients.
        own_network: Whether it trains a network that its paper defines, without the configured backbone.
        single_image_settings: Settings ``name=value`` under which what it shares is computed from one image at a time, so
            that a defense may protect single images with little noise, instead of whole clients.
        rounds: Number of rounds.
        local_statistics: Whether BatchNorm statistics stay with the clients. The global model is then evaluated on a domain
            with statistics that are recomputed on the domain's images, without labels (Andreux et al., "Siloed federated
            learning for multi-centric histopathology datasets", DCL 2020).
    """

    folder = "methods"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    paper_setup: ClassVar[Setup] = Setup()
    personal: ClassVar[bool] = False
    federated: ClassVar[bool] = True
    pools_images: ClassVar[bool] = False
    single_image_settings: ClassVar[tuple[str, ...]] = ()

    rounds: int

    @property
    def own_network(self) -> bool:
        return False

    @property
    def local_statistics(self) -> bool:
        return False

    @abstractmethod
    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        """The initial global model, which is public."""

    @abstractmethod
    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        """The paper's server algorithm: yields Request, receives answers, returns the trained global model."""

    @abstractmethod
    def client(self, federation: Federation, data: ClientData, rng: torch.Generator) -> object:
        """The paper's client: an object with one method per verb."""

    def disclosure(self) -> Disclosure:
        """Further public facts for the audit: numbers of releases, style computation, client training."""
        return Disclosure(self.name(), self.rounds)

    def undefended(self) -> Self:
        """The method with undefended training steps, on the same network."""
        return self

    def model_of(self, model: nn.Module, client: str) -> nn.Module:
        """The final model of `client`, given the server's result; by default the global model."""
        return model

    def adapted_logits(self, model: nn.Module, images: Tensor) -> Tensor | None:
        """Logits (N, K) of the final global model, adapted at test time to the unlabelled `images` (N, 3, H, W) of one domain.

        None if the method has no such adaptation. For the evaluator; nothing is shared.
        """
        return None

    def check(self, model: nn.Module) -> None:
        """Raises ValueError if a setting does not fit the model."""
        return

    def check_data(self, data: ClientData) -> None:
        """Raises ValueError if a setting does not fit a client's data; called before training."""
        return

    def training_warning(self, log: Mapping[str, float]) -> str | None:
        """One line if the training's log shows that the training is not the method as in its paper; else None.

        Claims about such a training stay undecided.
        """
        return None

    def for_clients(self, clients: int) -> Self:
        """This method, adapted to the number of clients of a federation that an adversary simulates."""
        return self
