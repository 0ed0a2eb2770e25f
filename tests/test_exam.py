"""The examination: what an adversary is asked and may hold, and that the evaluator's own book-keeping is true."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1

import pytest
import torch
from conftest import TARGET, Fitted, fit, shortened
from torch import Tensor, nn

from fdgpriv.artifact import SERVER, StyleStatistics
from fdgpriv.exam import Asked, Guess, Item, Question, Sitting, Truth, View
from fdgpriv.exam.marks import examine
from fdgpriv.exam.pool import CANDIDATES, LINE_UPS
from fdgpriv.exam.proctor import Proctor
from fdgpriv.exam.questions import ALTERNATIVES, ARTIFACTS_PER_CLIENT, SCORED
from fdgpriv.federation import Dataset
from fdgpriv.roles import Attack
from fdgpriv.style import RULES, styles_of
from fdgpriv.threat import THREATS, Auxiliary, Capability, NotGranted, ThreatModel, threat


class Sittings(dict[str, list[Sitting]]):
    """By role; named in a failure without its tensors."""

    def __repr__(self) -> str:
        return f"sittings of {', '.join(self)}"


PAIR = torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64)
EACH_ROLE = pytest.mark.parametrize("role", THREATS)


@pytest.fixture(scope="module")
def sat(proctor: Proctor) -> Sittings:
    """By role, the sittings for single images, pairs and whole clients."""
    return Sittings({role: proctor.style_sittings(threat(role), (1, 2, None), reconstruction=True) for role in THREATS})


@pytest.fixture(scope="module")
def owners(proctor: Proctor) -> dict[str, str]:
    """By image, the client that holds it, or the domain it is public in."""
    found: dict[str, str] = {}
    for name, data in (proctor.population.clients | proctor.population.shadows).items():
        found |= {key(image): name for image in data.images}
        found |= {key(image): f"held out by {name}" for image in data.held_out_images}
    for name, domain in proctor.population.auxiliary.items():
        found |= {key(image): f"public {name}" for image in domain.images}
    return found


def key(values: Tensor) -> str:
    return sha1(values.contiguous().numpy().tobytes()).hexdigest()


def items(sittings: Sequence[Sitting], size: int | str | None = "any") -> list[Item]:
    return [item for sitting in sittings for item in sitting.items if size == "any" or item.size == size]


def attacked(item: Item) -> Question:
    (asked,) = item.asked["attack"]
    return asked.question


# Threat models


def test_an_unknown_role_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="server, client, third_party, insider; got 'nsa'"):
        threat("nsa")


@EACH_ROLE
@pytest.mark.parametrize("capability", Capability)
def test_a_capability_is_granted_or_refused_by_name(role: str, capability: Capability) -> None:
    who = threat(role)
    if capability in who.capabilities:
        who.require(capability)
        return
    with pytest.raises(NotGranted) as caught:
        who.require(capability)
    assert str(capability) in str(caught.value)
    assert repr(role) in str(caught.value)


@pytest.mark.parametrize(
    ("capability", "ask"),
    [
        (Capability.HAS_CANDIDATES, lambda view: view.candidates),
        (Capability.KNOWS_ENCODER, lambda view: view.styles(torch.zeros(2, 3, 32, 32))),
        (
            Capability.KNOWS_DEFENSE,
            lambda view: view.make(*PAIR, torch.arange(2), torch.Generator().manual_seed(0)),
        ),
    ],
)
@EACH_ROLE
def test_a_view_refuses_what_the_threat_model_does_not_grant(
    sat: Sittings, role: str, capability: Capability, ask: Callable[[View], object]
) -> None:
    view = sat[role][0].view
    ask(view)  # granted to all four roles
    less = dataclasses.replace(view.threat, capabilities=view.threat.capabilities - {capability})
    with pytest.raises(NotGranted, match=capability):
        ask(dataclasses.replace(view, threat=less))
    only = dataclasses.replace(view.threat, capabilities=frozenset({capability}))
    ask(dataclasses.replace(view, threat=only))


def test_who_has_no_auxiliary_data_holds_none(proctor: Proctor) -> None:
    nobody = ThreatModel("nobody", "Nobody.", Auxiliary.NONE, threat("server").capabilities, "outside")
    (sitting,) = proctor.style_sittings(nobody, (1,), reconstruction=False)
    assert sitting.view.auxiliary == ()


# What each adversary holds


def test_the_server_holds_public_images_of_every_source_domain(sat: Sittings, proctor: Proctor) -> None:
    (sitting,) = sat["server"]
    assert [domain.name for domain in sitting.view.auxiliary] == list(proctor.population.sources)
    for held, public in zip(sitting.view.auxiliary, proctor.population.auxiliary.values(), strict=True):
        assert torch.equal(held.images, public.images)
        assert torch.equal(held.labels, public.labels)


def test_a_third_party_holds_the_domain_that_no_client_has(sat: Sittings) -> None:
    (sitting,) = sat["third_party"]
    assert [domain.name for domain in sitting.view.auxiliary] == [TARGET]


def test_a_malicious_client_holds_its_own_domain_and_reads_what_it_was_sent(sat: Sittings, fitted: Fitted) -> None:
    sent = {
        r.origin: r.receiver for r, _ in fitted.transcript.of_kind("style_statistics") if r.relayed and r.round == 1
    }
    population = fitted.population
    seen = set()
    for sitting in sat["client"]:
        (own,) = sitting.view.auxiliary
        for item in sitting.items:
            receiver = sent[item.client]
            assert population.sources[population.main_domain(receiver)] == own.name
            seen.add(item.client)
    assert seen == set(sent)


def test_an_insider_holds_half_of_each_client_and_is_not_asked_for_that_half(
    sat: Sittings, proctor: Proctor, owners: Mapping[str, str]
) -> None:
    (sitting,) = sat["insider"]
    leaked = [key(image) for domain in sitting.view.auxiliary for image in domain.images]
    whose = [owners[image] for image in leaked]
    for name, data in proctor.population.clients.items():
        assert whose.count(name) == len(data) // 2
    for domain in sitting.view.auxiliary:
        public = proctor.population.auxiliary[domain.name]
        assert torch.equal(domain.images[: len(public)], public.images)
        for image in domain.images[len(public) :]:
            client = owners[key(image)]
            assert proctor.population.sources[proctor.population.main_domain(client)] == domain.name
    for item in sitting.items:
        assert not {key(image) for image in item.truth.images} & set(leaked)
        for asks in item.asked.values():
            assert not any({key(image) for image in asked.truth.images} & set(leaked) for asked in asks)


@pytest.mark.parametrize("role", ["server", "client", "third_party"])
def test_nobody_else_holds_a_private_image(sat: Sittings, role: str, owners: Mapping[str, str]) -> None:
    for sitting in sat[role]:
        for domain in sitting.view.auxiliary:
            whose = {owners.get(key(image), "target") for image in domain.images}
            assert all(owner.startswith("public") or owner == "target" for owner in whose)


@EACH_ROLE
def test_nobody_holds_what_a_client_keeps_for_validation(sat: Sittings, role: str, owners: Mapping[str, str]) -> None:
    """But among the suspects, some of which are no members."""
    for sitting in sat[role]:
        held = [image for domain in sitting.view.auxiliary for image in domain.images]
        assert not any(owners.get(key(image), "").startswith("held out") for image in held)
        for item in sitting.items:
            lined_up = sitting.view.candidates[item.truth.candidates.unique()]
            assert not any(owners.get(key(image), "").startswith("held out") for image in lined_up)


@EACH_ROLE
def test_the_suspects_are_the_images_behind_the_artifact_and_as_good_as_them(
    sat: Sittings, proctor: Proctor, role: str, owners: Mapping[str, str]
) -> None:
    """Members are the target's, in the order of its truth; the others were held out by clients of its main domain."""
    for sitting in sat[role]:
        for item in sitting.items[::4]:
            suspects = sitting.view.candidates[attacked(item).suspects]
            assert len(suspects) == len(item.truth.members)
            inside = suspects[item.truth.members]
            assert len(inside) == item.truth.count if item.size else len(inside) > 10
            assert torch.equal(inside[: len(item.truth.images)], item.truth.images)
            outside = {owners[key(image)] for image in suspects[~item.truth.members]}
            assert all(name.startswith("held out") for name in outside)


@EACH_ROLE
def test_what_an_adversary_shares_itself_is_what_a_client_would_share(sat: Sittings, fitted: Fitted, role: str) -> None:
    view = sat[role][0].view
    (domain, *_) = view.auxiliary
    made = view.make(domain.images, domain.labels, torch.arange(7), torch.Generator().manual_seed(0))
    assert isinstance(made, StyleStatistics)
    mean, std = as_a_client(fitted, domain.images[:7], made.rule)
    assert torch.allclose(made.mean, mean.mean(0), atol=1e-6)
    assert torch.allclose(made.std_var, std.var(0, correction=0), atol=1e-6)
    on_wire = attacked(items(sat[role], None)[0]).artifact
    assert {name: tensor.shape for name, tensor in made.tensors().items()} == {
        name: tensor.shape for name, tensor in on_wire.tensors().items()
    }


# What is asked

COMPARED = ("attack", "random_style", "other_client", "other_domain")


@EACH_ROLE
def test_every_target_has_the_controls(sat: Sittings, role: str) -> None:
    for item in items(sat[role]):
        asks = {name: len(asked) for name, asked in item.asked.items()}
        assert asks["attack"] == 1
        assert asks["random_style"] == ALTERNATIVES
        assert 1 <= asks["other_client"] <= ALTERNATIVES
        assert 1 <= asks["other_domain"] <= ALTERNATIVES
        assert 1 <= asks["autoencoder"] <= ALTERNATIVES
        assert 1 <= len(item.given["nearest_own"]) <= ALTERNATIVES


def test_one_artifact_stands_in_for_each_control_where_that_is_asked(proctor: Proctor) -> None:
    few = dataclasses.replace(proctor, alternatives=1)
    for item in items(few.style_sittings(threat("server"), (1, None), reconstruction=True)):
        assert {len(asked) for asked in item.asked.values()} == {1}
        assert {len(given) for given in item.given.values()} == {1}


@EACH_ROLE
def test_the_controls_are_scored_against_the_target_s_own_truth(sat: Sittings, role: str) -> None:
    for item in items(sat[role]):
        for name in COMPARED:
            assert all(asked.truth is item.truth for asked in item.asked[name])


@EACH_ROLE
def test_target_and_controls_look_alike_to_the_adversary(sat: Sittings, role: str) -> None:
    """`exam.py`: "the target's own, and those of the controls in its place, all alike to the adversary"."""
    for item in items(sat[role]):
        questions = [asked.question for name in COMPARED for asked in item.asked[name]]
        assert len({question.images_behind for question in questions}) == 1
        assert all(torch.equal(question.candidates, questions[0].candidates) for question in questions)
        for question in questions:
            assert question.artifact.facts() == questions[0].artifact.facts()
            shapes = {name: tensor.shape for name, tensor in question.artifact.tensors().items()}
            assert shapes == {name: tensor.shape for name, tensor in questions[0].artifact.tensors().items()}


@EACH_ROLE
def test_a_question_does_not_say_whose_artifact_it_is(sat: Sittings, role: str) -> None:
    """`Question.artifact`: "whose they are is not said"."""
    named = {
        asked.question.artifact.client for item in items(sat[role]) for asks in item.asked.values() for asked in asks
    }
    assert len(named) == 1
    assert not named & {item.client for item in items(sat[role])}


def test_the_whole_client_s_artifact_is_the_one_on_the_wire(sat: Sittings, fitted: Fitted) -> None:
    wire = {
        r.origin: a for r, a in fitted.transcript.of_kind("style_statistics") if r.receiver == SERVER and r.round == 1
    }
    whole = items(sat["server"], None)
    assert sorted(item.client for item in whole) == sorted(wire)
    for item in whole:
        sent = wire[item.client]
        assert isinstance(sent, StyleStatistics)
        assert torch.equal(attacked(item).artifact.vector(), sent.vector())
        assert attacked(item).images_behind == len(fitted.population.data(item.client))


def last_model(fitted: Fitted) -> nn.Module:
    """The model of the last round, as everybody has it."""
    round = max(record.round for record in fitted.transcript.records if record.kind == "model_state")
    state = fitted.transcript.model_sent(round)
    assert state is not None
    model = fitted.method.model(fitted.federation, torch.Generator().manual_seed(9))
    state.load_into(model)
    return model.eval()


def features(fitted: Fitted) -> Callable[[Tensor], Tensor]:
    """The encoder of the last round, for an image that is alone."""
    return fitted.method.features(last_model(fitted), "layer1")


def as_a_client(fitted: Fitted, images: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """Each image's style, taken by a client that holds these: alone as it is, several in batches."""
    if len(images) == 1:
        return styles_of(images, features(fitted), RULES[rule])
    return fitted.method.client_styles(last_model(fitted), images, "layer1", RULES[rule])


@pytest.mark.parametrize("size", [1, 2])
def test_an_artifact_is_of_the_images_it_is_scored_against(sat: Sittings, fitted: Fitted, size: int) -> None:
    for item in items(sat["server"], size)[::5]:
        question = attacked(item)
        mean, std = as_a_client(fitted, item.truth.images, question.artifact.rule)
        assert question.images_behind == len(item.truth.images) == size
        assert torch.allclose(question.artifact.mean, mean.mean(0), atol=1e-5)
        assert torch.allclose(question.artifact.std, std.mean(0), atol=1e-5)
        assert torch.allclose(question.artifact.mean_var, mean.var(0, correction=0), atol=1e-5)


def test_the_autoencoder_is_shown_one_image_s_undefended_style(sat: Sittings, fitted: Fitted) -> None:
    encoder = features(fitted)
    for item in items(sat["server"], None)[::3]:
        for asked in item.asked["autoencoder"]:
            mean, _ = styles_of(asked.truth.images, encoder, RULES["paper_eps"])
            assert len(asked.truth.images) == 1
            assert torch.allclose(asked.question.artifact.mean, mean[0], atol=1e-5)


@EACH_ROLE
@pytest.mark.parametrize("size", [1, 2, None])
def test_other_clients_are_of_the_same_domain_and_other_domains_of_another(
    sat: Sittings, proctor: Proctor, role: str, size: int | None
) -> None:
    population = proctor.population
    everyone = [item for sitting in sat[role] for item in sitting.items if item.size == size]
    whose = {key(attacked(item).artifact.vector()): item.client for item in everyone}
    known = 0
    for item in everyone:
        own = population.main_domain(item.client)
        for name, same in (("other_client", True), ("other_domain", False)):
            for asked in item.asked[name]:
                other = whose.get(key(asked.question.artifact.vector()))
                if other is not None:
                    known += 1
                    assert other != item.client
                    assert (population.main_domain(other) == own) is same
    assert known > 0


@EACH_ROLE
def test_truth_is_true(sat: Sittings, proctor: Proctor, owners: Mapping[str, str], role: str) -> None:
    for item in items(sat[role]):
        data = proctor.population.data(item.client)
        truth = item.truth
        assert {owners[key(image)] for image in truth.images} == {item.client}
        label_of = {key(image): int(label) for image, label in zip(data.images, data.labels, strict=True)}
        assert truth.labels.tolist() == [label_of[key(image)] for image in truth.images]
        assert len(truth.images) == (item.size or min(SCORED, len(truth.images)))
        assert truth.domain == proctor.population.main_domain(item.client)
        behind = data.labels if item.size is None else truth.labels
        expected = [int((behind == label).sum()) / len(behind) for label in range(10)]
        assert truth.histogram.tolist() == pytest.approx(expected)


@EACH_ROLE
def test_the_true_image_stands_once_in_a_line_up_of_its_own_domain(
    sat: Sittings, proctor: Proctor, owners: Mapping[str, str], role: str
) -> None:
    population = proctor.population
    for item in items(sat[role])[::4]:
        truth = item.truth
        assert len(truth.candidates) == len(truth.positions) == min(LINE_UPS, item.size or LINE_UPS)
        for turn, (row, position) in enumerate(zip(truth.candidates, truth.positions, strict=True)):
            line_up = truth.pool[row]
            own = [turn for turn, image in enumerate(line_up) if owners[key(image)] == item.client]
            assert own == [int(position)]
            assert torch.equal(line_up[position], truth.images[turn])
            assert len(set(row.tolist())) == len(row) <= CANDIDATES
            domains = {population.main_domain(owners[key(image)]) for image in line_up}
            assert domains == {truth.domain}
    seen = torch.cat([item.truth.positions for item in items(sat[role])])
    assert len(seen.unique()) > 10  # its place says nothing


def test_the_nearest_own_image_is_the_nearest_and_another_one(sat: Sittings, proctor: Proctor) -> None:
    for item in items(sat["server"], 1)[::6]:
        own = proctor.population.data(item.client).images
        for guess, truth in item.given["nearest_own"]:
            distances = sorted(float((image - truth.images[0]).square().mean()) for image in own)
            assert distances[0] == 0
            assert float((guess - truth.images[0]).square().mean()) == pytest.approx(distances[1], rel=1e-5)


@EACH_ROLE
def test_every_artifact_is_a_unit_of_its_own(sat: Sittings, proctor: Proctor, role: str) -> None:
    found = items(sat[role])
    units = [(item.size, item.unit) for item in found]
    assert len(set(units)) == len(units)
    for item in found:
        assert (item.unit == item.client) == (item.size is None)
    for size in (1, 2):
        for client in proctor.population.clients:
            assert sum(item.client == client for item in items(sat[role], size)) == ARTIFACTS_PER_CLIENT[size]


def test_groups_of_one_client_share_no_image(sat: Sittings) -> None:
    for size in (1, 2):
        images = [key(image) for item in items(sat["server"], size) for image in item.truth.images]
        assert len(set(images)) == len(images)


def test_the_same_seed_sits_the_same_examination(fitted: Fitted, sat: Sittings) -> None:
    again = fitted.proctor().style_sittings(threat("client"), (1, 2, None), reconstruction=True)
    for one, other in zip(sat["client"], again, strict=True):
        assert [item.unit for item in one.items] == [item.unit for item in other.items]
        for a, b in zip(one.items, other.items, strict=True):
            assert list(a.asked) == list(b.asked)
            for name, asks in a.asked.items():
                for x, y in zip(asks, b.asked[name], strict=True):
                    assert torch.equal(x.question.artifact.vector(), y.question.artifact.vector())
                    assert torch.equal(x.question.candidates, y.question.candidates)
                    assert torch.equal(x.truth.images, y.truth.images)


def test_another_layer_has_its_own_channels_and_nothing_from_the_wire(fitted: Fitted) -> None:
    proctor = fitted.proctor()
    assert proctor.template.at in proctor.layers()
    for layer in proctor.layers()[::2]:
        (sitting,) = proctor.style_sittings(threat("server"), (1,), reconstruction=False, layer=layer)
        artifact = attacked(sitting.items[0]).artifact
        assert artifact.at == layer
        expected = sitting.view.styles(sitting.view.auxiliary[0].images)[0].shape[1]
        assert artifact.mean.shape == (expected,)
        assert "autoencoder" not in sitting.items[0].asked


# Federations of other shapes


def test_shadows_sit_beside_the_federated_where_these_are_few(digits: Dataset) -> None:
    found = fit(shortened(digits, 192), clients=3)
    assert len(found.population.shadows) == 9
    (sitting,) = found.proctor().style_sittings(threat("server"), (None,), reconstruction=False)
    assert {item.client for item in sitting.items} == {*found.population.clients, *found.population.shadows}
    for item in sitting.items:
        data = found.population.data(item.client)
        mean, _ = as_a_client(found, data.images, "paper_eps")
        assert torch.allclose(attacked(item).artifact.mean, mean.mean(0), atol=1e-5)
    senders = set(found.population.shadows) & {r.sender for r in found.transcript.records}
    assert senders == set()  # a shadow takes no part in training


def test_a_malicious_client_is_not_asked_about_shadows(tiny: Dataset) -> None:
    """Nobody sends it theirs."""
    found = fit(tiny, clients=3)
    sittings = found.proctor().style_sittings(threat("client"), (None,), reconstruction=False)
    assert {item.client for sitting in sittings for item in sitting.items} == set(found.population.clients)


def test_a_method_without_styles_has_nothing_to_examine(tiny: Dataset) -> None:
    assert not fit(tiny, clients=3, method="fedavg").proctor().shares_styles


def test_the_last_style_with_its_model_is_examined(tiny: Dataset) -> None:
    found = fit(tiny, clients=3, settings={"rounds": "3"}).proctor()
    assert found.shares_styles
    assert found.template.round == 2


# Marks


@dataclass(frozen=True)
class Counter(Attack):
    """Guesses the first entry of the artifact, and scores by the distance to the first pixel."""

    family = "property"
    reads = ("style_statistics",)
    headline = "score"
    higher_leaks = True
    threats = ("server",)

    def read(
        self, view: View, questions: Sequence[Question], rng: torch.Generator
    ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
        blind = {
            "noise": [torch.tensor(10.0), torch.tensor(20.0)],
            "domain_mean:near": [torch.tensor(1.0)],
            "domain_mean:far": [torch.tensor(2.0)],
            "class_mean:0": [torch.tensor(3.0)],
            "class_mean:7": [torch.tensor(4.0)],
        }
        return [question.artifact.mean[0] for question in questions], blind

    def score(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> Tensor:
        return torch.stack([guess - truth.images[0, 0, 0, 0] for guess, truth in zip(guesses, truths, strict=True)])

    def describe(self, guesses: Sequence[Guess], truths: Sequence[Truth]) -> dict[str, Tensor]:
        return {"double": 2 * self.score(guesses, truths)}


def made_up(client: str, number: int, size: int | None, label: int, with_other: bool = True) -> Item:
    def question(value: float) -> Question:
        mean = torch.tensor([value, 0.0])
        style = StyleStatistics(
            client="x",
            round=0,
            mean=mean,
            std=mean.abs(),
            mean_var=torch.empty(0),
            std_var=torch.empty(0),
            behind="client",
            at="layer1",
            rule="paper",
        )
        return Question(style, 1, torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))

    truth = Truth(
        images=torch.full((1, 3, 2, 2), float(number)),
        labels=torch.tensor([label]),
        histogram=torch.ones(10) / 10,
        domain=number % 2,
        positions=torch.zeros(1, dtype=torch.int64),
        candidates=torch.zeros(1, 1, dtype=torch.int64),
        pool=torch.zeros(1, 3, 2, 2),
        members=torch.ones(1, dtype=torch.bool),
        count=1,
        place=-1,
    )
    asked = {"attack": [Asked(question(100.0), truth)]}
    if with_other:
        asked["other_client"] = [Asked(question(30.0), truth), Asked(question(50.0), truth)]
    given = {"nearest_own": [(torch.tensor(7.0), truth)]}
    return Item(f"{client}/{number}", client, size, truth, asked, given)


@pytest.fixture
def view(sat: Sittings) -> View:
    return dataclasses.replace(sat["server"][0].view, sources=("near", "far"))


def each(headline: Mapping[str, list[float]]) -> Iterator[tuple[str, list[float]]]:
    yield from sorted(headline.items())


def test_marks_are_the_scores_of_each_target_averaged_over_its_questions(view: View, rng: torch.Generator) -> None:
    some = [made_up("a", 0, 1, 7), made_up("b", 1, 1, 0)]
    marks, shown = examine(Counter(), [Sitting(view, some)], (1,), rng)
    found = marks[1]
    assert found.units == ["a/0", "b/1"]
    assert found.clients == ["a", "b"]
    assert dict(each(found.headline)) == {
        "attack": [100, 99],
        "class_mean": [4, 2],  # of the class that it is
        "domain_mean": [1, 1],  # near for the first, far (2) less its number for the second
        "nearest_own": [7, 6],
        "noise": [15, 14],
        "other_client": [40, 39],
    }
    assert found.details["double"]["attack"] == [200, 198]
    assert [float(guesses["attack"]) for _, guesses in shown[1]] == [100, 100]


def test_sizes_are_marked_apart_and_only_some_are_described(view: View, rng: torch.Generator) -> None:
    some = [made_up("a", 0, None, 7), made_up("b", 1, 1, 0), made_up("c", 2, 5, 0)]
    marks, _ = examine(Counter(), [Sitting(view, some)], (None,), rng)
    assert list(marks) == [1, 5, None]
    assert marks[None].details
    assert not marks[1].details
    assert "class_mean" in marks[1].headline
    assert "class_mean" not in marks[None].headline  # a client has no one class


def test_a_control_that_not_every_target_has_is_left_out(view: View, rng: torch.Generator) -> None:
    some = [made_up("a", 0, 1, 7), made_up("b", 1, 1, 5, with_other=False)]
    headline = examine(Counter(), [Sitting(view, some)], (), rng)[0][1].headline
    assert "other_client" not in headline
    assert "class_mean" not in headline  # nobody knows the mean of class 5
    assert {"attack", "noise", "domain_mean", "nearest_own"} == set(headline)


def test_several_adversaries_are_marked_together(view: View, rng: torch.Generator) -> None:
    sittings = [Sitting(view, [made_up("a", 0, 1, 7)]), Sitting(view, [made_up("b", 1, 1, 0)])]
    marks, _ = examine(Counter(), sittings, (), rng)
    assert marks[1].units == ["a/0", "b/1"]
    assert marks[1].headline["attack"] == [100, 99]


def test_a_question_that_stands_for_several_controls_is_read_once(view: View, rng: torch.Generator) -> None:
    heard: list[int] = []

    class Listener(Counter):
        def read(
            self, view: View, questions: Sequence[Question], rng: torch.Generator
        ) -> tuple[Sequence[Guess], Mapping[str, list[Guess]]]:
            heard.append(len(questions))
            return super().read(view, questions, rng)

    one, two = made_up("a", 0, 1, 7), made_up("b", 1, 1, 0)
    (mine,) = two.asked["attack"]
    shared = dataclasses.replace(one, asked={**one.asked, "other_client": [Asked(mine.question, one.truth)]})
    again = dataclasses.replace(mine.question)
    apart = dataclasses.replace(one, asked={**one.asked, "other_client": [Asked(again, one.truth)]})
    found = examine(Listener(), [Sitting(view, [shared, two])], (1,), rng)[0]
    assert found == examine(Listener(), [Sitting(view, [apart, two])], (1,), rng)[0]
    assert heard == [4, 5]
