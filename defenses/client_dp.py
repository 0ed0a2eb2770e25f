"""Client-level differential privacy of shared models: the change is clipped as a whole, and Gaussian noise is added.

Reference: McMahan, Ramage, Talwar and Zhang, "Learning differentially private recurrent language models", ICLR 2018; here
each client adds the noise, since the server receives its model under its name.
"""

from dataclasses import dataclass
from typing import ClassVar

from fdgpriv.federation.disclosure import Disclosure
from fdgpriv.privacy.vectors import MODELS

from ._noise import GaussianNoise


@dataclass(frozen=True)
class ClientDp(GaussianNoise):
    """(epsilon, delta)-differential privacy of one client's model states and updates over a whole run.

    The difference from the received model, BatchNorm statistics included, is clipped to norm C as a whole; every entry gets
    N(0, (2 C z)^2) noise. The sensitivity is 2C and not C: the server receives each client's vector under its name, so
    that neighbours replace a client's images, and do not hide whether it took part. No amplification by sampling.
    BatchNorm counters stay as they are. Statistics that the method shares besides models are not protected.

    Attributes:
        epsilon, delta: The budget of the whole run.
    """

    also_called: ClassVar[tuple[str, ...]] = ("dp", "differential_privacy", "dp_fedavg", "user_level_dp")

    suggested: ClassVar[tuple[str, ...]] = ("epsilon=8",)

    def covered(self, sharing: Disclosure) -> tuple[str, ...]:
        shared = sharing.uploads or tuple(kind for kind in MODELS if sharing.releases(kind))
        covered = tuple(kind for kind in MODELS if kind in shared)
        if not covered:
            raise ValueError(f"client_dp: not applicable to {sharing.method}, whose clients share no model")
        return covered
