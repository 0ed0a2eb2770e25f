"""LSI's representation translator G and discriminator D, trained adversarially as in StarGAN (LSI, Eq. 8-14)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from fdgpriv.utils.global_rng import drawing_from

from ._latent_classifier import FrozenHeads, Head

Activation = Literal["none", "tanh"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"none": nn.Identity, "tanh": nn.Tanh}
DropoutPlacement = Literal["first", "all"]
Minibatch = Literal["single", "mixed"]
Pairing = Literal["uniform", "permutation"]
Mix = Literal["sample", "released"]
Adversarial = Literal["wgan_gp", "log"]


@dataclass(frozen=True)
class TranslatorSettings:
    """Architecture and training of G and D; the loss weights are DIRT's.

    Attributes:
        hidden: Width of the hidden layers.
        activation: After G's last layer: none, or tanh (the released code).
        dropout: With probability 1/2 after the ``first`` hidden layer (the released code) or after ``all`` (the paper).
        steps, batch_size, lr: Of Adam with betas (0.5, 0.999); G is updated every `critic_steps` steps.
        decay: Whether lr decays to 0 over the second half, in 100 steps.
        rec, cls, gp: Weights of Eq. 12, of Eq. 10 and 11, and of the gradient penalty.
        head: Weight of the cross-entropy of translated latents under all clients' heads (the released code: 0.1).
        adversarial: ``wgan_gp``, or ``log``: Eq. 9 as printed, without gradient penalty.
        minibatch: Latents of a ``single`` class per step, or of ``mixed`` classes.
        pairing: d' is drawn ``uniform`` for each latent, or is a ``permutation`` of the batch's d.
        mix: Points of the gradient penalty: one mixing weight per latent and its translation (``sample``), or every weight
            with every pair, by the broadcasting of the released code (``released``).
    """

    hidden: int
    activation: Activation
    dropout: DropoutPlacement
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


class HalfDropout(nn.Module):
    """Dropout with probability 1/2 and its own random generator."""

    def __init__(self, rng: torch.Generator) -> None:
        super().__init__()
        self.rng = rng

    def forward(self, hidden: Tensor) -> Tensor:
        """The same shape; unchanged in evaluation mode."""
        if not self.training:
            return hidden
        mask = torch.rand(hidden.shape, generator=self.rng) < 0.5
        return hidden * mask.to(hidden.device) * 2


def _hidden(inputs: int, outputs: int, dropped: bool, rng: torch.Generator) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2), nn.LayerNorm(outputs)]
    return [*layers, HalfDropout(rng)] if dropped else layers


class Translator(nn.Module):
    """G(z, d, d'): translates latents (B, p) from clients d to clients d'; d, d' (B,) are client indices."""

    def __init__(self, latent_dim: int, clients: int, settings: TranslatorSettings, rng: torch.Generator) -> None:
        super().__init__()
        self.clients = clients
        with drawing_from(rng):
            self.layers = nn.Sequential(
                *_hidden(latent_dim + 2 * clients, settings.hidden, True, rng),
                *_hidden(settings.hidden, settings.hidden, settings.dropout == "all", rng),
                nn.Linear(settings.hidden, latent_dim),
                ACTIVATIONS[settings.activation](),
            )

    def forward(self, latents: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Latents (B, p)."""
        one_hot = [nn.functional.one_hot(index, self.clients).to(latents) for index in (source, target)]
        translated: Tensor = self.layers(torch.cat([latents, *one_hot], dim=1))
        return translated


class Discriminator(nn.Module):
    """D: scores of realness (B, 1), and logits of the client (B, m)."""

    def __init__(self, latent_dim: int, clients: int, settings: TranslatorSettings, rng: torch.Generator) -> None:
        super().__init__()
        with drawing_from(rng):
            self.layers = nn.Sequential(
                *_hidden(latent_dim, settings.hidden, True, rng),
                *_hidden(settings.hidden, settings.hidden // 2, settings.dropout == "all", rng),
            )
            self.source = nn.Linear(settings.hidden // 2, 1)
            self.client = nn.Linear(settings.hidden // 2, clients)

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Realness (B, 1) and client logits (B, m) of latents (B, p)."""
        hidden = self.layers(latents)
        return self.source(hidden), self.client(hidden)


@dataclass(frozen=True, eq=False)
class Synthesised:
    """Synthesised latents (N, p), their classes (N,) and client indices (N,)."""

    latents: Tensor
    labels: Tensor
    clients: Tensor


class TranslatorTraining:
    """Trains G and D on synthesised latents."""

    def __init__(
        self,
        translator: Translator,
        discriminator: Discriminator,
        data: Synthesised,
        heads: Sequence[Head],
        settings: TranslatorSettings,
        rng: torch.Generator,
    ) -> None:
        self.g, self.d, self.data, self.settings, self.rng = translator, discriminator, data, settings, rng
        self.heads = FrozenHeads.of(heads) if settings.head else None
        present = data.labels.unique() if settings.minibatch == "single" else [None]
        everything = torch.ones(len(data.labels), dtype=torch.bool)
        self.pools = [
            (everything if label is None else data.labels.cpu() == label.cpu()).nonzero().flatten() for label in present
        ]

    def run(self) -> None:
        """All steps; G is left in evaluation mode."""
        networks = (self.d, self.g)
        optimizers = [
            torch.optim.Adam(network.parameters(), self.settings.lr, betas=(0.5, 0.999), fused=True)
            for network in networks
        ]
        interval = max(1, self.settings.steps // 200)
        for step in range(self.settings.steps):
            factor = 2 * (1 - step // interval * interval / self.settings.steps) if self.settings.decay else 1.0
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = self.settings.lr * min(1.0, factor)
            latents, labels, source, target = self._sample_batch()
            _optimise(optimizers[0], self.critic_loss(latents, source, target))
            if (step + 1) % self.settings.critic_steps == 0:
                _optimise(optimizers[1], self.translator_loss(latents, labels, source, target))
        self.g.eval()

    def critic_loss(self, latents: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Eq. 14, loss of D: distinguishes latents from translations, and classifies the client."""
        with torch.no_grad():
            translated = self.g(latents, source, target)
        real, client = self.d(latents)
        classification = self.settings.cls * nn.functional.cross_entropy(client, source)
        if self.settings.adversarial == "log":
            adversarial: Tensor = softplus(-real).mean() + softplus(self.d(translated)[0]).mean()
            return adversarial + classification
        penalty = gradient_penalty(self.d, latents, translated, self.settings.mix, self.rng)
        loss: Tensor = self.d(translated)[0].mean() - real.mean() + classification + self.settings.gp * penalty
        return loss

    def translator_loss(self, latents: Tensor, labels: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Eq. 13, loss of G: translations look real, are classified as d', and are reconstructed when translated back."""
        translated = self.g(latents, source, target)
        real, client = self.d(translated)
        adversarial: Tensor = -(
            softplus(real) if self.settings.adversarial == "log" else real
        ).mean()  # log(1 - sigmoid)
        back = (latents - self.g(translated, target, source)).abs().mean()
        loss: Tensor = (
            adversarial + self.settings.cls * nn.functional.cross_entropy(client, target) + self.settings.rec * back
        )
        if self.heads is not None:
            logits = self.heads.all(translated)
            repeated = labels[:, None].expand(logits.shape[:2]).flatten()
            entropies = nn.functional.cross_entropy(logits.flatten(0, 1), repeated, reduction="sum")
            loss = loss + self.settings.head * entropies / len(labels)
        return loss

    def _sample_batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pool = self.pools[int(torch.randint(len(self.pools), (), generator=self.rng))]
        rows = pool[torch.randint(len(pool), (self.settings.batch_size,), generator=self.rng)]
        source = self.data.clients[rows]
        if self.settings.pairing == "uniform":
            target = torch.randint(self.g.clients, source.shape, generator=self.rng).to(source)
        else:
            target = source[torch.randperm(len(source), generator=self.rng)]
        return self.data.latents[rows], self.data.labels[rows], source, target


def gradient_penalty(
    discriminator: nn.Module, real: Tensor, translated: Tensor, mix: str, rng: torch.Generator
) -> Tensor:
    """Mean of (|gradient of D's first output| - 1)^2 at points between latents (B, p) and their translations (B, p)."""
    shape = (len(real), 1) if mix == "sample" else (len(real), 1, 1, 1)
    weight = torch.rand(shape, generator=rng).to(real)
    between = (weight * real + (1 - weight) * translated).requires_grad_()
    (gradient,) = torch.autograd.grad(discriminator(between)[0].sum(), between, create_graph=True)
    penalty: Tensor = (gradient.flatten(1).norm(dim=1) - 1).square().mean()
    return penalty


def _optimise(optimizer: torch.optim.Adam, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
