"""An adversary's observed artifacts, public facts, auxiliary images and granted capabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import Domain
from fdgpriv.data.looks import restyled
from fdgpriv.simulation.mixture import Sent, read
from fdgpriv.simulation.output_cache import OutputCache
from fdgpriv.simulation.planted import Plant
from fdgpriv.simulation.simulator import ClientImages, ClientSample, Simulator
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.threat import Auxiliary, Capability, ThreatModel
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.file_memory import in_file
from fdgpriv.utils.seeds import generator
from fdgpriv.view import Deferred, Earlier, RecordedRound, SeenRound, ViewUse

# By task: an image (3, H, W), images (M, 3, H, W), scores of candidates (T, N), of membership candidates (N,), of domains
# (D,) or classes (K,), a distribution (K,), a layout of cells (L,), a number ().
Prediction = Tensor


SURVIVING_SAMPLES = 12  # artifacts that are simulated to measure how much of one the defense leaves
_CHANCE_FACTOR = 2.0  # times the squared difference by chance, up to which a difference counts as chance
LOOKS = (12, 100)  # number of other looks to simulate with, and images in each
_ONE_DOMAIN = (Auxiliary.OWN_DOMAIN, Auxiliary.OTHER_DOMAIN)

C = TypeVar("C", bound=Simulator)


@dataclass(frozen=True, eq=False)
class Observation:
    """One artifact to infer from.

    Attributes:
        sent: The artifact, with its sender's name hidden, or a mixture of two.
        n_images: Number of images of the artifact (public, as in privacy accounting); 0 if it is the secret.
        candidates: (T, N) indices into `Adversary.candidates`: T line-ups, each with at most one image of the artifact.
        membership_candidates: (N,) indices into `Adversary.candidates`, of members and non-members.
        received_model: The model that its sender received in that round, if the artifact depends on it.
        earlier: By earlier round, the sender's artifact; read it by `Adversary.view`.
        asked, sender: Pseudonyms of the client to predict a secret of, and of the artifact's sender.
        domain: The domain of the client to predict a secret of; None if it is the secret. Read it by `Adversary.domain_of`.
    """

    sent: Sent
    n_images: int
    candidates: Tensor
    membership_candidates: Tensor
    received_model: ModelState | None = None
    earlier: Mapping[int, Earlier] = field(default_factory=dict)
    asked: str = ""
    sender: str = ""
    domain: str | None = None

    @property
    def artifact(self) -> Artifact:
        """The artifact; a mixture is computed each time."""
        return read(self.sent)


@dataclass(frozen=True, eq=False)
class Adversary:
    """One adversary: public facts, auxiliary data, and the capabilities of its threat model.

    Attributes:
        threat: The threat model.
        classes: K.
        sources: Names of the source domains.
        sizes: The numbers of images of the artifacts that it observes.
        image_size: H = W.
        typical: The median number of images of a client of this federation.
        expensive: Whether simulating an artifact is expensive, so that attacks simulate fewer.
        seed: Seed of cached computations.
        held_back: Further labelled images by domain, for calibration.
        cache: Cached computations, shared by adversaries with the same images and simulator.
        output_cache: Cache of model outputs on candidates, which do not depend on the adversary's data.
        common_cache: Cached computations that depend only on the images and the simulator in their keys, and on the seed:
            shared by all adversaries of one evaluator.
        looks: Number of other looks to simulate with if it lacks the attacked clients' domains, and of images in each.
        look_cache: Its images in other looks, shared by adversaries with the same images.
        last_rounds: Maximum number of rounds in a view, the last ones; None for all that the threat model sees.
        view_read: The rounds and clients of its views that were read.
        plant: Plants simulated artifacts in those of whole clients, for attacks on planted leaks; None otherwise.
        device: Device of networks that it trains. All tensors that it has are on the CPU.
    """

    threat: ThreatModel
    classes: int
    sources: tuple[str, ...]
    sizes: tuple[int, ...]
    image_size: int
    _auxiliary: tuple[Domain, ...]
    _simulator: Simulator
    _candidates: Tensor
    _earlier: Sequence[Artifact] = ()
    _latest: Sequence[Artifact] = ()
    _rounds: tuple[RecordedRound, ...] = ()
    _earlier_rounds: tuple[tuple[RecordedRound, Sequence[Artifact]], ...] = ()
    _received_by: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _broadcast: bool = False
    typical: int = 0
    expensive: bool = False
    seed: int = 0
    held_back: tuple[Domain, ...] = ()
    cache: Cache[Any] = field(default_factory=Cache)
    output_cache: OutputCache = field(default_factory=OutputCache)
    common_cache: Cache[Any] = field(default_factory=Cache)
    looks: tuple[int, int] = LOOKS
    look_cache: Cache[tuple[Domain, ...]] = field(default_factory=Cache)
    last_rounds: int | None = None
    view_read: ViewUse = field(default_factory=ViewUse)
    plant: Plant | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def auxiliary(self) -> tuple[Domain, ...]:
        """Labelled images by domain, including leaked client images if the threat model has them."""
        return self._auxiliary

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The auxiliary images by domain.

        Raises:
            ValueError: The threat model has none.
        """
        if not sum(len(domain) for domain in self.auxiliary):
            raise ValueError(
                f"the threat model {self.threat.role!r} holds no auxiliary images to simulate artifacts from"
            )
        return self.auxiliary

    @property
    def expects_other_looks(self) -> bool:
        """Whether it has images of one domain only, so that clients' images may look different."""
        return self.threat.auxiliary in _ONE_DOMAIN

    @property
    def practice(self) -> tuple[Domain, ...]:
        """The images by domain to simulate artifacts from: with images in other looks if `expects_other_looks`."""
        if not self.expects_other_looks:
            return self.domains
        return self.look_cache.get(
            self.looks, lambda: (*self.domains, *_in_other_looks(self.public_images, self.seed, *self.looks))
        )

    def with_looks(self, count: int, in_each: int) -> "Adversary":
        """The adversary with `count` other looks of `in_each` images, if it expects other looks."""
        if not self.expects_other_looks:
            return self
        looks = count, in_each
        return replace(self, looks=looks, cache=self.cache.get(("looks", looks), Cache))

    @property
    def public_images(self) -> tuple[Tensor, Tensor]:
        """All auxiliary images (N, 3, H, W), domain after domain, and their labels (N,)."""
        images: tuple[Tensor, Tensor] = self.cache.get("public images", lambda: _joined(self.domains))
        return images

    @property
    def practice_images(self) -> tuple[Tensor, Tensor]:
        """The images (N, 3, H, W) to simulate artifacts from, and their labels (N,)."""
        images: tuple[Tensor, Tensor] = self.cache.get("practice images", lambda: _joined(self.practice))
        return images

    def images_of(self, domain: str | None) -> Tensor:
        """Its images (N, 3, H, W) of this domain; all of its images if it has none of this domain."""
        return next(
            (auxiliary_domain.images for auxiliary_domain in self.domains if auxiliary_domain.name == domain),
            self.public_images[0],
        )

    def domain_of(self, observation: Observation) -> str | None:
        """The domain of the attacked client, if the threat model knows it and it is not the secret; else None."""
        return observation.domain if Capability.KNOWS_DOMAIN in self.threat.capabilities else None

    @property
    def public_shares(self) -> Tensor:
        """(K,): the share of each class among all its images, including those held back for calibration."""
        return self._shares((*self.domains, *self.held_back))

    @property
    def shares_by_domain(self) -> dict[str, Tensor]:
        """By domain, the share (K,) of each class among its images of the domain."""
        domains = (*self.domains, *self.held_back)
        names = [domain.name for domain in self.domains]
        return {name: self._shares([domain for domain in domains if domain.name == name]) for name in names}

    @property
    def hedged_shares(self) -> Tensor:
        """(K,): the mean of equal and public class shares, which it expects of an unknown client.

        The adversary's images may have been collected in another way than a client's. The L1 error of the mean is at most the
        mean of both errors, so that it loses least whichever of the two is wrong. The part of the difference between public
        and equal shares that may be chance is left out.
        """
        equal = torch.full((self.classes,), 1 / self.classes)
        difference = self.public_shares - equal
        chance = (1 - 1 / self.classes) / sum(len(domain) for domain in (*self.domains, *self.held_back))
        significant = 1 - _CHANCE_FACTOR * chance / max(float(difference.square().sum()), chance)
        return equal + max(0.0, significant) * difference / 2

    def _shares(self, domains: Sequence[Domain]) -> Tensor:
        """(K,): the share of each class among the images of these domains."""
        count = torch.cat([domain.labels for domain in domains]).bincount(minlength=self.classes).float()
        return count / count.sum()

    @property
    def candidates(self) -> Tensor:
        """(P, 3, H, W): the images from which line-ups and membership candidates are drawn."""
        self.threat.require(Capability.HAS_CANDIDATES)
        return self._candidates

    @property
    def earlier(self) -> Sequence[Artifact]:
        """The artifacts of all clients in an earlier round, in random order."""
        self.threat.require(Capability.SEES_ALL_ROUNDS)
        return self._earlier

    @property
    def latest(self) -> Sequence[Artifact]:
        """The artifacts of the same clients in the observed round, in another random order."""
        self.threat.require(Capability.SEES_ALL_ROUNDS)
        return self._latest

    def view(self, observation: Observation) -> tuple[SeenRound, ...]:
        """The rounds that it sees, the oldest first, each with the artifacts of all clients that it sees in that round.

        The last one is the observed round. Earlier rounds are those in which the observation has an artifact, if the threat
        model sees all rounds. If the senders of the last round are the secret, it has no other client's artifact. A client
        sees the artifacts that reached it together with the observed one, none with a simulated one; and all artifacts of
        all rounds, if every client receives every other client's.
        """
        *earlier_rounds, last = self._rounds or (RecordedRound(0, self._simulator, {}, {}),)
        seen = []
        if (Capability.SEES_BROADCASTS if self._broadcast else Capability.SEES_ALL_ROUNDS) in self.threat.capabilities:
            for recorded in earlier_rounds:
                if (earlier := observation.earlier.get(recorded.number)) is not None:
                    seen.append((recorded, earlier.shared, earlier.received_model))
        seen.append((last, Deferred(lambda: observation.sent), observation.received_model))
        last_seen = seen if self.last_rounds is None else seen[-self.last_rounds :]
        receivers = self._received_by.get(observation.asked, frozenset()) if self._received_by else None
        return tuple(
            SeenRound.of(*seen_round, receivers, {observation.asked, observation.sender}, self.view_read)
            for seen_round in last_seen
        )

    @property
    def earlier_rounds(self) -> tuple[tuple[RecordedRound, Sequence[Artifact]], ...]:
        """Each earlier round with the artifacts of the clients of `earlier`, in the same order; the oldest round first."""
        self.threat.require(Capability.SEES_ALL_ROUNDS)
        return self._earlier_rounds

    def simulator(self, kind: type[C], using: Capability = Capability.KNOWS_DEFENSE) -> C:
        """The simulator of the artifacts.

        Args:
            kind: The class it must have.
            using: The capability that its use requires.

        Raises:
            TypeError: It has another class.
            PermissionError: The threat model does not grant the capability.
        """
        self.threat.require(using)
        if not isinstance(self._simulator, kind):
            raise TypeError(f"want artifacts of {kind.__name__}, got {type(self._simulator).__name__}")
        return self._simulator

    def vector(self, artifact: Artifact, received_model: ModelState | None = None) -> Tensor:
        """(D,): the artifact as a feature vector for property inference."""
        return self._simulator.vector(artifact, received_model)

    def vectors(self, observations: Sequence[Observation]) -> Tensor:
        """(M, D): the feature vectors of the observed artifacts."""
        return torch.stack(
            [self.vector(observation.artifact, observation.received_model) for observation in observations]
        )

    def simulate(
        self,
        images: Tensor,
        labels: Tensor,
        index: Tensor,
        rng: torch.Generator,
        received_model: ModelState | None = None,
        simulator: Simulator | None = None,
    ) -> Artifact:
        """The artifact that a client with the images at `index` (m,) would have shared, defense included.

        Args:
            images, labels: (N, 3, H, W) and (N,).
            index: Indices of the client's images.
            rng: Random numbers of the client and the defense.
            received_model: The model that the client received, if the artifact depends on it.
            simulator: The simulator of an earlier round (`SeenRound.simulator`); by default of the observed round.
        """
        self.threat.require(Capability.KNOWS_DEFENSE)
        sample = ClientSample(ClientImages(images, labels, received_model), index)
        simulator = self._simulator if simulator is None else simulator
        if self.plant is not None:
            return self.plant.simulate(simulator, sample, rng)
        return simulator.simulate(sample, rng)

    @property
    def defended(self) -> bool:
        """Whether the defense changes the artifacts, as far as the adversary knows."""
        self.threat.require(Capability.KNOWS_DEFENSE)
        defense = getattr(self._simulator, "defense", None)
        return defense is not None and defense.alters(self._simulator.kind)

    def surviving_share(
        self, n: int, vector: Callable[[Artifact], Tensor], received_model: ModelState | None = None
    ) -> float:
        """The share of an artifact that the defense leaves, for attacks that model undefended artifacts.

        It is the length of the defended vector along the undefended one, relative to the latter; the mean over simulated
        artifacts of `n` public images. 1 without a defense.

        Args:
            n: Number of images.
            vector: Gives the vector (D,) that the attack reads from an artifact.
            received_model: As of `simulate`.
        """
        key = ("surviving share", n, vector, received_model)
        share: float = self.cache.get(key, lambda: self._surviving_share(n, vector, received_model))
        return share

    def _surviving_share(
        self, n: int, vector: Callable[[Artifact], Tensor], received_model: ModelState | None
    ) -> float:
        if not self.defended:
            return 1.0
        shares = []
        for turn in range(SURVIVING_SAMPLES):
            domain, rng = self.domains[turn % len(self.domains)], generator(self.seed, 58, turn)
            index = torch.randperm(len(domain), generator=rng)[:n]
            sample = ClientSample(ClientImages(domain.images, domain.labels, received_model), index)
            defended_vector, undefended_vector = (
                vector(self._simulator.simulate(client_sample, generator(self.seed, 59, turn))).double()
                for client_sample in (sample, replace(sample, defended=False))
            )
            shares.append(
                float(defended_vector @ undefended_vector / (undefended_vector @ undefended_vector).clamp_min(1e-12))
            )
        return max(sum(shares) / len(shares), 1e-6)

    @property
    def needs_all_clients(self) -> bool:
        """Whether artifacts can only be simulated for all clients together."""
        return self._simulator.needs_all_clients

    def simulate_jointly(
        self, parties: Sequence[tuple[Domain, Tensor]], rng: torch.Generator, received_model: ModelState | None = None
    ) -> list[Artifact]:
        """The artifacts of the clients of one simulated federation, each with the images of a domain at an index (n,)."""
        self.threat.require(Capability.KNOWS_DEFENSE)
        if self.plant is not None:
            return [
                self.simulate(domain.images, domain.labels, index, rng, received_model) for domain, index in parties
            ]
        samples = [
            ClientSample(ClientImages(domain.images, domain.labels, received_model), index) for domain, index in parties
        ]
        return self._simulator.simulate_jointly(samples, rng)

    @property
    def uses_batch_statistics(self) -> bool:
        """Whether artifacts are styles, and an image's style depends on the client's other images."""
        return isinstance(self._simulator, StyleSimulator) and self._simulator.uses_batch_statistics

    def styles(self, images: Tensor, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and std (N, C) of each image's features as clients compute them; see `StyleSimulator.styles`."""
        return self.simulator(StyleSimulator, Capability.KNOWS_ENCODER).styles(images, among)


def _joined(domains: Sequence[Domain]) -> tuple[Tensor, Tensor]:
    """All images (N, 3, H, W) of these domains, and their labels (N,)."""
    images = in_file(torch.cat([domain.images for domain in domains]))
    return images, torch.cat([domain.labels for domain in domains])


def _in_other_looks(public: tuple[Tensor, Tensor], seed: int, looks: int, in_each: int) -> list[Domain]:
    """`looks` sets of at most `in_each` of the images (N, 3, H, W) with labels (N,), each in another look."""
    images, labels = public
    looks_of_images = []
    for turn in range(looks):
        rng = generator(seed, 41, turn)
        index = torch.randperm(len(images), generator=rng)[:in_each]
        looks_of_images.append(Domain(f"look {turn + 1}", in_file(restyled(images[index], rng)), labels[index]))
    return looks_of_images
