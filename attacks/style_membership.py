"""Style membership: is this image in the average that a client shared? The likelihood ratio of two Gaussians.

Reference: Homer et al. (PLoS Genetics 2008) and Sankararaman et al. (Nature Genetics 2009) on averages of genomes; here of
styles. METHODS 4e, H-S4; 5e, H-C4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import Guess, Question, View
from fdgpriv.kinds import InterpolationStyle

from ._frames import frames
from ._membership import MembershipAttack, blind
from ._reading import Practice, practise, want_practice
from ._whitening import CentredGaussian, shrunk


@dataclass(frozen=True)
class StyleMembership(MembershipAttack):
    """Scores each suspect by how much likelier the artifact is with it among the n images than without.

    With x among them, the average of n styles has mean ((n - 1) m + style(x)) / n and covariance (n - 1) S / n^2, without
    it m and S / n, each with the defense's noise added. m and S are those of one public domain; which one is unknown, so
    the likelihoods are averaged over domains. The covariance with x is that of practice artifacts around their mean with
    one of their images known, so that it holds whatever the pooling rule and the defense do; without x there is S / n^2
    more.

    Styles that a client sent in several rounds are read as one longer style: what the rounds have in common is in the
    covariances of practice artifacts made under the models of the same rounds.

    Attributes:
        practice: Practice artifacts of each size.
    """

    reads: ClassVar[tuple[str, ...]] = (StyleStatistics.kind, InterpolationStyle.kind)
    by_round: ClassVar[tuple[int | None, ...]] = (5, 20, None)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {"practice": 30}}

    practice: int = 200

    def __post_init__(self) -> None:
        want_practice(self.name(), self.practice)

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        made = practise(view, self.practice)
        learned = {n: _Learned.of(view, made, n) for n in made.sizes.unique().tolist()}
        known = torch.tensor(sorted(learned))
        guesses: list[Guess] = []
        for question in questions:
            suspects, test, _ = learned[int(known[(known - question.images_behind).abs().argmin()])]
            artifact = view.vector(question.artifact)[: test.centers.shape[1]]
            guesses.append(test.log_ratio(artifact, suspects[:, question.suspects], question.images_behind))
        return guesses, blind(learned[int(known[0])].prior, rng)


class _Learned(NamedTuple):
    """What is known of artifacts of one size: suspects' styles (M, P, D) by frame, the test, how ordinary each one is (P,)."""

    suspects: Tensor
    test: "PooledTest"
    prior: Tensor

    @classmethod
    def of(cls, view: View, made: Practice, size: int) -> "_Learned":
        """From the practice artifacts of `size` images."""
        known = frames(view, size)
        suspects = torch.stack([frame.styles(view.candidates) for frame in known])
        styles = torch.cat([frame.own for frame in known])
        centers = torch.stack([styles[made.domains == d].mean(0) for d in range(len(view.auxiliary))])
        own = styles - centers[made.domains]
        spread = own.square().mean(0).clamp_min(1e-12)
        some = (made.sizes == size).nonzero().flatten().tolist()
        first = torch.tensor([int(made.members[i][0]) for i in some])
        expected = with_suspect(centers[made.domains[first]], styles[first], size)
        rest = shrunk(made.inputs[some, : styles.shape[1]] - expected, spread)
        inside, outside = CentredGaussian(rest, spread), CentredGaussian(rest + shrunk(own, spread) / size**2, spread)
        prior = -((suspects.mean(0) - styles.mean(0)).square() / spread).sum(1)
        return cls(suspects, PooledTest(centers, inside, outside), prior)


@dataclass(frozen=True, eq=False)
class PooledTest:
    """Whether a style is in an average of n.

    Attributes:
        centers: (M, D) mean style of each domain that the average may be of.
        inside: What the average deviates by from its mean, one style in it known.
        outside: None known.
    """

    centers: Tensor
    inside: CentredGaussian
    outside: CentredGaussian

    def log_ratio(self, artifact: Tensor, styles: Tensor, n: int) -> Tensor:
        """(N,): log-likelihood of the artifact (D,) with each suspect in it, less that without.

        Args:
            artifact: The average.
            styles: Of the suspects, (N, D), or (M, N, D) where they differ by domain.
            n: How many images are behind the artifact.
        """
        with_it = self.inside.log_density(artifact - with_suspect(self.centers[:, None], styles, n))
        without = self.outside.log_density(artifact - self.centers)
        return with_it.logsumexp(0) - without.logsumexp(0)


def with_suspect(center: Tensor, style: Tensor, n: int) -> Tensor:
    """(..., D): what the average of n styles around `center` is on average with `style` among them."""
    return ((n - 1) * center + style) / n
