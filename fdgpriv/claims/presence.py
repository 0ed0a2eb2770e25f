"""Whether the one style that a server makes of its clients' styles tells that a client took part (PARDON)."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score
from torch import Tensor

from fdgpriv.artifacts.style import InterpolationStyle, StyleStatistics
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.statistics.interval import mean_interval
from fdgpriv.targets.style import StyleSimulator
from fdgpriv.targets.target import HeldImages
from fdgpriv.utils.seeds import generator

FEDERATIONS = 24  # with the client, and as many without: to simulate artifacts from, and to judge
ASKED = 9  # at most so many clients are asked about
FEWEST = 2  # what is made of two clients' styles is the positive control
MOST = 2 / 3  # of all clients take part in the largest: where all do, there is nobody to stand in another's place

Worlds = tuple[np.ndarray, np.ndarray]  # what came of federations (N, D), and in which of them the client was (N,)
Blend = Callable[[Sequence[StyleStatistics]], InterpolationStyle]


def presence(evaluator: Evaluator) -> dict[str, float]:
    """Areas under the curve of telling federations with a client from those with another of its domain in its place.

    The adversary knows the client's style, and the method. It makes federations of public images with that style and
    without, and learns a shrunk linear discriminant of what comes of them; it is judged on federations of the other real
    clients. For each number m of clients that take part, ``presence_m`` is the mean over the clients asked about, with
    the ends of its 95 % interval over them as ``_low`` and ``_high``; ``absent_m`` is the same by an adversary that
    looks for another client of the domain, which is in all of these federations alike or in none. {} where no such style
    crossed, or there are too few clients.
    """
    blend: Blend | None = getattr(evaluator.method, "interpolation", None)
    if not evaluator.transcript.crossed(InterpolationStyle.kind) or blend is None or evaluator.evidence is None:
        return {}
    target, population = evaluator.target(StyleStatistics.kind), evaluator.population
    simulator = target.simulator
    assert isinstance(simulator, StyleSimulator)
    rng = generator(evaluator.seed, 15)
    styles = {name: evaluator.evidence.wire[name] for name in target.clients}
    for name, data in population.shadows.items():
        styles[name] = simulator.make(HeldImages(data.images, data.labels), torch.arange(len(data)), rng)
    domain = {name: population.main_domain(name) for name in styles}
    peers = {name: [o for o in styles if o != name and domain[o] == domain[name]] for name in target.clients}
    able = [name for name in target.clients if len(peers[name]) > 1]
    few = min(ASKED, len(able))
    asked = [able[i * len(able) // few] for i in range(few)]
    most = int(MOST * len(target.clients))
    if most < FEWEST or len(asked) < 2:
        return {}
    public = _public(evaluator, simulator, rng)
    everywhere = [style for some in public.values() for style in some]
    found: dict[str, float] = {}
    for count in sorted({FEWEST, most}):
        there: list[float] = []
        absent: list[float] = []
        for name in asked:
            other, *stand_ins = [styles[o] for o in peers[name]]
            fill = [styles[o] for o in styles if o != name]
            judged = _worlds(styles[name], stand_ins, fill, count, blend, rng)
            for sought, areas in ((styles[name], there), (other, absent)):
                practised = _worlds(sought, public[domain[name]], everywhere, count, blend, rng)
                areas.append(_area(practised, judged))
        found |= mean_interval(there).named(f"presence_{count}") | mean_interval(absent).named(f"absent_{count}")
    return found


def _area(practised: Worlds, judged: Worlds) -> float:
    probe = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(*practised)
    return float(roc_auc_score(judged[1], probe.decision_function(judged[0])))


def _worlds(
    own: StyleStatistics,
    peers: Sequence[StyleStatistics],
    others: Sequence[StyleStatistics],
    count: int,
    blend: Blend,
    rng: torch.Generator,
) -> Worlds:
    """What comes of FEDERATIONS federations of `count` clients with `own` among them, and of as many with a peer instead.

    Both are filled up alike, from `others`.
    """
    rows, inside = [], []
    for _ in range(FEDERATIONS):
        peer = peers[int(torch.randint(len(peers), (), generator=rng))]
        rest = [style for style in others if style is not peer]
        drawn = [rest[i] for i in torch.randperm(len(rest), generator=rng)[: count - 1].tolist()]
        for one in (own, peer):
            made = blend([*drawn, one])
            rows.append(torch.cat([made.mean, made.std]))
            inside.append(one is own)
    stacked: Tensor = torch.stack(rows).double()
    return stacked.numpy(), np.array(inside)


def _public(evaluator: Evaluator, simulator: StyleSimulator, rng: torch.Generator) -> dict[int, list[StyleStatistics]]:
    """By domain, styles of public images as clients of that domain would have made them, as large as theirs."""
    sizes = sorted(len(data) for data in evaluator.population.clients.values())
    found = {}
    for d, part in enumerate(evaluator.population.auxiliary.values()):
        held = HeldImages(part.images, part.labels)
        count = min(len(part) // 2, sizes[len(sizes) // 2])
        draws = [torch.randperm(len(part), generator=rng)[:count] for _ in range(2 * len(sizes))]
        found[d] = [simulator.make(held, index, rng) for index in draws]
    return found
