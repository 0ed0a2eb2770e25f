"""What a trained model is worth: accuracy on the clients' held-out parts and on the unseen domain, and its calibration."""

import torch
from torch import Tensor, nn

from fdgpriv.finding import Measured, Utility
from fdgpriv.metrics.calibration import calibration_error
from fdgpriv.partition import Population
from fdgpriv.verdict import clopper_pearson


@torch.no_grad()
def logits(model: nn.Module, images: Tensor, device: torch.device) -> Tensor:
    """Logits (N, K) of images (N, 3, H, W), the model in evaluation mode."""
    model.eval()
    return torch.cat([model(part.to(device)).cpu() for part in images.split(256)])


def utility(model: nn.Module, population: Population, device: torch.device) -> Utility:
    """Of the global model: source accuracy over all held-out parts, target accuracy and calibration over the whole target.

    Accuracies carry the Clopper-Pearson interval of one trained model over images, not over seeds.
    """
    clients = population.clients.values()
    held_out = torch.cat([data.held_out_images for data in clients])
    labels = torch.cat([data.held_out_labels for data in clients])
    source = logits(model, held_out, device)
    target = logits(model, population.target.images, device)
    return Utility(
        source_accuracy=accuracy(source, labels),
        target_accuracy=accuracy(target, population.target.labels),
        calibration_error=calibration_error(target, population.target.labels).measured,
    )


def accuracy(logits: Tensor, labels: Tensor) -> Measured:
    """Share of right answers, with its exact interval."""
    right = int((logits.argmax(1) == labels).sum())
    found = clopper_pearson(right, len(labels))
    assert found.lower is not None
    assert found.upper is not None
    return Measured(value=found.value, ci95=(found.lower, found.upper), n=found.n, direction="higher_better")
