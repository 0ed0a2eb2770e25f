"""The conductor: trains each federation, examines it, judges everything together; keeps on disk what is done.

One cell is one method, target, seed and defense. A finished training lies in ``transcript/CELL``, a finished examination in
``marks/CELL``; with `resume` neither is done again. An interrupted training begins anew.
"""

import os
import platform
import resource
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from pydantic import BaseModel, TypeAdapter
from safetensors.torch import save_file

from fdgpriv import __version__, figures
from fdgpriv.artifact import SERVER, StyleStatistics
from fdgpriv.engine.local import LocalEngine
from fdgpriv.exam import Guess, Truth
from fdgpriv.federation import Dataset, generator
from fdgpriv.finding import DatasetNote, Results, RoundUtility, Run, RunFigure, Timing, Utility
from fdgpriv.judge import Paper, judge
from fdgpriv.ledger import ledger
from fdgpriv.marks import Marks, examine
from fdgpriv.models.style_codec import digits_codec
from fdgpriv.partition import Population, populate
from fdgpriv.plan import Plan
from fdgpriv.privacy.release import DRAWS, Measurement, measure, privacies
from fdgpriv.proctor import Proctor
from fdgpriv.progress import Teller
from fdgpriv.questions import SIZES
from fdgpriv.roles import Attack, Defense
from fdgpriv.threat import ThreatModel, threat
from fdgpriv.transcript import Transcript
from fdgpriv.utility import utility
from fdgpriv.wire import Diverged, Wire


@dataclass(frozen=True)
class Cell:
    """One run: what is trained."""

    method: str
    target: str
    seed: int
    defense: str

    @property
    def folder(self) -> str:
        """A name for it on disk."""
        text = f"{self.method}-{self.target}-{self.seed}-{self.defense}"
        return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in text)


class Trained(BaseModel):
    """What is known of a finished training besides its transcript."""

    utility: Utility | None
    diverged: str | None = None
    train_s: float
    wire_s: float
    log: dict[str, float] = {}


class Examined(BaseModel):
    """A finished examination, as it lies on disk."""

    marks: list[tuple[int | None, Marks]]
    by_layer: dict[str, Marks]
    undefended: Marks | None
    auxiliary_images: int
    chance: float | None
    not_applicable: str | None
    figures: tuple[str, ...]
    attack_s: float


_MARKS = TypeAdapter(Examined)


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

    def run(self, command: str) -> Results:
        """Do what is not yet done; on Ctrl-C, what is done is judged and returned as interrupted."""
        torch.set_num_threads(1)
        done: list[tuple[Cell, Trained, Proctor, dict[str, Paper], float]] = []
        interrupted = False
        try:
            for cell in self.cells():
                trained, proctor = self._train(cell)
                papers: dict[str, Paper] = {}
                spent = [0.0]
                done.append((cell, trained, proctor, papers, 0.0))
                if trained.diverged is None:
                    self._examine(cell, proctor, papers, spent)
                    done[-1] = (cell, trained, proctor, papers, spent[0])
        except KeyboardInterrupt:
            interrupted = True
            self.teller.say("interrupted: keeping what is done")
        return self._results(done, interrupted, command)

    def _groups(self) -> Mapping[int, int]:
        return {1: 2} if self.plan.preset == "quick" else SIZES

    def _population(self, cell: Cell) -> Population:
        assert self.plan.clients is not None
        return populate(self.dataset, cell.target, self.plan.partition, self.plan.clients, cell.seed)

    def _train(self, cell: Cell) -> tuple[Trained, Proctor]:
        population = self._population(cell)
        federation = self.plan.federation(self.dataset, list(population.clients), cell.seed)
        method = self.plan.method(cell.method)
        defense = Defense.parse(cell.defense).bound_to(method)
        folder = self.out / "transcript" / cell.folder
        note = folder / "trained.json"
        if note.is_file():
            trained = Trained.model_validate_json(note.read_bytes())
            transcript = Transcript.load(folder)
            self.teller.say(f"{cell.folder}: already trained")
            return trained, Proctor(population, method, federation, defense, transcript, cell.seed, self._groups())
        task = self.teller.task(f"training {cell.folder}", method.rounds)
        wire = Wire({name: len(data) for name, data in population.clients.items()}, defense, Transcript(self.plan.keep))
        rounds: list[RoundUtility] = []
        watcher = method.model(federation, generator(cell.seed, 7)).to(federation.device)

        def watch(round: int, state: Any) -> None:
            if round > 0:
                state.load_into(watcher)
                rounds.append(_round(round, utility(watcher, population, federation.device)))
                self.teller.step(task, f"{cell.folder}: round {round} of {method.rounds}, {_told(rounds[-1])}")

        start = perf_counter()
        engine = LocalEngine(self.workers, watch)
        try:
            model = engine.run(method, federation, population.clients, wire)
            final = utility(model, population, federation.device)
            rounds.append(_round(method.rounds, final))
            trained = Trained(
                utility=final.model_copy(update={"rounds": tuple(rounds)}),
                train_s=perf_counter() - start,
                wire_s=engine.wire_s,
                log=engine.log,
            )
            wire.transcript.save(folder)
            save_file(
                {name: t.cpu().contiguous() for name, t in model.state_dict().items()}, folder / "model.safetensors"
            )
            self.teller.done(task, f"{cell.folder}: trained in {trained.train_s:.1f} s, {_told(rounds[-1])}")
        except Diverged as error:
            trained = Trained(utility=None, diverged=str(error), train_s=perf_counter() - start, wire_s=engine.wire_s)
            wire.transcript.save(folder)
            self.teller.done(task, f"{cell.folder}: {error}")
        _write(note, trained.model_dump_json())
        return trained, Proctor(population, method, federation, defense, wire.transcript, cell.seed, self._groups())

    def _examine(self, cell: Cell, proctor: Proctor, papers: dict[str, Paper], spent: list[float]) -> None:
        asked = [
            (spec, threat(role))
            for spec in self.plan.attacks
            for role in self.plan.threats
            if role in self.plan.attack(spec).threats
        ]
        task = self.teller.task(f"attacking {cell.folder}", len(asked))
        pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
        pending: dict[Future[tuple[Paper, float]], str] = {}
        try:
            for spec, who in asked:
                key = f"{cell.folder}/{spec}@{who.role}"
                papers[key] = Paper(
                    self.plan.attack(spec), who, "client", False, not_applicable="interrupted before it"
                )
                pending[pool.submit(self._sit, cell, proctor, spec, who)] = key
            while pending:
                finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    key = pending.pop(future)
                    papers[key], seconds = future.result()
                    spent[0] += seconds
                    self.teller.step(task, f"{key} in {seconds:.1f} s")
        except KeyboardInterrupt:
            for key in [key for key, paper in papers.items() if paper.not_applicable == "interrupted before it"]:
                del papers[key]
            self.teller.say("finishing the examinations in progress")
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        self.teller.done(task, f"{cell.folder}: {len(asked)} examinations")

    def _sit(self, cell: Cell, proctor: Proctor, spec: str, who: ThreatModel) -> tuple[Paper, float]:
        """Examine one attack under one threat model, or read from disk that it was."""
        attack = self.plan.attack(spec)
        level = proctor.template.level if proctor.shares_styles else "client"
        shadows = frozenset(proctor.population.shadows)
        file = self.out / "marks" / cell.folder / f"{_slug(spec)}@{who.role}.json"
        if file.is_file():
            examined = _MARKS.validate_json(file.read_bytes())
        else:
            start = perf_counter()
            examined = self._examination(cell, proctor, attack, who, f"{_slug(spec)}@{who.role}")
            examined.attack_s = perf_counter() - start
            _write(file, examined.model_dump_json())
        on_wire = proctor.shares_styles and (level == "image" or None in attack.sizes)
        paper = Paper(
            attack=attack,
            threat=who,
            level=level if on_wire else "image",
            shared=on_wire,
            auxiliary_images=examined.auxiliary_images,
            marks=dict(examined.marks),
            by_layer=examined.by_layer,
            undefended=examined.undefended,
            chance=examined.chance,
            not_applicable=examined.not_applicable,
            shadows=shadows,
            figures=examined.figures,
        )
        return paper, examined.attack_s

    def _examination(self, cell: Cell, proctor: Proctor, attack: Attack, who: ThreatModel, name: str) -> Examined:
        blank = Examined(
            marks=[],
            by_layer={},
            undefended=None,
            auxiliary_images=0,
            chance=None,
            not_applicable=None,
            figures=(),
            attack_s=0.0,
        )
        if not proctor.shares_styles:
            return blank.model_copy(update={"not_applicable": f"{cell.method} shares no {attack.reads}"})
        rng = generator(cell.seed, 8)
        reconstruction = attack.family == "reconstruction"
        quick = self.plan.preset == "quick"
        sizes = tuple(size for size in attack.sizes if size is None or size in proctor.per_client)
        sittings = proctor.sittings(who, sizes, reconstruction=reconstruction)
        if not sittings:
            return blank.model_copy(update={"not_applicable": "no client was sent another client's style"})
        marks, shown = examine(attack, sittings, (1, None), rng)
        by_layer: dict[str, Marks] = {}
        layers = proctor.layers() if attack.by_layer else ()
        for layer in (proctor.template.at, layers[-1]) if quick and layers else layers:
            if layer != proctor.template.at:
                at_layer = proctor.sittings(who, (1,), reconstruction=False, layer=layer)
                by_layer[layer] = examine(attack, at_layer, (), rng)[0][1]
            else:
                by_layer[layer] = marks[1]
        pictures = self._grid(cell, name, proctor, shown) if reconstruction else ()
        first = sittings[0]
        return Examined(
            marks=list(marks.items()),
            by_layer=by_layer,
            undefended=self._undefended(proctor, attack, who, rng),
            auxiliary_images=sum(len(domain) for domain in first.view.auxiliary),
            chance=attack.chance(first.view, first.items[0].truth),
            not_applicable=None,
            figures=pictures,
            attack_s=0.0,
        )

    def _undefended(self, proctor: Proctor, attack: Attack, who: ThreatModel, rng: torch.Generator) -> Marks | None:
        """The positive control: one image, no defense, the same attack and budget; None where nothing was defended."""
        none = Defense.named("none")()
        if proctor.defense == none or 1 not in attack.sizes:
            return None
        bare = Proctor(
            proctor.population,
            proctor.method,
            proctor.federation,
            none,
            proctor.transcript,
            proctor.seed,
            proctor.per_client,
        )
        return examine(attack, bare.sittings(who, (1,), reconstruction=attack.family == "reconstruction"), (), rng)[0][
            1
        ]

    def _grid(
        self,
        cell: Cell,
        name: str,
        proctor: Proctor,
        shown: dict[int | None, list[tuple[Truth, dict[str, Guess]]]],
    ) -> tuple[str, ...]:
        rows, labels = [], []
        for size, count in ((1, 5), (None, 3)):
            targets = shown.get(size, [])
            rows += figures.rows_of([(truth.images[0], guesses) for truth, guesses in targets], count)
            labels += ["1 image" if size == 1 else "whole\nclient"] * min(count, len(targets))
        path = Path("figures") / cell.folder / f"{name}.png"
        figures.grid(rows, labels[: len(rows)], self.out / path)
        return (path.as_posix(),)

    def _results(
        self, done: Iterable[tuple[Cell, Trained, Proctor, dict[str, Paper], float]], interrupted: bool, command: str
    ) -> Results:
        done = list(done)
        self.teller.say("judging")
        findings = judge({key: p for *_, papers, _ in done for key, p in papers.items()}, self.plan.seeds[0])
        pictures = self._codec_figure() if done else ()
        stated = privacies([self._measure(cell, proctor) for cell, _, proctor, *_ in done])
        runs = [
            Run(
                method=cell.method,
                dataset=self.plan.dataset,
                target=cell.target,
                seed=cell.seed,
                defense=cell.defense,
                utility=trained.utility,
                artifacts=ledger(proctor.transcript.records),
                attacks=tuple(findings[key] for key in papers),
                privacy=privacy,
                figures=pictures,
                not_measured=_not_measured(cell, trained, proctor),
            )
            for (cell, trained, proctor, papers, _), privacy in zip(done, stated, strict=True)
        ]
        return Results(
            fdgpriv=__version__,
            command=command,
            config=self.plan.as_config(),
            environment=environment(self.plan, self.workers),
            timing=Timing(
                total_s=perf_counter() - self._start,
                train_s=sum(trained.train_s for _, trained, *_ in done),
                attack_s=sum(seconds for *_, seconds in done),
                peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            ),
            dataset=DatasetNote(name=self.dataset.name, about=self.dataset.about, limits=self.dataset.limits),
            interrupted=interrupted,
            runs=tuple(runs),
        )

    def _measure(self, cell: Cell, proctor: Proctor) -> Measurement:
        dim = len(proctor.template.vector()) if proctor.shares_styles else 1
        return measure(proctor.defense, dim, DRAWS[self.plan.preset], cell.seed)

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


def _not_measured(cell: Cell, trained: Trained, proctor: Proctor) -> tuple[str, ...]:
    found = []
    if trained.diverged is not None:
        found.append(f"Nothing was attacked: {trained.diverged}.")
    kinds = {record.kind for record in proctor.transcript.records if record.receiver == SERVER}
    for kind in sorted(kinds - {part.reads for part in map(Attack.named, Attack.names())}):
        found.append(f"{kind}: no attack of this version reads it.")
    if StyleStatistics.kind in kinds and not proctor.shares_styles:
        found.append("Style statistics crossed, but no model they were taken under was kept: use keep=all.")
    found.append("Training was done once per seed: intervals of accuracies are over images, not over trainings.")
    return tuple(found)


def _round(round: int, found: Utility) -> RoundUtility:
    return RoundUtility(
        round=round, source_accuracy=found.source_accuracy.value, target_accuracy=found.target_accuracy.value
    )


def _told(found: RoundUtility) -> str:
    return f"source {found.source_accuracy:.3f}, target {found.target_accuracy:.3f}"


def _slug(spec: str) -> str:
    return "".join(c if c.isalnum() or c in "_-=." else "_" for c in spec)


def _write(path: Path, text: str) -> None:
    """The whole file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
