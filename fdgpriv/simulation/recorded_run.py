"""One recorded run, from which artifact series are read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.partition import Population
from fdgpriv.federation.transcript import Transcript
from fdgpriv.simulation.recorded_styles import RecordedStyles


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """One recorded run.

    Attributes:
        transcript: All transfers.
        method, federation, defense: As trained.
        population: The data of clients and shadow clients, and public data.
        recorded_styles: The style statistics that clients shared; None if they shared none.
    """

    transcript: Transcript
    method: FederatedMethod
    federation: Federation
    defense: Defense
    population: Population
    recorded_styles: RecordedStyles | None

    @cached_property
    def client_template(self) -> ClientData:
        """One client's data without held-out images, for its augmentation and its position in the federation."""
        client = next(iter(self.population.clients.values()))
        return replace(client, held_out_pixels=client.pixels[:0], held_out_labels=client.labels[:0])

    @cached_property
    def first_models(self) -> dict[str, ModelState]:
        """By client or shadow client, the model it received in the first round; empty if none is recorded."""
        return self.received_models(self.transcript.models_sent(0))

    def received_models(self, sent: Mapping[str, ModelState]) -> dict[str, ModelState]:
        """The model that each client received; shadow clients get that of a client of their domain.

        Args:
            sent: By client, the recorded model; if it is empty, so is the result.
        """
        if not sent:
            return {}
        domain = {name: self.population.main_domain(name) for name in self.population.domain_of}
        of_domain = {domain[name]: model for name, model in sent.items() if name in domain}
        default = next(iter(sent.values()))
        return {name: sent.get(name) or of_domain.get(domain[name], default) for name in domain}
