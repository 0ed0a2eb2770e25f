"""The model that the server sends out, as a subject: what it tells everybody about the images of all clients."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.artifact import SERVER, ModelState
from fdgpriv.engine.local import LocalEngine
from fdgpriv.evidence import each_halfway
from fdgpriv.federation import Federation, LocalData
from fdgpriv.partition import Population, set_aside
from fdgpriv.roles import Defense, Method
from fdgpriv.transcript import Transcript
from fdgpriv.wire import Diverged, Wire

from .subject import Craft, Subject, like_any
from .training import TrainingCraft

GLOBAL_MODEL = "global_model"


@dataclass(frozen=True, eq=False)
class SharedModelCraft(TrainingCraft):
    """How the model of all goes on in one client's hands, and how another comes to be, by a whole training."""

    def trained_anew(self, parties: Sequence[tuple[Tensor, Tensor]], rng: torch.Generator) -> list[ModelState]:
        """What the server of another federation sends last, trained from the start with this one's method and defense.

        Where that training diverges, what it sent last before. One client answers at a time, on one thread.

        Args:
            parties: By client, images (n, 3, H, W) and labels (n,), n at least 2; the usual share is held out.
            rng: Of all its draws.

        Returns: one model; of a personal method, one for each client.
        """
        data = {f"client-{i:02d}": self._client(f"client-{i:02d}", *party, rng) for i, party in enumerate(parties)}
        seed = int(torch.randint(2**62, (), generator=rng))
        federation = replace(self.federation, clients=tuple(data), seed=seed)
        wire = Wire({name: len(own) for name, own in data.items()}, self.defense)
        with suppress(Diverged):
            LocalEngine(1).run(self.method.cut_to(len(data)), federation, data, wire)
        _, models = last_sent(wire.transcript)
        return list({id(model): model for model in models.values()}.values())

    def _client(self, name: str, images: Tensor, labels: Tensor, rng: torch.Generator) -> LocalData:
        out, kept = set_aside(len(labels), rng)
        own = replace(self.like, client=name, images=images[kept], labels=labels[kept])
        return replace(own, held_out_images=images[out], held_out_labels=labels[out])


def shared_model_subject(
    transcript: Transcript, method: Method, federation: Federation, defense: Defense, population: Population
) -> Subject[Craft] | None:
    """The last model that the server sent after any training; of a personal method, one that another client was sent.

    An artifact of few images is that model after one client with these images trained it further, as in the first
    round: its learning rate is not yet lowered.
    """
    if not method.trains_plainly:
        return None
    clients = tuple(population.clients)
    round, models = last_sent(transcript)
    if round < 1 or len(clients) < 2:
        return None
    others = each_halfway(clients)
    anybody = next(iter(models.values()))
    shared = {name: models.get(others[name], anybody) for name in clients}
    empty = like_any(population.clients)
    return Subject(
        craft=SharedModelCraft(ModelState.kind, method, federation, defense, empty, 0),
        level="group",
        wire=shared,
        clients=clients,
        sent=shared,
        receiver=others,
        costly=True,
        name=GLOBAL_MODEL,
    )


def last_sent(transcript: Transcript) -> tuple[int, Mapping[str, ModelState]]:
    """The last round of which a model that the server sent is kept (-1: none), and by client what it was sent then."""
    sent = [r for r, kept in transcript.of_kind(ModelState.kind) if r.origin == SERVER and kept is not None]
    return (sent[-1].round, transcript.models_sent(sent[-1].round, sent[-1].verb)) if sent else (-1, {})
