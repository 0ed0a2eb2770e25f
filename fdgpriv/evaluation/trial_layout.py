"""Lays out trials on one artifact series: the attacked artifacts and their controls.

For each client and number of images, groups of images are drawn, and their artifact is simulated with the client's defense.
The artifact of a whole client is the recorded one. It is simulated for shadow clients, and for all clients if only artifacts
of single images were recorded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from fdgpriv.adversary import Observation
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.evaluation.candidates import CandidatePool, nearest_other
from fdgpriv.evaluation.trial import ScoredObservation, Trial, TrialNeeds
from fdgpriv.evaluation.units import attacked_clients, candidate_pool
from fdgpriv.federation.partition import Population
from fdgpriv.metrics.networks import SHIPPED, MetricNetworks
from fdgpriv.simulation.artifact_series import ArtifactSeries, EarlierRound
from fdgpriv.simulation.cached_simulator import CachedSimulator
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.simulation.mixture import Sent, read
from fdgpriv.simulation.simulator import ClientImages, ClientSample, Simulator
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.seeds import generator
from fdgpriv.view import Deferred, Earlier

ARTIFACTS_PER_CLIENT = {1: 3, 2: 2, 5: 1, 20: 1}  # by number of images of an artifact
THOROUGH_SINGLES = 5  # artifacts of one image per client, in a thorough audit
MANY_SINGLES = 2  # factor of the number of artifacts of one image, for tasks with `many_singles`
ALTERNATIVES = 3  # artifacts of each control by default
RANDOM_ARTIFACTS = 4  # random artifacts, if evaluating one is cheap
MAX_SCORED_IMAGES = 12  # of an artifact's images
OTHERS = ("other_client", "other_domain")  # roles of controls
MAX_CROSSED_CLIENTS = 30  # with more clients, artifacts are not crossed


@dataclass(frozen=True, eq=False)
class ImageGroup:
    """A group of images of one client, and the artifact computed from them.

    Attributes:
        client: The client.
        size: Number of images; None for the whole client.
        number: Number of the group among those of its client and size.
        index: (n,) the images, as indices into the client's.
        sent: The artifact.
        earlier: By number of an earlier round, the artifact of the same images in that round.
    """

    client: str
    size: int | None
    number: int
    index: Tensor
    sent: Artifact
    earlier: Mapping[int, Earlier] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TrialCandidates:
    """The candidate images of one trial, as indices into the pool.

    Attributes:
        line_ups: (T, N), each with one of the artifact's images.
        positions: (T,) position of that image in each line-up.
        membership: (M,) the membership candidates.
        members: (M,) whether each candidate is a member.
    """

    line_ups: Tensor
    positions: Tensor
    membership: Tensor
    members: Tensor


@dataclass(frozen=True, eq=False)
class ReferenceArtifact:
    """An artifact without a group of images: a random one, or the undefended artifact of one image."""

    sent: Artifact
    earlier: Mapping[int, Earlier] = field(default_factory=dict)


PublicRows = Callable[[EarlierRound, int | None], Tensor]


@dataclass(frozen=True, eq=False)
class TrialLayout:
    """Lays out the trials on clients and shadow clients of one population.

    Attributes:
        population: The ground truth.
        series: The artifacts that are evaluated.
        cached_simulator: Simulates artifacts.
        rng: Random numbers of all draws.
        needs: The task's requirements.
        alternatives: Number of artifacts of each control.
        crossing: Whether each client's artifact is also evaluated with every other client's truth.
        metric_networks: Networks that compare reconstructions with the truth.
    """

    population: Population
    series: ArtifactSeries[Simulator]
    cached_simulator: CachedSimulator
    rng: torch.Generator
    needs: TrialNeeds
    alternatives: int
    crossing: bool = False
    metric_networks: MetricNetworks = SHIPPED
    _observations: dict[tuple[int, int], tuple[object, Observation]] = field(default_factory=dict, init=False)
    _means: Cache[Tensor] = field(default_factory=Cache, init=False)
    _drawn: dict[tuple[int | None, int], Sequence[ReferenceArtifact]] = field(default_factory=dict, init=False)

    def holding(self, name: str) -> ClientImages:
        """The images of this client or shadow client, the model it received, and held-out images if the task needs them."""
        data = self.population.data(name)
        held_out = ClientImages(data.held_out_images, data.held_out_labels) if self.needs.held_out else None
        return ClientImages(data.images, data.labels, self.series.received_model.get(name), held_out)

    def groups(
        self, sizes: Sequence[int | None], per_client: Mapping[int, int], leaked: Mapping[str, Tensor]
    ) -> list[ImageGroup]:
        """Disjoint groups of each client's images by size, without the leaked images."""
        groups: list[ImageGroup] = []
        wire = self.series.wire
        if not wire and (self.series.needs_all_clients or self.series.is_global):
            wire = self.cached_simulator.simulate_jointly(
                self.series, {name: self.holding(name) for name in self.names}
            )
        for name in self.names:
            images = self.holding(name)
            order = torch.randperm(len(images.images), generator=self.rng)
            order = order[~torch.isin(order, leaked[name])] if name in leaked else order
            for size in sizes:
                if size is None:
                    groups.append(self._whole_client(name, images, order, wire.get(name)))
                else:
                    groups += self._small_groups(name, images, order, size, self._count(size, per_client[size]))
        return groups

    def _whole_client(self, name: str, images: ClientImages, order: Tensor, recorded: Artifact | None) -> ImageGroup:
        """The group of all images of a client, with its recorded artifact, or else a simulated one."""
        sample = ClientSample.all_of(images)
        artifact = self._simulated(name, sample) if recorded is None else recorded
        return ImageGroup(name, None, 0, order, artifact, self._earlier(name, sample))

    def _small_groups(self, name: str, images: ClientImages, order: Tensor, size: int, count: int) -> list[ImageGroup]:
        """At most `count` disjoint groups of `size` images of a client, in this order (n,), with simulated artifacts."""
        groups = []
        for number, index in enumerate(order.split(size)[:count]):
            if len(index) == size:
                sample = ClientSample(images, index, "image" if size == 1 else "cluster")
                artifact = self._simulated(name, sample)
                groups.append(ImageGroup(name, size, number, index, artifact, self._earlier(name, sample)))
        return groups

    def _count(self, size: int, per_client: int) -> int:
        """Artifacts evaluated per client, fewer if evaluating them is expensive."""
        if not self.series.expensive or (size == 1 and not self.needs.image_bounds):
            return per_client
        return -(-per_client // 3) if size == 1 else 1

    def _simulated(self, name: str, sample: ClientSample) -> Artifact:
        return self.cached_simulator.simulate(self.series, name, sample, self.rng)

    def _earlier(self, name: str, sample: ClientSample) -> dict[int, Earlier]:
        """By earlier round, the client's recorded artifact, or the simulated artifact of the images of `sample`."""
        if sample.granularity == "client" and name in self.series.wire:
            recorded = [earlier for earlier in self.series.history if name in earlier.wire]
            return {
                earlier.number: Earlier(
                    Deferred(partial(earlier.wire.__getitem__, name)), earlier.received_model.get(name)
                )
                for earlier in recorded
            }
        simulated = {}
        for earlier in self.series.simulated_history:
            images = replace(sample.party, received_model=earlier.received_model.get(name))
            simulate = partial(
                self.cached_simulator.simulate_earlier, self.series, earlier, name, replace(sample, party=images)
            )
            simulated[earlier.number] = Earlier(Deferred(simulate), images.received_model)
        return simulated

    def trials(
        self, groups: Sequence[ImageGroup], public: Mapping[int | None, Tensor], earlier_public: PublicRows
    ) -> list[Trial]:
        """The trials, one for each group.

        Args:
            groups: The attacked groups of images; other clients' groups serve as controls.
            public: By size, (M, F) rows of public artifacts; random artifacts are drawn from their distribution. A size
                without rows has no random artifacts.
            earlier_public: Gives the rows of an earlier round for a size, of the same simulated clients.
        """
        return [self._trial(group, groups, public.get(group.size), earlier_public) for group in groups]

    def without_controls(self, group: ImageGroup) -> ScoredObservation:
        """The observation of this group's artifact and its truth; membership candidates are the client's own images."""
        line_ups, positions = self.pool.line_ups(group.client, group.index, self.rng)
        membership = self.pool.own_membership_candidates(group.client, group.index)
        candidates = TrialCandidates(line_ups, positions, *membership)
        return ScoredObservation(
            self._observation(group, group, candidates), self._truth(group, group.index, candidates)
        )

    def _trial(
        self, group: ImageGroup, groups: Sequence[ImageGroup], public: Tensor | None, earlier_public: PublicRows
    ) -> Trial:
        """The trial on one group; arguments as of `trials`."""
        candidates = self._candidates(group)
        truth = self._truth(group, group.index, candidates)

        def observed(artifact: ImageGroup | ReferenceArtifact) -> ScoredObservation:
            return self._observed(group, artifact, candidates, truth)

        by_role = {"attack": [observed(group)]}
        if public is not None:
            by_role["random_style"] = [observed(artifact) for artifact in self._random(group, public, earlier_public)]
        for role, is_same_domain in zip(OTHERS, (True, False), strict=True):
            if self._is_global(group):
                controls = self._non_member_controls(group, is_same_domain, truth)
            else:
                controls = [observed(other) for other in self._control_groups(group, groups, is_same_domain)]
            if controls:
                by_role[role] = controls
        crossed = self._crossed(group, groups, observed, by_role) if self.crossing and group.size is None else {}
        bounds: dict[str, list[tuple[Tensor, GroundTruth]]] = {}
        if self.needs.image_bounds:
            image_truths = {int(i): self._truth(group, i[None], candidates) for i in group.index[: self.alternatives]}
            bounds = self._image_bounds(group, truth, image_truths)
            if not self.series.expensive:
                by_role["autoencoder"] = self._undefended(group, candidates, image_truths)
        name = group.client if group.size is None else f"{group.client}/{group.size}/{group.number}"
        return Trial(name, group.client, group.size, truth, by_role, bounds, crossed)

    def _is_global(self, group: ImageGroup) -> bool:
        """Whether the group's artifact is computed from all clients."""
        return self.series.is_global and group.size is None

    def _candidates(self, group: ImageGroup) -> TrialCandidates:
        """The candidates of the group's trial."""
        line_ups, positions = self.pool.line_ups(group.client, group.index, self.rng, self._is_global(group))
        number = None if group.size is None else group.number
        if self.needs.held_out:
            membership = self.pool.held_out_candidates(group.client)
        else:
            membership = self.pool.membership_candidates(group.client, group.index, number, self.series.is_global)
        return TrialCandidates(line_ups, positions, *membership)

    def _observed(
        self,
        group: ImageGroup,
        artifact: ImageGroup | ReferenceArtifact,
        candidates: TrialCandidates,
        truth: GroundTruth,
    ) -> ScoredObservation:
        """The observation of an artifact in the trial on `group`, and its truth.

        Trials share the observation if predictions do not depend on the trial: reconstructions from expensive artifacts.
        """
        is_shared = self.needs.image_bounds and self.series.expensive
        key = (0 if is_shared else id(group), id(artifact))
        if key not in self._observations:
            observed_group = artifact if is_shared and isinstance(artifact, ImageGroup) else group
            self._observations[key] = artifact, self._observation(observed_group, artifact, candidates)
        senders = (self.number[artifact.client],) if isinstance(artifact, ImageGroup) else truth.senders
        return ScoredObservation(self._observations[key][1], replace(truth, senders=senders))

    def _control_groups(
        self, group: ImageGroup, groups: Sequence[ImageGroup], is_same_domain: bool
    ) -> list[ImageGroup]:
        """Random groups of other clients, of the same domain or of other domains; of the same size unless that is hidden."""
        domain, any_size = self.pool.domain, self.needs.hidden_size and group.size is not None
        others = [
            other
            for other in groups
            if other.client != group.client
            and (any_size or other.size == group.size)
            and (domain[other.client] == domain[group.client]) is is_same_domain
        ]
        return [others[i] for i in torch.randperm(len(others), generator=self.rng)[: self.alternatives].tolist()]

    def _non_member_controls(
        self, group: ImageGroup, is_same_domain: bool, truth: GroundTruth
    ) -> list[ScoredObservation]:
        """The global artifact with candidates that are not among its images, of the client's domain or of other domains."""
        domain = self.pool.domain[group.client]
        image_sets = self.pool.non_members(domain, is_same_domain, self.alternatives, self.rng)
        return [self._with_non_members(group, truth, images) for images in image_sets]

    def _image_bounds(
        self, group: ImageGroup, truth: GroundTruth, image_truths: Mapping[int, GroundTruth]
    ) -> dict[str, list[tuple[Tensor, GroundTruth]]]:
        """By role, predictions computed from the client's images, with the truth that each is scored against.

        Args:
            group: The attacked images.
            truth: The truth about all of them.
            image_truths: By index of an image, the truth about it alone.
        """
        images = self.holding(group.client).images
        bounds = {
            "nearest_own": [(nearest_other(images, i), image_truth) for i, image_truth in image_truths.items()],
            "own_colour": [
                (images[i].mean((1, 2), keepdim=True), image_truth) for i, image_truth in image_truths.items()
            ],
        }
        if group.size != 1:
            without_mean = replace(truth, mean_image=torch.empty(0))
            bounds["own_mean"] = [(self._mean(group), without_mean)]
            bounds["own_domain_mean"] = [(self._domain_mean(self.pool.domain[group.client]), without_mean)]
        return bounds

    def _crossed(
        self,
        group: ImageGroup,
        groups: Sequence[ImageGroup],
        observed: Callable[[ImageGroup], ScoredObservation],
        by_role: Mapping[str, Sequence[ScoredObservation]],
    ) -> dict[str, ScoredObservation]:
        """By client, the observation of its artifact with the truth of this client, as the self test needs them."""
        if self.series.is_global:
            return {f"{name} {i}": scored for name in OTHERS for i, scored in enumerate(by_role.get(name, ()))}
        clients = [other for other in groups if other.size is None]
        return {other.client: observed(other) for other in clients} if len(clients) <= MAX_CROSSED_CLIENTS else {}

    def _observation(
        self,
        group: ImageGroup,
        artifact: ImageGroup | ReferenceArtifact,
        candidates: TrialCandidates,
        n_images: int | None = None,
    ) -> Observation:
        """The observation of `artifact` in the trial on `group`; by default with the group's number of images."""
        sender = artifact.client if isinstance(artifact, ImageGroup) else group.client
        if self.needs.hidden_size:
            n_images = 0
        elif n_images is None:
            n_images = self._n_images(group.client) if group.size is None else group.size
        level = group.sent.level

        def anonymised(earlier: EarlierRound) -> Sent:
            return earlier.simulator.anonymised(read(artifact.earlier[earlier.number].shared.sent), level)

        return Observation(
            self.series.simulator.anonymised(artifact.sent, level),
            n_images,
            candidates.line_ups,
            candidates.membership,
            self.series.received_model.get(sender),
            {
                earlier.number: Earlier(
                    Deferred(partial(anonymised, earlier)), artifact.earlier[earlier.number].received_model
                )
                for earlier in self.series.history
                if earlier.number in artifact.earlier
            },
            self.pseudonym(group.client),
            self.pseudonym(sender) if isinstance(artifact, ImageGroup) else "",
            None if self.needs.hidden_domain else self.population.sources[self.population.main_domain(group.client)],
        )

    def _n_images(self, client: str) -> int:
        """Number of images of the client's artifact on the wire; of all clients if the artifact is global."""
        return sum(len(self.population.data(name)) for name in (self.names if self.series.is_global else (client,)))

    def _with_non_members(self, group: ImageGroup, truth: GroundTruth, non_members: Tensor) -> ScoredObservation:
        """The group's artifact with these non-members (N,) as candidates, half of which are labelled as members."""
        ordered, order = non_members.sort()
        line_ups, positions = self.pool.line_ups_of_non_members(non_members, len(truth.candidates), self.rng)
        candidates = TrialCandidates(line_ups, positions, ordered, order < len(non_members) // 2)
        truth = replace(
            truth,
            membership_candidates=ordered,
            members=candidates.members,
            trained_by=self.pool.trained_by(ordered),
            candidates=line_ups,
            positions=positions,
            source=self.pool.images,
            index=non_members[:MAX_SCORED_IMAGES],
        )
        return ScoredObservation(self._observation(group, group, candidates), truth)

    def _random(self, group: ImageGroup, public: Tensor, earlier_public: PublicRows) -> Sequence[ReferenceArtifact]:
        """Artifacts drawn from the public distribution; if evaluating them is expensive, the same few for all trials.

        In earlier rounds they have the same weights on the same simulated clients. If the sender is the secret, or clients keep
        their artifact, they start from another client's model, since the client's own model would reveal the secret.
        """
        start_elsewhere = self.needs.hidden_names or self.series.kept
        client = self._next_client(group.client) if start_elsewhere else group.client
        received_model = self.series.received_model.get(client)
        are_shared = self.needs.image_bounds or self.series.expensive
        key = (group.size, id(received_model))
        if are_shared and key in self._drawn:
            return self._drawn[key]
        count = RANDOM_ARTIFACTS if not are_shared else 1 if self.series.own_models else self.alternatives
        seed = int(torch.randint(2**62, (), generator=self.rng))

        def of_earlier_round(earlier: EarlierRound, model: ModelState | None, number: int) -> Artifact:
            rows = earlier_public(earlier, group.size)
            return earlier.simulator.random(rows, count, model, generator(seed))[number]

        artifacts = self.series.simulator.random(public, count, received_model, generator(seed))
        models = {earlier: earlier.received_model.get(client) for earlier in self.series.simulated_history}
        references = [
            ReferenceArtifact(
                artifact.in_file() if are_shared else artifact,
                {
                    earlier.number: Earlier(Deferred(partial(of_earlier_round, earlier, model, number)), model)
                    for earlier, model in models.items()
                },
            )
            for number, artifact in enumerate(artifacts)
        ]
        return self._drawn.setdefault(key, references) if are_shared else references

    def _next_client(self, client: str) -> str:
        """Another client of the series; the client itself if there is no other."""
        names = list(self.series.received_model)
        return names[(names.index(client) + 1) % len(names)] if client in names else client

    def _undefended(
        self, group: ImageGroup, candidates: TrialCandidates, image_truths: Mapping[int, GroundTruth]
    ) -> list[ScoredObservation]:
        """The observation of the undefended artifact of each of these images, in the trial on `group`."""
        observations = []
        for image, truth in image_truths.items():
            index = torch.tensor([image])
            sample = ClientSample(self.holding(group.client), index, granularity="image", defended=False)
            artifact = ReferenceArtifact(self.series.simulator.simulate(sample, self.rng))
            observations.append(ScoredObservation(self._observation(group, artifact, candidates, 1), truth))
        return observations

    def _truth(self, group: ImageGroup, index: Tensor, candidates: TrialCandidates) -> GroundTruth:
        """The truth about the group's artifact; for a bound, about one of its images, at `index` (1,)."""
        data = self.population.data(group.client)
        is_group_truth = index is group.index and not self._is_global(group)
        labels = data.labels if group.size is None else data.labels[index]
        scored = index[:MAX_SCORED_IMAGES]
        return GroundTruth(
            source=data.images,
            index=scored,
            labels=data.labels[scored],
            histogram=labels.bincount(minlength=data.classes) / len(labels),
            domain=self.pool.domain[group.client],
            positions=candidates.positions,
            candidates=candidates.line_ups,
            pool=self.pool.images,
            members=candidates.members,
            trained_by=self.pool.trained_by(candidates.membership),
            senders=(self.number[group.client],),
            count=self._n_images(group.client) if group.size is None else len(labels),
            earlier_index=self.earlier.index(group.client) if group.client in self.earlier else -1,
            membership_candidates=candidates.membership,
            contributions=self._contributions(group, scored) if self.needs.contributions else torch.empty(0, 0),
            mean_image=self._mean(group) if self.needs.mean_image and is_group_truth else torch.empty(0),
            metric_networks=self.metric_networks,
        )

    def _mean(self, group: ImageGroup) -> Tensor:
        """The mean (3, H, W) of the group's images."""
        images = self.holding(group.client).images
        key = (group.client, group.size, group.number)
        return self._means.get(key, lambda: (images if group.size is None else images[group.index]).mean(0))

    def _domain_mean(self, domain: int) -> Tensor:
        """The mean (3, H, W) of the public images of this domain."""
        public = self.population.auxiliary[self.population.sources[domain]]
        return self._means.get(domain, lambda: public.images.mean(0))

    def _contributions(self, group: ImageGroup, scored: Tensor) -> Tensor:
        """The contribution of each scored image (n,) to the group's artifact, (n, D)."""
        images = self.holding(group.client)
        sample = ClientSample.all_of(images) if group.size is None else ClientSample(images, group.index)
        positions = (scored[:, None] == sample.index).int().argmax(1)
        return self.series.simulator.each(sample, self.rng)[positions]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The attacked clients and shadow clients."""
        return attacked_clients(self.population, self.series)

    def pseudonym(self, client: str) -> str:
        """The name of this client for adversaries; simulated clients keep their names."""
        return self._pseudonyms.get(client, client)

    @cached_property
    def _pseudonyms(self) -> dict[str, str]:
        recorded = sorted(self.series.wire)
        order = torch.randperm(len(recorded), generator=generator(self.cached_simulator.seed, 60)).tolist()
        return {name: f"sender-{number:03d}" for name, number in zip(recorded, order, strict=True)}

    @cached_property
    def number(self) -> dict[str, int]:
        """By client, its number in the pool."""
        return {name: number for number, name in enumerate(self.pool.names)}

    @cached_property
    def earlier(self) -> tuple[str, ...]:
        """The clients of the artifacts in `Adversary.earlier`, in that (random) order."""
        clients = sorted(self.series.earlier)
        return tuple(clients[i] for i in torch.randperm(len(clients), generator=self.rng))

    @cached_property
    def pool(self) -> CandidatePool:
        """The images that candidates are drawn from."""
        return candidate_pool(self.population, self.series)
