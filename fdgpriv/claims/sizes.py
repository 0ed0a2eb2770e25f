"""Sizes to which claims about communication refer: of one image, and of FedAvg's model on the same network."""

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.federation.federation import Federation
from fdgpriv.method import Method
from fdgpriv.utils.seeds import generator

COMPARED_WITH_FEDAVG = ("stablefdg", "lsi")  # methods whose papers count communication


def sizes(evaluator: Evaluator) -> dict[str, float]:
    """``image_numbers`` in one image; for methods that are compared with FedAvg ``fedavg_bytes`` of its model.

    Of these also ``backbone_parameters``, the parameters of the network without its head.
    """
    side = evaluator.federation.image_size
    figures = {"image_numbers": 3.0 * side * side}
    if evaluator.method.name() in COMPARED_WITH_FEDAVG:
        buffers = getattr(evaluator.method, "buffers", "share")
        figures["fedavg_bytes"] = float(fedavg_bytes(evaluator.federation, buffers))
        figures["backbone_parameters"] = float(backbone_parameters(evaluator.federation))
    return figures


def backbone_parameters(federation: Federation) -> int:
    """Parameters of the federation's network without a head."""
    return sum(parameter.numel() for parameter in federation.backbone(generator(0)).parameters())


def fedavg_bytes(federation: Federation, buffers: str = "share") -> int:
    """Bytes of the model that FedAvg trains on this federation's network, BatchNorm statistics included if they are sent."""
    state = ModelState.of(Method.named("fedavg")().model(federation, generator(0)), SERVER, 0)
    return (state.without_statistics() if buffers == "keep_local" else state).nbytes
