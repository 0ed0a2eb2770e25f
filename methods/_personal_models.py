"""What a federation with a hypernetwork ends with: a model for each client, and one for everyone else."""

from collections.abc import Mapping

from torch import Tensor, nn


class PersonalModels(nn.Module):
    """Classifies with the model for everyone; holds the clients' own.

    Args:
        common: The model of the mean embedding, for images of no client.
        own: By client, its model.
        embeddings: (N, e), which never left the server.
    """

    embeddings: Tensor

    def __init__(self, common: nn.Module, own: Mapping[str, nn.Module], embeddings: Tensor) -> None:
        super().__init__()
        self.common = common
        self.names = tuple(own)
        self.own = nn.ModuleList(own.values())
        self.register_buffer("embeddings", embeddings.clone())

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W) in [0, 1]."""
        logits: Tensor = self.common(images)
        return logits

    def of(self, client: str) -> nn.Module:
        """This client's model."""
        return self.own[self.names.index(client)]
