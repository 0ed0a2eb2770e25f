"""Trains one federation and stores its transcript, or loads it if it is already trained.

A cell is one combination of method, target, seed and defense. A finished training is stored in ``transcript/CELL``: the
transcript, the final model, and ``trained.json``. An interrupted or failed training stores nothing and is repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import perf_counter

from pydantic import Field, TypeAdapter
from rich.progress import TaskID
from torch import nn

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import MANIFEST, TENSORS, Transcript
from fdgpriv.federation.upload import ClientFailed
from fdgpriv.federation.wire import Diverged, Wire
from fdgpriv.results.selection import chosen, rounds_to_try
from fdgpriv.results.utility import personal_utility, utility
from fdgpriv.results.utility_finding import PersonalUtility, RoundUtility, Utility
from fdgpriv.utils.checksum import check_files, digest, read_json, write_json, write_tensors
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.file_names import slug
from fdgpriv.utils.records import Amount, Entry, Text
from fdgpriv.utils.seeds import generator

MODEL = "model.safetensors"
SHARE = 3  # during training, each client's personalised model is evaluated on every third target image


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


class Trained(Entry):
    """The result of a training besides its transcript.

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


def trained_file(out: Path, cell: Cell) -> Path:
    """The file that is written last; its folder contains the others."""
    return out / "transcript" / cell.folder / "trained.json"


def train(
    config: AuditConfig, dataset: Dataset, cell: Cell, out: Path, progress: ProgressLog, workers: int
) -> tuple[Trained, Evaluator]:
    """The training of `cell`, run now or loaded from `out`, and its evaluator."""
    population = config.populate(dataset, cell.method, cell.target, cell.seed)
    federation = config.federation(dataset, list(population.clients), cell.seed, cell.method)
    method = config.method(cell.method)
    defense = Defense.parse(cell.defense).bound_to(method.disclosure())
    file = trained_file(out, cell)
    folder = file.parent

    def evaluator(transcript: Transcript) -> Evaluator:
        arguments = (population, method, federation, defense, transcript, cell.seed)
        return Evaluator(
            *arguments, per_client=config.artifacts_per_client, alternatives=config.alternatives, crossed=config.crossed
        )

    if file.is_file():
        progress.say(f"{cell.folder}: already trained")
        stored = read_json(file, _TRAINED)
        check_files(folder, stored.files)
        return stored, evaluator(Transcript.load(folder))
    for name in (TENSORS, MANIFEST, MODEL):  # of an incompletely saved training
        (folder / name).unlink(missing_ok=True)
    task = progress.task(f"training {cell.folder}", method.rounds)
    wire = Wire({name: len(data) for name, data in population.clients.items()}, defense, Transcript(config.keep))
    evaluated: dict[int, Utility | PersonalUtility] = {}  # by number of completed rounds
    stages: dict[str, TaskID] = {}  # by verb, requests before any model is sent
    started = False
    evaluation_model = method.model(federation, generator(cell.seed, 7)).to(federation.device)

    def on_answer(verb: str, answered: int, asked: int) -> None:
        if started:
            return
        if verb not in stages:
            stages[verb] = progress.task(f"{cell.folder}: {verb}", asked)
        progress.step(stages[verb])
        if answered == asked:
            progress.done(stages[verb], f"{cell.folder}: {verb}, {asked} clients")

    def sent(models: Mapping[str, ModelState], client: str) -> nn.Module:
        models[client].load_into(evaluation_model)
        return evaluation_model

    evaluated_rounds = rounds_to_try(method.rounds, method.personal)

    def on_round(round: int, models: Mapping[str, ModelState]) -> None:
        nonlocal started
        started = True
        if round in evaluated_rounds:
            if method.personal:
                arguments = (list(models), population, federation.device)
                evaluated[round] = personal_utility(lambda name: sent(models, name), *arguments, every=SHARE)
            else:
                evaluated[round] = utility(sent(models, next(iter(models))), population, federation.device)
            progress.step(task, f"{cell.folder}: round {round} of {method.rounds}, {_accuracies(evaluated[round])}")
        elif round > 0:
            progress.step(task, f"{cell.folder}: round {round} of {method.rounds}")

    start = perf_counter()
    engine = LocalEngine(workers, on_round, on_answer)
    try:
        model = engine.run(method, federation, population.clients, wire).to(federation.device)
        final, own = utility(model, population, federation.device), None
        if method.personal:
            names = list(population.clients)
            own = personal_utility(lambda name: method.model_of(model, name), names, population, federation.device)
        evaluated.setdefault(method.rounds, own or final)  # already present if the final model was sent to clients
        rounds = tuple(_round(round, found) for round, found in sorted(evaluated.items()))
        trained = Trained(
            utility=final.model_copy(update={"rounds": rounds, "personal": own, **chosen(evaluated)}),
            train_s=perf_counter() - start,
            wire_s=engine.wire_s,
            log={name: figure for name, figure in engine.log.items() if isfinite(figure)},
        )
        wire.transcript.save(folder)
        write_tensors(folder / MODEL, {name: t.cpu().contiguous() for name, t in model.state_dict().items()})
        progress.done(task, f"{cell.folder}: trained in {trained.train_s:.1f} s, {_accuracies(own or final)}")
    except Diverged as error:
        trained = Trained(utility=None, diverged=str(error), train_s=perf_counter() - start, wire_s=engine.wire_s)
        wire.transcript.save(folder)
        progress.done(task, f"{cell.folder}: {error}")
    except ClientFailed as error:
        trained = Trained(utility=None, failed=str(error), train_s=perf_counter() - start, wire_s=engine.wire_s)
        progress.done(task, f"{cell.folder}: failed: {error}")
        return trained, evaluator(wire.transcript)
    files = {name: digest(folder / name) for name in (TENSORS, MANIFEST, MODEL) if (folder / name).is_file()}
    trained = trained.model_copy(update={"files": files})
    write_json(file, trained.model_dump_json().encode())
    return trained, evaluator(wire.transcript)


_TRAINED = TypeAdapter(Trained)


def _round(round: int, found: Utility | PersonalUtility) -> RoundUtility:
    return RoundUtility(
        round=round, source_accuracy=found.source_accuracy.value, target_accuracy=found.target_accuracy.value
    )


def _accuracies(found: Utility | PersonalUtility) -> str:
    """The accuracies as text, for progress lines."""
    return f"source {found.source_accuracy.value:.3f}, target {found.target_accuracy.value:.3f}"
