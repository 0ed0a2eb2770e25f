"""Inference of a client's participation from the server's interpolation style (PARDON)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.style import StyleSimulator
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.utils.seeds import generator

FEDERATIONS = 24  # with the client, and as many without, for training and for evaluation
MAX_EVALUATED = 9  # clients
MIN_CLIENTS = 2  # the positive control
MIN_IMAGES = 2  # public ones of a domain, of which a simulated client has at most half
MAX_SHARE = 2 / 3  # share of clients in the largest federation; the others are substitutes

Federations = tuple[
    np.ndarray, np.ndarray
]  # interpolation styles of federations (N, D), and whether the client took part (N,)
Interpolation = Callable[[Sequence[StyleStatistics]], InterpolationStyle]


def presence(evaluator: Evaluator) -> dict[str, float]:
    """AUC of distinguishing federations with a client from those with another client of its domain instead.

    The adversary knows the client's style and the method. It simulates federations of public images with and without
    that style, and fits a shrinkage linear discriminant to their interpolation styles; it is evaluated on federations of
    the other real clients. For m participating clients, ``presence_m`` is the mean AUC over the evaluated clients, and
    ``_low`` and ``_high`` its 95 % interval over them; ``absent_m`` is the control: the same for an adversary that looks
    for another client of the domain, whose style does not distinguish these federations; ``presence_lead_m`` is the mean of
    both's difference, by pairs of one client. {} if no interpolation style was shared, there are too few clients, or a domain
    has fewer than two public images.
    """
    blend: Interpolation | None = getattr(evaluator.method, "interpolation", None)
    if (
        not evaluator.transcript.was_transferred(InterpolationStyle.kind)
        or blend is None
        or evaluator.recorded_styles is None
    ):
        return {}
    if min(len(domain) for domain in evaluator.population.auxiliary.values()) < MIN_IMAGES:
        return {}
    probe = PresenceProbe.of(evaluator, blend)
    clients = evaluator.series(StyleStatistics.kind).clients
    evaluated = _evenly_spaced([name for name in clients if len(probe.peers(name)) > 1])
    largest = int(MAX_SHARE * len(clients))
    if largest < MIN_CLIENTS or len(evaluated) < 2:
        return {}
    figures: dict[str, float] = {}
    for count in sorted({MIN_CLIENTS, largest}):
        present, absent = np.array([probe.aucs(name, count) for name in evaluated]).T
        figures |= mean_interval(present).named(f"presence_{count}") | mean_interval(absent).named(f"absent_{count}")
        figures |= mean_interval(present - absent).named(f"presence_lead_{count}")
    return figures


@dataclass(frozen=True, eq=False)
class PresenceProbe:
    """Looks for clients in interpolation styles of federations that it simulates.

    Attributes:
        styles: By client and shadow client, its style.
        domain_of: By client and shadow client, the index of its domain.
        public: By domain, simulated styles of clients with public images.
        blend: Computes the interpolation style of a federation.
        rng: Draws federations.
    """

    styles: Mapping[str, StyleStatistics]
    domain_of: Mapping[str, int]
    public: Mapping[int, Sequence[StyleStatistics]]
    blend: Interpolation
    rng: torch.Generator

    @classmethod
    def of(cls, evaluator: Evaluator, blend: Interpolation) -> "PresenceProbe":
        """A probe of the evaluator's clients."""
        rng = generator(evaluator.seed, 15)
        styles = _client_styles(evaluator, rng)
        domain_of = {name: evaluator.population.main_domain(name) for name in styles}
        return cls(styles, domain_of, _public_styles(evaluator, rng), blend, rng)

    def peers(self, client: str) -> list[str]:
        """The other clients and shadow clients of its domain."""
        return [name for name in self.styles if name != client and self.domain_of[name] == self.domain_of[client]]

    def aucs(self, client: str, count: int) -> tuple[float, float]:
        """AUC on federations of `count` clients with and without this one, looking for it, and for another of its domain."""
        control, *substitutes = [self.styles[peer] for peer in self.peers(client)]
        others = [style for name, style in self.styles.items() if name != client]
        public_peers = self.public[self.domain_of[client]]
        public_others = [style for of_domain in self.public.values() for style in of_domain]
        evaluated = _federations(self.styles[client], substitutes, others, count, self.blend, self.rng)
        looking_for, looking_for_control = (
            _auc(_federations(sought, public_peers, public_others, count, self.blend, self.rng), evaluated)
            for sought in (self.styles[client], control)
        )
        return looking_for, looking_for_control


def _evenly_spaced(clients: Sequence[str]) -> list[str]:
    """At most `MAX_EVALUATED` of the clients."""
    count = min(MAX_EVALUATED, len(clients))
    return [clients[i * len(clients) // count] for i in range(count)]


def _client_styles(evaluator: Evaluator, rng: torch.Generator) -> dict[str, StyleStatistics]:
    """By client the style that it shared, and by shadow client the one that it would have shared."""
    assert evaluator.recorded_styles is not None
    series, simulator = evaluator.series(StyleStatistics.kind), _simulator(evaluator)
    styles = {name: evaluator.recorded_styles.wire[name] for name in series.clients}
    for name, data in evaluator.population.shadows.items():
        if name not in series.withheld:
            styles[name] = simulator.simulate(ClientSample.all_of(ClientImages(data.images, data.labels)), rng)
    return styles


def _simulator(evaluator: Evaluator) -> StyleSimulator:
    simulator = evaluator.series(StyleStatistics.kind).simulator
    assert isinstance(simulator, StyleSimulator)
    return simulator


def _auc(simulated: Federations, evaluated: Federations) -> float:
    """AUC on `evaluated` of a linear discriminant fitted to `simulated`."""
    probe = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(*simulated)
    return float(roc_auc_score(evaluated[1], probe.decision_function(evaluated[0])))


def _federations(
    style: StyleStatistics,
    peers: Sequence[StyleStatistics],
    others: Sequence[StyleStatistics],
    count: int,
    blend: Interpolation,
    rng: torch.Generator,
) -> Federations:
    """Interpolation styles of FEDERATIONS federations of `count` clients with `style`, and of as many with a peer instead.

    The remaining clients, from `others`, are the same for both.
    """
    rows, contains_style = [], []
    for _ in range(FEDERATIONS):
        peer = peers[int(torch.randint(len(peers), (), generator=rng))]
        rest = [other for other in others if other is not peer]
        sample = [rest[i] for i in torch.randperm(len(rest), generator=rng)[: count - 1].tolist()]
        for member in (style, peer):
            blended = blend([*sample, member])
            rows.append(torch.cat([blended.mean, blended.std]))
            contains_style.append(member is style)
    stacked: Tensor = torch.stack(rows).double()
    return stacked.numpy(), np.array(contains_style)


def _public_styles(evaluator: Evaluator, rng: torch.Generator) -> dict[int, list[StyleStatistics]]:
    """By domain, simulated styles of clients with public images of that domain, of the median client size."""
    sizes = sorted(len(data) for data in evaluator.population.clients.values())
    simulator, styles = _simulator(evaluator), {}
    for d, part in enumerate(evaluator.population.auxiliary.values()):
        images = ClientImages(part.images, part.labels)
        count = min(len(part) // 2, sizes[len(sizes) // 2])
        draws = [torch.randperm(len(part), generator=rng)[:count] for _ in range(2 * len(sizes))]
        styles[d] = [simulator.simulate(ClientSample(images, index), rng) for index in draws]
    return styles
