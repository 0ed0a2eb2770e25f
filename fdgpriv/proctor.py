"""Lays out the examination: which artifacts are read, which stand in as controls, what each adversary may hold.

Per client and size, groups of images are drawn and shared through the client's defense as its own artifact was. The whole
client's artifact is the one on the wire; a shadow client's is made in the same way. AUDIT sections 3 and 6.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fdgpriv.artifact import PEER, SERVER, StyleDraft, StyleStatistics
from fdgpriv.exam import Asked, Item, Question, Sitting, Truth, View, draft_like, styles_of
from fdgpriv.federation import Domain, Federation, generator
from fdgpriv.partition import Population
from fdgpriv.roles import Defense, Method
from fdgpriv.style import RULES
from fdgpriv.threat import Auxiliary, ThreatModel
from fdgpriv.transcript import Transcript

SIZES: dict[int, int] = {1: 6, 2: 4, 5: 3, 20: 2}  # images behind an artifact: how many artifacts per client
ALTERNATIVES = 3  # how many artifacts stand in for each control
RANDOM_STYLES = 12  # and for a random style, where reading one is cheap
LINE_UPS, CANDIDATES = 4, 100
SCORED = 12  # at most so many of the images behind an artifact are scored
LEAKED_SHARE = 0.5
PUBLIC_ARTIFACTS = 20  # per domain, to learn the public distribution from


@dataclass(frozen=True, eq=False)
class Group:
    """Some images of one client, and the artifact that shares them."""

    client: str
    size: int | None
    index: Tensor
    artifact: StyleStatistics


@dataclass(eq=False)
class Proctor:
    """The evaluator of one trained federation.

    Attributes:
        population: All that the evaluator knows.
        method, federation, defense: As trained.
        transcript: As recorded.
        seed: Of all draws here.
        per_client: By number of images behind an artifact, how many such artifacts of each client.
    """

    population: Population
    method: Method
    federation: Federation
    defense: Defense
    transcript: Transcript
    seed: int
    per_client: Mapping[int, int] = field(default_factory=lambda: SIZES)
    _model: nn.Module | None = field(default=None, init=False)
    _wire: dict[str, StyleStatistics] = field(default_factory=dict, init=False)
    _receiver: dict[str, str] = field(default_factory=dict, init=False)
    _domains: dict[str, int] = field(default_factory=dict, init=False)
    _styles: dict[str, dict[str, tuple[Tensor, Tensor]]] = field(default_factory=dict, init=False)
    _seen: dict[str, dict[int, tuple[Tensor, Tensor, Tensor]]] = field(default_factory=dict, init=False)
    _candidates: Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for record, artifact in self.transcript.of_kind(StyleStatistics.kind):
            state = self.transcript.model_sent(record.round)
            if state is None or not isinstance(artifact, StyleStatistics):
                continue
            if record.receiver == SERVER:
                self._wire[record.origin] = artifact
                self._receiver.pop(record.origin, None)
            elif record.relayed:
                self._receiver[record.origin] = record.receiver
        if self._wire:
            self._model = self.method.model(self.federation, generator(self.seed, 4))
            self._last = max(artifact.round for artifact in self._wire.values())
            state = self.transcript.model_sent(self._last)
            assert state is not None
            state.load_into(self._model)
            self._model.eval()
            self._wire = {client: a for client, a in self._wire.items() if a.round == self._last}

    @property
    def shares_styles(self) -> bool:
        """Whether any client's style statistics are on record, with the model they were taken under."""
        return bool(self._wire)

    @property
    def template(self) -> StyleStatistics:
        """One artifact as it is on the wire."""
        return next(iter(self._wire.values()))

    def layers(self) -> tuple[str, ...]:
        """The stages at which styles could be taken."""
        assert self._model is not None
        stages: tuple[str, ...] = self._model.backbone.stages  # type: ignore[assignment,union-attr]
        return stages

    def sittings(
        self,
        threat: ThreatModel,
        sizes: Sequence[int | None],
        *,
        reconstruction: bool,
        layer: str | None = None,
    ) -> list[Sitting]:
        """The adversaries of this threat model, each with its items: one sitting for each distinct auxiliary data.

        Args:
            threat: Who is examined.
            sizes: Numbers of images behind the artifacts; None for the whole client.
            reconstruction: Whether bounds for images (nearest_own, autoencoder) are wanted.
            layer: Take styles at this stage instead of where the method does; nothing on the wire is used then.
        """
        rng = generator(self.seed, 5)
        template = self.template if layer is None else _at_layer(self.template, layer)
        assert self._model is not None
        features = self.method.features(self._model, template.at)
        styles = self._client_styles(features, template)
        excluded = self._leak(rng) if threat.auxiliary is Auxiliary.LEAKED else {}
        groups = self._groups(styles, template, sizes, excluded, rng, wire=layer is None)
        pool, place = self._pool()
        public = {size: self._public(template, features, size, rng) for size in sizes}
        by_holder: dict[str, list[Item]] = {}
        for group in groups:
            if (holder := self._holder(threat, group.client)) is not None:
                item = self._item(group, groups, styles, template, place, pool, public[group.size], rng, reconstruction)
                by_holder.setdefault(holder, []).append(item)
        return [
            Sitting(self._view(threat, holder, template, features, sizes, pool, excluded), items)
            for holder, items in sorted(by_holder.items())
        ]

    def _client_styles(
        self, features: Callable[[Tensor], Tensor], template: StyleStatistics
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """By client and shadow, the styles of its images at the template's layer; taken once."""
        if template.at not in self._styles:
            self._styles[template.at] = {
                name: styles_of(self.population.data(name).images, features, RULES[template.rule])
                for name in self._names()
            }
        return self._styles[template.at]

    def _domain(self, client: str) -> int:
        """Index of the client's main domain."""
        if client not in self._domains:
            self._domains[client] = self.population.main_domain(client)
        return self._domains[client]

    def _names(self) -> list[str]:
        return [*self._wire, *self.population.shadows]

    def _holder(self, threat: ThreatModel, client: str) -> str | None:
        """Which adversary reads this client's artifact: the domain of the client that received it, or one for all."""
        if threat.auxiliary is not Auxiliary.OWN_DOMAIN:
            return ""
        receiver = self._receiver.get(client)
        if receiver is None:
            return None
        return self.population.sources[self._domain(receiver)]

    def _leak(self, rng: torch.Generator) -> dict[str, Tensor]:
        leaked = {}
        for name in self._names():
            n = len(self.population.data(name))
            leaked[name] = torch.randperm(n, generator=rng)[: int(LEAKED_SHARE * n)]
        return leaked

    def _groups(
        self,
        styles: Mapping[str, tuple[Tensor, Tensor]],
        template: StyleStatistics,
        sizes: Sequence[int | None],
        leaked: Mapping[str, Tensor],
        rng: torch.Generator,
        wire: bool,
    ) -> list[Group]:
        groups = []
        for name, (mean, std) in styles.items():
            order = torch.randperm(len(mean), generator=rng)
            order = order[~torch.isin(order, leaked[name])] if name in leaked else order
            for size in sizes:
                if size is None:
                    draft = draft_like(template, mean, std, "client")
                    shared = self._wire[name] if wire and name in self._wire else self._share(draft, rng)
                    groups.append(Group(name, None, order, shared))
                    continue
                behind = "image" if size == 1 else "cluster"
                for index in order.split(size)[: self.per_client[size]]:
                    if len(index) == size:
                        draft = draft_like(template, mean[index], std[index], behind)
                        groups.append(Group(name, size, index, self._share(draft, rng)))
        return groups

    def _share(self, draft: StyleDraft, rng: torch.Generator) -> StyleStatistics:
        shared = self.defense.protect(draft, rng)
        assert isinstance(shared, StyleStatistics)
        return shared

    def _pool(self) -> tuple[Tensor, dict[str, int]]:
        """All private images in one row, and where each client's begin."""
        images, place, start = [], {}, 0
        for name in self._names():
            place[name] = start
            images.append(self.population.data(name).images)
            start += len(images[-1])
        if self._candidates is None:
            self._candidates = torch.cat(images)
        return self._candidates, place

    def _item(
        self,
        group: Group,
        groups: Sequence[Group],
        styles: Mapping[str, tuple[Tensor, Tensor]],
        template: StyleStatistics,
        place: Mapping[str, int],
        pool: Tensor,
        public: Tensor,
        rng: torch.Generator,
        reconstruction: bool,
    ) -> Item:
        data = self.population.data(group.client)
        candidates, positions = self._line_ups(group, place, rng)
        behind = len(data) if group.size is None else group.size
        domain = self._domain(group.client)

        def truth(index: Tensor) -> Truth:
            scored = index[:SCORED]
            whole = data.labels if group.size is None else data.labels[index]
            return Truth(
                images=data.images[scored],
                labels=data.labels[scored],
                histogram=whole.bincount(minlength=data.classes) / len(whole),
                domain=domain,
                positions=positions,
                candidates=candidates,
                pool=pool,
            )

        mine = truth(group.index)
        peers = [g for g in groups if g.size == group.size and g.client != group.client]
        near = [g for g in peers if self._domain(g.client) == domain]
        far = [g for g in peers if self._domain(g.client) != domain]
        unit = group.artifact.level

        def ask(artifact: StyleStatistics) -> Question:
            return Question(_alike(artifact, unit), behind, candidates)

        draws = ALTERNATIVES if reconstruction else RANDOM_STYLES
        asked = {
            "attack": [Asked(ask(group.artifact), mine)],
            "random_style": [Asked(ask(a), mine) for a in _random(template, public, draws, rng)],
        }
        for name, others in (("other_client", near), ("other_domain", far)):
            drawn = torch.randperm(len(others), generator=rng)[:ALTERNATIVES].tolist()
            if drawn:
                asked[name] = [Asked(ask(others[i].artifact), mine) for i in drawn]
        given: dict[str, list[tuple[Tensor, Truth]]] = {}
        if reconstruction:
            mean, std = styles[group.client]
            few = group.index[:ALTERNATIVES]
            asked["autoencoder"] = [
                Asked(
                    Question(
                        _alike(draft_like(template, mean[i][None], std[i][None], "image").finish(), unit), 1, candidates
                    ),
                    truth(i[None]),
                )
                for i in few
            ]
            given["nearest_own"] = [(_nearest_other(data.images, int(i)), truth(i[None])) for i in few]
        number = sum(g.client == group.client and g.size == group.size for g in groups[: groups.index(group)])
        unit = group.client if group.size is None else f"{group.client}/{group.size}/{number}"
        return Item(unit, group.client, group.size, mine, asked, given)

    def _public(
        self, template: StyleStatistics, features: Callable[[Tensor], Tensor], size: int | None, rng: torch.Generator
    ) -> Tensor:
        """Vectors (M, D) of artifacts of this size shared from the public images of every source domain."""
        vectors = []
        for domain in self.population.auxiliary.values():
            mean, std = styles_of(domain.images, features, RULES[template.rule])
            count = min(len(mean), self._typical() if size is None else size)
            for _ in range(PUBLIC_ARTIFACTS):
                index = torch.randperm(len(mean), generator=rng)[:count]
                vectors.append(self._share(draft_like(template, mean[index], std[index], "client"), rng).vector())
        return torch.stack(vectors)

    def _typical(self) -> int:
        sizes = sorted(len(self.population.data(name)) for name in self._names())
        return sizes[len(sizes) // 2]

    def _line_ups(self, group: Group, place: Mapping[str, int], rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Line-ups of one image of the group among images of other clients of its main domain (others if too few)."""
        domain = self._domain(group.client)
        names = [n for n in self._names() if n != group.client]
        near = [n for n in names if self._domain(n) == domain] or names
        others = torch.cat([torch.arange(len(self.population.data(n))) + place[n] for n in near])
        count = min(CANDIDATES, len(others) + 1)
        rows, positions = [], []
        for image in group.index[:LINE_UPS]:
            row = others[torch.randperm(len(others), generator=rng)[:count]]
            position = int(torch.randint(count, (), generator=rng))
            row[min(position, len(row) - 1)] = int(image) + place[group.client]
            rows.append(row)
            positions.append(min(position, len(row) - 1))
        return torch.stack(rows), torch.tensor(positions)

    def _view(
        self,
        threat: ThreatModel,
        holder: str,
        template: StyleStatistics,
        features: Callable[[Tensor], Tensor],
        sizes: Sequence[int | None],
        pool: Tensor,
        leaked: Mapping[str, Tensor],
    ) -> View:
        return View(
            threat=threat,
            classes=self.federation.classes,
            sources=self.population.sources,
            sizes=tuple(self._typical() if size is None else size for size in sizes),
            image_size=self.federation.image_size,
            _auxiliary=self._auxiliary(threat, holder, leaked),
            _features=features,
            _rule=RULES[template.rule],
            _share=self._share,
            _template=template,
            _candidates=pool,
            _styles=self._seen.setdefault(template.at, {}) if threat.auxiliary is not Auxiliary.LEAKED else {},
        )

    def _auxiliary(self, threat: ThreatModel, holder: str, leaked: Mapping[str, Tensor]) -> tuple[Domain, ...]:
        public = self.population.auxiliary
        if threat.auxiliary is Auxiliary.NONE:
            return ()
        if threat.auxiliary is Auxiliary.OTHER_DOMAIN:
            return (self.population.target,)
        if threat.auxiliary is Auxiliary.OWN_DOMAIN:
            return (public[holder],)
        if threat.auxiliary is Auxiliary.SAME_DOMAINS:
            return tuple(public.values())
        domains = []
        for d, domain in enumerate(public.values()):
            images, labels = [domain.images], [domain.labels]
            for name, index in leaked.items():
                data = self.population.data(name)
                of_domain = index[self.population.domain_of[name][index] == d]
                images.append(data.images[of_domain])
                labels.append(data.labels[of_domain])
            domains.append(Domain(domain.name, torch.cat(images), torch.cat(labels)))
        return tuple(domains)


def _random(template: StyleStatistics, like: Tensor, count: int, rng: torch.Generator) -> list[StyleStatistics]:
    """`count` artifacts drawn from the Gaussian with the mean and covariance of the vectors `like` (M, D)."""
    spread = (like - like.mean(0)) / max(1, len(like) - 1) ** 0.5
    drawn = like.mean(0) + torch.randn(count, len(like), generator=rng) @ spread
    return [_from_vector(template, row) for row in drawn]


def _alike(artifact: StyleStatistics, unit: str) -> StyleStatistics:
    """The artifact without its sender's name, labelled as the target's is: nothing but its numbers tells them apart."""
    return StyleStatistics.build(artifact.tensors(), {**artifact.facts(), "client": PEER, "behind": unit})


def _at_layer(template: StyleStatistics, layer: str) -> StyleStatistics:
    return StyleStatistics.build(template.tensors(), {**template.facts(), "at": layer})


def _from_vector(template: StyleStatistics, vector: Tensor) -> StyleStatistics:
    parts = vector.chunk(4 if len(template.mean_var) else 2)
    mean, std = parts[0], parts[1].clamp_min(0)
    nothing = mean.new_empty(0)
    mean_var, std_var = (parts[2].clamp_min(0), parts[3].clamp_min(0)) if len(parts) == 4 else (nothing, nothing)
    tensors = {"mean": mean, "std": std, "mean_var": mean_var, "std_var": std_var}
    return StyleStatistics.build(tensors, template.facts())


def _nearest_other(images: Tensor, index: int) -> Tensor:
    """The image (3, H, W) nearest to the one at `index`, itself left out."""
    distance = (images - images[index]).square().mean(dim=(1, 2, 3))
    distance[index] = torch.inf
    return images[int(distance.argmin())]
