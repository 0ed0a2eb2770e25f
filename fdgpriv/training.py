"""Trains one federation and stores its transcript, or loads it if it is already trained.

A cell is one combination of method, target, seed and defense. A finished training is stored in ``transcript/CELL``: the
transcript, the final model, and ``trained.json``. An interrupted training continues from its checkpoint. A failed one
stores nothing and is repeated.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, TypeAdapter
from torch import nn

from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense, defended
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.checkpoint import Checkpoints
from fdgpriv.federation.engine import Engine
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import Population
from fdgpriv.federation.transcript import MANIFEST, TENSORS, VIEWS, Transcript
from fdgpriv.federation.unfederated import UnsharedModels
from fdgpriv.federation.upload import ClientFailed
from fdgpriv.federation.wire import Diverged, Wire
from fdgpriv.method import Method
from fdgpriv.models.architecture import RANDOM
from fdgpriv.registry import Role, registered
from fdgpriv.results.learning import Embed, embedding, source_probe
from fdgpriv.results.round_log import RoundLog, round_log
from fdgpriv.results.rounds import RoundEvaluation, accuracies, figures
from fdgpriv.results.score_tables import RunKey
from fdgpriv.results.selection import chosen
from fdgpriv.results.utility import accuracy, mean_utility, personal_utility, utility
from fdgpriv.results.utility_finding import PersonalUtility, RoundUtility, Utility
from fdgpriv.utils.checksum import check_files, digest, read_json, write_json, write_tensors
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.file_names import slug
from fdgpriv.utils.memory import reuse_freed
from fdgpriv.utils.records import Amount, Entry, Text
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.warnings_filter import never_errors

if TYPE_CHECKING:  # it needs an extra
    from fdgpriv.federation.flower_clients import ClientWorld

MODEL = "model.safetensors"
_THIN = "thinned"  # folder of a thinned transcript until it is complete


@dataclass(frozen=True)
class Cell:
    """One run: method and defense as specifications, target domain and seed."""

    method: str
    target: str
    seed: int
    defense: str

    @property
    def folder(self) -> str:
        """Its folder name."""
        return slug(f"{self.method}-{self.target}-{self.seed}-{self.defense}")

    def run_key(self, dataset: str) -> RunKey:
        """What identifies it in the score tables of an audit of this dataset."""
        return RunKey(self.method, dataset, self.target, self.seed, self.defense)

    def __str__(self) -> str:
        return self.folder


class Trained(Entry):
    """The result of a training, without its transcript.

    Attributes:
        utility: None if the training diverged or failed.
        diverged, failed: The reason, in one line. A failed training is not saved, so --resume repeats it.
        train_s, wire_s: Seconds of training, and of message exchange.
        log: Diagnostics of the training.
        files: SHA-256 of the other files in its folder.
    """

    utility: Utility | None
    diverged: Text | None = None
    failed: Text | None = None
    train_s: Amount
    wire_s: Amount
    log: dict[str, float] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)


TrainCell = Callable[[AuditConfig, Dataset, Cell, Path, ProgressLog, int], tuple[Trained, Evaluator]]
"""See `train`."""


def trained_file(out: Path, cell: Cell) -> Path:
    """The file of a training that is written last; its folder contains the others."""
    return out / "transcript" / cell.folder / "trained.json"


@dataclass(frozen=True, eq=False)
class PreparedCell:
    """The federation of one cell: the data of all clients, the public facts, the method and the defense."""

    config: AuditConfig
    cell: Cell
    population: Population
    federation: Federation
    method: Method
    defense: Defense

    @classmethod
    def of(cls, config: AuditConfig, dataset: Dataset, cell: Cell) -> "PreparedCell":
        """The federation of this cell."""
        population = config.populate(dataset, cell.method, cell.target, cell.seed)
        federation = config.federation(dataset, list(population.clients), cell.seed, cell.method)
        method, defense = defended(config.method(cell.method), cell.defense, config.inject_bug)
        return cls(config, cell, population, federation, method, defense)

    def wire(self, transcript: Transcript) -> Wire:
        """A wire that records in this transcript."""
        return Wire({name: len(data) for name, data in self.population.clients.items()}, self.defense, transcript)

    def evaluator(self, transcript: Transcript) -> Evaluator:
        """The evaluator of a training with this transcript."""
        return Evaluator(
            population=self.population,
            method=self.method,
            federation=self.federation,
            defense=self.defense,
            transcript=transcript,
            seed=self.cell.seed,
            per_client=self.config.artifacts_per_client,
            alternatives=self.config.alternatives,
            crossed=self.config.crossed,
            metric_networks=self.config.metric_networks(self.cell.method, len(self.population.sources)),
        )


def train(
    config: AuditConfig, dataset: Dataset, cell: Cell, out: Path, progress: ProgressLog, workers: int
) -> tuple[Trained, Evaluator]:
    """Trains `cell`, or loads its training from `out`; returns the result and the evaluator."""
    prepared, file = PreparedCell.of(config, dataset, cell), trained_file(out, cell)
    folder = file.parent
    if config.units_per_domain is not None:
        progress.say(f"{cell.folder}: {_unit_counts(prepared.population, config.units_per_domain)}")
    if file.is_file():
        progress.say(f"{cell.folder}: already trained")
        _finish_thinning(folder)
        stored = read_json(file, _TRAINED)
        check_files(folder, stored.files)
        return stored, prepared.evaluator(Transcript.load(folder))
    for name in (TENSORS, MANIFEST, MODEL):
        (folder / name).unlink(missing_ok=True)  # of an incompletely saved training
    wire = prepared.wire(Transcript(config.keep if config.keep in ("all", "small") else VIEWS))
    checkpoints = Checkpoints(
        folder, _settings(config, prepared, dataset), say=lambda text: progress.say(f"{cell.folder}: {text}")
    )
    log = round_log(config.log, out, cell.folder)
    try:
        trained = _run(prepared, wire, _engine(config, dataset, cell, workers), checkpoints, log, progress)
    finally:
        log.close()
    if trained.failed is None:
        files = {name: digest(folder / name) for name in (TENSORS, MANIFEST, MODEL) if (folder / name).is_file()}
        trained = trained.model_copy(update={"files": files})
        write_json(file, trained.model_dump_json().encode())
    checkpoints.remove()
    return trained, prepared.evaluator(wire.transcript)


def _run(
    prepared: PreparedCell,
    wire: Wire,
    engine: Engine,
    checkpoints: Checkpoints,
    log: RoundLog,
    progress: ProgressLog,
) -> Trained:
    """Runs the training, and stores transcript and final model in the checkpoints' folder unless it fails."""
    name, method, folder = prepared.cell.folder, prepared.method, checkpoints.folder
    observer = _round_evaluation(prepared, progress, log)
    engine.on_round, engine.on_answer = observer.on_round, observer.on_answer
    engine.checkpoints, engine.observer = checkpoints, observer
    try:
        model = engine.run(method, prepared.federation, prepared.population.clients, wire)
        model = model.to(prepared.federation.device)
        final = _utility(prepared, model, observer, log)
    except Diverged as error:
        trained = Trained(utility=None, diverged=str(error), train_s=checkpoints.train_s, wire_s=engine.wire_s)
        wire.transcript.save(folder)
        progress.done(observer.task, f"{name}: {error}")
        return trained
    except ClientFailed as error:
        progress.done(observer.task, f"{name}: failed: {error}")
        return Trained(utility=None, failed=str(error), train_s=checkpoints.train_s, wire_s=engine.wire_s)
    diagnostics = {key: figure for key, figure in engine.log.items() if isfinite(figure)}
    trained = Trained(utility=final, train_s=checkpoints.train_s, wire_s=engine.wire_s, log=diagnostics)
    wire.transcript.save(folder)
    write_tensors(folder / MODEL, {key: t.cpu().contiguous() for key, t in model.state_dict().items()})
    progress.done(observer.task, f"{name}: trained in {trained.train_s:.1f} s, {accuracies(final.personal or final)}")
    if training_warning := method.training_warning(trained.log):
        progress.say(f"{name}: {training_warning}")
    return trained


def _round_evaluation(prepared: PreparedCell, progress: ProgressLog, log: RoundLog) -> RoundEvaluation:
    """The evaluation of models after each round, with a model of its own to load their states into."""
    method = prepared.method
    model = method.model(prepared.federation, generator(prepared.cell.seed, 7)).to(prepared.federation.device)
    return RoundEvaluation(
        prepared.cell.folder,
        prepared.population,
        method.rounds,
        method.personal,
        method.local_statistics,
        model,
        progress,
        log,
    )


def _utility(prepared: PreparedCell, model: nn.Module, observer: RoundEvaluation, log: RoundLog) -> Utility:
    """Utility of the final model, of personal models, and after each evaluated round.

    Raises:
        Diverged: Logits are not finite.
    """
    method, population, personal = prepared.method, prepared.population, None
    final = None if isinstance(model, UnsharedModels) else utility(model, population, method.local_statistics)
    if method.personal:
        names = list(population.clients)
        personal = personal_utility(lambda name: method.model_of(model, name), names, population)
    if final is None:
        assert personal is not None, "want clients' models if there is no global model"
        final, personal = mean_utility(personal, population), None
    adapted = method.adapted_logits(model, population.target.pixels) if len(population.target.labels) else None
    evaluated = observer.evaluated
    if method.rounds not in evaluated:  # the final model was not sent to clients
        evaluated[method.rounds] = personal or final
        log.write(method.rounds, figures(evaluated[method.rounds]))
    rounds = tuple(round_utility(round, evaluation) for round, evaluation in sorted(evaluated.items()))
    adapted_accuracy = None if adapted is None else accuracy(adapted, population.target.labels)
    probe = source_probe(population, _pretrained(prepared))
    further = {"rounds": rounds, "personal": personal, "adapted_accuracy": adapted_accuracy, "source_probe": probe}
    return final.model_copy(update={**further, **chosen(evaluated)})


def _pretrained(prepared: PreparedCell) -> Embed | None:
    """The features of the network that training starts from; None if it starts from random numbers."""
    _, weights = prepared.config.network(prepared.cell.method, len(prepared.population.sources))
    if weights == RANDOM:
        return None
    return embedding(prepared.federation.backbone(generator(prepared.cell.seed, 7)).to(prepared.federation.device))


def _engine(config: AuditConfig, dataset: Dataset, cell: Cell, workers: int) -> Engine:
    """The configured engine."""
    if config.engine == "local":
        return LocalEngine(workers)
    from fdgpriv.federation.flower_engine import SimulationEngine  # needs an extra

    return SimulationEngine(workers, build=partial(client_world, registered(), config, dataset.sha256, cell))


def client_world(parts: Sequence[type[Role]], config: AuditConfig, sha256: str | None, cell: Cell) -> "ClientWorld":
    """For a client's process: the federation of `cell`; arguments as of `reloaded`."""
    from fdgpriv.federation.flower_clients import ClientWorld

    dataset, config = reloaded(parts, config, sha256)
    prepared = PreparedCell.of(config, dataset, cell)
    return ClientWorld(prepared.method, prepared.federation, prepared.population.clients, prepared.defense)


def reloaded(
    parts: Sequence[type[Role]], config: AuditConfig, sha256: str | None, log: ProgressLog | None = None
) -> tuple[Dataset, AuditConfig]:
    """For another process of a run: its dataset and configuration.

    Args:
        parts: Classes to register.
        config: The run's configuration.
        sha256: Of the dataset; ValueError if it has changed since the run started.
        log: Prints progress.
    """
    for part in parts:
        part.register()
    never_errors()
    reuse_freed()
    dataset, config = config.load(log)
    if dataset.sha256 != sha256:
        raise ValueError(f"the images or labels of {dataset.name} changed during the run; start it again")
    return dataset, config


def thin(out: Path, cell: Cell, transcript: Transcript, keep: str) -> None:
    """Reduces the stored transcript of a finished training to the rule `keep`, after attacks have read it.

    The new files are written to a separate folder and then moved, so that an interruption loses none.
    """
    file = trained_file(out, cell)
    if transcript.keep != VIEWS or not file.is_file():
        return
    folder = file.parent / _THIN
    shutil.rmtree(folder, ignore_errors=True)
    transcript.thinned(keep).save(folder)
    stored = read_json(file, _TRAINED)
    files = stored.files | {name: digest(folder / name) for name in (TENSORS, MANIFEST)}
    write_json(folder / file.name, stored.model_copy(update={"files": files}).model_dump_json().encode())
    _finish_thinning(file.parent)


def _finish_thinning(folder: Path) -> None:
    """Moves a thinned transcript into the folder of its training if it is complete; removes it otherwise."""
    thin = folder / _THIN
    if (thin / "trained.json").is_file():
        for name in (TENSORS, MANIFEST, "trained.json"):  # the last one marks the others as complete
            if (thin / name).is_file():
                (thin / name).replace(folder / name)
    shutil.rmtree(thin, ignore_errors=True)


def _unit_counts(population: Population, desired: int) -> str:
    """The numbers of clients and shadow clients by domain, in words, with a remark if they are below the desired number."""
    units = Counter(map(population.main_domain, population.domain_of))
    counts = [units[d] for d in range(len(population.sources))]
    by_domain = ", ".join(f"{name} {count}" for name, count in zip(population.sources, counts, strict=True))
    shortage = f"; the images that are left over make no {desired}" if min(counts) < desired else ""
    return f"clients and shadow clients: {by_domain}{shortage}"


def _settings(config: AuditConfig, prepared: PreparedCell, dataset: Dataset) -> dict[str, str]:
    """The settings that identify a training: a checkpoint continues only the same training."""
    cell, clients = prepared.cell, prepared.population.clients
    setup = config.setup(cell.method, dataset.n_sources).as_config()
    return {
        **config.versions(),
        "method": repr(prepared.method),
        "dataset": f"{dataset.name}, {dataset.image_size} px",
        "images": str(dataset.sha256),
        "target": cell.target,
        "seed": str(cell.seed),
        "defense": cell.defense,
        "bug": str(config.inject_bug),
        "setup": json.dumps(setup),
        "keep": config.keep,
        "engine": config.engine,
        "device": config.device,
        "labels": hashlib.sha256(b"".join(data.labels.numpy().tobytes() for data in clients.values())).hexdigest(),
    }


_TRAINED = TypeAdapter(Trained)


def round_utility(round: int, evaluation: Utility | PersonalUtility) -> RoundUtility:
    """The accuracies of the model after `round` rounds."""
    source, target = evaluation.source_accuracy, evaluation.target_accuracy
    reason = source.reason or target.reason
    return RoundUtility(round=round, source_accuracy=source.value, target_accuracy=target.value, reason=reason)
