"""LSI's representation translator G and its discriminator D, trained against each other as StarGAN (LSI, Eq. 8-14)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from fdgpriv.utils.global_rng import drawing_from

from ._latent_classifier import Head

Activation = Literal["none", "tanh"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"none": nn.Identity, "tanh": nn.Tanh}
Dropped = Literal["first", "all"]
Minibatch = Literal["single", "mixed"]
Pairing = Literal["uniform", "permutation"]
Mix = Literal["sample", "released"]
Adversarial = Literal["wgan_gp", "log"]


@dataclass(frozen=True)
class Adversaries:
    """How G and D are built and trained; the weights are DIRT's.

    Attributes:
        hidden: Their width.
        activation: After G's last layer: none, or tanh (the released code).
        dropout: With probability 1/2 after the ``first`` hidden layer (the released code) or after ``all`` (the paper).
        steps, batch_size, lr: Of Adam with betas (0.5, 0.999); G moves in every `critic_steps`-th step.
        decay: Whether lr falls to 0 over the second half, in 100 stairs.
        rec, cls, gp: Weights of Eq. 12, of Eq. 10 and 11, and of the gradient penalty.
        head: Weight of the cross-entropy of what G makes under all clients' heads (the released code: 0.1).
        adversarial: ``wgan_gp``, or ``log``: Eq. 9 as printed, without a penalty.
        minibatch: Latents of a ``single`` class in a step, or ``mixed`` classes.
        pairing: d' is drawn for each latent, ``uniform``, or is a ``permutation`` of the batch's d.
        mix: The penalty's points lie between a latent and its own translation (``sample``), or, as the released code's
            shapes make it, each latent's mixing weight meets every pair (``released``).
    """

    hidden: int
    activation: Activation
    dropout: Dropped
    steps: int
    batch_size: int
    lr: float
    critic_steps: int
    decay: bool
    rec: float
    cls: float
    gp: float
    head: float
    adversarial: Adversarial
    minibatch: Minibatch
    pairing: Pairing
    mix: Mix


class Dropout(nn.Module):
    """Dropout with probability 1/2 that draws from a generator of its own."""

    def __init__(self, rng: torch.Generator) -> None:
        super().__init__()
        self.rng = rng

    def forward(self, hidden: Tensor) -> Tensor:
        """The same shape; unchanged in evaluation mode."""
        if not self.training:
            return hidden
        kept = torch.rand(hidden.shape, generator=self.rng) < 0.5
        return hidden * kept.to(hidden.device) * 2


def _hidden(inputs: int, outputs: int, dropped: bool, rng: torch.Generator) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2), nn.LayerNorm(outputs)]
    return [*layers, Dropout(rng)] if dropped else layers


class Translator(nn.Module):
    """G(z, d, d'): latents (B, p) of clients d as if of clients d'; d and d' are places in the federation (B,)."""

    def __init__(self, latent_dim: int, clients: int, how: Adversaries, rng: torch.Generator) -> None:
        super().__init__()
        self.clients = clients
        with drawing_from(rng):
            self.layers = nn.Sequential(
                *_hidden(latent_dim + 2 * clients, how.hidden, True, rng),
                *_hidden(how.hidden, how.hidden, how.dropout == "all", rng),
                nn.Linear(how.hidden, latent_dim),
                ACTIVATIONS[how.activation](),
            )

    def forward(self, latents: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Latents (B, p)."""
        places = [nn.functional.one_hot(place, self.clients).to(latents) for place in (source, target)]
        translated: Tensor = self.layers(torch.cat([latents, *places], dim=1))
        return translated


class Discriminator(nn.Module):
    """D: how real a latent is (B, 1), and whose it is, logits (B, m)."""

    def __init__(self, latent_dim: int, clients: int, how: Adversaries, rng: torch.Generator) -> None:
        super().__init__()
        with drawing_from(rng):
            self.layers = nn.Sequential(
                *_hidden(latent_dim, how.hidden, True, rng),
                *_hidden(how.hidden, how.hidden // 2, how.dropout == "all", rng),
            )
            self.source = nn.Linear(how.hidden // 2, 1)
            self.client = nn.Linear(how.hidden // 2, clients)

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1) and (B, m)."""
        hidden = self.layers(latents)
        return self.source(hidden), self.client(hidden)


@dataclass(frozen=True, eq=False)
class Synthesised:
    """Latents (N, p), their classes (N,), and their clients' places in the federation (N,)."""

    latents: Tensor
    labels: Tensor
    clients: Tensor


class Training:
    """Trains G and D on synthesised latents."""

    def __init__(
        self,
        translator: Translator,
        discriminator: Discriminator,
        data: Synthesised,
        heads: Sequence[Head],
        how: Adversaries,
        rng: torch.Generator,
    ) -> None:
        self.g, self.d, self.data, self.heads, self.how, self.rng = translator, discriminator, data, heads, how, rng
        present = data.labels.unique() if how.minibatch == "single" else [None]
        everything = torch.ones(len(data.labels), dtype=torch.bool)
        self.pools = [(everything if y is None else data.labels.cpu() == y.cpu()).nonzero().flatten() for y in present]

    def run(self) -> None:
        """All steps; G is left in evaluation mode."""
        nets = (self.d, self.g)
        adams = [torch.optim.Adam(net.parameters(), self.how.lr, betas=(0.5, 0.999), fused=True) for net in nets]
        stairs = max(1, self.how.steps // 200)
        for step in range(self.how.steps):
            left = 2 * (1 - step // stairs * stairs / self.how.steps) if self.how.decay else 1.0
            for adam in adams:
                adam.param_groups[0]["lr"] = self.how.lr * min(1.0, left)
            latents, labels, source, target = self._drawn()
            _descend(adams[0], self.critic_loss(latents, source, target))
            if (step + 1) % self.how.critic_steps == 0:
                _descend(adams[1], self.translator_loss(latents, labels, source, target))
        self.g.eval()

    def critic_loss(self, latents: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Eq. 14: D tells latents from translations, and whose a latent is."""
        with torch.no_grad():
            made = self.g(latents, source, target)
        real, client = self.d(latents)
        known = self.how.cls * nn.functional.cross_entropy(client, source)
        if self.how.adversarial == "log":
            told: Tensor = softplus(-real).mean() + softplus(self.d(made)[0]).mean()
            return told + known
        penalty = gradient_penalty(self.d, latents, made, self.how.mix, self.rng)
        loss: Tensor = self.d(made)[0].mean() - real.mean() + known + self.how.gp * penalty
        return loss

    def translator_loss(self, latents: Tensor, labels: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Eq. 13: translations look real and like d', and translate back."""
        made = self.g(latents, source, target)
        real, client = self.d(made)
        fooled: Tensor = -(softplus(real) if self.how.adversarial == "log" else real).mean()  # log(1 - sigmoid)
        back = (latents - self.g(made, target, source)).abs().mean()
        loss: Tensor = fooled + self.how.cls * nn.functional.cross_entropy(client, target) + self.how.rec * back
        if self.how.head:
            entropies = [nn.functional.cross_entropy(head(made), labels) for head in self.heads]
            loss = loss + self.how.head * torch.stack(entropies).sum()
        return loss

    def _drawn(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pool = self.pools[int(torch.randint(len(self.pools), (), generator=self.rng))]
        rows = pool[torch.randint(len(pool), (self.how.batch_size,), generator=self.rng)]
        source = self.data.clients[rows]
        if self.how.pairing == "uniform":
            target = torch.randint(self.g.clients, source.shape, generator=self.rng).to(source)
        else:
            target = source[torch.randperm(len(source), generator=self.rng)]
        return self.data.latents[rows], self.data.labels[rows], source, target


def gradient_penalty(discriminator: nn.Module, real: Tensor, made: Tensor, mix: str, rng: torch.Generator) -> Tensor:
    """Mean of (|gradient of D's first output| - 1)^2 at points between real and made latents (B, p)."""
    shape = (len(real), 1) if mix == "sample" else (len(real), 1, 1, 1)
    weight = torch.rand(shape, generator=rng).to(real)
    between = (weight * real + (1 - weight) * made).requires_grad_()
    (slope,) = torch.autograd.grad(discriminator(between)[0].sum(), between, create_graph=True)
    penalty: Tensor = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return penalty


def _descend(adam: torch.optim.Adam, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    adam.step()
