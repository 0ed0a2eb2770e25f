"""Hypernetwork that maps a client embedding to model parameters, and its vector-Jacobian products.

Shamsian et al., "Personalized federated learning using hypernetworks", ICML 2021; Bartholet et al., 2024, Table 8.

For P parameters in a client's model the heads have (h + 1) P. A client's gradient of their weights is the outer product
of its update (P,) and its code (h,), so gradients are stored as these factors, from which inner products and weighted
sums are computed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fdgpriv.utils.global_rng import drawing_from

Init = Literal["client", "default"]
_SHRUNK = 0.1


@dataclass(frozen=True, eq=False)
class Pullback:
    """Vector-Jacobian products J^T Delta of M clients, in factored form.

    Attributes:
        rows: (M,) indices of the embeddings.
        updates: (M, P) the clients' Delta, which is also the gradient of the heads' biases.
        codes: (M, h) inputs of the heads; updates x codes is the gradient of the heads' weights.
        trunk: (M, T) gradient of the trunk's parameters, flattened.
        embeddings: (M, e) gradient of each client's own embedding.
    """

    rows: Tensor
    updates: Tensor
    codes: Tensor
    trunk: Tensor
    embeddings: Tensor

    def gram_theta(self) -> Tensor:
        """Inner products (M, M) of the clients' gradients of theta."""
        return (self.updates @ self.updates.T) * (self.codes @ self.codes.T + 1) + self.trunk @ self.trunk.T

    def gram_embeddings(self) -> Tensor:
        """Inner products (M, M) of the clients' gradients of nu (N, e): diagonal, as each client has a separate row."""
        return self.embeddings.square().sum(1).diag()


class Hypernetwork(nn.Module):
    """Embeddings nu (N, e), and theta: a trunk e -> h -> ... -> h and one linear head per tensor of the client's model.

    All heads share the input code (h,), so they are rows of one matrix (P, h).

    Args:
        clients: N.
        embedding_dim: e.
        hidden: h.
        depth: Hidden layers with activation; one more follows without.
        slope: Of LeakyReLU; 0 is ReLU.
        network: A client's model: names, shapes and, for the init ``client``, the heads' biases.
        init: ``client``: the heads' biases are `network`'s parameters and their weights a tenth of torch's, so that every
            client starts near `network`. ``default``: torch's initialisation of Linear throughout.
        rng: Draws the initial parameters.
    """

    def __init__(
        self,
        clients: int,
        embedding_dim: int,
        hidden: int,
        depth: int,
        slope: float,
        network: nn.Module,
        init: str,
        rng: torch.Generator,
    ) -> None:
        super().__init__()
        self.shapes = {name: parameter.shape for name, parameter in network.named_parameters()}
        with drawing_from(rng), torch.no_grad():
            self.embeddings = nn.Parameter(torch.randn(clients, embedding_dim))
            layers: list[nn.Module] = [nn.Linear(embedding_dim, hidden)]
            for _ in range(depth):
                layers += [nn.LeakyReLU(slope), nn.Linear(hidden, hidden)]
            self.trunk = nn.Sequential(*layers)
            self.heads = nn.Linear(hidden, sum(shape.numel() for shape in self.shapes.values()))
            if init == "client":
                self.heads.bias.copy_(self.to_vector(dict(network.named_parameters())))
                self.heads.weight.mul_(_SHRUNK)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Flattened client models (M, P) for embeddings (M, e)."""
        vectors: Tensor = self.heads(self.trunk(embeddings))
        return vectors

    def to_vector(self, state: Mapping[str, Tensor]) -> Tensor:
        """The tensors of a client's model flattened to (P,)."""
        return torch.cat([state[name].detach().reshape(-1) for name in self.shapes])

    def from_vector(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors of a client's model, from the vector (P,)."""
        parts = vector.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    @torch.no_grad()
    def states(self, embeddings: Tensor) -> list[dict[str, Tensor]]:
        """Client models for embeddings (M, e), on the CPU."""
        return [self.from_vector(vector) for vector in self(embeddings.to(self.heads.bias.device)).cpu()]

    def pullback(self, rows: Tensor, updates: Tensor) -> Pullback:
        """Vector-Jacobian products J^T Delta of the models h(nu[rows]) with updates Delta (M, P)."""
        trunk = list(self.trunk.parameters())
        with torch.enable_grad():
            embeddings = self.embeddings.detach()[rows].requires_grad_()
            codes = self.trunk(embeddings)
        code_gradients = updates @ self.heads.weight.detach()
        trunk_gradients, embedding_gradients = [], []
        for i, (code, gradient) in enumerate(zip(codes, code_gradients, strict=True)):
            *parts, embedding_gradient = torch.autograd.grad(code, [*trunk, embeddings], gradient, retain_graph=True)
            trunk_gradients.append(torch.cat([part.reshape(-1) for part in parts]))
            embedding_gradients.append(embedding_gradient[i])
        return Pullback(rows, updates, codes.detach(), torch.stack(trunk_gradients), torch.stack(embedding_gradients))

    def set_gradients(self, pullback: Pullback, theta: Tensor, nu: Tensor) -> None:
        """Sets the gradients to weighted sums over clients, with weights `theta` (M,) and `nu` (M,)."""
        if self.heads.weight.grad is None:
            self.heads.weight.grad = torch.empty_like(self.heads.weight)
        torch.mm(pullback.updates.T, theta[:, None] * pullback.codes, out=self.heads.weight.grad)
        self.heads.bias.grad = theta @ pullback.updates
        summed = (theta @ pullback.trunk).split([parameter.numel() for parameter in self.trunk.parameters()])
        for parameter, part in zip(self.trunk.parameters(), summed, strict=True):
            parameter.grad = part.view_as(parameter)
        self.embeddings.grad = torch.zeros_like(self.embeddings)
        self.embeddings.grad[pullback.rows] = nu[:, None] * pullback.embeddings
