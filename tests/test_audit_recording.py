"""Tests of audits of recorded trainings: equal to those of our own trainings, and what missing or bad input costs."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Evaluator, Fitted, fit, shortened
from factories import evaluated
from PIL import Image
from torch import Tensor, nn

import fdgpriv
from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.artifacts.style import StyleStatistics
from fdgpriv.audit import main
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.external.given_images import given_images
from fdgpriv.external.recorded_federation import GivenTraining, RecordedFederation, recorded_federation
from fdgpriv.external.recorded_method import Network, UserTraining
from fdgpriv.external.recorded_population import given_federation
from fdgpriv.federation.transcript import MANIFEST
from fdgpriv.results.utility import utility
from fdgpriv.simulation.shared_model import GLOBAL_MODEL
from fdgpriv.utils.seeds import generator

CLIENTS, SIDE, CLASSES = ("a", "b", "c", "d"), 8, 3


class Net(nn.Module):
    """A convolution, BatchNorm and a linear layer."""

    def __init__(self, channels: int = 3, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).mean((2, 3)))


def train(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.train()
    for index in torch.randperm(len(images), generator=rng).split(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
        optimizer.step()


def images_of(name: str, n: int, channels: int = 3) -> tuple[Tensor, Tensor]:
    """Random images, darker in the domain ``dark``, with labels."""
    rng = torch.Generator().manual_seed(sum(name.encode()))
    images = torch.rand(n, channels, SIDE, SIDE, generator=rng) * (0.5 if "dark" in name else 1.0)
    return images, torch.arange(n) % CLASSES


def given(channels: int = 3, **changes: Any) -> dict[str, Any]:
    """The arguments of an audit of `record`."""
    clients = {name: (*images_of(f"{name} {domain}", 12, channels), domain) for name, domain in domains().items()}
    public = {domain: images_of(f"public {domain}", 40, channels) for domain in ("dark", "light", "unseen")}
    every = {"network": lambda: Net(channels), "clients": clients, "public": public, "train": train}
    return {name: value for name, value in {**every, **changes}.items() if value is not None}


def domains() -> dict[str, str]:
    return {name: "dark" if number % 2 else "light" for number, name in enumerate(CLIENTS)}


def record(
    folder: Path, channels: int = 3, rounds: int = 2, down: bool = True, batch: bool = False, personal: bool = False
) -> Path:
    """Federated averaging by samples of `Net`, with the styles of its second layer; `batch` is how these are computed.

    The server sends one model to all, or, where it is `personal`, each client another.
    """
    torch.manual_seed(0)
    model, clients = Net(channels), given(channels)["clients"]
    with fdgpriv.record(folder) as wire:
        for round in range(rounds):
            sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            uploads = []
            for name, (images, labels, _) in clients.items():
                if personal:
                    sent = {key: tensor + tensor.is_floating_point() * 0.01 for key, tensor in sent.items()}
                if down:
                    wire.down(name, round, model=sent)
                model.load_state_dict(sent)
                with torch.no_grad():
                    features = model.train(batch).body[:2](images)
                model.load_state_dict(sent)
                train(model, images, labels, round, torch.Generator().manual_seed(round))
                uploads.append({key: tensor.clone() for key, tensor in model.state_dict().items()})
                pooled = features.mean((0, 2, 3)), features.std((0, 2, 3))
                wire.up(name, round, model=uploads[-1], n=len(images), style=pooled)
            model.load_state_dict({key: torch.stack([u[key].float() for u in uploads]).mean(0) for key in sent})
    return folder


def replayed(fitted: Fitted, folder: Path) -> Path:
    """A recording of what crossed the wire in one of our trainings."""
    with fdgpriv.record(folder) as wire:
        for index, crossing in enumerate(fitted.transcript.records):
            artifact = fitted.transcript.kept[index]
            content: dict[str, Any] = {}
            if isinstance(artifact, ModelState):
                content["model"] = artifact.state
            elif isinstance(artifact, StyleStatistics):
                content["style"] = (artifact.mean, artifact.std, artifact.mean_var, artifact.std_var)
            elif isinstance(artifact, SampleCount):
                content["n"] = int(artifact.count)
            client = crossing.receiver if crossing.sender == SERVER else crossing.sender
            (wire.down if crossing.sender == SERVER else wire.up)(client, crossing.round, **content)
    return folder


def as_given(fitted: Fitted, encoder: Any = None) -> GivenTraining:
    """What a user gives of this training of ours."""
    method: Any = fitted.method
    population = fitted.population
    template = next(iter(population.clients.values()))

    def train(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator) -> None:
        method.train_plainly(model, replace(template, pixels=images, labels=labels), round, rng)

    return GivenTraining(
        network=method.model(fitted.federation, generator(1)),
        clients={
            name: (data.images, data.labels, population.sources[population.main_domain(name)])
            for name, data in population.clients.items()
        },
        public={name: (domain.images, domain.labels) for name, domain in population.auxiliary.items()},
        train=train,
        encoder=encoder,
    )


def evaluator_of(fitted: Fitted, folder: Path, encoder: Any = None) -> Evaluator:
    """An evaluator of the recorded training, with the population of ours."""
    recorded = recorded_federation(replayed(fitted, folder), as_given(fitted, encoder), fitted.federation.seed)
    parts = (fitted.population, recorded.method, recorded.federation, Defense.named("none")())
    return Evaluator(*parts, recorded.transcript, fitted.federation.seed)


@pytest.fixture(scope="module")
def averaged(digits: Dataset) -> Fitted:
    return fit(shortened(digits, 48), clients=6, method="fedavg", settings={"rounds": "2"}, keep="all")


@pytest.mark.parametrize(
    ("attack", "kind"),
    [
        pytest.param("domain_inference:simulations=6", ModelState.kind, marks=pytest.mark.slow),
        ("client_size", ModelState.kind),
        pytest.param("linkage", ModelState.kind, marks=pytest.mark.slow),
        ("membership:shadows=2", GLOBAL_MODEL),
    ],
)
def test_scores_equal_those_of_our_training(averaged: Fitted, tmp_path: Path, attack: str, kind: str) -> None:
    recorded = evaluated(evaluator_of(averaged, tmp_path / "run"), attack, kind, [None])
    ours = evaluated(averaged.default_evaluator(), attack, kind, [None])
    assert recorded[None].headline == ours[None].headline
    assert recorded[None].headline["attack"]


@pytest.mark.slow
def test_style_scores_equal_those_of_our_training(digits: Dataset, tmp_path: Path) -> None:
    settings = {"rounds": "2", "batch_size": "60"}  # one batch a client
    fitted = fit(shortened(digits, 60), clients=6, settings=settings, keep="all")
    layer = fitted.evaluator().template.at
    evaluator = evaluator_of(fitted, tmp_path / "run", f"backbone.body.{layer}")
    assert evaluator.recorded_styles.uses_batch_statistics
    assert len(evaluator.recorded_styles.rounds) == 2
    for attack in ("domain_inference:simulations=6", "linkage"):
        recorded, ours = (
            evaluated(e, attack, StyleStatistics.kind, [None])[None] for e in (evaluator, fitted.default_evaluator())
        )
        # random styles amplify the rounding of features, which our training computes with another memory layout
        same = [{name: x for name, x in e.headline.items() if name != "random_style"} for e in (recorded, ours)]
        assert same[0] == same[1]


def audit(folder: Path, **changes: Any) -> fdgpriv.audit_recording:  # type: ignore[valid-type]
    quick = {"preset": "quick", "attacks": ["client_size", "linkage", "domain_inference"], "threats": ["server"]}
    return fdgpriv.audit_recording(folder, **given(**{**quick, **changes}))


@pytest.mark.slow
def test_an_audit_is_whole(tmp_path: Path) -> None:
    results = audit(record(tmp_path / "run"), out=tmp_path / "audit")
    (run,) = results.runs
    assert (tmp_path / "audit" / "report.html").is_file()
    assert not list(run.failed_parts())
    assert [round.round for round in run.utility.rounds] == [1, 2]
    assert {row.kind for row in run.artifacts} == {"model_state", "style_statistics", "sample_count"}
    assert run.images.train == 4 * 12
    sizes = [a for a in run.attacks if a.attack == "client_size" and a.kind == "sample_count"]
    assert sizes[0].metrics["relative_error"].value == 0
    assert any("Styles were recomputed at body.1 by the rule pooled_biased" in line for line in run.not_measured)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"train": None}, "what a client would share is simulated by its training: pass train=... to open it"),
        ({"public": {}}, "more public images of light"),
    ],
)
def test_what_was_not_given_is_named(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    (run,) = audit(record(tmp_path / "run"), **changes).runs
    asked = {attack.kind: attack.reason for attack in run.attacks if attack.attack == "domain_inference"}
    assert reason in asked["model_state"]
    assert "train" not in changes or asked["style_statistics"] is None


def case(tmp_path: Path, folder: Path | None = None, seed: int = 0, **changes: Any) -> Any:
    names = ("network", "clients", "public", "train", "encoder", "normalize")
    arguments = {name: value for name, value in given(**changes).items() if name in names}
    return recorded_federation(folder or record(tmp_path / "run"), GivenTraining(**arguments), seed)


def test_grey_images_reach_the_network_in_one_channel(tmp_path: Path) -> None:
    federation = case(tmp_path, record(tmp_path / "run", channels=1), channels=1)
    assert next(iter(federation.population.clients.values())).pixels.shape[1:] == (3, SIDE, SIDE)
    assert federation.method.disclosure().style_rule is None
    model = federation.method.model(federation.federation, generator(0))
    assert model(torch.rand(2, 3, SIDE, SIDE)).shape == (2, CLASSES)


@pytest.mark.parametrize("batch", [False, True])
def test_how_styles_were_computed_is_found(tmp_path: Path, batch: bool) -> None:
    federation = case(tmp_path, record(tmp_path / "run", batch=batch))
    assert {a.rule for a in federation.transcript.kept.values() if isinstance(a, StyleStatistics)} == {"pooled_biased"}
    known = federation.method.disclosure()
    assert (known.styles.uses_batch_statistics, known.weights) == (batch, "uniform")


def test_normalised_images_are_what_the_training_gets(tmp_path: Path) -> None:
    seen = []

    def watch(model: nn.Module, images: Tensor, *more: Any) -> None:
        seen.append(images.clone())
        assert torch.equal(model(images), model.head(model.body(images).mean((2, 3))))  # not normalised again

    network = Network(Net(), lambda images: 2 * images - 1, CLASSES)
    data = replace(case(tmp_path).population.clients["a"])
    UserTraining(watch, network, SIDE, 12).train_plainly(network.new(), data, 0, generator(0))
    assert torch.equal(seen[0], 2 * data.images - 1)
    assert torch.equal(network.new()(data.images), Net.forward(network.new(), 2 * data.images - 1))


@pytest.mark.parametrize(
    ("batch_size", "epochs", "drops"), [(8, 1, False), (8, 3, True), (100, 2, False), (300, 2, False)]
)
def test_steps_follow_from_a_watched_training(batch_size: int, epochs: int, drops: bool) -> None:
    def batches(n: int) -> Iterator[Tensor]:
        for _ in range(epochs):
            parts = torch.arange(n).split(batch_size)
            yield from parts[: max(1, n // batch_size)] if drops else parts

    def pass_through(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator) -> None:
        for index in batches(len(images)):
            model.train()(images[index])

    training = UserTraining(pass_through, Network(Net(), None, CLASSES), SIDE, 125)
    assert [training.steps(n) for n in (1, 8, 9, 250)] == [len(list(batches(n))) for n in (1, 8, 9, 250)]


def test_an_open_recording_loses_its_cut_round(tmp_path: Path) -> None:
    folder = record(tmp_path / "run")
    lines = (folder / MANIFEST).read_text().splitlines(keepends=True)
    (folder / MANIFEST).write_text("".join(lines[:-5]))  # without the end, and the last client
    for file in sorted(folder.glob("tensors-*"))[-3:]:
        file.unlink()
    federation = case(tmp_path, folder)
    assert {r.round for r in federation.transcript.records} == {0}
    assert "in the middle of round 1, in which 3 of 4 clients had answered" in federation.notes[0]


def other_clients(name: str) -> dict[str, Any]:
    clients = given()["clients"]
    return {name if key == "a" else key: value for key, value in clients.items()}


BAD: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("network: want that of the recording", lambda: {"network": lambda: Net(width=9)}),
    ("network: want that of the recording", lambda: {"network": lambda: nn.Linear(3, 3)}),
    ("network: want an nn.Module", lambda: {"network": lambda: 3}),
    ("got none of a", lambda: {"clients": other_clients("z")}),
    ("clients: want images by name", lambda: {"clients": {}}),
    ("want labels from 0 to 2", lambda: {"public": {"dark": (torch.rand(9, 3, SIDE, SIDE), torch.arange(9))}}),
    ("before they are normalised", lambda: {"public": {"dark": (torch.randn(9, 3, SIDE, SIDE), torch.zeros(9).int())}}),
    ("want images of one shape", lambda: {"public": {"dark": (torch.rand(9, 3, 9, 9), torch.zeros(9).int())}}),
    ("want a label for each image", lambda: {"public": {"dark": (torch.rand(9, 3, SIDE, SIDE), torch.zeros(8).int())}}),
    ("at most one domain", lambda: {"public": {n: images_of(n, 9) for n in ("x", "y")}}),
    ("encoder: want a layer of the network", lambda: {"encoder": "features"}),
    ("encoder: want one that takes", lambda: {"encoder": lambda model: nn.Linear(9, 3)}),
    ("train: want train", lambda: {"train": lambda model, images: None}),
    ("train: want the model trained in place", lambda: {"train": lambda *arguments: None}),
]


@pytest.mark.parametrize(("message", "changes"), BAD)
def test_bad_input_is_one_line(
    recording: Path, tmp_path: Path, message: str, changes: Callable[[], dict[str, Any]]
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        case(tmp_path, recording, **changes())
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recorded") / "run")


@pytest.mark.parametrize(
    ("recorded", "changes", "kind", "reason"),
    [
        ({}, {"train": None}, GLOBAL_MODEL, "pass train="),
        ({}, {"encoder": lambda model: model.body[0]}, StyleStatistics.kind, "differ from the recorded ones"),
        ({"down": False}, {}, ModelState.kind, "wire.down"),
        ({"down": False}, {}, StyleStatistics.kind, "wire.down"),
        ({"personal": True}, {}, GLOBAL_MODEL, "clients received different models in round 1"),
        ({}, {}, GLOBAL_MODEL, None),
    ],
)
def test_what_is_missing_costs_its_questions(
    recorded: dict[str, Any], changes: dict[str, Any], kind: str, reason: str | None, recording: Path, tmp_path: Path
) -> None:
    federation = case(tmp_path, record(tmp_path / "run", **recorded) if recorded else recording, **changes)
    closed = federation.method.disclosure().not_evaluated
    assert reason in closed[kind] if reason else kind not in closed
    assert (federation.final is None) == ("down" in recorded)


def test_a_training_unlike_the_recorded_is_said(recording: Path, tmp_path: Path) -> None:
    def timid(model: nn.Module, *arguments: Any) -> None:
        before = [parameter.detach().clone() for parameter in model.parameters()]
        train(model, *arguments)
        with torch.no_grad():
            for parameter, start in zip(model.parameters(), before, strict=True):
                parameter.copy_(start + 0.1 * (parameter - start))

    faithful, unlike = (
        next(check for check in case(tmp_path, recording, train=function).checks if check.check == "uploads")
        for function in (train, timid)
    )
    assert faithful.outcome == "pass"
    assert unlike.outcome == "note"
    assert unlike.sentence.startswith("train changes models by 0.1 of what was recorded")


def image_folder(folder: Path) -> Path:
    """One image of each of two classes, with levels 40 and 80."""
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (10, 10), (40 * (label + 1),) * 3).save(folder / name / "a.png")
    return folder


def test_images_are_given_in_many_forms(tmp_path: Path) -> None:
    pairs = torch.utils.data.TensorDataset(torch.rand(6, 3, SIDE, SIDE), torch.tensor([0, 1] * 3))
    rows = [{"image": Image.fromarray(np.full((SIDE, SIDE), 10 * i, np.uint8)), "label": i} for i in range(3)]
    channels_last = np.zeros((4, SIDE, SIDE, 3), np.uint8)
    for form, shape, labels in (
        (pairs, (6, 3, SIDE, SIDE), [0, 1] * 3),
        (rows, (3, 1, SIDE, SIDE), [0, 1, 2]),
        ((channels_last, [1, 1, 0, 0]), (4, 3, SIDE, SIDE), [1, 1, 0, 0]),
        ((torch.zeros(2, SIDE, SIDE), torch.tensor([1, 0])), (2, 1, SIDE, SIDE), [1, 0]),
    ):
        images = given_images(form, "images", None)
        assert images.pixels.shape == shape
        assert images.labels.tolist() == labels
    folder = given_images(image_folder(tmp_path / "images"), "images", 16)
    assert folder.pixels.dtype == torch.uint8
    assert folder.pixels[:, 0, 0, 0].tolist() == [40, 80]
    assert folder.classes == ("cat", "dog")


def test_classes_of_folders_are_joined(tmp_path: Path) -> None:
    more = image_folder(tmp_path / "more")
    (more / "cat").rename(more / "ant")
    clients = {"a": image_folder(tmp_path / "images"), "b": (more, "farm")}
    federation = given_federation(clients, {}, 16)
    assert federation.class_names == ("ant", "cat", "dog")
    assert [images.labels.tolist() for images in federation.clients.values()] == [[1, 2], [0, 2]]
    assert federation.domain_of["b"] == "farm"
    unnamed = {name: images_of(name, 6) for name in "ab"}
    assert set(given_federation(unnamed, {"here": images_of("c", 9)}, None).domain_of.values()) == {"here"}
    assert set(given_federation(unnamed, {}, None).domain_of.values()) == {"an unnamed domain"}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (3, "want \\(images, labels\\)"),
        ("nowhere", "want a folder"),
        ([{"text": "word"}], "want rows with image"),
        ([3], "want items"),
        ((torch.zeros(2, 3, 8, 9), torch.zeros(2)), "want square images"),
        ((torch.zeros(2, 3, 8, 8), torch.tensor([0.5, 1])), "whole numbers"),
        ([(torch.zeros(3, 8, 8), 0), (torch.zeros(3, 9, 9), 0)], "of one size"),
    ],
)
def test_images_in_no_known_form_are_refused(form: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        given_images(form, "images", 16)


def test_without_public_images_no_accuracy_is_known(recording: Path, tmp_path: Path) -> None:
    federation = case(tmp_path, recording, public={})
    accuracies = utility(federation.final, federation.population)
    for figure in (accuracies.source_accuracy, accuracies.target_accuracy, accuracies.calibration_error):
        assert figure.value is None
        assert figure.reason


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        for name in CLIENTS:
            wire.up(name, 0, model={**Net().state_dict(), "head.bias": torch.tensor([0.0, torch.nan, 0.0])})
    with pytest.raises(ValueError, match=r"a sent a model_state in round 0 whose head.bias holds NaN"):
        case(tmp_path, tmp_path / "run")


def test_a_client_twice_in_a_round_is_refused(recording: Path, tmp_path: Path) -> None:
    folder = tmp_path / "twice"
    shutil.copytree(recording, folder)
    lines = (folder / MANIFEST).read_text().splitlines(keepends=True)
    count = next(line for line in lines if '"sample_count"' in line)
    (folder / MANIFEST).write_text("".join([*lines[:-1], count, f'{{"closed": {len(lines) - 1}}}\n']))
    with pytest.raises(ValueError, match="one sample_count from a in round 0, got two"):
        case(tmp_path, folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "want a Python file"),
        ("network = 1", "none called clients"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("network =", "SyntaxError"),
        ("raise SystemExit", "SystemExit"),
        ("network = clients = 1", "clients: want images by name"),
        ("class Encoder: pass\nclient = 1\nnetwork = clients = 1", "clients: want images by name"),
        ("network = clients = 1\ndef normalise(x): return x", "want normalize spelt so"),
    ],
)
def test_a_wrong_module_is_one_line(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, message: str
) -> None:
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    words = ["--recording", str(recording), "--federation", str(file), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ("--recording here", "want --federation with it"),
        ("--federation here", "want --recording with it"),
        ("--recording here --federation there --method fedavg", "--method: has no effect"),
        ("--recording here --federation there --seed 0 1", "want one number"),
    ):
        assert main(words.split()) == 2
        assert message in capsys.readouterr().err


def test_a_figure_that_is_not_defined_is_a_note(tmp_path: Path) -> None:
    """A loss over no validation images is NaN; what attacks read is refused as before."""

    def of(value: float, sent: dict[str, Tensor]) -> RecordedFederation:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with fdgpriv.record(folder) as wire:
            for client in CLIENTS:
                wire.down(client, 0, model=Net().state_dict())
                wire.up(client, 0, model=sent, n=12, metrics={"val_loss": value, "accuracy": value})
        return recorded_federation(folder, GivenTraining(**given(train=None)), 0)

    state = Net().state_dict()
    assert not [note for note in of(0.5, state).notes if "NaN" in note]
    (note,) = [note for note in of(float("nan"), state).notes if "NaN" in note]
    assert "of a in round 0, and 7 more; no attack reads it" in note
    with pytest.raises(ValueError, match="want a training that did not diverge"):
        of(0.5, {**state, "head.bias": torch.full((CLASSES,), torch.nan)})
