"""A hypernetwork: from a client's embedding to all parameters of its model, and its vector-Jacobian products back.

Shamsian et al., "Personalized federated learning using hypernetworks", ICML 2021; Bartholet et al., 2024, Table 8.

With P parameters in a client's model and N clients the heads weigh 51 P. One client's gradient of them is the outer
product of its update (P,) and its code (h,), so N gradients are kept as N updates and N codes, never as N copies of 51 P:
inner products and weighted sums are taken of the factors.
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
    """J^T Delta of M clients, theta's in factors.

    Attributes:
        rows: (M,) which embeddings.
        updates: (M, P) Delta: what came back from the clients, and so the gradient of the heads' biases.
        codes: (M, h) what the heads read; updates x codes is the gradient of their weights.
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
        """Inner products (M, M) of the clients' gradients of nu (N, e): each lies in a row of its own."""
        return self.embeddings.square().sum(1).diag()


class Hypernetwork(nn.Module):
    """Embeddings nu (N, e), and theta: a trunk e -> h -> ... -> h and one linear head for each tensor of the client's model.

    All heads read the same code (h,), so they are rows of one matrix (P, h).

    Args:
        clients: N.
        embedding_dim: e.
        hidden: h.
        depth: Hidden layers with activation; one more without follows.
        slope: Of LeakyReLU; 0 is ReLU.
        network: A client's model, which gives names, shapes and, for the init ``client``, the heads' biases.
        init: ``client``: heads' biases are `network`'s parameters and their weights a tenth of torch's, so that every
            client starts near an ordinary model. ``default``: torch's initialisation of Linear throughout.
        rng: Of the initialisation.
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
                self.heads.bias.copy_(self.flat(dict(network.named_parameters())))
                self.heads.weight.mul_(_SHRUNK)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Client models (M, P), flat, of embeddings (M, e)."""
        flat: Tensor = self.heads(self.trunk(embeddings))
        return flat

    def flat(self, state: Mapping[str, Tensor]) -> Tensor:
        """(P,): the tensors of a client's model in one row."""
        return torch.cat([state[name].detach().reshape(-1) for name in self.shapes])

    def state(self, flat: Tensor) -> dict[str, Tensor]:
        """The tensors of a client's model, of one row (P,)."""
        parts = flat.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    @torch.no_grad()
    def states(self, embeddings: Tensor) -> list[dict[str, Tensor]]:
        """The client models of embeddings (M, e), on the CPU."""
        return [self.state(flat) for flat in self(embeddings.to(self.heads.bias.device)).cpu()]

    def pullback(self, rows: Tensor, updates: Tensor) -> Pullback:
        """The vector-Jacobian products J^T Delta of the models h(nu[rows]) with updates (M, P)."""
        trunk = list(self.trunk.parameters())
        with torch.enable_grad():
            chosen = self.embeddings.detach()[rows].requires_grad_()
            codes = self.trunk(chosen)
        back = updates @ self.heads.weight.detach()
        of_trunk, of_embeddings = [], []
        for i, (code, gradient) in enumerate(zip(codes, back, strict=True)):
            *parts, own = torch.autograd.grad(code, [*trunk, chosen], gradient, retain_graph=True)
            of_trunk.append(torch.cat([part.reshape(-1) for part in parts]))
            of_embeddings.append(own[i])
        return Pullback(rows, updates, codes.detach(), torch.stack(of_trunk), torch.stack(of_embeddings))

    def accept(self, back: Pullback, theta: Tensor, nu: Tensor) -> None:
        """Set the gradients to the sums over clients with weights `theta` (M,) and `nu` (M,)."""
        if self.heads.weight.grad is None:
            self.heads.weight.grad = torch.empty_like(self.heads.weight)
        torch.mm(back.updates.T, theta[:, None] * back.codes, out=self.heads.weight.grad)
        self.heads.bias.grad = theta @ back.updates
        summed = (theta @ back.trunk).split([parameter.numel() for parameter in self.trunk.parameters()])
        for parameter, part in zip(self.trunk.parameters(), summed, strict=True):
            parameter.grad = part.view_as(parameter)
        self.embeddings.grad = torch.zeros_like(self.embeddings)
        self.embeddings.grad[back.rows] = nu[:, None] * back.embeddings
