"""Simulates artifacts with known ground truth, on which an adversary calibrates the weight of artifacts.

Their images differ from the adversary's as the clients' do: they are other images of the same domains, or, if the adversary
has one domain only, images of that domain in another look.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData, Domain
from fdgpriv.data.looks import restyled
from fdgpriv.evaluation.trial import CalibrationTrial, ScoredObservation, TrialNeeds
from fdgpriv.evaluation.trial_layout import TrialLayout
from fdgpriv.federation.partition import Population
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.cached_simulator import CachedSimulator
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.file_memory import in_file
from fdgpriv.utils.seeds import generator

_CLIENTS, _EXPENSIVE_CLIENTS = 12, 6  # simulated clients, over all domains; fewer if predicting is expensive, too
_MEMBERS = 0.9  # largest share of the held-back images that one simulated client trains on
_ARTIFACTS, _EXPENSIVE_ARTIFACTS = 6, 1  # artifacts of each number of images per simulated client

SimulatedClients = tuple[Sequence[ClientData], Tensor]  # with the state of the generator that drew their images


@dataclass(frozen=True, eq=False)
class Calibration:
    """Simulated artifacts with their ground truth, and the pool that their candidates are indices into."""

    trials: Sequence[CalibrationTrial] = ()
    pool: Tensor | None = None


@dataclass(frozen=True, eq=False)
class CalibrationLayout:
    """Lays out the artifacts that one adversary calibrates with.

    Attributes:
        population: The ground truth; only its sources and classes are used.
        series: The attacked artifacts.
        cached_simulator: Simulates artifacts.
        needs: The task's needs.
        typical: The typical number of images of a client, which is public.
        seed: Of all random numbers.
        clients: Cache of simulated clients, so that all attacks compute on the same image tensors.
    """

    population: Population
    series: ArtifactSeries[Simulator]
    cached_simulator: CachedSimulator
    needs: TrialNeeds
    typical: int
    seed: int
    clients: Cache[SimulatedClients] = field(default_factory=Cache)

    def calibration(
        self,
        held_back: Sequence[tuple[int, Domain]],
        sizes: Sequence[int | None],
        pool: Tensor,
        holder: str,
        shifted: bool,
    ) -> Calibration:
        """Artifacts of simulated clients with images of each held-back domain; for a global artifact, of all of them.

        Args:
            held_back: By domain, its index and its images.
            sizes: Numbers of images of the artifacts.
            pool: (P, 3, H, W) candidate images of the evaluation; those of the simulated clients are appended.
            holder: A name for the adversary's data, unique among adversaries.
            shifted: Whether each client's images are changed to another look.
        """
        held_back = [(number, domain) for number, domain in held_back if len(domain)]
        together = self.series.needs_all_clients or (self.series.is_global and self.series.expensive)
        reads_kept = self.series.kept and not self.needs.image_bounds  # no images are read from kept layers
        if together or reads_kept or not held_back:
            return Calibration()  # models that are trained together, or layers that are kept, are not simulated
        layout = self._layout(held_back, holder, shifted)
        per_client = _EXPENSIVE_ARTIFACTS if self.series.expensive else _ARTIFACTS
        groups = layout.groups(sizes, dict.fromkeys([size for size in sizes if size is not None], per_client), {})
        joint_pool = in_file(torch.cat([pool, layout.pool.images]))
        trials = [
            CalibrationTrial(
                group.client, group.size, _with_offset(layout.without_controls(group), len(pool), joint_pool)
            )
            for group in groups
        ]
        return Calibration(trials, joint_pool)

    def _layout(self, held_back: Sequence[tuple[int, Domain]], holder: str, shifted: bool) -> TrialLayout:
        """Lays out trials of simulated clients with images of each of these domains in turn."""
        count = _EXPENSIVE_CLIENTS if self.series.expensive and self.needs.image_bounds else _CLIENTS
        domain_of, domains = zip(*(held_back[turn % len(held_back)] for turn in range(count)), strict=True)
        data, state = self.clients.get((domains, self.typical, shifted), lambda: self._clients(domains, shifted))
        names = [f"calibration {holder} {turn}" for turn in range(count)]
        domain_of_client = dict(zip(names, domain_of, strict=True))
        population = replace(
            self.population,
            clients={name: replace(client_data, client=name) for name, client_data in zip(names, data, strict=True)},
            domain_of={
                name: torch.full((len(client_data),), d)
                for name, d, client_data in zip(names, domain_of, data, strict=True)
            },
            shadows={},
        )
        rng = torch.Generator().set_state(state)
        return TrialLayout(population, self._series_of(domain_of_client), self.cached_simulator, rng, self.needs, 1)

    def _series_of(self, domain_of: Mapping[str, int]) -> ArtifactSeries[Simulator]:
        """The series for simulated clients with these domains, without recorded artifacts."""

        def models(received: Mapping[str, ModelState]) -> dict[str, ModelState]:
            """By simulated client, the model that a client of its domain received."""
            by_client = {name: model_of_domain(self.population, received, d) for name, d in domain_of.items()}
            return {name: model for name, model in by_client.items() if model is not None}

        return replace(
            self.series,
            wire={},
            clients=tuple(domain_of),
            received_model=models(self.series.received_model),
            receiver={},
            earlier={},
            history=tuple(e.of_clients(models(e.received_model)) for e in self.series.history),
        )

    def _clients(self, domains: Sequence[Domain], shifted: bool) -> SimulatedClients:
        """A client with images of each of these domains, and the state of the generator that drew them."""
        rng = generator(self.seed, 37)
        return [self._client(domain, shifted, rng) for domain in domains], rng.get_state()

    def _client(self, domain: Domain, shifted: bool, rng: torch.Generator) -> ClientData:
        """A client of the typical size; if the domain has too few images, the client has copies of them."""
        order = torch.randperm(len(domain), generator=rng)
        cut = max(1, min(self.typical, int(_MEMBERS * len(domain))))
        images = restyled(domain.images, rng) if shifted else domain.images
        inside, outside = order[:cut], order[cut:]
        inside = torch.cat([inside, inside[torch.randint(cut, (max(0, self.typical - cut),), generator=rng)]])
        return ClientData(
            client="calibration",
            pixels=in_file(images[inside]),
            labels=domain.labels[inside],
            held_out_pixels=images[outside],
            held_out_labels=domain.labels[outside],
            classes=len(self.population.dataset.classes),
            flip=self.population.dataset.flip,
            translate=self.population.dataset.translate,
        )


def model_of_domain(population: Population, received_model: Mapping[str, ModelState], domain: int) -> ModelState | None:
    """The model that a client of this domain received; any client's if no client has this domain."""
    peers = [name for name in received_model if population.main_domain(name) == domain]
    return received_model[(peers or list(received_model))[0]] if received_model else None


def _with_offset(scored: ScoredObservation, offset: int, pool: Tensor) -> ScoredObservation:
    """The observation with its candidates moved by `offset` in the joint pool."""
    observation = replace(
        scored.observation,
        candidates=scored.observation.candidates + offset,
        membership_candidates=scored.observation.membership_candidates + offset,
    )
    truth = replace(
        scored.truth,
        candidates=scored.truth.candidates + offset,
        membership_candidates=scored.truth.membership_candidates + offset,
        pool=pool,
    )
    return ScoredObservation(observation, truth)
