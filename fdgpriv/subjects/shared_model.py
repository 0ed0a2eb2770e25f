"""The model that the server sends out, as a subject: what it tells everybody about the images of all clients."""

from dataclasses import replace

from fdgpriv.artifact import SERVER, ModelState
from fdgpriv.evidence import each_halfway
from fdgpriv.federation import Federation
from fdgpriv.partition import Population
from fdgpriv.roles import Defense, Method
from fdgpriv.transcript import Transcript

from .subject import Craft, Subject
from .training import TrainingCraft

GLOBAL_MODEL = "global_model"


def shared_model_subject(
    transcript: Transcript, method: Method, federation: Federation, defense: Defense, population: Population
) -> Subject[Craft] | None:
    """The last model that the server sent after any training; of a personal method, one that another client was sent.

    An artifact of few images is that model after one client with these images trained it further, as in the first
    round: its learning rate is not yet lowered.
    """
    if not method.trains_plainly:
        return None
    sent = [r for r, kept in transcript.of_kind(ModelState.kind) if r.origin == SERVER and kept is not None]
    clients = tuple(population.clients)
    if not sent or sent[-1].round == 0 or len(clients) < 2:
        return None
    models = transcript.models_sent(sent[-1].round, sent[-1].verb)
    others = each_halfway(clients)
    anybody = next(iter(models.values()))
    shared = {name: models.get(others[name], anybody) for name in clients}
    like = next(iter(population.clients.values()))
    empty = replace(like, held_out_images=like.images[:0], held_out_labels=like.labels[:0])
    return Subject(
        craft=TrainingCraft(ModelState.kind, method, federation, defense, empty, 0),
        level="group",
        wire=shared,
        clients=clients,
        sent=shared,
        receiver=others,
        costly=True,
        name=GLOBAL_MODEL,
    )
