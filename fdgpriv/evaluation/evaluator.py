"""Evaluates one trained federation: gives each adversary of a threat model its trials and its auxiliary data."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.data.dataset import Domain
from fdgpriv.defense import Defense
from fdgpriv.evaluation.auxiliary import AuxiliaryData, leaked_count
from fdgpriv.evaluation.calibration import CalibrationLayout, SimulatedClients, model_of_domain
from fdgpriv.evaluation.finite_outputs import finite_layers, overflow_reason
from fdgpriv.evaluation.simulation_fit import few_public_images, unlike_changes
from fdgpriv.evaluation.trial import AdversaryTrials, CalibrationTrial, Trial, TrialNeeds
from fdgpriv.evaluation.trial_layout import ALTERNATIVES, ARTIFACTS_PER_CLIENT, MANY_SINGLES, TrialLayout
from fdgpriv.evaluation.trial_set import TrialSet
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.partition import Population
from fdgpriv.federation.transcript import Transcript
from fdgpriv.method import Method
from fdgpriv.metrics.networks import SHIPPED, MetricNetworks
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.cached_simulator import CACHED_BYTES, CachedSimulator
from fdgpriv.simulation.recorded import recorded_series
from fdgpriv.simulation.recorded_run import RecordedRun
from fdgpriv.simulation.recorded_styles import RecordedStyles
from fdgpriv.simulation.simulator import ClientImages, ClientSample, Simulator
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.tasks.task import Task
from fdgpriv.threat import Auxiliary, ThreatModel
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator
from fdgpriv.view import RecordedRound

LEAKED_SHARE = 0.5  # share of each client's images that leak, if the threat model has leaked pairs
PUBLIC_ARTIFACTS = 20  # per domain, to estimate the distribution of public artifacts
PUBLIC_EXPENSIVE = 3  # the same, if simulation is expensive
CHECKED_IMAGES = 8  # images per domain on which models and features must be finite
CACHED_TRIAL_SETS = 4  # number of trial layouts that are cached
CACHED_ROWS = 1  # numbers of images of which rows of public artifacts are cached, for each trial layout


@dataclass(eq=False)
class Evaluator:
    """Lays out trials on the artifacts of one run.

    Attributes:
        population: The ground truth: the data of clients and shadow clients, and public data.
        method, federation, defense: As trained.
        transcript: The recorded transfers.
        seed: Of the evaluator's random numbers.
        per_client: By number of images of an artifact, the number of such artifacts of each client.
        alternatives: Number of artifacts of each control.
        crossed: Whether each client's artifact is also evaluated with every other client's truth, for the self test.
        metric_networks: Networks that compare reconstructions with the truth: those from styles of a frozen encoder, and all
            others.
        recorded_styles: The styles in the transcript; None if there are none with their model.
        artifact_series: By name, the series of artifacts that can be evaluated.
    """

    population: Population
    method: Method
    federation: Federation
    defense: Defense
    transcript: Transcript
    seed: int
    per_client: Mapping[int, int] = field(default_factory=lambda: ARTIFACTS_PER_CLIENT)
    alternatives: int = ALTERNATIVES
    crossed: bool = False
    metric_networks: tuple[MetricNetworks, MetricNetworks] = (SHIPPED, SHIPPED)
    recorded_styles: RecordedStyles | None = field(default=None, init=False)
    artifact_series: Mapping[str, ArtifactSeries[Simulator]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._new_simulators()
        self._data = AuxiliaryData(self.population, self.seed)
        self._calibration_clients = Cache[SimulatedClients]()
        self._adversary_caches = Cache[Cache[Any]]()
        self._common_cache = Cache[Any]()
        self._trial_sets = Cache[TrialSet](max_entries=CACHED_TRIAL_SETS)
        self._undefended = Cache[Evaluator]()
        self._overflow_reasons = Cache[str | None]()
        self._misfits = Cache[str | None]()
        self._layers = Cache[tuple[str, ...]]()
        self.recorded_styles = RecordedStyles.of(self.transcript, self.method, self.federation, self.seed)
        self.artifact_series = self._recorded_series()

    def _new_simulators(self) -> None:
        """Caches of simulated artifacts: of clients, of public images, and of calibration, whose names may be equal."""
        max_bytes = max(CACHED_BYTES, self.transcript.stored_bytes)
        self._cached_simulator, self._public_simulator, self._calibration_simulator = (
            CachedSimulator(self.seed, max_bytes) for _ in range(3)
        )

    def _recorded_series(self) -> Mapping[str, ArtifactSeries[Simulator]]:
        """The series of the transcript, with simulators of the evaluator's method and defense."""
        run = (self.transcript, self.method, self.federation, self.defense, self.population, self.recorded_styles)
        return recorded_series(RecordedRun(*run))

    @property
    def shares_styles(self) -> bool:
        """Whether style statistics were recorded together with the model that they were computed with."""
        return self.recorded_styles is not None

    @property
    def undefended(self) -> "Evaluator":
        """An evaluator of the same run whose simulators apply no defense; itself if the run has no defense."""
        return self._undefended.get("", self._without_defense)

    def _without_defense(self) -> "Evaluator":
        no_defense = Defense.named("none")()
        if self.defense == no_defense:
            return self
        undefended = copy(self)  # with the same styles, auxiliary images and caches of adversaries
        undefended.defense, undefended.method = no_defense, self.method.undefended()
        undefended._new_simulators()
        undefended._trial_sets = Cache(max_entries=CACHED_TRIAL_SETS)
        undefended.artifact_series = undefended._recorded_series()
        return undefended

    @property
    def template(self) -> StyleStatistics:
        """A shared style, of the recorded form."""
        simulator = self.series(StyleStatistics.kind).simulator
        assert isinstance(simulator, StyleSimulator)
        return simulator.template

    def series(self, name: str) -> ArtifactSeries[Simulator]:
        """The artifact series of this name.

        Raises:
            ValueError: The run shared no such artifact.
        """
        if name not in self.artifact_series:
            raise ValueError(f"{self.method.name()} shared no {name.replace('_', ' ')}: there is nothing to evaluate")
        return self.artifact_series[name]

    def overflow_reason(self, series: ArtifactSeries[Simulator]) -> str | None:
        """Why no attack can evaluate the models of these artifacts, in one sentence; None if attacks can."""
        images = torch.cat([domain.images for domain in self._checked_images()])
        return self._overflow_reasons.get(series, lambda: overflow_reason(series, images))

    def finite_layers(self, series: ArtifactSeries[Simulator]) -> tuple[str, ...]:
        """The layers at which artifacts of the series can be computed, and are finite."""
        return self._layers.get(series, lambda: finite_layers(series.simulator, self._checked_images()))

    def _checked_images(self) -> list[Domain]:
        return [domain.part(0, CHECKED_IMAGES) for domain in self.population.auxiliary.values()]

    def networks_comparing(self, series: ArtifactSeries[Simulator]) -> MetricNetworks:
        """The networks that compare reconstructions from these artifacts: none that an attack on them optimises against."""
        styles = (StyleStatistics.kind, InterpolationStyle.kind)
        frozen = series.kind in styles and self.method.disclosure().styles.frozen_encoder
        return self.metric_networks[0 if frozen else 1]

    def adversaries(
        self,
        series: ArtifactSeries[Simulator],
        threat: ThreatModel,
        sizes: Sequence[int | None],
        task: Task | None = None,
        *,
        leaked_share: float = LEAKED_SHARE,
        know_defense: bool = True,
    ) -> list[AdversaryTrials]:
        """The adversaries of this threat model, one for each distinct auxiliary data, each with its trials.

        Args:
            series: The attacked artifacts.
            threat: The adversaries' threat model.
            sizes: Numbers of images of the artifacts; None for the whole client.
            task: Determines what trials must contain; None for artifacts and controls only.
            leaked_share: Share of each client's images that leaked, if the threat model has leaked pairs.
            know_defense: Whether adversaries simulate and calibrate with the defense; the trials are the same without.
        """
        simulating = self if know_defense else self.undefended
        simulated = series if know_defense else simulating.series(series.called)
        key = (
            series,
            tuple(sizes),
            TrialNeeds.of(task),
            leaked_share if threat.auxiliary is Auxiliary.LEAKED else None,
        )
        trial_set = self._trial_sets.get(key, lambda: self._lay_out(*key))
        by_holder: dict[str, list[Trial]] = {}
        for trial in trial_set.trials:
            if (holder := self._holder(series, threat, trial.client)) is not None:
                by_holder.setdefault(holder, []).append(trial)
        weighed = task is None or task.weighed
        return [
            simulating._adversary_trials(trial_set, simulated, threat, holder, trials, weighed)
            for holder, trials in sorted(by_holder.items())
        ]

    def _adversary_trials(
        self,
        trial_set: TrialSet,
        series: ArtifactSeries[Simulator],
        threat: ThreatModel,
        holder: str,
        trials: Sequence[Trial],
        weighed: bool,
    ) -> AdversaryTrials:
        """One adversary, its trials, and its calibration if predictions are `weighed`.

        Args:
            trial_set: The trials of all adversaries.
            series: The series with the simulator that the adversary uses.
            threat: Its threat model.
            holder: The name of the adversary, as of `_holder`.
            trials: The trials of this adversary.
            weighed: Whether predictions are blended with the adversary's prior.
        """
        pool = trial_set.layout.pool.images
        layout = CalibrationLayout(
            population=self.population,
            series=series,
            cached_simulator=self._calibration_simulator,
            needs=trial_set.layout.needs,
            typical=self._typical(series),
            seed=self.seed,
            clients=self._calibration_clients,
        )
        held_back = self._data.held_back(threat.auxiliary, holder) if weighed else ()
        numbers = {domain: d for d, domain in enumerate(self.population.sources)}
        calibration = layout.calibration(
            [(numbers.get(domain.name, 0), domain) for domain in held_back],
            trial_set.sizes,
            pool,
            f"{threat.auxiliary.name} {holder}",
            shifted=len(held_back) == 1,
        )
        candidates = pool if calibration.pool is None else calibration.pool
        adversary = self._adversary(trial_set, series, threat, holder, candidates)
        misfit = self._misfit(series, threat.auxiliary, holder, trials, calibration.trials)
        return AdversaryTrials(adversary, trials, calibration.trials, len(held_back) == 1, misfit)

    def _misfit(
        self,
        series: ArtifactSeries[Simulator],
        auxiliary: Auxiliary,
        holder: str,
        trials: Sequence[Trial],
        calibration: Sequence[CalibrationTrial],
    ) -> str | None:
        """Why simulated clients cannot stand for whole clients, in one clause; None if they can, or there are none."""
        simulated = [trial.scored for trial in calibration if trial.size is None]
        if not simulated:
            return None
        public = self._data.public(auxiliary, holder)
        if (few := few_public_images(public, self._typical(series))) is not None or not series.trained:
            return few
        recorded = [
            trial.by_role["attack"][0] for trial in trials if trial.size is None and trial.client in series.wire
        ]
        return self._misfits.get(
            (series, auxiliary, holder), lambda: unlike_changes(series.simulator, recorded, simulated, public)
        )

    def _lay_out(
        self,
        series: ArtifactSeries[Simulator],
        sizes: Sequence[int | None],
        needs: TrialNeeds,
        leaked_share: float | None,
    ) -> TrialSet:
        """The trials on one artifact series, the same for all adversaries."""
        rng = generator(self.seed, 5)
        layout = TrialLayout(
            population=self.population,
            series=series,
            cached_simulator=self._cached_simulator,
            rng=rng,
            needs=needs,
            alternatives=self.alternatives,
            crossing=self.crossed,
            metric_networks=self.networks_comparing(series),
        )
        leaked = {} if leaked_share is None else self._leaked_images(layout.names, leaked_share, rng)
        times = MANY_SINGLES if needs.many_singles and not series.expensive else 1
        per_client = {size: count * (times if size == 1 else 1) for size, count in self.per_client.items()}
        groups = layout.groups(sizes, per_client, leaked)
        # no random artifacts around a global model, which would contain the secret, nor of all clients together, which
        # would cost the training of a federation
        has_random_clients = not (series.is_global or series.needs_all_clients)
        random_sizes = [size for size in sizes if size is not None or has_random_clients]
        cached_rows = Cache[Tensor](max_entries=CACHED_ROWS)  # read again by artifacts of earlier rounds, drawn later

        def public(earlier: EarlierRound | None, size: int | None) -> Tensor:
            row_sizes = random_sizes if needs.hidden_size else (size,)

            def rows() -> Tensor:
                return torch.cat([self._public_rows(series, row_size, earlier) for row_size in row_sizes])

            return cached_rows.get((earlier, *row_sizes), rows)

        last = {size: public(None, size) for size in (sizes if needs.hidden_size else random_sizes)}
        for size in last:
            cached_rows.forget((None, *(random_sizes if needs.hidden_size else (size,))))
        return TrialSet(layout, sizes, leaked_share, leaked, layout.trials(groups, last, public))

    def _holder(self, series: ArtifactSeries[Simulator], threat: ThreatModel, client: str) -> str | None:
        """The adversary that observes this client's artifact: the receiving client's domain, or "" for a single adversary."""
        if threat.auxiliary is not Auxiliary.OWN_DOMAIN:
            return ""
        receiver = series.receiver.get(client)
        if receiver is None:
            return None
        return self.population.sources[self.population.main_domain(receiver)]

    def _leaked_images(self, names: Sequence[str], share: float, rng: torch.Generator) -> dict[str, Tensor]:
        """By client, random indices (n,) of this share of its images."""
        leaked = {}
        for name in names:
            data = self.population.data(name)
            leaked[name] = torch.randperm(len(data), generator=rng)[: leaked_count(share, data)]
        return leaked

    def _public_rows(self, series: ArtifactSeries[Simulator], size: int | None, earlier: EarlierRound | None) -> Tensor:
        """Rows (M, F) of artifacts of this size, simulated from each source domain's public images with a fixed seed.

        They are simulated in the round `earlier`; in the observed round for None.
        """
        received, simulator = series.received_model, series.simulator
        if earlier is not None:
            received, simulator = earlier.received_model, earlier.simulator
        rows, rng = [], generator(self.seed, 13, size or 0)
        for d, domain in enumerate(self.population.auxiliary.values()):
            images = ClientImages(domain.images, domain.labels, model_of_domain(self.population, received, d))
            count = min(len(domain), self._typical(series) if size is None else size)
            for _ in range(PUBLIC_EXPENSIVE if series.expensive else PUBLIC_ARTIFACTS):
                sample = ClientSample(images, torch.randperm(len(domain), generator=rng)[:count])
                name = f"public {domain.name}"
                if earlier is None:
                    artifact = self._public_simulator.simulate(series, name, sample, rng)
                else:
                    artifact = self._public_simulator.simulate_earlier(series, earlier, name, sample)
                rows.append(simulator.to_vector(artifact, images.received_model))
        return torch.stack(rows)

    def _n_images(self, series: ArtifactSeries[Simulator]) -> int:
        """Number of images of an artifact on the wire: of all clients, or of a typical client."""
        if series.is_global:
            return sum(len(self.population.data(name)) for name in series.clients)
        return self._typical(series)

    def _typical(self, series: ArtifactSeries[Simulator]) -> int:
        """The median number of images of a client of the series."""
        sizes = sorted(len(self.population.data(name)) for name in series.clients)
        return sizes[len(sizes) // 2]

    def _adversary(
        self,
        trial_set: TrialSet,
        series: ArtifactSeries[Simulator],
        threat: ThreatModel,
        holder: str,
        pool: Tensor,
    ) -> Adversary:
        """One adversary; arguments as of `_adversary_trials`, with the pool of all candidates."""
        layout, shared, latest = trial_set.layout, trial_set.layout.series, trial_set.linkable
        reads_received = threat.auxiliary is Auxiliary.OWN_DOMAIN and not series.reaches_all
        order = torch.randperm(len(latest), generator=generator(self.seed, 46)).tolist()
        return Adversary(
            threat=threat,
            classes=self.federation.classes,
            sources=self.population.sources,
            sizes=tuple(self._n_images(series) if size is None else size for size in trial_set.sizes),
            image_size=self.federation.image_size,
            _auxiliary=self._data.simulation_images(threat.auxiliary, holder, trial_set.leaked),
            _simulator=series.simulator,
            _candidates=pool,
            _earlier=tuple(
                series.simulator.anonymised(shared.earlier[name], shared.earlier[name].level) for name in layout.earlier
            ),
            _latest=tuple(latest[i] for i in order),
            _rounds=_recorded_rounds(layout, series, layout.needs.hidden_names),
            _earlier_rounds=_earlier_rounds(layout, series),
            _received_by=_received_by(layout) if reads_received else {},
            _broadcast=series.is_global or series.reaches_all,
            typical=self._typical(series),
            expensive=series.expensive,
            seed=self.seed,
            held_back=self._data.held_back(threat.auxiliary, holder),
            cache=self._adversary_caches.get(
                (series.simulator, threat.auxiliary, holder, trial_set.leaked_share), Cache
            ),
            output_cache=trial_set.output_cache,
            common_cache=self._common_cache,
            look_cache=self._adversary_caches.get((threat.auxiliary, holder, trial_set.leaked_share), Cache),
            device=self.federation.device,
        )


def _recorded_rounds(
    layout: TrialLayout, series: ArtifactSeries[Simulator], hidden_names: bool
) -> tuple[RecordedRound, ...]:
    """The rounds of an adversary's view: the recorded artifacts, and the adversary's simulators.

    Args:
        layout: Has the recorded artifacts.
        series: Has the adversary's simulators.
        hidden_names: Whether senders are secret; then the view has no recorded artifacts.
    """
    recorded = layout.series
    last = EarlierRound(recorded.number, series.simulator, recorded.wire, recorded.received_model)
    names_senders = not (recorded.is_global or hidden_names)
    rounds = []
    for earlier, simulated in zip((*recorded.history, last), (*series.history, last), strict=True):
        wire = earlier.wire if names_senders else {}
        rounds.append(
            RecordedRound(
                earlier.number,
                simulated.simulator,
                {
                    layout.pseudonym(name): earlier.simulator.anonymised(artifact, artifact.level)
                    for name, artifact in wire.items()
                },
                {
                    layout.pseudonym(name): earlier.received_model[name]
                    for name in wire
                    if name in earlier.received_model
                },
                earlier.whole,
            )
        )
    return tuple(rounds)


def _earlier_rounds(
    layout: TrialLayout, series: ArtifactSeries[Simulator]
) -> tuple[tuple[RecordedRound, tuple[Artifact, ...]], ...]:
    """The earlier rounds in which all clients of `layout.earlier` shared, with their artifacts in that order."""
    names = layout.earlier
    rounds = []
    for earlier, simulated in zip(layout.series.history, series.history, strict=True):
        if names and earlier.wire.keys() >= set(names):
            recorded = RecordedRound(earlier.number, simulated.simulator, {}, earlier.received_model, earlier.whole)
            rounds.append(
                (recorded, tuple(earlier.simulator.anonymised(earlier.wire[n], earlier.wire[n].level) for n in names))
            )
    return tuple(rounds)


def _received_by(layout: TrialLayout) -> dict[str, frozenset[str]]:
    """By client, the clients whose artifacts reached the same receiver."""
    series = layout.series
    return {
        layout.pseudonym(client): frozenset(
            layout.pseudonym(name) for name, receivers in series.receivers.items() if receiver in receivers
        )
        for client, receiver in series.receiver.items()
    }
