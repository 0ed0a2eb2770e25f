"""What readers of style statistics share: practice artifacts made from auxiliary images, and their standardised vectors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fdgpriv.artifact import StyleStatistics
from fdgpriv.exam import View
from fdgpriv.federation import Domain


@dataclass(frozen=True, eq=False)
class Practice:
    """Artifacts that the adversary made itself, through the same defense, from images it holds.

    Attributes:
        inputs: (M, D) vectors of the artifacts, see `vector`.
        members: By artifact, indices into `images` of what lies behind it.
        sizes: (M,) how many.
        images, styles, labels, domains: Of all auxiliary images, in one row; styles are (N, 2C) mean and std.
    """

    inputs: Tensor
    members: Sequence[Tensor]
    sizes: Tensor
    images: Tensor
    styles: Tensor
    labels: Tensor
    domains: Tensor

    def standardised(self, inputs: Tensor) -> Tensor:
        """Vectors (M, D) in units of the practice artifacts' spread."""
        center, spread = self.inputs.mean(0), self.inputs.std(0)
        return (inputs - center) / (spread + 1e-3 * spread.mean() + 1e-8)


def vector(style: StyleStatistics) -> Tensor:
    """All that the artifact says, variances as standard deviations: (2C,) or (4C,)."""
    return torch.cat([style.mean, style.std, style.mean_var.clamp_min(0).sqrt(), style.std_var.clamp_min(0).sqrt()])


def want_practice(name: str, practice: int) -> None:
    """Raise ValueError where too few practice artifacts are asked for to learn a spread from."""
    if practice < 2:
        raise ValueError(f"{name}.practice: want at least 2, got {practice}")


def held(view: View) -> tuple[Domain, ...]:
    """The auxiliary images; raises ValueError where the threat model holds none."""
    if not sum(len(domain) for domain in view.auxiliary):
        raise ValueError(f"the threat model {view.threat.role!r} holds no auxiliary images to practise on")
    return view.auxiliary


def practise(view: View, per_size: int, rng: torch.Generator, single_repeats: int = 1) -> Practice:
    """Practice artifacts: each auxiliary image alone `single_repeats` times, and `per_size` groups of each other size.

    A group's images come from one domain, as a client's do.
    """
    domains = held(view)
    images = torch.cat([domain.images for domain in domains])
    labels = torch.cat([domain.labels for domain in domains])
    of_domain = torch.cat([torch.full((len(domain),), d) for d, domain in enumerate(domains)])
    mean, std = (torch.cat(parts) for parts in zip(*(view.styles(domain.images) for domain in domains), strict=True))
    maps = _stacked([view.maps(domain.images) for domain in domains])
    members = list(torch.arange(len(images))[:, None].repeat(single_repeats, 1)) if 1 in view.sizes else []
    for size in view.sizes:
        for turn in range(per_size if size > 1 else 0):
            own = (of_domain == turn % len(domains)).nonzero().flatten()
            members.append(own[torch.randperm(len(own), generator=rng)[:size]])
    shared = [vector(view.share(mean[index], std[index], rng, maps[index])) for index in members]
    sizes = torch.tensor([len(index) for index in members])
    return Practice(torch.stack(shared), members, sizes, images, torch.cat([mean, std], dim=1), labels, of_domain)


def _stacked(maps: Sequence[Tensor]) -> Tensor:
    """Each domain's maps (n, D) under the last one's, widened by zeros: inner products within a domain stay as they are."""
    width = max(part.shape[1] for part in maps)
    return torch.cat([nn.functional.pad(part, (0, width - part.shape[1])) for part in maps])
