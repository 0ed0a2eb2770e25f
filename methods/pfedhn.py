"""pFedHN: a hypernetwork generates each client's model, with one client per step (Shamsian et al., ICML 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fdgpriv.utils.fields import NonNegativeFloat, PositiveFloat, PositiveInt

from ._hyper_federation import DEFAULT, QUICK, TRAINED, HyperFederation, OptimizerName
from ._hypernetwork import Init

_LIKE_HFEDF: Mapping[str, Any] = {
    "participants": None,
    "local_steps": None,
    "weight_decay": 1e-3,
    "hidden": 50,
    "slope": 0.01,
    "init": "client",
    "server_optimizer": "adam",
    "server_weight_decay": 1e-5,
}


@dataclass(frozen=True)
class PFedHN(HyperFederation):
    """The predecessor of hFedF: plain averages of pseudo-gradients, no moving average, and the client network of hFedF.

    The defaults are those of its released code: 5,000 rounds of one random client and 50 mini-batches. The preset `paper` is
    the comparison in hFedF's paper, for PACS: 2 epochs, lr=1e-3, weight_decay=1e-5, and pFedHN's asynchrony, 600 rounds of one
    random client, which are as many local trainings as 200 rounds of hFedF's three clients. The presets `quick` and `default`
    have hFedF's values, all clients in each round included, so that the two differ only by GradAlign and the moving average.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {**QUICK, **_LIKE_HFEDF},
        "default": {**DEFAULT, **_LIKE_HFEDF},
        "paper": {
            **TRAINED,
            "rounds": 600,
            "local_steps": None,
            "lr": 1e-3,
            "weight_decay": 1e-5,
        },
    }

    rounds: PositiveInt = 5000
    participants: PositiveInt | None = 1
    lr: PositiveFloat = 5e-3
    weight_decay: NonNegativeFloat = 5e-5
    local_steps: PositiveInt | None = 50
    hidden: PositiveInt = 100
    slope: NonNegativeFloat = 0.0
    init: Init = "default"
    server_optimizer: OptimizerName = "sgd_momentum"
    server_lr: PositiveFloat = 1e-2
    server_weight_decay: NonNegativeFloat = 1e-3
