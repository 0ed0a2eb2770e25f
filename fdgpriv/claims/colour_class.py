"""Accuracy of the class inferred from an image's mean colour alone, which CCST grants that styles reveal."""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from torch import Tensor

from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.statistics.interval import mean_interval


def colour_class(evaluator: Evaluator) -> dict[str, float]:
    """``colour_accuracy``: balanced accuracy of the class from an image's mean colour, on the clients' images.

    A logistic regression on the three means, their squares and products is fitted to the public images of all source
    domains. ``_low`` and ``_high`` are the 95 % interval over clients. {} for methods other than CCST.
    """
    population = evaluator.population
    public = list(population.auxiliary.values())
    if evaluator.method.name() != "ccst" or not public:
        return {}
    labels = torch.cat([part.labels for part in public])
    if len(labels.unique()) < 2:
        return {}
    classifier = make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression(max_iter=1000))
    classifier.fit(np.concatenate([_colours(part.images) for part in public]), labels.numpy())
    clients_data = list(population.clients.values())
    truth = torch.cat([data.labels for data in clients_data]).numpy()
    hits = classifier.predict(np.concatenate([_colours(data.images) for data in clients_data])) == truth
    counts = np.bincount(truth)
    weights = len(truth) / ((counts > 0).sum() * counts[truth])  # their mean over all images is the balanced accuracy
    clients = np.repeat(list(population.clients), [len(data) for data in clients_data])
    sizes = np.array([len(data) for data in clients_data])
    share = np.repeat(sizes / sizes.mean(), sizes)  # so that the mean over clients is that over images
    return mean_interval(hits * weights * share, clients).named("colour_accuracy")


def _colours(images: Tensor) -> np.ndarray:
    """Mean colours (N, 3) of images (N, 3, H, W)."""
    colours: np.ndarray = images.mean((2, 3)).double().numpy()
    return colours
