"""Clustering of single-image styles by domain, and within domains by class (StableFDG, Remark 1)."""

import torch
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from fdgpriv.evaluation.evaluator import Evaluator

NEIGHBOURS = 5


def style_space(evaluator: Evaluator) -> dict[str, float]:
    """Silhouettes and nearest-neighbour purities of the styles of all clients' images, at the shared layer.

    {} without styles, and if no domain has two images. Styles are (mean, std) concatenated and standardised. Purity is the
    share of the 5 nearest other images with the same label; its chance level is that of random images, and its standard
    error assumes independent images.
    """
    if evaluator.recorded_styles is None:
        return {}
    layer, population = evaluator.template.at, evaluator.population
    styles, domains, labels = [], [], []
    for name, data in population.clients.items():
        styles.append(torch.cat(evaluator.recorded_styles.of_client(data.images, layer), dim=1))
        domains.append(population.domain_of[name])
        labels.append(data.labels)
    points, domain, label = torch.cat(styles), torch.cat(domains), torch.cat(labels)
    counts = domain.bincount()
    several = (counts > 1).nonzero().flatten()  # a single image of a domain has no neighbour in it
    if not len(several):
        return {}
    points = (points - points.mean(0)) / (points.std(0) + 1e-8)
    figures = {f"domain_{name}": value for name, value in _clustered(points, domain).items()}
    within = [_clustered(points[domain == d], label[domain == d]) for d in several.tolist()]
    weights = counts[several] / counts[several].sum()
    for name in ("silhouette", "purity", "chance"):
        figures[f"class_{name}"] = sum(w * part[name] for w, part in zip(weights.tolist(), within, strict=True))
    for name, images in (("domain", len(points)), ("class", int(counts[several].sum()))):
        chance = figures[f"{name}_chance"]
        figures[f"{name}_chance_se"] = (chance * (1 - chance) / images) ** 0.5
    return figures


def _clustered(points: Tensor, labels: Tensor) -> dict[str, float]:
    several = 2 <= len(labels.unique()) < len(labels)
    neighbours = min(NEIGHBOURS, len(points) - 1)
    index = NearestNeighbors(n_neighbors=neighbours).fit(points.numpy()).kneighbors(return_distance=False)
    same = labels[torch.from_numpy(index)] == labels[:, None]
    counts = labels.bincount().double()
    return {
        "silhouette": float(silhouette_score(points.numpy(), labels.numpy())) if several else 0.0,
        "purity": float(same.double().mean()),
        "chance": float((counts * (counts - 1)).sum() / (len(labels) * (len(labels) - 1))),
    }
