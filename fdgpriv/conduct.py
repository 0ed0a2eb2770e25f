"""The conductor: trains each federation, examines it, judges everything together; with `resume`, only what is missing."""

import os
import platform
import resource
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from fdgpriv import __version__, figures
from fdgpriv.beside import Beside, compared, settings_of
from fdgpriv.claims import Case, claims
from fdgpriv.exam.examination import Examination, examined_file
from fdgpriv.exam.paper import Paper
from fdgpriv.exam.proctor import Proctor
from fdgpriv.facts import facts
from fdgpriv.federation import Dataset
from fdgpriv.finding import (
    ArtifactRow,
    AttackFinding,
    Claim,
    DatasetNote,
    ImageCount,
    Images,
    Results,
    Run,
    RunFigure,
    Timing,
)
from fdgpriv.heap import give_back
from fdgpriv.judge import judge
from fdgpriv.ledger import ledger
from fdgpriv.models.style_codec import digits_codec
from fdgpriv.not_measured import not_measured
from fdgpriv.partition import Population
from fdgpriv.plan import Plan
from fdgpriv.privacy.release import DRAWS, Measurement, measure, privacies
from fdgpriv.progress import Teller
from fdgpriv.roles import Attack
from fdgpriv.threat import ThreatModel, threat
from fdgpriv.training import Cell, Trained, train, trained_file
from fdgpriv.transcript import Record
from fdgpriv.two_ends import TwoEnds

_NOT_YET = "interrupted before it"


@dataclass(eq=False)
class Done:
    """What is kept of one cell once it is done; its images and models are let go."""

    cell: Cell
    trained: Trained
    images: Images
    artifacts: tuple[ArtifactRow, ...]
    measurement: Measurement
    not_measured: tuple[str, ...]
    records: Sequence[Record]
    facts: dict[str, float] = field(default_factory=dict)
    papers: dict[str, Paper] = field(default_factory=dict)
    attack_s: float = 0.0


@dataclass
class Conductor:
    """Carries out a plan in a folder.

    Attributes:
        plan: Checked and with its targets.
        dataset: Loaded.
        out: Where everything goes.
        teller: Says what is going on.
        workers: Threads that compute side by side, each on one core.
    """

    plan: Plan
    dataset: Dataset
    out: Path
    teller: Teller
    workers: int = field(default_factory=lambda: max(1, min(4, os.cpu_count() or 1)))
    _start: float = field(default_factory=perf_counter, init=False)

    def cells(self) -> list[Cell]:
        """All runs of the plan, in order."""
        return [
            Cell(method, target, seed, defense)
            for method in self.plan.methods
            for target in self.plan.targets
            for seed in self.plan.seeds
            for defense in self.plan.defenses
        ]

    def files(self) -> list[Path]:
        """Relative to `out`, the file that ends each training, and that of each examination with any kind of artifact."""
        trained = [trained_file(Path(), cell) for cell in self.cells()]
        examined = [
            examined_file(Path(), cell.folder, spec, role, kind)
            for cell in self.cells()
            for spec in self.plan.attacks
            for role in self.plan.threats
            for kind in self.plan.attack(spec).reads
        ]
        return trained + examined

    def run(self, command: str) -> Results:
        """Do what is not yet done; on Ctrl-C, what is done is judged and returned as interrupted."""
        torch.set_num_threads(1)
        done: list[Done] = []
        interrupted = False
        try:
            for cell in self.cells():
                self._do(cell, done)
                give_back()
        except KeyboardInterrupt:
            interrupted = True
            self.teller.say("interrupted: keeping what is done")
        return self._results(done, interrupted, command)

    def _do(self, cell: Cell, done: list[Done]) -> None:
        """Train and examine one cell; its evaluator, with the artifacts that it made, is let go at the end."""
        trained, proctor = train(self.plan, self.dataset, cell, self.out, self.teller, self.workers)
        done.append(self._begun(cell, trained, proctor))
        if trained.utility is not None and self.plan.attacks:
            self._examine(done[-1], proctor)

    def _begun(self, cell: Cell, trained: Trained, proctor: Proctor) -> Done:
        dim = len(proctor.template.vector()) if proctor.shares_styles else 1
        return Done(
            cell=cell,
            trained=trained,
            images=_images(proctor.population),
            artifacts=ledger(proctor.transcript.records),
            measurement=measure(proctor.defense, dim, DRAWS[self.plan.preset], cell.seed),
            not_measured=not_measured(self.plan, trained, proctor),
            records=proctor.transcript.records,
        )

    def _examine(self, done: Done, proctor: Proctor) -> None:
        folder, papers = done.cell.folder, done.papers
        few_layers = self.plan.preset == "quick"
        asked = [
            Examination(proctor, spec, attack, kind, threat(role), few_layers, self.out, folder)
            for spec in self.plan.attacks
            for attack in (self.plan.attack(spec),)
            for role in self.plan.threats
            if role in attack.threats
            for kind in _readable(attack, threat(role), proctor)
        ]
        task = self.teller.task(f"attacking {folder}", len(asked))
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        measured = pool.submit(facts, proctor, self.out / "marks" / folder)
        try:
            for one in asked:
                papers[one.key] = Paper(one.attack, one.who, one.kind, "client", False, not_applicable=_NOT_YET)
            row = TwoEnds(_heavy_outside(asked))
            for finished in as_completed([pool.submit(_next, row) for _ in asked]):
                one, (papers[one.key], seconds) = finished.result()
                done.attack_s += seconds
                self.teller.step(task, f"{one.key} in {seconds:.1f} s")
        except KeyboardInterrupt:
            for key in [key for key, paper in papers.items() if paper.not_applicable == _NOT_YET]:
                del papers[key]
            self.teller.say("finishing the examinations in progress")
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            if not measured.cancelled():
                done.facts = measured.result()
        self.teller.done(task, f"{folder}: {len(asked)} examinations")

    def _results(self, done: Sequence[Done], interrupted: bool, command: str) -> Results:
        self.teller.say("judging")
        findings = judge({key: p for one in done for key, p in one.papers.items()}, self.plan.seeds[0])
        pictures = self._codec_figure() if done else ()
        stated = privacies([one.measurement for one in done])
        runs = [
            Run(
                method=one.cell.method,
                dataset=self.plan.dataset,
                target=one.cell.target,
                seed=one.cell.seed,
                defense=one.cell.defense,
                images=one.images,
                utility=one.trained.utility,
                failed=one.trained.failed,
                artifacts=one.artifacts,
                attacks=tuple(findings[key] for key in one.papers),
                privacy=privacy,
                claims=self._claims(one, [run for run in done if run.trained.failed is None], findings),
                figures=pictures,
                not_measured=one.not_measured,
                training=one.trained.log,
            )
            for one, privacy in zip(done, stated, strict=True)
        ]
        return Results(
            fdgpriv=__version__,
            command=command,
            config=self.plan.as_config(len(self.dataset.domains) - 1),
            environment=environment(self.plan, self.workers),
            timing=Timing(
                total_s=perf_counter() - self._start,
                train_s=sum(one.trained.train_s for one in done),
                attack_s=sum(one.attack_s for one in done),
                peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            ),
            dataset=DatasetNote(name=self.dataset.name, about=self.dataset.about, limits=self.dataset.limits),
            interrupted=interrupted,
            runs=tuple(runs),
        )

    def _claims(self, one: Done, done: Sequence[Done], findings: Mapping[str, AttackFinding]) -> tuple[Claim, ...]:
        """The ledger of this run, with what the others of its target, seed and defense say beside it.

        Of a run that failed none: what crossed is not all that its method sends.
        """
        if one.trained.failed is not None:
            return ()
        attacks, method = [findings[key] for key in one.papers], self.plan.method(one.cell.method)
        others = [run for run in done if run is not one and replace(run.cell, method=one.cell.method) == one.cell]
        beside = [
            Beside(
                other.cell.method,
                part.name(),
                settings_of(part),
                other.records,
                compared(one.papers, other.papers, findings),
            )
            for other in others
            for part in (self.plan.method(other.cell.method),)
        ]
        known = one.trained.log | one.facts
        return claims(method.name(), Case(attacks, one.records, known, method.name(), settings_of(method), beside))

    def _codec_figure(self) -> tuple[RunFigure, ...]:
        path = Path("figures") / "style_encoder.png"
        if self.dataset.domains[0].images.shape[-1] % 4:
            return ()
        with torch.no_grad():
            figures.stylised(digits_codec(), self.dataset.domains, self.out / path)
        caption = (
            "The shipped style encoder and decoder: one image of each domain, its round trip, and each domain's style."
        )
        return (RunFigure(file=path.as_posix(), caption=caption),)


def _images(population: Population) -> Images:
    counts = {name: asdict(population.images(name)) for name in population.sources}
    total = {use: sum(count[use] for count in counts.values()) for use in ImageCount.model_fields}
    return Images(**total, domains={name: ImageCount(**count) for name, count in counts.items()})


def _readable(attack: Attack, who: ThreatModel, proctor: Proctor) -> Sequence[str]:
    """The kinds that this adversary reads here; where there is none, the one of which it is said why."""
    there = [kind for kind in attack.reads if kind in proctor.subjects]
    seen = [kind for kind in there if proctor.subjects[kind].refused(who) is None]
    return seen or there[:1] or attack.reads[:1]


def _heavy_outside(asked: Sequence[Examination]) -> list[Examination]:
    """By kind, so that what was made for one serves the next; what draws images takes longest and stands at the ends."""
    kinds = list(dict.fromkeys(one.kind for one in asked))
    row = sorted(asked, key=lambda one: kinds.index(one.kind))
    first, last = row[: len(row) // 2], row[len(row) // 2 :]
    return sorted(first, key=lambda one: not one.draws_images) + sorted(last, key=lambda one: one.draws_images)


def _next(row: TwoEnds[Examination]) -> tuple[Examination, tuple[Paper, float]]:
    """The examination that this thread takes, and its paper."""
    one = row.take()
    return one, one.paper()


def environment(plan: Plan, workers: int) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "workers": workers,
        "device": torch.cuda.get_device_name() if plan.device == "cuda" else "cpu",
    }
