"""LSI as a whole: who is asked what and when, what crosses, what each option changes, bad input, determinism."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median_low
from typing import Any, Literal, get_args, get_origin

import factories
import pytest
import torch
from factories import Ran, crossed, finite, held, refused, run_on, seeded, small
from pydantic import TypeAdapter
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER, Artifact, Message
from fdgpriv.artifacts.parameters import ClassifierHead, ImportanceWeights, ModelState, RepresentationTranslator
from fdgpriv.artifacts.statistics import ValidationMetrics
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.participant import stream
from fdgpriv.federation.request import Answers, Request
from fdgpriv.federation.transcript import Transcript
from fdgpriv.method import Method
from fdgpriv.runner import Runner
from fdgpriv.training import Trained
from fdgpriv.utils.checksum import read_json
from fdgpriv.utils.console import ProgressLog
from fdgpriv.utils.fields import kinds

part: Any = import_module("fdgpriv.methods.lsi")
network = factories.network(2)
lsi = partial(small, "lsi")


def federation(clients: int = 3) -> Federation:
    return factories.federation(clients, build=network)


def run(method: Any, clients: int = 3, out: int = 3, **more: Any) -> Ran:
    """Client i trains on 5 + i images."""
    return factories.run(method, *range(5, 5 + clients), build=network, out=out, **more)


def crossings(transcript: Transcript) -> list[tuple[int, str, str, bool]]:
    """(round, verb, kind, up), each once, in the order of the first."""
    seen = [(r.round, r.verb, r.kind, r.receiver == SERVER) for r in transcript.records]
    return list(dict.fromkeys(seen))


def of(message: Message, kind: type[Artifact]) -> Any:
    (found,) = (artifact for artifact in message if isinstance(artifact, kind))
    return found


# The protocol


def test_the_five_stages_cross_in_order() -> None:
    _, transcript, log = run(lsi())
    assert crossings(transcript) == [
        (0, "pretrain", "model_state", False),
        (0, "pretrain", "classifier_head", True),
        (0, "pretrain", "sample_count", True),
        (0, "adopt", "representation_translator", False),
        (0, "fit", "importance_weights", True),
        (0, "fit", "model_state", True),
        (1, "fit", "model_state", False),
        (1, "fit", "validation_metrics", True),
        (1, "fit", "importance_weights", True),
        (1, "fit", "model_state", True),
        (2, "validate", "model_state", False),
        (2, "validate", "validation_metrics", True),
    ]
    assert set(Counter((r.round, r.verb, r.kind, r.sender, r.receiver) for r in transcript.records).values()) == {1}
    assert not any(record.relayed for record in transcript.records)
    granularity = {
        (r.verb, r.kind): (r.samples, r.clients) for r in transcript.records if r.sender == SERVER and not r.round
    }
    assert granularity == {("pretrain", "model_state"): (0, 0), ("adopt", "representation_translator"): (18, 3)}
    assert set(log) == {
        *("bn_loss", "invariance_loss", "stage1_accuracy", "stage1_accuracy_min"),
        *("identity_error", "identity_error_real", "class_preservation", "class_untranslated"),
        *("effective_clients_round_1", "effective_clients_round_2"),
    }


def test_heads_and_importances_cross_whole() -> None:
    _, transcript, _ = run(lsi())
    mine = {i: r.kind for i, r in enumerate(transcript.records) if "client-1" in (r.sender, r.receiver)}
    kept = {kind: transcript.kept.get(i) for i, kind in mine.items()}
    head, weights, model = kept["classifier_head"], kept["importance_weights"], kept["model_state"]
    assert head is not None and weights is not None and model is not None  # noqa: PT018
    assert {name.rpartition(".")[2] for name in head.tensors()} == {
        *("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    assert int(head.tensors()["norm.num_batches_tracked"]) == 1  # of 6 images, one batch of 4
    buffers = {name for name in model.tensors() if name.rpartition(".")[2] in ("running_mean", "running_var")}
    counters = {name for name in model.tensors() if name.endswith("num_batches_tracked")}
    assert set(weights.tensors()) == set(model.tensors()) - buffers - counters
    assert all(weights.tensors()[name].shape == model.tensors()[name].shape for name in weights.tensors())


@pytest.mark.parametrize(
    ("settings", "added", "missing"),
    [
        ({"inversion_labels": "marginal"}, {(0, "pretrain", "label_marginal", True)}, set()),
        ({"weights": "uniform"}, set(), {"sample_count"}),
        ({"aggregation": "mean"}, set(), {"importance_weights"}),
        ({"invariance": 0.0}, set(), {"classifier_head", "representation_translator"}),
        ({"select": "last"}, set(), {"validation_metrics"}),
        ({"recalibrate_bn": True}, {(0, "recalibrate", "bn_statistics", True)}, set()),
        (
            {"normaliser": "clients"},
            {(0, "weigh", "importance_weights", False), (0, "weigh", "model_state", True)},
            set(),
        ),
    ],
)
def test_an_option_adds_or_spares(
    settings: Mapping[str, Any], added: set[tuple[int, str, str, bool]], missing: set[str]
) -> None:
    _, transcript, _ = run(lsi(**settings))
    crossed = set(crossings(transcript))
    assert added <= crossed
    assert not missing & {kind for _, _, kind, _ in crossed}
    disclosed = lsi(**settings).disclosure()
    most = Counter((r.kind, r.sender) for r in transcript.records if r.receiver == SERVER)
    for (kind, _), often in most.items():
        assert often <= disclosed.releases(kind), kind
    assert all(disclosed.releases(kind) == 0 for kind in missing)


def test_a_label_marginal_is_the_share_of_each_class() -> None:
    client = lsi(inversion_labels="marginal").client(federation(), held(n=4, labels=(2, 2, 0, 2)), seeded(0))
    answer = client.pretrain([ModelState.of(client.model, SERVER, 0)])
    assert answer[1].share.tolist() == [0.25, 0, 0.75]
    assert answer[1].nbytes == 4 * 3


# Stage 1 and 4


def pretrained(**settings: Any) -> tuple[Any, dict[str, Tensor], dict[str, Tensor]]:
    """A client after stage 1 whose stage 4 hardly moves, the start, and its model then."""
    method = lsi(**settings)
    client = method.client(federation(), held(), seeded(1))
    start = {name: tensor.clone() for name, tensor in method.model(federation(), seeded(7)).state_dict().items()}
    client.pretrain([ModelState(client=SERVER, round=0, state=start)])
    after = {name: tensor.clone() for name, tensor in client.model.state_dict().items()}
    object.__setattr__(client.method, "lr", 1e-12)
    return client, start, after


@pytest.mark.parametrize("where", ["local", "global"])
def test_round_one_starts_where_asked(where: str) -> None:
    client, start, after = pretrained(stage4_start=where)
    sent = of(client.fit([]), ModelState).state
    expected = after if where == "local" else start
    for name, _ in client.model.named_parameters():
        torch.testing.assert_close(sent[name], expected[name])
    assert any(not torch.allclose(start[name], after[name]) for name, _ in client.model.named_parameters())


def test_stage_one_starts_in_common_or_apart() -> None:
    for start, alike in (("common", True), ("own", False)):
        heads = []
        for i in range(2):
            method = lsi(stage1_start=start, lr=1e-12)
            client = method.client(federation(), held(f"client-{i}"), seeded(i))
            state = ModelState.of(method.model(federation(), seeded(7)), SERVER, 0)
            heads.append(of(client.pretrain([state]), ClassifierHead).state["linear.weight"])
        assert torch.allclose(*heads) == alike


@pytest.mark.parametrize(("distance", "scale"), [("mean", 1.0), ("sum", 5.0)])
def test_the_loss_is_eq_16(distance: str, scale: float) -> None:
    method = lsi(invariance=0.7, invariance_distance=distance)
    client = method.client(federation(), held("client-1"), seeded(1))
    batch: Any = import_module("fdgpriv.methods._federation").Batch(
        torch.arange(6), client.data.images, client.data.labels
    )
    seen = []

    def translator(latents: Tensor, source: Tensor, target: Tensor) -> Tensor:
        assert source.tolist() == [1] * 6
        seen.extend(target.tolist())
        return latents + 0.5 * target[:, None]

    client.translator = translator
    for _ in range(30):
        client.model.train()
        found = float(client.loss(batch).detach())
        entropy = float(nn.functional.cross_entropy(client.model(batch.images), batch.labels).detach())
        distances = [0.25 * d * d * scale for d in seen[-6:]]
        assert found == pytest.approx(entropy + 0.7 * sum(distances) / 6, rel=1e-4)
    assert set(seen) == {0, 1, 2}


def test_the_translator_is_frozen_in_training() -> None:
    method = lsi()
    client = method.client(federation(), held(), seeded(1))
    built: Any = import_module("fdgpriv.methods._translator").Translator(5, 3, method.translator_settings, seeded(2))
    sent = RepresentationTranslator.of(built, SERVER, 0)
    assert client.adopt([sent]) == []
    client.pretrain([ModelState.of(client.model, SERVER, 0)])
    client.fit([])
    assert all(torch.equal(sent.state[name], tensor) for name, tensor in client.translator.state_dict().items())


@pytest.mark.parametrize("kept", [True, False])
def test_momentum_outlives_a_round_only_where_asked(kept: bool) -> None:
    client, _, _ = pretrained(keep_momentum=kept)
    client.fit([])
    first = client.optimizer
    client.fit([])
    assert (client.optimizer is first) == kept


# Stage 5


def one_round(method: Any, states: Mapping[str, ModelState], weights: Mapping[str, ImportanceWeights]) -> Any:
    """The global model that a round of these models and importances makes."""
    server = method.server(federation(), seeded(0))
    ask: Request = next(server)
    while ask.verb != "fit":
        ask = server.send(answers_to(ask, method))
    ask = server.send({name: [weights[name], states[name]] for name in states})
    assert not ask.messages  # all that is left is to note how many clients the average was made of
    with pytest.raises(StopIteration) as done:
        server.send({})
    return done.value.value


def answers_to(ask: Request, method: Any) -> Answers:
    rng = {name: seeded(i) for i, name in enumerate(ask.messages)}
    clients = {n: method.client(federation(), held(n, 5 + i), rng[n]) for i, n in enumerate(ask.messages)}
    return {name: getattr(client, ask.verb)(ask.messages[name]) for name, client in clients.items()}


@pytest.mark.parametrize(("aggregation", "expected"), [("importance", 2.5), ("literal", 1.25), ("mean", 37 / 18)])
def test_eq_18_resolved_printed_and_without_importance(aggregation: str, expected: float) -> None:
    """The numbers are worked out by hand for two clients; the third one here has no importance. The mean is by 5, 6, 7."""
    method = lsi(rounds=1, aggregation=aggregation, select="last", invariance=0.0)
    model = method.model(federation(), seeded(3))
    states, weights = {}, {}
    values = {"client-0": (1.0, 1.0), "client-1": (3.0, 3.0), "client-2": (2.0, 0.0)}
    for name, (value, weight) in values.items():
        state = {k: torch.full_like(t, value) for k, t in model.state_dict().items()}
        states[name] = ModelState(client=name, round=0, state=state)
        important = {k: torch.full_like(t, weight) for k, t in model.named_parameters()}
        weights[name] = ImportanceWeights(client=name, round=0, state=important)
    merged = one_round(method, states, weights)
    if aggregation == "literal":
        expected = expected * 2 / 3  # three clients here, two there
    for _, parameter in merged.named_parameters():
        torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, expected))
    for name, buffer in merged.named_buffers():  # of sizes 5, 6, 7; a counter is the largest
        wanted = 3.0 if name.endswith("tracked") else (5 * 1 + 6 * 3 + 7 * 2) / 18
        torch.testing.assert_close(buffer.float(), torch.full_like(buffer.float(), wanted))


@pytest.mark.parametrize("defense", ["none", "sparsify"])
@pytest.mark.parametrize("aggregation", ["importance", "literal"])
def test_clients_who_divide_give_the_same_average(aggregation: str, defense: str) -> None:
    """Under a defense, too, which changes the importances that are summed."""
    server, clients = (
        run(lsi(normaliser=who, aggregation=aggregation, rounds=1), defense=defense).state
        for who in ("server", "clients")
    )
    for name in server:
        torch.testing.assert_close(server[name], clients[name], atol=1e-5, rtol=1e-4)


def test_recalibrated_statistics_are_averaged_by_size() -> None:
    ran = run(lsi(recalibrate_bn=True, rounds=1, select="last"))
    model, transcript = ran.state, ran.transcript
    told = {record.origin: artifact for record, artifact in transcript.of_kind("bn_statistics")}
    for name in ("backbone.body.layer1.1.running_var", "head.norm.running_mean"):
        states = [told[f"client-{i}"].tensors()[name] for i in range(3)]  # type: ignore[union-attr]
        torch.testing.assert_close(model[name], (5 * states[0] + 6 * states[1] + 7 * states[2]) / 18)


def test_the_round_best_in_validation_is_returned() -> None:
    model = nn.Linear(1, 1, bias=False)
    best = part.Best(model)
    for value, accuracy in ((1.0, 0.2), (2.0, 0.8), (3.0, 0.8), (4.0, 0.5)):
        with torch.no_grad():
            model.weight.fill_(value)
        told = torch.tensor(accuracy, dtype=torch.float64)
        best.update({"a": [ValidationMetrics(client="a", round=0, accuracy=told)], "b": []})
    assert float(best.model().weight.detach()) == 3  # of equals, the one trained longer


def test_validation_changes_no_statistics() -> None:
    """The released code never evaluates in evaluation mode: its statistics absorb the data it is tested on."""
    client, _, after = pretrained()
    (told,) = client.validate([ModelState(client=SERVER, round=1, state=after)])
    assert all(torch.equal(after[name], tensor) for name, tensor in client.model.state_dict().items())
    client.model.eval()
    hits = [int(client.model(image[None]).argmax()) for image in client.data.held_out_images]
    assert (
        float(told.accuracy) == sum(a == b for a, b in zip(hits, client.data.held_out_labels.tolist(), strict=True)) / 3
    )
    assert told.nbytes == 8


# The log


def test_the_log_says_how_well_each_stage_worked() -> None:
    """Every client's stage 1 is done again from what crossed; its images are looked at one by one."""
    method, world = lsi(importance_per="sample"), federation()
    _, transcript, log = run(method)
    accuracies, errors = [], []
    translator = next(a for _, a in transcript.of_kind("representation_translator") if a is not None)
    for i, name in enumerate(world.clients):
        client = method.client(world, held(name, 5 + i, out=3), stream(world.seed, name))
        client.pretrain([transcript.models_sent(0)[name]])
        client.adopt([translator])
        model, g = client.model.eval(), client.translator
        right, moved, size = 0, 0.0, 0.0
        with torch.no_grad():
            for image, label in zip(client.data.images, client.data.labels.tolist(), strict=True):
                right += int(model(image[None]).argmax()) == label
                latent = model.embedding(image[None])
                own = torch.tensor([i])
                moved += float((g(latent, own, own) - latent).abs().sum())
                size += float(latent.abs().sum())
        accuracies.append(right / len(client.data))
        errors.append(moved / size)
    assert log["stage1_accuracy"] == pytest.approx(sum(accuracies) / 3)
    assert log["stage1_accuracy_min"] == pytest.approx(min(accuracies))
    assert min(accuracies) < max(accuracies)
    assert log["identity_error_real"] == pytest.approx(sum(errors) / 3, rel=1e-4)
    for round in range(2):
        shared = [a for r, a in transcript.of_kind("importance_weights") if r.round == round and a is not None]
        each = []
        for name in shared[0].tensors():
            for numbers in zip(*(artifact.tensors()[name].flatten().tolist() for artifact in shared), strict=True):
                total = sum(numbers)
                shares = [n / total if total > 1e-12 else 1 / 3 for n in numbers]
                each.append(1 / sum(share * share for share in shares))
        assert log[f"effective_clients_round_{round + 1}"] == pytest.approx(median_low(each), rel=1e-4)
        assert 1 <= median_low(each) <= 3


def test_the_log_is_in_the_results(tiny: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = "inversion_steps=2,translator_steps=2,recalibrate_bn=false,select=last"
    config = AuditConfig(
        methods=(f"lsi:{short}",), targets=("blend",), preset="quick", clients=3, attacks=("none",)
    ).checked()
    results = Runner(config, tiny, tmp_path, ProgressLog()).run("test")
    (logged,) = tmp_path.rglob("trained.json")
    training = results.runs[0].training
    assert training == read_json(logged, TypeAdapter(Trained)).log
    assert {"stage1_accuracy_min", "class_preservation", "effective_clients_round_2"} <= set(training)
    assert "stage 1 trained too little: a client's accuracy on its own training images is" in capsys.readouterr().err


# Bad input and options


@pytest.mark.parametrize(
    ("n", "settings"),
    [(1, {}), (2, {}), (9, {}), (1, {"recalibrate_bn": True}), (1, {"importance_per": "sample"})],
    ids=str,
)
def test_clients_with_few_images_take_part(n: int, settings: Mapping[str, Any]) -> None:
    """Batches of 4: 1 image, which no BatchNorm counts; fewer than a batch; one batch and two, each with one left over."""
    world, method = federation(2), lsi(**settings)
    ran = run_on(method, world, {"client-0": held("client-0", n, labels=(1,) * n), "client-1": held("client-1", 6)})
    assert finite(ran.state)
    counters = [
        a.state["backbone.body.layer1.1.num_batches_tracked"]
        for r, a in ran.transcript.of_kind("model_state")
        if r.sender == "client-0" and r.round == 0 and isinstance(a, ModelState)
    ]
    assert [int(counter) for counter in counters] == [2 * max(1, n // 4) * (n > 1)]


def test_one_client_without_held_out_images_works() -> None:
    ran = run(lsi(), clients=1, out=0)
    assert finite(ran.state)
    assert "validation_metrics" not in {record.kind for record in ran.transcript.records}


def test_only_participants_fit_and_all_are_inverted() -> None:
    _, transcript, _ = run(lsi(participants=2, rounds=3))
    fitted = Counter(
        r.round for r in transcript.records if r.verb == "fit" and r.kind == "model_state" and r.sender != SERVER
    )
    assert fitted == {0: 2, 1: 2, 2: 2}
    assert len({r.sender for r in transcript.records if r.kind == "classifier_head"}) == 3


OPTIONS = [
    (name, choice)
    for name, kind in kinds(Method.named("lsi")).items()
    if get_origin(kind.annotation) is Literal and name not in kinds(Method.named("fedavg"))
    for choice in get_args(kind.annotation)
    if choice != "literal"
]


@pytest.mark.parametrize(("name", "choice"), OPTIONS)
def test_every_choice_trains(name: str, choice: str) -> None:
    settings: dict[str, Any] = {name: choice}
    if choice == "signed":
        settings["lr"] = 1e-3  # signed weights may cancel and blow up: that is the point of the option
    assert getattr(lsi(**settings), name) == choice
    run(lsi(**settings, rounds=1))


def test_the_released_values_fill_what_is_not_set() -> None:
    method = lsi(code_compat=True, out_act="none", bn_weight=0.5, hidden=8)
    assert (method.bn_weight, method.norm_weight, method.invariance) == (0.5, 0.001, 10.0)
    assert (method.inversion_mode, method.inversion_start, method.penalty_mix) == ("train", "carried", "released")
    assert (method.stage1_start, method.stage4_start, method.keep_momentum) == ("own", "global", True)
    plain = lsi()
    assert (plain.bn_weight, plain.norm_weight, plain.invariance, plain.out_act) == (1e-3, 1e-4, 1.0, "none")
    assert (plain.invariance_distance, plain.head_weight, plain.importance_statistics) == ("sum", 0.1, "fresh")
    assert (method.invariance_distance, method.head_weight, method.importance_statistics) == ("mean", 0.1, "running")


def test_the_released_values_replace_the_preset_s() -> None:
    paper: Any = AuditConfig(methods=("lsi",), preset="paper").method("lsi")
    released: Any = AuditConfig(methods=("lsi",), preset="paper").method("lsi:code_compat=true,dropout=all")
    names = ("inversion_labels", "dropout", "head_weight", "importance_output", "image_changes")
    assert tuple(getattr(paper, name) for name in names) == ("marginal", "all", 0.0, "paper", "crop_colour")
    assert tuple(getattr(released, name) for name in names) == ("uniform", "first", 0.1, "logits", "crop_colour")
    own: Any = part.LSI(code_compat=True, inversion_labels="uniform", head_weight=0.3)
    assert (own.inversion_labels, own.head_weight) == ("uniform", 0.3)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"recalibrate_bn": "true", "buffers": "freeze"}, "lsi.recalibrate_bn: want buffers=share, got buffers=freeze"),
        (
            {"aggregation": "mean", "normaliser": "clients"},
            "lsi.normaliser: want server where aggregation=mean .* got clients",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: Mapping[str, str], told: str) -> None:
    with refused(f"^{told}"):
        lsi(**settings)


@pytest.mark.parametrize("buffers", ["keep_local", "freeze"])
def test_all_statistics_can_be_kept_back_or_frozen(buffers: str) -> None:
    ran = run(lsi(buffers=buffers))
    states = crossed(ran.transcript, ModelState)
    if buffers == "keep_local":
        assert all(state.bn_statistics() == {} for state in states)
    else:
        assert all(int(layer["num_batches_tracked"]) == 0 for s in states for layer in s.bn_statistics().values())
    assert int(ran.state["head.norm.num_batches_tracked"]) == 0


def test_backbone_statistics_can_be_frozen_alone() -> None:
    ran = run(lsi(buffers="freeze_backbone"))
    moved = {name: int(tensor) for name, tensor in ran.state.items() if name.endswith("num_batches_tracked")}
    assert moved.pop("head.norm.num_batches_tracked") > 0
    assert moved
    assert set(moved.values()) == {0}


def test_all_off_is_local_sgd_and_the_plain_mean() -> None:
    method = lsi(aggregation="mean", invariance=0.0, weights="uniform", select="last", rounds=1)
    model, transcript, _ = run(method)
    sent = [a for r, a in transcript.of_kind("model_state") if r.verb == "fit" and isinstance(a, ModelState)]
    for name, _ in method.model(federation(), seeded(0)).named_parameters():
        torch.testing.assert_close(model.state_dict()[name], torch.stack([state.state[name] for state in sent]).mean(0))
    assert {r.kind for r in transcript.records} == {"model_state"}
