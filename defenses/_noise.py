"""Clipping and additive noise on clients' vectors, with one budget for all releases of a run."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense, Guarantee, SharedContent
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.upload import LARGEST
from fdgpriv.privacy.accounting import noise_multiplier
from fdgpriv.privacy.adjacency import Adjacency, Unit, check_delta
from fdgpriv.privacy.canaries import VectorCanaries
from fdgpriv.privacy.vectors import KINDS, MODELS, ClientVectors, Norm, VectorContext, vectors_of
from fdgpriv.privacy.wording import bug_warning, in_words
from fdgpriv.utils.defaults import Bug
from fdgpriv.utils.fields import OpenFraction, PositiveFloat, PositiveInt

from ._covered import altered, joined, words

_MEASURED_IMAGES = 20  # images per neighbouring dataset for measuring epsilon; the bound is the same for every n
_N_CANARIES = (
    512  # of a one-run audit, in equally many dimensions; the noise of an entry does not depend on their number
)
_MAX_DEVIATION = 1e30  # noise beyond this is not finite in single precision
_MAX_MODEL_DEVIATION = LARGEST / 5  # a parameter beyond LARGEST counts as diverged; one of ten million is 5 spreads off


@dataclass(frozen=True)
class NoiseDefense(Defense):
    """Base class of defenses that clip vectors and add noise; by default of those that protect whole clients.

    Attributes:
        clip: C, the clipping norm of every kind; public, not computed from data. None for each kind's default.
        releases: Number of releases of all covered kinds in a run; set by `bound_to`.
        covers: The covered kinds; set by `bound_to`.
        signed: Whether importance weights may be negative; set by `bound_to`.
        bug: Deliberate error in the noise, to test that the measured epsilon shows it (--inject-bug).
    """

    norm: ClassVar[Norm] = 2
    gaussian: ClassVar[bool] = False

    clip: PositiveFloat | None = None
    releases: PositiveInt = 1
    covers: tuple[str, ...] = (StyleStatistics.kind,)
    signed: bool = False
    bug: Bug | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := set(self.covers) - set(KINDS):
            raise ValueError(
                f"{self.name()}.covers: want kinds of {', '.join(KINDS)}; got {', '.join(sorted(unknown))}"
            )
        for kind in self.covers:
            deviation, largest = self.deviation(1, kind), _MAX_MODEL_DEVIATION if kind in MODELS else _MAX_DEVIATION
            if not deviation < largest:
                raise ValueError(
                    f"{self.name()}: want a budget and a clip for which the spread of the noise on a {kind} is below "
                    f"{largest:.3g}, got {deviation:.3g}; want a larger epsilon or delta, a smaller clip or fewer rounds"
                )

    # Defined by subclasses

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """Ratio of the noise's spread to the sensitivity."""

    @abstractmethod
    def noise(self, shape: Sequence[int], rng: torch.Generator) -> Tensor:
        """Independent noise of spread 1, float64."""

    @abstractmethod
    def score(self, releases: Tensor, centers: tuple[Tensor, Tensor]) -> Tensor:
        """Log likelihood ratio (draws,) of the first of two noiseless releases (D,), all in units of the noise's spread."""

    @abstractmethod
    def budget(self) -> tuple[float, float]:
        """epsilon and delta of the whole run."""

    @abstractmethod
    def covered(self, sharing: Disclosure) -> tuple[str, ...]:
        """The method's kinds to which noise is added."""

    @property
    def level(self) -> Unit:
        """The unit in which neighbouring datasets differ."""
        return "client"

    def frame(self, received: ModelState | None) -> VectorContext:
        """The public facts of the conversion to vectors."""
        return VectorContext(received, signed=self.signed)

    # The mechanism

    def bound_to(self, sharing: Disclosure) -> Self:
        covers = self.covered(sharing)
        releases = sum(sharing.releases(kind) for kind in covers)
        return replace(self, covers=covers, releases=max(1, releases), signed=sharing.signed_importances)

    def with_bug(self, bug: Bug | None) -> Self:
        return replace(self, bug=bug)

    def protect(
        self, outgoing: SharedContent, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        kind = StyleStatistics.kind if isinstance(outgoing, StyleDraft) else outgoing.kind
        vectors = vectors_of(outgoing, self.frame(received)) if kind in self.covers else None
        if vectors is None:
            return outgoing
        (released,) = self._mechanism(vectors).release(vectors.rows, 1, rng, kind, vectors.images)
        return vectors.rebuild(released)

    def _mechanism(self, vectors: ClientVectors) -> "NoiseDefense":
        """The defense that releases these vectors: this one, or that of clients where vectors are not of single images."""
        return self

    def sensitivity(self, n: int, kind: str = StyleStatistics.kind) -> float:
        """Sensitivity of the released mean of n images' vectors."""
        images = n if self.level == "image" else None
        if self.bug == "wrong-sensitivity":
            if images is None and n > 1:
                return KINDS[kind].sensitivity(self.norm, self.clip, n)  # as if one image could not move the clusters
            return KINDS[kind].sensitivity(self.norm, self.clip, images) / 2  # C for 2C
        return KINDS[kind].sensitivity(self.norm, self.clip, images)

    def deviation(self, n: int, kind: str = StyleStatistics.kind) -> float:
        """Spread of the noise on the mean of n vectors."""
        return self.multiplier * self.sensitivity(n, kind) * (0.5 if self.bug == "half-noise" else 1.0)

    def center(self, rows: Tensor, kind: str = StyleStatistics.kind) -> Tensor:
        """The noiseless release (D,): mean of clipped rows (n, D), or the clipped mean where whole clients are protected."""
        if self.level == "client":
            return KINDS[kind].clipped(rows.mean(0, keepdim=True), self.norm, self.clip)[0]
        return KINDS[kind].clipped(rows, self.norm, self.clip).mean(0)

    def release(
        self,
        rows: Tensor,
        draws: int,
        rng: torch.Generator,
        kind: str = StyleStatistics.kind,
        images: int | None = None,
    ) -> Tensor:
        """`draws` independent releases (draws, D) of rows (n, D), computed from `images` images; None for n.

        The low bits of sums in single precision reveal which of two centers was noised, more than epsilon allows
        (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012). Hence the sum is
        taken in double precision and rounded.
        """
        center = self.center(rows, kind).double()
        deviation = self.deviation(len(rows) if images is None else images, kind)
        return (center + deviation * self.noise((draws, len(center)), rng)).float()

    def alters(self, kind: str) -> bool:
        return altered(kind, self.covers)

    # Proved and measured guarantees

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[Tensor, Tensor] | None:
        """Scores (draws,) of two neighbouring datasets, for an empirical lower bound on epsilon.

        The vector of one of `_MEASURED_IMAGES` images, or of the client, is at +bound or at -bound along one direction. All
        covered kinds have the same ratio of noise to sensitivity, so all releases of the run are simulated with the first.
        """
        if not self.covers:
            return None
        kind = self.covers[0]
        n = _MEASURED_IMAGES if kind == StyleStatistics.kind else 1
        direction = torch.ones(dim) / dim**0.5 if self.norm == 2 else torch.eye(dim)[0]
        is_clipped = KINDS[kind].diameter is None
        worlds = []
        for sign in (1, -1):
            rows = torch.zeros(n, dim)
            rows[: n if self.level == "client" else 1] = sign * KINDS[kind].bound(self.norm, self.clip) * direction
            worlds.append(2 * rows if is_clipped else rows)
        deviation = self.deviation(n, kind)
        first, second = (self.center(rows, kind).double() / deviation for rows in worlds)
        scores = []
        for rows in worlds:
            total = torch.zeros(draws, dtype=torch.float64)
            for _ in range(self.releases):
                total += self.score(self.release(rows, draws, rng, kind).double() / deviation, (first, second))
            scores.append(total)
        return scores[0], scores[1]

    def canaries(
        self, method: Any, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> tuple[Tensor, Tensor] | None:
        """Scores of orthonormal canaries (m,) among one client's images; needs no training.

        None where clients are protected: a client is a single canary. None for L1 norms, to which canaries are not scaled.
        """
        if self.level == "client" or self.norm == 1 or not self.covers:
            return None
        kind, draws = self.covers[0], np.random.default_rng(int(torch.randint(2**31, (), generator=rng)))
        clip = KINDS[kind].bound(self.norm, self.clip)
        canaries = VectorCanaries.drawn(_N_CANARIES, _N_CANARIES, clip, Adjacency.REPLACE_ONE, draws)
        coins = canaries.coins(draws)
        rows = torch.from_numpy(canaries.vectors(coins)).float()
        released = self.release(rows, self.releases, rng, kind).double().sum(0)
        return torch.from_numpy(canaries.scores(released.numpy())), torch.from_numpy(coins)

    def guarantee(self) -> Guarantee:
        if not self.covers:
            return Guarantee(
                None, None, f"The method shares nothing that {self.name()} covers: unprotected, no finite epsilon."
            )
        epsilon, delta = self.budget()
        clips = [
            f"{KINDS[kind].bound(self.norm, self.clip):g} ({words(kind)})"
            for kind in self.covers
            if KINDS[kind].diameter is None
        ]
        promise = in_words(epsilon, delta, Adjacency.REPLACE_ONE, self.level, self.releases, "release")
        return Guarantee(
            epsilon,
            delta,
            f"{bug_warning(self.bug)}({epsilon:g}, {delta:g})-DP of one client's {joined(self.covers)}: {promise}. "
            f"Noise of {self.multiplier:.3g} sensitivities, L{self.norm} norm at most "
            f"{', '.join(clips) or 'that of shares'}.{self._limits(delta)}",
            self.covers,
            gaussian=self.gaussian,
            unit=self.level,
        )

    def _limits(self, delta: float) -> str:
        """Sentences on what the guarantee does not cover, and for which sizes delta is meaningful."""
        limits = " The number of images is public."
        if not set(MODELS) & set(self.covers):
            limits += " The model states and updates of the same run are not covered: they carry no finite epsilon."
        if delta:
            limits += f" delta is meaningful for clients of fewer than {1 / delta:,.0f} images."
        return limits


@dataclass(frozen=True)
class GaussianNoise(NoiseDefense):
    """Normal noise, calibrated exactly so that all releases of the run together cost epsilon (mu^2 adds).

    Attributes:
        epsilon, delta: The budget of the whole run.
    """

    gaussian: ClassVar[bool] = True

    epsilon: PositiveFloat = 4.0
    delta: OpenFraction = 1e-5

    @property
    def multiplier(self) -> float:
        """z: noise std over sensitivity."""
        return noise_multiplier(self.epsilon, self.delta, self.releases)

    def noise(self, shape: Sequence[int], rng: torch.Generator) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    def score(self, releases: Tensor, centers: tuple[Tensor, Tensor]) -> Tensor:
        first, second = centers
        return (releases - (first + second) / 2) @ (first - second)

    def budget(self) -> tuple[float, float]:
        return self.epsilon, self.delta

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        if self.covers:
            check_delta(self.name(), self.delta, sizes)
