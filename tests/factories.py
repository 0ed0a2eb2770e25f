"""What several tests build: generators, tiny networks, federations, client data, artifacts, runs, and scores of attacks.

Import from here (`from factories import seeded`) before writing a builder in a test file.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conftest import Fitted, fit, shared_evaluator
from numpy.typing import NDArray
from scipy import special
from torch import Tensor, nn

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import ClientData, Dataset
from fdgpriv.defense import defended
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.evaluation.scoring import evaluate_trials
from fdgpriv.evaluation.trial import AdversaryTrials
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.models.backbone import Backbone
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.simulator import ClientImages
from fdgpriv.tasks.task import Predictions
from fdgpriv.threat import threat
from fdgpriv.utils.global_rng import drawing_from
from fdgpriv.verdicts.trial_scores import TrialScores

SURE = 1e-4  # a test with a fixed seed fails by chance once in ten thousand seeds

Build = Callable[[torch.Generator], Backbone]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit(*degrees: float) -> Tensor:
    """Points on the unit circle, (N, 2)."""
    radians = torch.tensor(degrees) * math.pi / 180
    return torch.stack([radians.cos(), radians.sin()], dim=1)


def count(module: nn.Module) -> int:
    """How many parameters a module has."""
    return sum(parameter.numel() for parameter in module.parameters())


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two states have the same names and, bit for bit, the same tensors."""
    return one.keys() == other.keys() and all(torch.equal(one[name], tensor) for name, tensor in other.items())


def finite(state: Mapping[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in state.values())


@contextmanager
def refused(told: str = "", error: type[Exception] = ValueError) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Within, an error of one line is raised that this regular expression finds."""
    with pytest.raises(error) as caught:
        yield caught
    assert re.search(told, str(caught.value)), f"want {told}, got {caught.value}"
    assert len(str(caught.value).splitlines()) == 1


# Networks, federations, data


@cache
def network(*strides: int, act: type[nn.Module] = nn.ReLU, means: tuple[float, ...] = (0.5,) * 3) -> Build:
    """Builds a stage of one convolution and BatchNorm for each stride, all four channels wide: layer1, layer2, ..."""

    def build(rng: torch.Generator) -> Backbone:
        with drawing_from(rng):
            stages = {
                f"layer{i + 1}": nn.Sequential(nn.Conv2d(4 if i else 3, 4, 3, s, 1), nn.BatchNorm2d(4), act())
                for i, s in enumerate(strides)
            }
        return Backbone(stages, dict.fromkeys(stages, 4), means, (0.5,) * 3)

    return build


def federation(clients: int = 3, seed: int = 0, build: Build | None = None, side: int = 8) -> Federation:
    """Three classes; clients are client-0, client-1, ..."""
    return Federation(tuple(f"client-{i}" for i in range(clients)), 3, side, build or network(1), seed)


def held(
    client: str = "client-0",
    n: int = 6,
    seed: int | None = None,
    *,
    side: int = 8,
    out: int = 2,
    labels: Sequence[int] | None = None,
    **augmentation: Any,
) -> ClientData:
    """Noise, tinted so that images differ in style; by default drawn anew for each client and size."""
    rng = seeded(100 + (10 * n + int(client[-1]) if seed is None else seed))
    tint, noise = torch.rand(n + out, 3, 1, 1, generator=rng), torch.rand(n + out, 3, side, side, generator=rng)
    images, drawn = 0.5 * tint + 0.5 * noise, torch.randint(3, (n + out,), generator=rng)
    own = drawn[:n] if labels is None else torch.tensor(labels)[:n]
    return ClientData(client, images[:n], own, images[n:], drawn[n:], 3, **augmentation)


SMALL: dict[str, dict[str, Any]] = {
    "fedavg": {"batch_size": 4},
    "ccst": {"batch_size": 4, "augmentation": 2},
    "stablefdg": {"batch_size": 4},
    "pardon": {"batch_size": 8, "lr": 0.01},
    "hfedf": {"batch_size": 4, "hidden": 4},
    "fedsr": {"batch_size": 4, "latent_dim": 5, "local_steps": 2},
    "pfedhn": {"batch_size": 4, "hidden": 4, "local_steps": 1},
    "lsi": {
        "batch_size": 4, "pretrain_epochs": 1, "latent_dim": 5, "hidden": 8, "inversion_steps": 3,
        "inversion_lr": 0.05, "inversion_batch": 4, "inversion_batches": 2, "translator_steps": 5,
        "translator_batch": 4, "translator_lr": 1e-3,
    },
}  # fmt: skip


def small(name: str, **settings: Any) -> Any:
    """A method in a hurry: two rounds of one epoch, and everything little."""
    part = Method.named(name)
    usual = {"rounds": 2, "local_epochs": 1, "participants": None, "lr": 0.1, "schedule": "constant"}
    known = {field.name for field in fields(part)}  # type: ignore[arg-type]
    return part.configured({k: v for k, v in usual.items() if k in known} | SMALL.get(name, SMALL["fedavg"]) | settings)


class Ran(NamedTuple):
    """A federation after its run."""

    model: nn.Module
    transcript: Transcript
    log: Mapping[str, Any]

    @property
    def state(self) -> dict[str, Tensor]:
        return dict(self.model.state_dict())


def run_afresh(
    method: Method,
    *sizes: int,
    defense: str = "none",
    build: Build | None = None,
    workers: int = 1,
    seed: int = 0,
    keep: str = "all",
    **data: Any,
) -> Ran:
    """Runs a method where client i holds `sizes[i]` images."""
    world = federation(len(sizes), seed, build)
    own = {name: held(name, n, **data) for name, n in zip(world.clients, sizes, strict=True)}
    return run_on(method, world, own, workers=workers, keep=keep, defense=defense)


def run_on(
    method: Method,
    world: Federation,
    data: Mapping[str, ClientData],
    *,
    workers: int = 1,
    keep: str = "all",
    defense: str = "none",
) -> Ran:
    """Runs a method on these clients' data."""
    own, protecting = defended(method, defense)
    wire = Wire({name: len(part) for name, part in data.items()}, protecting, Transcript(keep))
    engine = LocalEngine(workers)
    model: Any = engine.run(own, world, data, wire)
    return Ran(model, wire.transcript, engine.log)


run = cache(run_afresh)
"""The same, once for equal arguments: change nothing of what it gives."""


# Artifacts


def style(
    mean: float | Tensor = 0.0,
    std: float | Tensor = 1.0,
    mean_var: float | Tensor | None = None,
    std_var: float | Tensor | None = None,
    *,
    client: str = "client-0",
    round: int = 0,
    channels: int = 4,
    **facts: Any,
) -> StyleStatistics:
    """The style of a client, numbers repeated in all channels; without variances unless given."""

    def wide(value: float | Tensor | None) -> Tensor:
        if value is None:
            return torch.empty(0)
        given = torch.as_tensor(value)
        return given.expand(channels).float().clone() if given.ndim == 0 else given

    return StyleStatistics(
        client=client, round=round, mean=wide(mean), std=wide(std), mean_var=wide(mean_var), std_var=wide(std_var),
        **{"granularity": "client", "at": "layer1", "rule": "paper_eps"} | facts,
    )  # fmt: skip


def crossed(transcript: Transcript, kind: type[Artifact] | str) -> list[Any]:
    """All artifacts of a kind that were kept, in the order in which they crossed."""
    name = kind if isinstance(kind, str) else kind.kind
    return [artifact for _, artifact in transcript.of_kind(name) if artifact is not None]


# Trained on the digits, and evaluated

LSI_IN_HASTE = {"pretrain_epochs": "2", "inversion_steps": "2", "inversion_batches": "1", "translator_steps": "2"}

_FITTED: dict[Any, Fitted] = {}


def fitted_once(dataset: Dataset, *, settings: Mapping[str, str] | None = None, **given: Any) -> Fitted:
    """What `fit` gives, trained once a session for equal arguments: change nothing of it."""
    key = (dataset, tuple(sorted((settings or {}).items())), tuple(sorted(given.items())))
    if key not in _FITTED:
        _FITTED[key] = fit(dataset, settings=settings, **given)
    return _FITTED[key]


def holding(fitted: Fitted, name: str, kind: str) -> ClientImages:
    """A client's images with what it was sent before it made an artifact of this kind."""
    data = fitted.population.data(name)
    return ClientImages(data.images, data.labels, fitted.shared.series(kind).received_model[name])


def in_one_row_and_back(target: ArtifactSeries[Any], atol: float = 1e-5, rtol: float = 1e-5) -> None:
    """Asserts that an attack's row of numbers of each artifact on the wire stands for all of it."""
    for name, artifact in target.wire.items():
        back = target.simulator.from_vector(
            target.simulator.to_vector(artifact, target.received_model.get(name)), target.received_model.get(name)
        )
        assert set(back.tensors()) == set(artifact.tensors())
        for key, tensor in artifact.tensors().items():
            assert back.tensors()[key].dtype == tensor.dtype
            torch.testing.assert_close(back.tensors()[key], tensor, atol=atol, rtol=rtol)


def only_the_server_sees(target: ArtifactSeries[Any], unknown: str) -> None:
    """Asserts that clients and third parties are refused for want of this capability."""
    assert target.refused(threat("server")) is None
    for role in ("client", "third_party"):
        assert target.refused(threat(role)) == f"the {role.replace('_', ' ')} is no adversary that {unknown}"


def evaluated(
    evaluator: Evaluator | Fitted,
    attack: Attack | str,
    kind: str,
    sizes: Sequence[int | None] | None = None,
    *,
    per_client: Mapping[int, int] | None = None,
    role: str = "server",
    seed: int = 1,
    draws: bool | None = None,
    few: int | None = None,
) -> dict[int | None, TrialScores]:
    """An attack's scores by number of images; without `sizes`, of all that it reads and `per_client` names.

    Where each takes long, `few` is how many targets of each adversary are asked about.
    """
    if isinstance(evaluator, Fitted):
        evaluator = shared_evaluator(evaluator, per_client and tuple(per_client.items()))
    elif per_client is not None:
        evaluator.per_client = dict(per_client)
    reader = Attack.parse(attack) if isinstance(attack, str) else attack
    target = evaluator.series(kind)
    assert reader.inapplicable(target) is None
    if sizes is None:
        sizes = tuple(n for n in reader.sizes(target) if n is None or n in evaluator.per_client)
    drawing = reader.task.draws_images if draws is None else draws
    task = reader.task if drawing or not reader.task.draws_images else None
    laid_out = evaluator.adversaries(target, threat(role), tuple(sizes), task)
    adversaries = [AdversaryTrials(one.adversary, one.trials[:few]) for one in laid_out]
    return evaluate_trials(reader, adversaries, (1,) if drawing else (), torch.Generator().manual_seed(seed))[0]


def mean(scores: TrialScores, name: str = "attack") -> float:
    return float(np.mean(scores.headline[name]))


def leads(mean: float, units: int = 60, controls: int = 1, sd: float = 1.0) -> NDArray[np.float64]:
    """(U, B) normal quantiles with exactly this mean and standard deviation, in another order for each control."""
    z = special.ndtri((np.arange(units) + 0.5) / units)
    z *= sd / z.std(ddof=1)
    rng = np.random.default_rng(5)
    return np.stack([mean + rng.permutation(z) for _ in range(controls)], axis=1)


def inferred(
    attack: Attack, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
) -> tuple[Predictions, Mapping[str, list[Prediction]]]:
    """What the attack predicts, and its artifact-free baselines."""
    predictions = Predictions.of(attack.infer(adversary, observations, rng))
    return predictions, attack.task.baselines(adversary, predictions, rng) | dict(predictions.baselines)
