"""How far an adversary trusts an artifact: calibrated on artifacts that it simulates from images held back for that.

An adversary owns its artifact-free predictions. By number of images of the artifact it chooses a weight in [0, 1] between
those and what its attack reads in artifacts, on simulated ones whose images differ from its own as the clients' do: other
images of the same domains, or, where it has one domain only, images of that domain in another look.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Prediction
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData, Domain
from fdgpriv.data.looks import other_look
from fdgpriv.evaluation.trial import CalibrationTrial, ScoredObservation, TrialNeeds
from fdgpriv.evaluation.trial_layout import TrialLayout
from fdgpriv.federation.partition import Population
from fdgpriv.targets.cached_simulator import CachedSimulator
from fdgpriv.targets.target import Simulator, Target
from fdgpriv.tasks.task import Task
from fdgpriv.threat import Capability
from fdgpriv.utils.seeds import generator

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_CLIENTS, _EXPENSIVE_CLIENTS = 9, 3  # simulated clients, over all domains
_MEMBERS = 0.7  # share of the held-back images that one simulated client holds
_PER_CLIENT = 2  # artifacts of few images per simulated client

_ROUNDING = 1e-9

Trust = Mapping[int | None, float]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Simulated artifacts with their ground truth, and the pool that their candidates are indices into."""

    trials: Sequence[CalibrationTrial] = ()
    pool: Tensor | None = None


@dataclass(frozen=True, eq=False)
class CalibrationLayout:
    """Lays out the artifacts that one adversary calibrates with.

    Attributes:
        population: The ground truth, of which only sources and classes are used.
        target: What is attacked.
        maker: Simulates artifacts.
        needs: Of the task.
        typical: Public: the typical number of images of a client.
        seed: Of all draws.
    """

    population: Population
    target: Target[Simulator]
    maker: CachedSimulator
    needs: TrialNeeds
    typical: int
    seed: int

    def calibration(
        self,
        held_back: Sequence[tuple[int, Domain, ModelState | None]],
        sizes: Sequence[int | None],
        pool: Tensor,
        holder: str,
        shifted: bool,
    ) -> Calibration:
        """Artifacts of simulated clients with images of each held-back domain.

        Args:
            held_back: By domain, its index, its images, and the model that a client of it receives.
            sizes: Numbers of images of the artifacts.
            pool: (P, 3, H, W) the candidates of the evaluation, which the simulated clients' are appended to.
            holder: A name for the adversary's data, unique among adversaries.
            shifted: Whether each client's images are changed to another look.
        """
        if self.target.is_global or self.target.joint or not held_back:
            return Calibration()
        rng = generator(self.seed, 37)
        clients: dict[str, ClientData] = {}
        domain_of, models = {}, {}
        for turn in range(_EXPENSIVE_CLIENTS if self.target.expensive else _CLIENTS):
            d, domain, model = held_back[turn % len(held_back)]
            name = f"calibration {holder} {turn}"
            clients[name] = self._client(name, domain, shifted, rng)
            domain_of[name] = torch.full((len(clients[name]),), d)
            if model is not None:
                models[name] = model
        simulated = replace(self.population, clients=clients, domain_of=domain_of, shadows={})
        target = replace(
            self.target, wire={}, clients=tuple(clients), received_model=models, receiver={}, earlier={}, repeated=None
        )
        layout = TrialLayout(simulated, target, self.maker, rng, self.needs, 1)
        groups = layout.groups(sizes, {size: _PER_CLIENT for size in sizes if size is not None}, {})
        both = torch.cat([pool, layout.pool.images])
        trials = [CalibrationTrial(g.client, g.size, _moved(layout.scored(g), len(pool), both)) for g in groups]
        return Calibration(trials, both)

    def _client(self, name: str, domain: Domain, shifted: bool, rng: torch.Generator) -> ClientData:
        """A client of the typical size; where the domain has fewer images, some of them are held several times."""
        order = torch.randperm(len(domain), generator=rng)
        cut = max(1, min(self.typical, int(_MEMBERS * len(domain))))
        images = other_look(domain.images, rng) if shifted else domain.images
        inside, outside = order[:cut], order[cut:]
        inside = torch.cat([inside, inside[torch.randint(cut, (max(0, self.typical - cut),), generator=rng)]])
        return ClientData(
            client=name,
            images=images[inside],
            labels=domain.labels[inside],
            held_out_images=images[outside],
            held_out_labels=domain.labels[outside],
            classes=len(self.population.dataset.classes),
            flip=self.population.dataset.flip,
            translate=self.population.dataset.translate,
        )


def _moved(one: ScoredObservation, offset: int, pool: Tensor) -> ScoredObservation:
    """The same with indices into the joint pool."""
    observation = replace(
        one.observation,
        candidates=one.observation.candidates + offset,
        membership_candidates=one.observation.membership_candidates + offset,
    )
    truth = replace(
        one.truth,
        candidates=one.truth.candidates + offset,
        membership_candidates=one.truth.membership_candidates + offset,
        pool=pool,
    )
    return ScoredObservation(observation, truth)


def trust(
    task: Task,
    adversary: Adversary,
    trials: Sequence[CalibrationTrial],
    predictions: Sequence[Prediction],
    shifted: bool,
) -> Trust:
    """By number of images of the artifact, the weight whose blend with the artifact-free prediction gains most.

    Where the simulated clients' looks differ, most in the lower quartile of these clients: the look of the evaluated
    clients is unknown. Where the number of images is the secret there is one weight for all.

    Returns: Empty where the task is never blended or nothing was simulated.
    """
    by_size: dict[int | None, list[int]] = {}
    for place, trial in enumerate(trials):
        if task.askable(trial.one.truth):
            by_size.setdefault(None if task.hides_size else trial.size, []).append(place)
    found: dict[int | None, float] = {}
    for size, places in by_size.items():
        told = [predictions[i] for i in places]
        unaided = [without_artifact(task, adversary, predictions[i], trials[i].one.truth.domain) for i in places]
        if any(one is None for one in unaided):
            return {}
        truths, pairs = [trials[i].one.truth for i in places], list(zip(told, unaided, strict=True))
        mixed = [[blended(task, one, without, w) for one, without in pairs] for w in WEIGHTS]
        scores = torch.stack([task.score(blends, truths).double() for blends in mixed])
        gains = _by_client(scores - scores[:1], [trials[i].client for i in places]) * (1 if task.higher_leaks else -1)
        found[size] = WEIGHTS[_robust(gains) if shifted else _largest_as_good(gains)]
    return found


def _robust(gains: Tensor) -> int:
    """The weight of the best lower quartile of gains (W, C) over clients; of equal ones the largest."""
    quartile = gains.quantile(0.25, dim=1)
    return int((quartile >= quartile.max() - _ROUNDING).nonzero().max())


def _largest_as_good(gains: Tensor) -> int:
    """The largest weight whose mean gain is within one standard error of the best: what it loses may be chance."""
    best = gains[int(gains.mean(1).argmax())]
    lost = best - gains
    error = lost.std(1) / gains.shape[1] ** 0.5 if gains.shape[1] > 1 else torch.zeros(len(gains))
    return int((lost.mean(1) <= error + _ROUNDING).nonzero().max())


def _by_client(values: Tensor, clients: Sequence[str]) -> Tensor:
    """(W, C): the mean of values (W, n) over each client's artifacts."""
    names = list(dict.fromkeys(clients))
    place = torch.tensor([names.index(client) for client in clients])
    total = torch.zeros(len(values), len(names), dtype=values.dtype).index_add_(1, place, values)
    return total / place.bincount()


def without_artifact(task: Task, adversary: Adversary, like: Prediction, domain: int) -> Prediction | None:
    """What this adversary predicts without any artifact of a target of this domain, which it may know."""
    knows = Capability.KNOWS_DOMAIN in adversary.threat.capabilities
    return task.unaided(adversary, like, adversary.sources[domain] if knows else None)


def blended(task: Task, prediction: Prediction, unaided: Prediction | None, weight: float | None) -> Prediction:
    """The prediction at this weight; as it is where there is no weight."""
    if weight is None or weight == 1 or unaided is None:
        return prediction
    return task.blend(prediction, unaided, weight)


def weight_of(found: Trust, size: int | None) -> float | None:
    """The weight for artifacts of this many images: that of the nearest size that was calibrated, None if there is none.

    The whole client counts as more than any number.
    """
    if not found:
        return None
    wanted = float("inf") if size is None else float(size)
    known = {float("inf") if s is None else float(s): w for s, w in found.items()}
    if wanted in known:
        return known[wanted]
    below = [s for s in known if s < wanted]
    return known[max(below)] if below else known[min(known)]
