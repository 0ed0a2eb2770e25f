"""DP-SGD: clients clip each image's gradient and add noise in local training (Abadi et al., CCS 2016)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.data.dataset import ClientData
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.federation.federation import Federation
from fdgpriv.privacy.adjacency import Adjacency, check_delta
from fdgpriv.privacy.poisson import Accountant
from fdgpriv.privacy.wording import bug_warning, in_words
from fdgpriv.utils.defaults import Bug
from fdgpriv.utils.fields import OpenFraction, PositiveFloat, PositiveInt

from ._canaries import canary_scores
from ._private_steps import PrivateSGD


@dataclass(frozen=True)
class DPSGD(Defense):
    """(epsilon, delta)-differential privacy of each training image in the models or updates that its client shares.

    In each step every image is drawn with probability q = B / n (Poisson sampling); the gradients of the drawn images are
    clipped to norm C and summed; N(0, (z C)^2) is added to each entry, and the sum is divided by the expected number of
    images. z is calibrated to q and to the steps of all rounds, for each client by its own n. The sampling is a client's
    secret: the server sees its model only after the last step of a round. Momentum, weight decay and averaging are
    post-processing. The copies that a method makes of an image count as one image.

    Neighbouring datasets differ in one image, which in one of them contributes no gradient; n is public, and shared by
    some methods. Styles, accuracies and all else that a client shares are not protected.

    Every BatchNorm layer is replaced by GroupNorm, on the server and on the clients. Not applicable to methods whose loss
    couples the images of a mini-batch. torch's generators and floating-point noise are not cryptographically secure.

    Attributes:
        epsilon, delta: The budget of the whole run.
        clip: C, the largest norm of an image's gradient.
        accountant: Of Opacus: ``rdp``, or ``prv``, which is tighter and takes seconds for each client.
        lr: Learning rate of clients; none keeps the method's.
        rounds: Number of rounds; set by `bound_to`.
        bug: Deliberate error in the noise, which is halved, to test that the measured epsilon shows it (--inject-bug).
    """

    also_called: ClassVar[tuple[str, ...]] = ("dp", "differential_privacy", "opacus")

    suggested: ClassVar[tuple[str, ...]] = ("epsilon=8",)

    epsilon: PositiveFloat = 8.0
    delta: OpenFraction = 1e-5
    clip: PositiveFloat = 1.0
    accountant: Accountant = "rdp"
    lr: PositiveFloat | None = None
    rounds: PositiveInt = 1
    bug: Bug | None = None

    def local_training(self, method: Any) -> Any:
        reason = getattr(method, "coupling", "its clients do not train by the SGD that all methods share")
        if reason is not None:
            raise ValueError(f"dpsgd: not applicable to {method.name()}: {reason}")
        private = method.trained_by(self.steps())
        return private if self.lr is None else replace(private, lr=self.lr)

    def steps(self) -> PrivateSGD:
        """The local training of every client."""
        return PrivateSGD(self.epsilon, self.delta, self.clip, self.accountant, 1.0 if self.bug is None else 0.5)

    def with_bug(self, bug: Bug | None) -> Self:
        return replace(self, bug=bug)

    def bound_to(self, sharing: Disclosure) -> Self:
        return replace(self, rounds=max(1, sharing.releases(ModelState.kind), sharing.releases(ModelUpdate.kind)))

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        check_delta(self.name(), self.delta, sizes)

    def canaries(
        self, method: Any, federation: Federation, data: ClientData, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        return canary_scores(self.steps(), method, federation, data, rng)

    def guarantee(self) -> Guarantee:
        promise = in_words(self.epsilon, self.delta, Adjacency.ADD_REMOVE, "image", self.rounds)
        return Guarantee(
            self.epsilon,
            self.delta,
            f"{bug_warning(self.bug)}({self.epsilon:g}, {self.delta:g})-DP of one client's models: {promise}. An image more or "
            "less means its gradients; the number of images is public. DP-SGD with "
            f"Poisson sampling, clip {self.clip:g}, and noise calibrated to each client's number of images by Opacus' "
            f"{self.accountant.upper()} accountant. Trained and attacked is the network with GroupNorm in place of every "
            "BatchNorm. Covers models only: styles and other statistics of the same run carry no finite epsilon.",
            (ModelState.kind, ModelUpdate.kind),
            gaussian=True,
            unit="image",
        )
