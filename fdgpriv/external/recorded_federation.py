"""Builds a federation that an evaluator can attack, from a recording and the user's images, network and training."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact
from fdgpriv.artifacts.named_tensors import NamedTensors
from fdgpriv.artifacts.parameters import STATISTICS, ClassifierHead, ModelState, ModelUpdate, TensorState
from fdgpriv.artifacts.statistics import ValidationMetrics
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.data.pixels import as_images
from fdgpriv.external.binary_head import BinaryHead
from fdgpriv.external.checked_recording import SECONDS, RecordedEvidence
from fdgpriv.external.logits import likeliest
from fdgpriv.external.recorded_method import Features, Network, RecordedMethod, Train, UserTraining
from fdgpriv.external.recorded_names import changed_states, fit_names, in_single_precision, unwrapped
from fdgpriv.external.recorded_population import GivenFederation, given_federation, recorded_population
from fdgpriv.external.recorded_styles import MAX_DEVIATION, StyleComputation, StyleEncoder, style_computation
from fdgpriv.external.recording_checks import StatisticsSent, messages
from fdgpriv.external.shared_part import heads_as_models, with_shared_part
from fdgpriv.federation.averaging import average
from fdgpriv.federation.disclosure import Disclosure, StyleSource
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.omission import ENDED, sentences
from fdgpriv.federation.partition import Population
from fdgpriv.federation.reserve import UNITS_PER_DOMAIN
from fdgpriv.federation.transcript import Record, Transcript
from fdgpriv.federation.weights import Weights
from fdgpriv.models.copied import copied
from fdgpriv.models.lazy_layers import with_shapes
from fdgpriv.registry import importing
from fdgpriv.results.recording_check import RecordingChecks
from fdgpriv.simulation.shared_model import GLOBAL_MODEL
from fdgpriv.utils.failures import one_line
from fdgpriv.utils.global_rng import global_draws

_MODELS = (ModelState.kind, ModelUpdate.kind)
_STYLE_CLIENTS = 3  # clients whose styles are recomputed to find out how styles were computed
_SHOWN = 5  # names in a sentence
_WARNINGS = ("public images", "clients' images")  # checks whose notes are warnings about the images
_FAR_FROM_MEAN = 0.5  # such a distance, above which the mean says nothing of the server's next model
_SAME_MODEL = 0.02  # distance of equal models, half precision and weights included, relative to that of other models
_MEAN_TOLERANCE = 1e-3  # distance of a sent model from the mean of the uploads, relative to the round's change


@dataclass(frozen=True, eq=False)
class GivenTraining:
    """The user's network, images and training, which a recording does not contain.

    Attributes:
        network: Builds the network whose state dict was sent, or is one.
        clients, public: As of `given_federation`.
        train: ``train(model, images, labels, round, rng)``, by which a client trains `model` in place; None if not given.
        encoder: Gives the style encoder of a model; or the name of the layer whose output it is; None to find the layer.
        normalize: Converts images in [0, 1] to the network's input; None for no conversion.
        image_size: Side of the images of folders.
    """

    network: Callable[[], nn.Module] | nn.Module
    clients: Mapping[str, Any]
    public: Mapping[str, Any] = field(default_factory=dict)
    train: Train | None = None
    encoder: StyleEncoder | None = None
    normalize: Features | None = None
    image_size: int | None = None


@dataclass(frozen=True, eq=False)
class RecordedFederation:
    """A recorded training, as an evaluator takes it.

    Attributes:
        population: Its clients' images, public images and shadow clients.
        method, federation: Known facts about the training.
        transcript: All transfers.
        final: The model after the last round; None if no model was recorded.
        notes: Sentences for the report: what was inferred from the recording, or left out.
        missing: Those of `notes` that say what the recording lacks.
        checks: Of the recording against what the user gave; also failed ones.
    """

    population: Population
    method: RecordedMethod
    federation: Federation
    transcript: Transcript
    final: nn.Module | None
    notes: tuple[str, ...]
    missing: tuple[str, ...]
    checks: RecordingChecks

    def all_checks(self) -> RecordingChecks:
        """The checks, and whether all messages are recorded, which the notes of a report say."""
        checks = [*self.checks.errors, messages(self.missing), *(c for c in self.checks if c.outcome != "error")]
        return RecordingChecks(checks)


def recorded_federation(
    folder: Path,
    given: GivenTraining,
    seed: int,
    units_per_domain: int = UNITS_PER_DOMAIN,
    check_seconds: float = SECONDS,
) -> RecordedFederation:
    """The federation recorded in this folder.

    Args:
        folder: The recording.
        given: The user's part.
        seed: Of the evaluation.
        units_per_domain: As of `populate`.
        check_seconds: Time for the checks that simulate clients.

    Raises:
        ValueError: The recording is damaged, of another network or of other clients, or the user's part is invalid.
    """
    transcript = Transcript.load(folder)
    images = given_federation(given.clients, given.public, given.image_size).named_as(_recorded_clients(transcript))
    notes = _without_cut_round(transcript)
    images, idle = _without_idle_clients(transcript, images)
    notes += idle
    missing = (*sentences(transcript.omissions), *notes)
    notes += _check_records(transcript)
    network, classes, network_notes = _network(given, images, transcript)
    population = recorded_population(images, classes, seed, units_per_domain)
    _fill_in_samples(transcript, population)
    disclosure, facts = _disclosure(transcript, given, network, population)
    method = RecordedMethod(network, disclosure, disclosure.otherwise)
    federation = Federation(tuple(population.clients), classes, images.image_size, _no_backbone, seed)
    statistics = _statistics_sent(transcript, population, disclosure.weights)
    final, final_notes = _final_model(transcript, network, population, disclosure.weights, statistics)
    evidence = RecordedEvidence(
        transcript,
        images,
        population.clients,
        network,
        given.train,
        given.normalize is not None,
        disclosure.not_evaluated,
        statistics,
        _misplaced_models(transcript, population),
    )
    checks = evidence.checks(check_seconds)
    warnings = tuple(check.sentence for check in checks.notes if check.check in _WARNINGS)
    population = replace(population, dataset=replace(population.dataset, warnings=warnings))
    all_notes = (
        *sentences(transcript.omissions),
        *images.notes,
        *notes,
        *network_notes,
        *facts,
        *final_notes,
        *_unknown_kinds(transcript),
    )
    return RecordedFederation(population, method, federation, transcript, final, all_notes, missing, checks)


def _unknown_kinds(transcript: Transcript) -> list[str]:
    """A sentence on recorded kinds whose meaning is not known."""
    kinds = dict.fromkeys(record.kind for record in transcript.records if record.kind not in Artifact.kinds)
    if not kinds:
        return []
    return [f"Not attacked, as what they mean is not known: {', '.join(kinds)}; the ledger has what crossed."]


def _no_backbone(rng: torch.Generator) -> Any:
    raise NotImplementedError("a recorded training has the user's own network")


def _disclosure(
    transcript: Transcript, given: GivenTraining, network: Network, population: Population
) -> tuple[Disclosure, list[str]]:
    """The facts about the training that follow from its transcript and the user's part, and the sentences that say so.

    Sets the layer and the rule of the recorded styles.
    """
    not_evaluated = dict(_not_evaluated_models(transcript, given.train, network, len(population.dataset.classes)))
    weights, notes = _weights(transcript, population)
    styles: StyleSource = StyleSource()
    computation = _style_computation(transcript, population, network, given.encoder)
    if isinstance(computation, str):
        not_evaluated[StyleStatistics.kind] = computation
    elif computation is not None:
        styles = computation.source
        _set_style_rule(transcript, computation)
        notes.append(computation.sentence())
    training = None
    if given.train is not None:
        largest = max(len(data) for data in population.clients.values())
        training = UserTraining(given.train, network, population.dataset.image_size, largest)
    uploads = tuple(dict.fromkeys(record.kind for record in transcript.records if record.receiver == SERVER))
    disclosure = Disclosure(
        RecordedMethod.name(),
        otherwise=1 + max(record.round for record in transcript.records),
        uploads=uploads,
        individual=uploads,
        styles=styles,
        training=training,
        participants=max((len(senders) for senders in _senders(transcript).values()), default=None),
        weights=weights,
        not_evaluated=not_evaluated,
    )
    return disclosure, notes


def _without_cut_round(transcript: Transcript) -> list[str]:
    """Removes the last round of a recording that was not closed, unless as many clients answered as in earlier rounds.

    Returns a sentence for the report if the recording was not closed.
    """
    if transcript.closed or not transcript.records:
        return []
    answered: dict[int, set[str]] = {}
    for record in transcript.records:
        if record.receiver == SERVER:
            answered.setdefault(record.round, set()).add(record.sender)
    for omission in transcript.omissions:
        if omission.receiver == SERVER and omission.round is not None:
            answered.setdefault(omission.round, set()).add(omission.sender)
    last = max(record.round for record in transcript.records)
    in_last = answered.get(last, set())
    asked = {record.receiver for record in transcript.records if record.round == last and record.sender == SERVER}
    usual = max(len(asked), *(len(senders) for senders in answered.values()), 0)
    if asked <= in_last and len(in_last) == usual:
        return ["The recording was not closed: its training was ended from outside, after a round."]
    kept = [i for i, record in enumerate(transcript.records) if record.round < last]
    transcript.kept = {new: transcript.kept[old] for new, old in enumerate(kept) if old in transcript.kept}
    transcript.records = [transcript.records[i] for i in kept]
    return [
        f"The recording ends in the middle of round {last}, in which {len(in_last)} of {usual} clients had answered: that "
        "round is left out."
    ]


def _recorded_clients(transcript: Transcript) -> dict[str, None]:
    """The names of the clients in the recording, in order of appearance."""
    return dict.fromkeys(
        name for record in transcript.records for name in (record.sender, record.receiver) if name != SERVER
    )


def _without_idle_clients(transcript: Transcript, images: GivenFederation) -> tuple[GivenFederation, list[str]]:
    """The federation of the clients that took part, and a sentence on those that never did.

    Raises:
        ValueError: Nothing was recorded, or clients have no images.
    """
    recorded = _recorded_clients(transcript)
    if not recorded:
        raise ValueError("want a recording with at least one complete round, got none")
    if missing := [name for name in recorded if name not in images.clients]:
        raise ValueError(
            f"clients: want the images of every recorded client ({', '.join(recorded)}), got none of {missing[0]}"
        )
    idle = [name for name in images.clients if name not in recorded]
    if not idle:
        return images, []
    idle_domains = {images.domain_of[name] for name in idle} - {images.domain_of[name] for name in recorded}
    public = {domain: part for domain, part in images.public.items() if domain not in idle_domains}
    unused = [domain for domain in images.public if domain in idle_domains]
    whose = f", and with them the public images of {', '.join(unused)}, of which no other client is" if unused else ""
    present = {name: client_images for name, client_images in images.clients.items() if name in recorded}
    shown = ", ".join(idle[:_SHOWN]) + (f" and {len(idle) - _SHOWN} more" if len(idle) > _SHOWN else "")
    domain_of = {name: images.domain_of[name] for name in present}
    return replace(images, clients=present, domain_of=domain_of, public=public), [
        f"Clients that took part in no recorded round are left out ({len(idle)}): {shown}{whose}."
    ]


def _check_records(transcript: Transcript) -> list[str]:
    """Raises ValueError if values that attacks read are not finite, or a client sent a kind twice in one round.

    Returns: a sentence for the report about figures that are not finite, such as a loss over no images.
    """
    undefined = []
    sent = set[tuple[str, int, str]]()
    checked = set[int]()
    for index, record in enumerate(transcript.records):
        artifact = transcript.kept[index]
        unfit = None if id(artifact) in checked else artifact.not_finite()
        if unfit is not None and isinstance(artifact, NamedTensors | ValidationMetrics):  # no attack reads these
            undefined.append(f"{unfit} of the {record.kind} of {record.sender} in round {record.round}")
        elif unfit is not None:
            raise ValueError(
                f"{record.sender} sent a {record.kind} in round {record.round} whose {unfit} holds NaN or an infinity: "
                "want a training that did not diverge"
            )
        checked.add(id(artifact))
        key = (record.sender, record.round, record.kind)
        if record.receiver == SERVER and key in sent:
            raise ValueError(f"want one {record.kind} from {record.sender} in round {record.round}, got two")
        sent.add(key)
    more = f", and {len(undefined) - 1} more" if len(undefined) > 1 else ""
    return [f"NaN or an infinity was sent as {undefined[0]}{more}; no attack reads it."] if undefined else []


def _network(given: GivenTraining, images: GivenFederation, transcript: Transcript) -> tuple[Network, int, list[str]]:
    """The network in its first recorded state, the number of its classes, and sentences on how it and the recording fit.

    Recorded tensors get the network's names and types, and two rows where it has one logit.

    Raises:
        ValueError: It cannot be built or computed on the images, or the recording is of another one.
    """
    with importing("network"), global_draws():
        built = given.network if isinstance(given.network, nn.Module) else given.network()
    if not isinstance(built, nn.Module):
        raise ValueError(f"network: want an nn.Module, or what builds one, got {type(built).__name__}")
    probe = as_images(next(iter(images.clients.values())).pixels[:2])
    adapt = _adapting(given.normalize, images.channels)
    converted = _converted(probe, adapt, given.normalize is not None)
    built, type_notes = in_single_precision(with_shapes(unwrapped(built), converted))
    notes = [*type_notes, *heads_as_models(transcript, built), *fit_names(transcript, built)]
    for record, artifact in _models(transcript):
        _check_network(artifact, built, f"the {record.kind} of {record.sender} in round {record.round}")
    if isinstance(given.encoder, str) and given.encoder not in dict(built.named_modules()):
        names = ", ".join(name for name, _ in built.named_modules() if name)
        raise ValueError(f"encoder: want a layer of the network ({names[:200]}), got {given.encoder!r}")
    classes = 1 + max(int(client.labels.max()) for client in images.clients.values())
    logits, output_notes = _probed(built, converted, images.channels, classes)
    binary = BinaryHead.of(built) if logits.ndim == 1 or logits.shape[1] == 1 else None
    if logits.ndim == 1 or logits.shape[1] == 1:
        if binary is None:
            raise ValueError(f"network: want logits (N, K), or one logit of a linear layer, got {tuple(logits.shape)}")
        largest = {name: int(client.labels.max()) for name, client in images.clients.items()}
        if max(largest.values()) > 1:
            name = max(largest, key=lambda client: largest[client])
            raise ValueError(
                f"network: want labels 0 and 1 where it has one logit (regression is not audited), got labels up to "
                f"{largest[name]} in clients[{name!r}]"
            )
        changed_states(transcript, binary.expanded)
        built = binary.with_two_rows(built)
        output_notes.append(
            "The network has one logit: labels are 0 and 1, and its last layer is read as that of two classes."
        )
    first = next((a for r, a in _models(transcript) if r.sender == SERVER and isinstance(a, ModelState)), None)
    if first is not None:
        built = copied(built)
        built.load_state_dict(first.state, strict=False)
    notes += with_shared_part(transcript, built)
    columns = 1 if binary else logits.shape[1]
    return Network(built, adapt, columns, binary), 2 if binary else logits.shape[1], [*notes, *output_notes]


def _converted(probe: Tensor, adapt: Features | None, normalized: bool) -> Tensor:
    """Two images as the network is fed with them.

    Raises:
        ValueError: normalize= raises an exception, or gives no images.
    """
    if adapt is None:
        return probe
    wanted = "normalize: want a function of images (N, C, S, S) in [0, 1] that returns what the network is fed with"
    try:
        with global_draws():
            converted = adapt(probe.clone())
    except Exception as error:
        raise ValueError(f"{wanted}; got {one_line(error)}") from error
    if not normalized:
        return converted
    if not isinstance(converted, Tensor):
        raise ValueError(f"{wanted}; got {'nothing' if converted is None else type(converted).__name__}")
    if converted.ndim != 4 or len(converted) != len(probe) or not converted.is_floating_point():
        raise ValueError(f"{wanted}; got {_type(converted)} {tuple(converted.shape)} of images {tuple(probe.shape)}")
    if not converted.isfinite().all():
        raise ValueError(f"{wanted}; got NaN or an infinity")
    return converted


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _probed(network: nn.Module, probe: Tensor, channels: int, classes: int) -> tuple[Tensor, list[str]]:
    """The logits of two images, and a sentence if the network returns more than logits."""
    try:
        with torch.no_grad():
            output = copied(network).eval()(probe)
    except Exception as error:
        shape = (channels, *probe.shape[2:])
        raise ValueError(
            f"network: want one that takes images {shape} of {_type(probe)}, got {one_line(error)}"
        ) from error
    layers = {layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)}
    logits, place = likeliest(output, layers, classes) or (None, "")
    if logits is None or len(logits) != len(probe):
        shape_or_type = str(tuple(output.shape)) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"network: want logits (N, K), got {shape_or_type}")
    if isinstance(output, Tensor):
        return logits, []
    return logits, [f"The network returns a {type(output).__name__}: its logits are taken to be output{place}."]


def _adapting(normalize: Features | None, channels: int) -> Features | None:
    """The conversion of images in three channels to what the network takes, in float32; None for none."""
    if normalize is None:
        return None if channels == 3 else lambda images: images[:, :1]

    def converted(images: Tensor) -> Tensor:
        values = normalize(images[:, :channels])
        return values.float() if isinstance(values, Tensor) and values.is_floating_point() else values

    return converted


def _check_network(artifact: Artifact, network: nn.Module, whose: str) -> None:
    """Raises ValueError if a recorded tensor is not one of the network's."""
    expected = network.state_dict()
    for name, tensor in artifact.tensors().items():
        if name not in expected:
            raise ValueError(f"network: want that of the recording, got one without {name}, which is in {whose}")
        if tensor.shape != expected[name].shape:
            raise ValueError(
                f"network: want that of the recording, got one whose {name} is {tuple(expected[name].shape)}; in {whose} "
                f"it is {tuple(tensor.shape)}"
            )


def _fill_in_samples(transcript: Transcript, population: Population) -> None:
    """Sets in every record how many samples and clients are behind the artifact, which a recorder does not know."""
    shared: dict[str, dict[str, bool]] = {}
    for index, record in enumerate(transcript.records):
        if record.receiver == SERVER:
            kind = ModelState.kind if isinstance(transcript.kept[index], TensorState) else record.kind
            shared.setdefault(kind, {})[record.sender] = True
        aggregated = shared.get(transcript.kept[index].aggregated_from, {})
        clients = list(aggregated) if record.origin == SERVER else [record.origin]
        samples = sum(len(population.clients[client]) for client in clients)
        transcript.records[index] = replace(record, samples=samples, clients=len(clients))


def _models(transcript: Transcript) -> list[tuple[Record, Artifact]]:
    """All transfers of models and updates."""
    return [(record, transcript.kept[i]) for i, record in enumerate(transcript.records) if record.kind in _MODELS]


def _uploaded_models(transcript: Transcript) -> list[tuple[Record, Artifact]]:
    """The models and updates that clients sent."""
    return [(record, artifact) for record, artifact in _models(transcript) if record.receiver == SERVER]


def _senders(transcript: Transcript) -> dict[int, set[str]]:
    """By round, the clients that sent a model or an update."""
    senders: dict[int, set[str]] = {}
    for record, _ in _uploaded_models(transcript):
        senders.setdefault(record.round, set()).add(record.sender)
    return senders


def _last_sent_round(transcript: Transcript) -> int | None:
    """The last round in which the server sent a model; None if it sent none."""
    sent = [record.round for record in transcript.records if (record.kind, record.sender) == (ModelState.kind, SERVER)]
    return max(sent, default=None)


def _not_evaluated_models(
    transcript: Transcript, train: Train | None, network: Network, classes: int
) -> Iterator[tuple[str, str]]:
    """By name of a series of models, heads or metrics that cannot be evaluated, the reason."""
    kinds = {record.kind for record in transcript.records}
    shared = [kind for kind in _MODELS if kind in kinds]
    if ValidationMetrics.kind in kinds:
        yield ValidationMetrics.kind, "the images that a client held out for its accuracy are not known"
    if ClassifierHead.kind in kinds:
        yield ClassifierHead.kind, "a head alone is not simulated: record the model that it is a part of, with model="
    last = _last_sent_round(transcript)
    has_global_model = last is not None and transcript.model_sent(last) is not None
    if last is not None and not has_global_model:
        yield (
            GLOBAL_MODEL,
            f"clients received different models in round {last}, none of which is that of all clients",
        )
    for kind in [*shared, *([GLOBAL_MODEL] if has_global_model else [])]:
        if train is None:
            yield kind, "what a client would share is simulated by its training: pass train=... to open it"
        elif (reason := _unusable_models(transcript, network, classes)) is not None:
            yield kind, reason


def _unusable_models(transcript: Transcript, network: Network, classes: int) -> str | None:
    """Why clients' models and updates cannot be simulated although their training is given; None if they can."""
    uploads = _uploaded_models(transcript)
    if not uploads:
        return "no model or update of a client was recorded: record them with wire.up(client, round, model=...)"
    if {r.kind for r, _ in uploads} == set(_MODELS):
        return "clients sent both models and updates"
    for record, artifact in uploads:
        received = transcript.models_sent(record.round).get(record.sender)
        if received is None:
            return (
                f"the model that {record.sender} received in round {record.round} was not recorded: record it with "
                "wire.down(client, round, model=...)"
            )
        names, received_names = set(artifact.tensors()), set(received.state)
        if missing := sorted(received_names - names):
            return f"clients share different parts of the network: {record.sender} none called {missing[0]}"
        if unknown := sorted(names - received_names):
            return f"clients share {unknown[0]}, which the model that they received does not have"
    model = network.new()
    layers = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    if not layers:
        return f"the network has no linear layer of {classes} outputs, which attacks on models read the labels from"
    shared = uploads[0][1].tensors()
    if not any(all(f"{name}.{part}" in shared for part in model.get_submodule(name).state_dict()) for name in layers):
        return f"clients keep the last layer {layers[-1]}, which attacks on models read the labels from"
    return None


def _weights(transcript: Transcript, population: Population) -> tuple[Weights | None, list[str]]:
    """The weights by which the mean of a round's models is the next one that the server sent, and a sentence.

    None if the server sent no model, or one that is not a mean.
    """
    choices: tuple[Weights, ...] = ("uniform", "samples")
    deviations: dict[Weights, list[float]] = {weights: [] for weights in choices}
    for round in sorted(_senders(transcript)):
        received, sent = transcript.model_sent(round), transcript.model_sent(round + 1)
        if received is None or sent is None:
            continue
        for weights in choices:
            mean = _mean_model(transcript, round, received, population, weights)
            change = _distance(sent.state, received.state)
            deviations[weights].append(_distance(mean, sent.state) / max(change, 1e-12))
    if not deviations["uniform"]:
        return None, []
    largest = {weights: max(round_deviations) for weights, round_deviations in deviations.items()}
    best = min(choices, key=lambda weights: largest[weights])
    if largest[best] > _MEAN_TOLERANCE:
        return None, [
            f"The server's models are not the mean of its clients': they differ from it by {largest[best]:.2g} of a round's "
            "change. Where an adversary simulates whole federations, it averages."
        ]
    return best, [
        f"The server's models are the mean of its clients', {'by samples' if best == 'samples' else 'unweighted'}."
    ]


def _mean_model(
    transcript: Transcript, round: int, received: ModelState, population: Population, weights: Weights
) -> dict[str, Tensor]:
    """The mean of the models that clients sent in this round."""
    states, sizes = [], []
    for record, artifact in _uploaded_models(transcript):
        if record.round == round:
            tensors = artifact.tensors()
            is_update = isinstance(artifact, ModelUpdate)
            names = [name for name in received.state if name in tensors]
            states.append({n: received.state[n] - tensors[n] if is_update else tensors[n] for n in names})
            sizes.append(float(len(population.clients[record.sender])))
    return average(states, sizes if weights == "samples" else None)


def _distance(state: Mapping[str, Tensor], other: Mapping[str, Tensor], statistics: bool = False) -> float:
    """Euclidean distance of two states over their common floating-point tensors: BatchNorm's `statistics`, or all others."""
    measured = STATISTICS[:2]
    names = [
        name
        for name, tensor in state.items()
        if name in other
        and tensor.is_floating_point()
        and (name.rpartition(".")[2] in measured if statistics else name.rpartition(".")[2] not in STATISTICS)
    ]
    return math.sqrt(sum(float((state[name].double() - other[name].double()).square().sum()) for name in names))


def _statistics_sent(transcript: Transcript, population: Population, weights: Weights | None) -> list[StatisticsSent]:
    """How BatchNorm's statistics that the server sent follow from those that it received, by round."""
    sent = []
    for round in sorted(_senders(transcript)):
        received, following = transcript.model_sent(round), transcript.model_sent(round + 1)
        if received is None or following is None:
            continue
        mean = _mean_model(transcript, round, received, population, weights or "uniform")
        change = _distance(mean, received.state, statistics=True)
        if change > 0:
            from_mean, from_received = (
                _distance(following.state, other, statistics=True) / change for other in (mean, received.state)
            )
            sent.append(StatisticsSent(round, from_mean, from_received))
    return sent


def _style_computation(
    transcript: Transcript, population: Population, network: Network, encoder: StyleEncoder | None
) -> StyleComputation | str | None:
    """The computation of the recorded styles, or the reason why it is unknown; None if no styles were shared."""
    styles = [a for r, a in transcript.of_kind(StyleStatistics.kind) if r.receiver == SERVER]
    last = max((style.round for style in styles if style is not None), default=-1)
    shared = [style for style in styles if isinstance(style, StyleStatistics) and style.round == last]
    if not shared:
        return None
    frozen = _last_sent_round(transcript) is None
    if frozen and encoder is None:
        return (
            "the model that styles were computed under was not recorded: record it with wire.down, or pass encoder=..."
        )
    sent = transcript.model_sent(last)
    if not frozen and sent is None:
        return f"no model was recorded, or several, that clients received in round {last}, in which they shared styles"
    model = network.new()
    if sent is not None:
        sent.load_into(model)
    cases = [(style, population.clients[style.client].images, model.eval()) for style in shared[:_STYLE_CLIENTS]]
    try:
        computation = style_computation(encoder, network, cases, frozen)
    except Exception as error:
        raise ValueError(f"encoder: want one that takes the clients' images, got {one_line(error)}") from error
    if computation is None:
        return (
            f"{'no layer' if encoder is None else 'not the encoder'} has an output (N, {len(shared[0].mean)}, h, w), as the "
            "recorded styles have so many channels: pass encoder=... to open it"
        )
    if computation.deviation > MAX_DEVIATION:
        return (
            f"styles that are recomputed at {computation.layer} differ from the recorded ones by "
            f"{computation.deviation:.2g} of these, so that none can be simulated: pass encoder=..., or the images as the "
            "clients had them, to open it"
        )
    return computation


def _set_style_rule(transcript: Transcript, computation: StyleComputation) -> None:
    """Sets the layer and the rule of all recorded styles."""
    changed: dict[int, Artifact] = {}
    for index, record in enumerate(transcript.records):
        artifact = transcript.kept[index]
        if isinstance(artifact, StyleStatistics):
            style = changed.setdefault(id(artifact), replace(artifact, at=computation.layer, rule=computation.rule))
            transcript.kept[index] = style
            transcript.records[index] = replace(record, layer=computation.layer)


def _final_model(
    transcript: Transcript,
    network: Network,
    population: Population,
    weights: Weights | None,
    statistics: Sequence[StatisticsSent],
) -> tuple[nn.Module | None, list[str]]:
    """The model after the last complete round, and a sentence if it is not the mean of its uploads.

    It is the last one sent if nothing was uploaded later, or if that one is far from the mean of the uploads before it.
    BatchNorm's statistics are those last sent if the server never sent others.
    """
    last = _last_sent_round(transcript)
    if last is None:
        return None, []
    received = next(iter(transcript.models_sent(last).values()))
    model = network.new()
    received.load_into(model)
    was_cut = any((omission.round, omission.reason) == (last, ENDED) for omission in transcript.omissions)
    if weights is None and (deviation := _deviation_from_mean(transcript, population, last - 1)) > _FAR_FROM_MEAN:
        return model, [
            f"The final model is the last one that was sent, in round {last}: that one is not near the mean of what clients "
            f"sent before ({deviation:.2g} of a round's change)."
        ]
    if last in _senders(transcript) and not was_cut:
        mean = _mean_model(transcript, last, received, population, weights or "uniform")
        if statistics and all(entry.are_kept for entry in statistics):
            mean = {name: tensor for name, tensor in mean.items() if name.rpartition(".")[2] not in STATISTICS}
        model.load_state_dict(mean, strict=False)
    return model, []


def _deviation_from_mean(transcript: Transcript, population: Population, round: int) -> float:
    """Distance of the model sent after this round from the mean of its uploads, in units of its change; 0 if unknown."""
    received, sent = transcript.model_sent(round), transcript.model_sent(round + 1)
    if received is None or sent is None or round not in _senders(transcript):
        return 0.0
    mean = _mean_model(transcript, round, received, population, "uniform")
    return _distance(mean, sent.state) / max(_distance(sent.state, received.state), 1e-12)


def _misplaced_models(transcript: Transcript, population: Population) -> list[tuple[int, int]]:
    """Rounds whose recorded model is not the mean of the uploads of the round before, but of those of another round.

    Returns: The round of the model, and that of the uploads: the same one, or two before.
    """
    misplaced = []
    for round in sorted(_senders(transcript)):
        received, before, following = (transcript.model_sent(round + step) for step in (0, 1, 2))
        if received is None:
            continue
        uploads = [artifact for record, artifact in _uploaded_models(transcript) if record.round == round]
        means = [_mean_model(transcript, round, received, population, weights) for weights in ("uniform", "samples")]
        spread = max(_distance(artifact.tensors(), uploads[0].tensors()) for artifact in uploads)
        if spread > 0 and _nearest(means, received) <= _SAME_MODEL * spread:
            misplaced.append((round, round))
        elif before is not None and following is not None:
            change = _distance(before.state, means[0])
            if _nearest(means, before) > _SAME_MODEL * change and _nearest(means, following) <= _SAME_MODEL * change:
                misplaced.append((round + 2, round))
    return misplaced


def _nearest(means: Sequence[Mapping[str, Tensor]], model: ModelState) -> float:
    return min(_distance(mean, model.state) for mean in means)
