"""Audits a recorded training: `audit_recording` for scripts, `audit` for the command line."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import ModuleType
from typing import Any

from torch import nn

from fdgpriv.api import Audited, specs, without_folder, write
from fdgpriv.attack import Attack
from fdgpriv.audit_results import AuditResults
from fdgpriv.cli.options import Options
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.estimate import estimate_recorded
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.simulation_fit import few_public_images_note
from fdgpriv.external.recorded_basis import code_digests, recorded_basis
from fdgpriv.external.recorded_federation import GivenTraining, RecordedFederation, recorded_federation
from fdgpriv.external.recorded_method import Features, RecordedMethod, Train
from fdgpriv.external.recorded_population import DATASET
from fdgpriv.external.recorded_styles import StyleEncoder
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.partition import Population
from fdgpriv.federation.setup import Federated
from fdgpriv.federation.transcript import MANIFEST
from fdgpriv.method import Method
from fdgpriv.registry import importing
from fdgpriv.results.finding import Results
from fdgpriv.results.learning import source_probe
from fdgpriv.results.recording_check import RecordingChecks, noted
from fdgpriv.results.round_log import NoLog
from fdgpriv.results.rounds import RoundEvaluation
from fdgpriv.results.run import Run
from fdgpriv.results.selection import chosen
from fdgpriv.results.utility import no_utility, utility
from fdgpriv.results.utility_finding import PersonalUtility, Utility
from fdgpriv.runner import Runner
from fdgpriv.training import Cell, PreparedCell, Trained, round_utility
from fdgpriv.utils import run_folder
from fdgpriv.utils.arithmetic import fixed_arithmetic
from fdgpriv.utils.checksum import digest
from fdgpriv.utils.code_digest import file_digest
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.failures import refused
from fdgpriv.utils.fields import kinds
from fdgpriv.utils.file_names import check_files, slug
from fdgpriv.utils.memory import much_freed_returned, reuse_freed
from fdgpriv.utils.run_folder import Basis
from fdgpriv.utils.seed_values import seed_value
from fdgpriv.utils.seeds import generator

# options that do not concern the training
_EVALUATION_OPTIONS = ("attacks", "threats", "preset", "seeds", "units_per_domain", "figures")
_REQUIRED = ("network", "clients")  # names that a federation's file defines
_OPTIONAL = ("public", "train", "encoder", "normalize", "image_size")
_SIMILAR = 0.85  # share of equal letters from which a name is an optional one, misspelt


@dataclass(frozen=True)
class RecordedConfig(AuditConfig):
    """The configuration of an audit whose one training is recorded.

    Attributes:
        recorded: The training; None while options are checked.
        sha256: Of the recording's manifest, which has the checksums of all tensors.
        given: By name, digests of the user's functions and images, as of `recorded_basis`.
    """

    recorded: RecordedFederation | None = field(default=None, compare=False, repr=False)
    sha256: str = ""
    given: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def training(self) -> RecordedFederation:
        """The recorded training."""
        assert self.recorded is not None
        return self.recorded

    def check(self) -> None:
        """Checks the options of the evaluation; method and dataset are the user's."""
        Options(**{name: getattr(self, name) for name in _EVALUATION_OPTIONS}).check()

    def method(self, spec: str) -> Method:
        return self.training.method

    def populate(self, dataset: Dataset, spec: str, target: str, seed: int) -> Population:
        return self.training.population

    def federation(self, dataset: Dataset, clients: Sequence[str], seed: int, spec: str | None = None) -> Federation:
        return self.training.federation

    def network(self, spec: str, domains: int) -> tuple[str, str]:
        return "the user's", "as recorded"

    def setup(self, spec: str, domains: int) -> Federated:
        federation = self.training.federation
        return Federated(len(federation.clients), "given", "the user's", federation.image_size, federation.held_out)

    def as_config(self, domains: int) -> dict[str, Any]:
        return {**super().as_config(domains), "recording": self.sha256}

    def basis(self) -> Basis:
        basis = super().basis()
        return {**basis, "parts": {**basis["parts"], **self.given}}


def audit_recording(
    folder: Path | str,
    *,
    network: Callable[[], nn.Module] | nn.Module,
    clients: Mapping[str, Any],
    public: Mapping[str, Any] | None = None,
    train: Train | None = None,
    encoder: StyleEncoder | None = None,
    normalize: Features | None = None,
    image_size: int | None = None,
    attacks: str | Attack | Sequence[str | Attack] = "all",
    threats: str | Sequence[str] = (),
    preset: str = "default",
    seed: int = 0,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool = False,
) -> AuditResults:
    """Attacks the artifacts of a training that `fdgpriv.record` recorded, and evaluates the leaks as `run_audit` does.

    Questions that need missing arguments or recordings are not applicable; each states what is missing.

    Args:
        folder: The folder of the recording.
        network: The network whose state dict was sent, or a function that builds it. It returns logits (N, K).
        clients: By name, its training images with labels, and its domain if it is known: ``(images, labels, domain)`` with
            images (N, 3, S, S) or (N, 1, S, S), uint8 or in [0, 1], as tensors or arrays, or ``(source, domain)`` with a
            folder of class folders, or a dataset of torch or of Hugging Face. Only the evaluator uses them.
        public: By domain, images that adversaries may hold, in the same forms without the domain; of one domain that no
            client has, for third parties and for the accuracy.
        train: ``train(model, images, labels, round, rng)`` trains `model` in place as a client does in this round, with
            images as the network takes them; random draws should come from `rng`. Without it, clients that share models
            cannot be simulated.
        encoder: Gives, for a model, the function or module with the output (N, C, h, w) from which styles are computed; or
            the name of a layer. Without it, the layer is inferred from the recorded styles.
        normalize: Converts images in [0, 1] to the network's input; None for no conversion.
        image_size: Side of the images of folders, in pixels.
        attacks, threats, preset: As of `run_audit`.
        seed: Of the evaluation.
        out: A new folder for scores, figures and reports; None to store nothing.
        resume: Continue the audit in `out`.
        progress: Print progress on stderr.

    Raises:
        ValueError: The recording is damaged, of another network or of other clients, or an argument is invalid.
    """
    given = GivenTraining(network, clients, public or {}, train, encoder, normalize, image_size)
    config = configured(_options(attacks, threats, preset, seed))
    if out is not None:
        return audit(Path(folder), given, config, Path(out), resume=resume, progress=progress).results
    if resume:
        raise ValueError("resume: want out, the folder to continue in")
    with TemporaryDirectory() as temporary:
        return without_folder(audit(Path(folder), given, config, Path(temporary) / "run", progress=progress).results)


def check_recording(
    folder: Path | str,
    *,
    network: Callable[[], nn.Module] | nn.Module,
    clients: Mapping[str, Any],
    public: Mapping[str, Any] | None = None,
    train: Train | None = None,
    encoder: StyleEncoder | None = None,
    normalize: Features | None = None,
    image_size: int | None = None,
    attacks: str | Attack | Sequence[str | Attack] = "all",
    threats: str | Sequence[str] = (),
    preset: str = "default",
    seed: int = 0,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool = False,
) -> RecordingChecks:
    """Checks a recording against the images, network and training given, as `audit_recording` does before its attacks.

    Takes a minute or less: on large networks as many clients are simulated as that allows.

    Args:
        folder, network, clients, public, train, encoder, normalize, image_size, seed: As of `audit_recording`.
        attacks, threats, preset, out, resume: Of the audit that is to follow; their names and the folder are checked.
        progress: Print progress on stderr.

    Returns:
        The checks, which print as a table. Failed ones are not raised: they are in `errors`.

    Raises:
        ValueError: The recording is damaged, of another network or of other clients, or an argument is invalid.
    """
    given = GivenTraining(network, clients, public or {}, train, encoder, normalize, image_size)
    config = configured(_options(attacks, threats, preset, seed))
    if out is not None:
        run_folder.check(Path(out), resume)
    return checked_only(Path(folder), given, config, progress)


@fixed_arithmetic()
def checked_only(folder: Path, given: GivenTraining, config: RecordedConfig, progress: bool = True) -> RecordingChecks:
    """The checks of the recording in a folder, for `check_recording` and the command line."""
    config.check()
    with ProgressLog(quiet=not progress) as log:
        log.say("checking the recording")
        recorded = recorded_federation(folder, given, config.seeds[0], config.wanted_units)
        _checked(config, recorded, digest(folder / MANIFEST))
    return recorded.all_checks()


@fixed_arithmetic()
def planned(folder: Path, given: GivenTraining, config: RecordedConfig) -> tuple[RecordingChecks, list[str]]:
    """The checks, and in lines the attacks, the time and the memory of the audit; the lines are empty after an error."""
    config.check()
    with ProgressLog() as log:
        log.say("checking the recording")
        recorded = recorded_federation(folder, given, config.seeds[0], config.wanted_units)
        checked = _checked(config, recorded, digest(folder / MANIFEST))
        if recorded.checks.errors:
            return recorded.all_checks(), []
        dataset = recorded.population.dataset
        runner = Runner(checked, dataset, Path(), log, train=load_recorded)
        for attack in checked.attacks:
            checked.attack(attack).check(dataset.image_size)
        (cell,) = runner.cells()
        evaluator = PreparedCell.of(checked, dataset, cell).evaluator(recorded.transcript)
        lines = estimate_recorded(checked, dataset, cell, evaluator, _round_seconds(recorded), runner.workers)
    return recorded.all_checks(), lines


def _round_seconds(recorded: RecordedFederation) -> float:
    """Seconds in which all participants of a round train, from one client's training; 0 if none can be simulated."""
    disclosure, clients = recorded.method.disclosure(), recorded.population.clients
    if disclosure.training is None:
        return 0.0
    data = min(clients.values(), key=len)
    start = perf_counter()
    disclosure.training.train_plainly(recorded.method.network.new(), data, 0, generator(0))
    seconds = (perf_counter() - start) / len(data)
    return seconds * sum(map(len, clients.values())) * (disclosure.participants or len(clients)) / len(clients)


def _options(
    attacks: str | Attack | Sequence[str | Attack], threats: str | Sequence[str], preset: str, seed: int
) -> Options:
    """The options of the evaluation."""
    roles = kinds(Options)["threats"].read(threats, "threats")
    return Options(attacks=specs(attacks), threats=roles, preset=preset, seeds=(seed_value(seed, "seed"),))


def configured(options: Options, federation: Path | None = None) -> RecordedConfig:
    """The configuration with the evaluation options of `options`; `federation` is the file that defines the training."""
    evaluated = {name: getattr(options, name) for name in _EVALUATION_OPTIONS}
    given = {} if federation is None else {"federation file": file_digest(federation.read_text(encoding="utf-8"))}
    return RecordedConfig(methods=(RecordedMethod.name(),), dataset=DATASET, device="cpu", given=given, **evaluated)


@fixed_arithmetic()
def audit(
    folder: Path,
    given: GivenTraining,
    config: RecordedConfig,
    out: Path | None,
    *,
    resume: bool = False,
    command: str | None = None,
    progress: bool = True,
) -> Audited:
    """Audits the recording in a folder and writes the reports; arguments as of `fdgpriv.api.audit`."""
    config.check()
    reuse_freed()
    with ProgressLog(quiet=not progress) as log:
        code = code_digests(given)
        with much_freed_returned():
            recorded = recorded_federation(folder, given, config.seeds[0], config.wanted_units)
        if (refusal := recorded.checks.refusal()) is not None:
            raise ValueError(refusal)
        dataset = recorded.population.dataset
        config = replace(config, given={**config.given, **recorded_basis(code, given, recorded)})
        checked = _checked(config, recorded, digest(folder / MANIFEST))
        out = run_folder.free(f"recording-{slug(folder.resolve().name)}") if out is None else out
        runner = Runner(checked, dataset, out, log, train=load_recorded)
        check_files(out, runner.files())
        runner.check_tables()
        for attack in checked.attacks:
            checked.attack(attack).check(dataset.image_size)
        asked = checked.as_config(len(recorded.population.sources))
        settings = run_folder.settings(asked, dataset.sha256, runner.basis)
        with run_folder.resumed(out, settings) if resume else run_folder.new(out, settings):
            for note in recorded.notes:
                log.say(note)
            for check in recorded.checks.notes:
                log.say(f"note: {check.sentence}")
            if few := few_public_images_note(recorded.population, [checked.attack(spec) for spec in checked.attacks]):
                log.say(f"warning: {few}")
            results = AuditResults.of(_with_notes(runner.run(command), recorded), out)
            paths, unwritten = write(results, out, checked.figures)
        log.say(f"wrote {', '.join(str(path) for path in paths)}")
    return Audited(results, out, unwritten)


def _checked(config: RecordedConfig, recorded: RecordedFederation, sha256: str) -> AuditConfig:
    """The configuration of an audit of this recording, whose manifest has this digest, with parts that can be used.

    Raises:
        ValueError: An option or a part cannot be used.
    """
    of_recording = replace(config, recorded=recorded, targets=(recorded.population.target.name,), sha256=sha256)
    with refused("an option or a part cannot be used"):
        return of_recording.checked()


def load_recorded(
    config: AuditConfig, dataset: Dataset, cell: Cell, out: Path, progress: ProgressLog, workers: int
) -> tuple[Trained, Evaluator]:
    """The recorded training, instead of a new one (see `fdgpriv.training.train`)."""
    assert isinstance(config, RecordedConfig)
    recorded = config.training
    rounds = {} if recorded.final is None else _evaluated(recorded, cell, progress)
    final = (
        no_utility("no model was recorded") if recorded.final is None else utility(recorded.final, recorded.population)
    )
    round_utilities = tuple(round_utility(round, evaluation) for round, evaluation in sorted(rounds.items()))
    probe = None if recorded.final is None else source_probe(recorded.population)
    final = final.model_copy(update={"rounds": round_utilities, "source_probe": probe, **chosen(rounds)})
    trained = Trained(utility=final, train_s=0.0, wire_s=0.0)
    return trained, PreparedCell.of(config, dataset, cell).evaluator(recorded.transcript)


def _evaluated(recorded: RecordedFederation, cell: Cell, progress: ProgressLog) -> dict[int, Utility | PersonalUtility]:
    """By number of rounds, the utility of the model that was trained for so many."""
    assert recorded.final is not None
    method, population = recorded.method, recorded.population
    evaluation = RoundEvaluation(
        cell.folder, population, method.rounds, False, False, method.network.new(), progress, NoLog()
    )
    for round in range(1, method.rounds):
        if models := recorded.transcript.models_sent(round):
            evaluation.on_round(round, models)
    evaluation.evaluated[method.rounds] = utility(recorded.final, population)
    return evaluation.evaluated


def _with_notes(results: Results, recorded: RecordedFederation) -> Results:
    """The results with the checks and notes on the recording, and with notes in the questions that they concern."""
    return results.model_copy(update={"runs": tuple(_run_with_notes(run, recorded) for run in results.runs)})


def _run_with_notes(run: Run, recorded: RecordedFederation) -> Run:
    sentences = [*recorded.notes, *(f"Check of {check.check}: {check.sentence}." for check in recorded.checks.notes)]
    return run.model_copy(
        update={
            "not_measured": (*sentences, *run.not_measured),
            "questions": noted(run.questions, recorded.checks),
            "checks": tuple(recorded.checks),
        }
    )


def given_by(file: Path) -> GivenTraining:
    """The training that a Python file defines: `network`, `clients`, and optional arguments of `audit_recording` by name.

    Raises:
        ValueError: There is no such file, it raises an exception, does not define both, or defines an optional argument by a
            misspelt name.
    """
    if not file.is_file() or file.suffix != ".py":
        raise ValueError(f"--federation: want a Python file, got {file}")
    sys.path.insert(0, str(file.resolve().parent))  # so that its imports work as if it were run
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with importing(f"--federation {file}"):
        spec.loader.exec_module(module)
    if missing := [name for name in _REQUIRED if not hasattr(module, name)]:
        raise ValueError(f"--federation: want {file} to define {' and '.join(_REQUIRED)}, got none called {missing[0]}")
    absent = [name for name in _OPTIONAL if not hasattr(module, name)]
    for name, value in vars(module).items():
        meant = () if name in (*_REQUIRED, *_OPTIONAL) else get_close_matches(name.lower(), absent, 1, _SIMILAR)
        if meant and not isinstance(value, type | ModuleType):
            raise ValueError(
                f"--federation: want {meant[0]} spelt so in {file}, or other names less similar; got {name}"
            )
    return GivenTraining(**{name: getattr(module, name) for name in (*_REQUIRED, *_OPTIONAL) if hasattr(module, name)})
