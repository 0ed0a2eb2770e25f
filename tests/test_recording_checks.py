"""Tests of the checks of recordings: right input passes, and each kind of wrong input is named with its figure."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fdgpriv
from fdgpriv.audit import main
from fdgpriv.external import recording_checks
from fdgpriv.external.recorded_changes import ComparedClient, ModelChange
from fdgpriv.external.recorded_federation import GivenTraining, recorded_federation
from fdgpriv.external.recording_checks import Alternative, LabelFit, StatisticsSent
from fdgpriv.results.recording_check import RecordingCheck, RecordingChecks

CLASSES, SIDE = 3, 8
DOMAINS = {"a": "dark", "b": "light", "c": "dark", "d": "light", "e": "dark", "f": "light"}
Conversion = Callable[[Tensor], Tensor]


class Net(nn.Module):
    """A convolution, BatchNorm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images).mean((2, 3)))
        return logits


def train(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator, lr: float = 0.1) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr)
    model.train()
    for _ in range(2):
        for index in torch.randperm(len(images), generator=rng).split(12):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
            optimizer.step()


def images_of(name: str, n: int) -> tuple[Tensor, Tensor]:
    """Noise with a brighter channel of each class, in shares of classes that depend on the name."""
    rng = torch.Generator().manual_seed(sum(map(ord, name)))
    shares = torch.rand(CLASSES, generator=rng) + 0.2
    labels = torch.multinomial(shares, n, replacement=True, generator=rng)
    images = 0.6 * torch.rand(n, 3, SIDE, SIDE, generator=rng)
    images[torch.arange(n), labels] += 0.4
    return images * (0.7 if "dark" in name else 1.0), labels


def given(**changes: Any) -> dict[str, Any]:
    """The arguments of a check of `record`."""
    clients = {name: (*images_of(name + domain, 36), domain) for name, domain in DOMAINS.items()}
    public = {domain: images_of(f"public {domain}", 60) for domain in ("dark", "light", "unseen")}
    return {"network": Net, "clients": clients, "public": public, "train": train, **changes}


def record(
    folder: Path,
    convert: Conversion = lambda x: x,
    shared: Callable[[dict[str, Tensor], dict[str, Tensor]], dict[str, Any]] = lambda trained, sent: {"model": trained},
    averaged: str = "",
    late: int = 0,
    rounds: int = 2,
) -> Path:
    """Federated averaging; `averaged` is a part of the names of the tensors that the server averages.

    The recorded model is the one that was sent `late` rounds before.
    """
    torch.manual_seed(0)
    model, rng = Net(), torch.Generator().manual_seed(0)
    models = []
    with fdgpriv.record(folder) as wire:
        for round in range(rounds):
            sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            models.append(sent)
            uploads = []
            for name, (images, labels, _) in given()["clients"].items():
                if late >= 0:
                    wire.down(name, round, model=models[max(0, round - late)])
                model.load_state_dict(sent)
                train(model, convert(images), labels, round, rng)
                uploads.append({key: tensor.clone() for key, tensor in model.state_dict().items()})
                wire.up(name, round, n=len(images), **shared(uploads[-1], sent))
            mean = {key: torch.stack([u[key].float() for u in uploads]).mean(0) for key in sent}
            parameters = {name for name, _ in model.named_parameters()} if averaged else set(sent)
            model.load_state_dict(sent | {key: mean[key] for key in parameters})
            if late < 0:
                for name in DOMAINS:
                    wire.down(name, round, model=model.state_dict())
    return folder


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recorded") / "run")


def halved(images: Tensor) -> Tensor:
    return (images - 0.5) / 0.5


def outcomes(checks: RecordingChecks) -> dict[str, str]:
    return {check.check: check.outcome for check in checks}


def sentence(checks: RecordingChecks, name: str) -> str:
    return next(check.sentence for check in checks if check.check == name)


def test_right_input_passes(recording: Path) -> None:
    checks = fdgpriv.check_recording(recording, **given())
    assert set(outcomes(checks).values()) == {"pass"}, str(checks)
    assert sentence(checks, "simulated") == "6 of 6 clients were simulated"
    assert str(checks).endswith(f"{len(checks)} checks: 0 error, 0 note, {len(checks)} pass")


def permuted_labels(arguments: dict[str, Any]) -> None:
    arguments["clients"] = {n: (x, (y + 1) % CLASSES, d) for n, (x, y, d) in arguments["clients"].items()}


def swapped(arguments: dict[str, Any]) -> None:
    clients = arguments["clients"]
    arguments["clients"] = {**clients, "a": clients["c"], "c": clients["a"]}


def fewer_images(arguments: dict[str, Any]) -> None:
    images, labels, domain = arguments["clients"]["b"]
    arguments["clients"] = arguments["clients"] | {"b": (images[:30], labels[:30], domain)}


def public_of_clients(arguments: dict[str, Any]) -> None:
    images, labels, _ = arguments["clients"]["b"]
    arguments["public"] = arguments["public"] | {"light": (images, labels)}


def normalising_train(arguments: dict[str, Any]) -> None:
    arguments["train"] = lambda model, images, *others: train(model, halved(images), *others)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (permuted_labels, "images given as 0 are predicted as 2, 1 are predicted as 0"),
        (swapped, "what a sent fits the images given as c, what c sent fits the images given as a"),
        (fewer_images, "client b recorded n = 36 in round 0, got 30 images"),
        (public_of_clients, "36 of the 36 images of light are clients' images (e.g. of b)"),
        (normalising_train, "want the conversion in normalize="),
    ],
)
def test_wrong_input_is_an_error(recording: Path, wrong: Callable[[dict[str, Any]], None], words: str) -> None:
    arguments = given()
    wrong(arguments)
    checks = fdgpriv.check_recording(recording, **arguments)
    assert words in checks.errors[0].sentence
    with pytest.raises(ValueError) as error:
        fdgpriv.audit_recording(recording, **arguments, preset="quick", attacks=["client_size"])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_forgotten_normalisation_is_named(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", convert=halved)
    assert "trained on (x - 0.5) / 0.5" in sentence(fdgpriv.check_recording(folder, **given()), "normalisation")
    assert not fdgpriv.check_recording(folder, **given(normalize=halved)).errors
    wrong = fdgpriv.check_recording(folder, **given(normalize=lambda x: x - 0.5))
    assert "(x - 0.5) / 0.5" in str(wrong.refusal())


@pytest.mark.parametrize("sign", [1, -1])
def test_a_reversed_update_is_named(tmp_path: Path, sign: int) -> None:
    folder = record(
        tmp_path / "run",
        shared=lambda trained, sent: {"update": {name: sign * (trained[name] - sent[name]) for name in sent}},
    )
    checks = fdgpriv.check_recording(folder, **given())
    if sign > 0:
        assert not checks.errors
    else:
        assert "received minus trained" in checks.errors[0].sentence


@pytest.mark.parametrize(
    ("late", "words"), [(1, "in round 2 is the mean of what clients sent in round 0:"), (-1, "the same")]
)
def test_models_of_another_round_are_named(tmp_path: Path, late: int, words: str) -> None:
    checks = fdgpriv.check_recording(record(tmp_path / "run", late=late, rounds=3), **given())
    assert outcomes(checks)["rounds"] == "error"
    assert words in sentence(checks, "rounds")
    assert checks[0].check == "rounds"  # it explains the others


@pytest.mark.parametrize("direction", ["up", "down"])
def test_one_model_recorded_for_both_directions_is_named(tmp_path: Path, direction: str) -> None:
    """A client that sends what it received: both were recorded before, or both after the training."""
    with fdgpriv.record(tmp_path / "run") as wire:
        for name, (images, labels, _) in given()["clients"].items():
            model = Net()
            if direction == "down":
                train(model, images, labels, 0, torch.Generator())
            wire.down(name, 0, model=model.state_dict())
            wire.up(name, 0, model=model.state_dict(), n=len(images))
    checks = fdgpriv.check_recording(tmp_path / "run", **given())
    assert "what 6 of 6 clients sent is what they received" in sentence(checks, "direction")


def test_a_normalisation_of_each_image_is_named(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", lambda x: (x - x.mean((2, 3), keepdim=True)) / x.std((2, 3), keepdim=True))
    checks = fdgpriv.check_recording(folder, **given())
    assert "trained on mean and std of each image" in sentence(checks, "normalisation")
    assert checks[0].check == "normalisation"  # it explains that images seem to stand under other names


def test_channels_in_reverse_order_are_no_other_order_of_classes(recording: Path) -> None:
    clients = {name: (images.flip(1), labels, domain) for name, (images, labels, domain) in given()["clients"].items()}
    checks = fdgpriv.check_recording(recording, **given(clients=clients))
    assert checks[0].check == "normalisation"
    assert "trained on channels in reverse order" in checks[0].sentence


def test_what_train_does_otherwise_is_a_note(recording: Path) -> None:
    def timid_and_twice(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator) -> None:
        for _ in range(2):
            train(model, images, labels, round, rng, lr=0.02)

    checks = fdgpriv.check_recording(recording, **given(train=timid_and_twice))
    assert not checks.errors
    assert "a trained on 6 batches in round 1" in sentence(checks, "steps")
    assert "another learning rate" in sentence(checks, "uploads")
    assert checks.notes[0].concerns("global_model", "labels")
    assert not checks.notes[0].concerns("style_statistics", "labels")


def test_what_is_missing_is_a_note(recording: Path) -> None:
    checks = fdgpriv.check_recording(recording, **given(train=None))
    assert sentence(checks, "questions").startswith("all questions about model_state, global_model are lost: ")
    assert sentence(checks, "questions").endswith("pass train=... to open it")


def test_kept_statistics_are_those_of_the_final_model(tmp_path: Path) -> None:
    arguments = {name: value for name, value in given().items() if name != "image_size"}
    for averaged, kept in (("", False), ("parameters", True)):
        folder = record(tmp_path / f"run{kept}", averaged=averaged)
        federation = recorded_federation(folder, GivenTraining(**arguments), 0)
        assert federation.final is not None
        sent = federation.transcript.model_sent(1)
        assert sent is not None
        equal = torch.equal(federation.final.state_dict()["body.1.running_mean"], sent.state["body.1.running_mean"])
        assert equal is kept
        assert (outcomes(federation.checks)["buffers"] == "note") is kept


def test_other_statistics_are_a_note() -> None:
    assert recording_checks.buffers([StatisticsSent(0, 0.01, 1.0)]).outcome == "pass"
    other = recording_checks.buffers([StatisticsSent(0, 0.01, 1.0), StatisticsSent(1, 0.7, 0.4)])
    assert other.outcome == "note"
    assert "after round 1 are not the mean of its clients' (off by 0.7" in other.sentence


def simulated(
    change: Callable[[Tensor, torch.Generator], Tensor], clients: int = 8, spread: float = 0.3
) -> list[ComparedClient]:
    """Clients whose changes are their own direction plus noise by `spread`; `change` is made to the recorded one."""
    rng = torch.Generator().manual_seed(0)

    def of(parameters: Tensor) -> ModelChange:
        return ModelChange(parameters, float(parameters.norm()), torch.empty(0), None)

    made = []
    for number in range(clients):
        base = torch.randn(4000, generator=rng) * (1 + 0.1 * number)
        recorded, one, other = (base + spread * torch.randn(4000, generator=rng) for _ in range(3))
        made.append(ComparedClient(f"c{number}", 0, of(change(recorded, rng)), of(one), of(other)))
    return made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, rng: x, "train changes models by 1.00 of what was recorded"),
        (lambda x, rng: 0.2 * x, "train changes models by 5 of what was recorded"),
        (lambda x, rng: x + 1.5 * torch.randn(len(x), generator=rng), "noise of std 1.5 in each parameter"),
        (lambda x, rng: x * (x.abs() > x.abs().quantile(0.9)), "90% of a recorded change is exactly 0"),
        (lambda x, rng: (x * 10).round(), "different values"),
        (lambda x, rng: 3 * x / x.norm(), "8 of 8 recorded changes have the length 3"),
    ],
)
def test_how_uploads_differ_is_said(change: Callable[[Tensor, torch.Generator], Tensor], words: str) -> None:
    check = recording_checks.uploads(simulated(change))
    assert words in check.sentence
    assert (check.outcome == "pass") == ("models by 1.00" in words)


@pytest.mark.parametrize(
    ("factors", "outcome"),
    [
        ((20.0, 40.0, 60.0, 80.0), "error"),  # n
        ((0.1, 0.2, 0.3, 0.4), "error"),  # n / N
        ((40.0, 40.0, 40.0, 40.0), "pass"),  # a larger learning rate
        ((1.0, 1.2, 0.9, 1.1), "pass"),
    ],
)
def test_multiplied_updates_are_named(factors: tuple[float, ...], outcome: str) -> None:
    clients = [
        replace(client, client=name, recorded=replace(client.recorded, length=factor * client.simulated.length))
        for name, factor, client in zip("abcd", factors, simulated(lambda change, rng: change), strict=False)
    ]
    check = recording_checks.weights(clients, {"a": 20, "b": 40, "c": 60, "d": 80})
    assert check.outcome == outcome
    assert f"{(factors[1] + factors[2]) / 2:.2g} times" in check.sentence


def test_noise_is_measured() -> None:
    """Against the share of the squared length that was added."""
    for std in (1.0, 2.0):
        added = list[float]()

        def noisy(x: Tensor, rng: torch.Generator, std: float = std, added: list[float] = added) -> Tensor:
            noise = std * torch.randn(len(x), generator=rng)
            added.append(float(noise.square().sum() / (x + noise).square().sum()))
            return x + noise

        check = recording_checks.uploads(simulated(noisy))
        share = float(check.sentence.split("%")[0]) / 100
        assert share == pytest.approx(sorted(added)[len(added) // 2], abs=0.03)


def test_names_are_told_by_changes() -> None:
    clients = simulated(lambda x, rng: x)
    assert recording_checks.names(clients).outcome == "pass"
    moved = [replace(c, recorded=clients[(i + 1) % len(clients)].recorded) for i, c in enumerate(clients)]
    check = recording_checks.names(moved)
    assert check.outcome == "error"
    assert "what c0 sent fits the images given as c1" in check.sentence
    assert recording_checks.names(simulated(lambda x, rng: x, spread=50.0)).outcome == "note"
    alone = recording_checks.names([replace(clients[0], recorded=clients[1].recorded), *clients[1:]])
    assert alone.outcome == "note"  # in an exchange of names, images of another client fit worse, too
    assert "what c0 sent fits the images given as c1 better than its own" in alone.sentence
    rounds = [replace(client, round=i) for i, client in enumerate(moved)]  # each alone in its round
    assert recording_checks.names(rounds).outcome == "note"


def test_the_loss_of_permuted_labels_is_their_mean() -> None:
    """Against all 120 permutations."""
    logits = torch.randn(5, CLASSES, generator=torch.Generator().manual_seed(0)).log_softmax(1)
    labels = torch.tensor([0, 1, 1, 2, 0])
    losses = [nn.functional.nll_loss(logits, labels[list(order)]) for order in permutations(range(5))]
    fit = LabelFit.of("a", logits, labels)
    assert fit.permuted == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)
    assert fit.loss == pytest.approx(float(nn.functional.nll_loss(logits, labels)), rel=1e-5)


def test_labels_of_a_model_that_learned_nothing_are_not_judged() -> None:
    labels = torch.tensor([0, 1, 2] * 5)
    flat = torch.full((15, CLASSES), 1 / CLASSES).log()
    assert recording_checks.labels([LabelFit.of("a", flat, labels)], "xyz").outcome == "note"
    sure = nn.functional.one_hot((labels + 1) % 3, CLASSES).float().mul(4).log_softmax(1)
    check = recording_checks.labels([LabelFit.of("a", sure, labels)], "xyz")
    assert check.outcome == "error"
    assert "x are predicted as y" in check.sentence
    right = [LabelFit.of(name, sure, (labels + 1) % 3) for name in "bc"]
    few = recording_checks.labels([LabelFit.of("a", sure, labels), *right], "xyz")
    assert few.outcome == "note"
    assert "the labels given of a fit" in few.sentence
    assert f"loss {LabelFit.of('a', sure, labels).loss:.2f} on the labels given of a " in few.sentence


@pytest.mark.parametrize(
    ("other", "outcome"), [((0.01, 0.02, 0.01), "error"), ((0.3, 0.4, 0.3), "note"), ((0.05, 0.05, 0.9), "note")]
)
def test_a_better_normalisation_is_clearly_better(other: tuple[float, ...], outcome: str) -> None:
    """It must fit most clients, and as well as right input does."""
    of_user, alternative = Alternative("x", (0.5, 0.6, 0.7), 2.0), Alternative("x / 255", other, 1.0)
    check = recording_checks.normalisation(of_user, [alternative], 0.02)
    assert check.outcome == outcome
    assert ("(loss 1.00)" if outcome == "error" else "deviate from recorded ones by 0.6") in check.sentence
    assert recording_checks.normalisation(of_user, [alternative], 0.02, is_whole=False).outcome in (outcome, "pass")


def test_common_images_of_clients_are_a_note() -> None:
    check = recording_checks.clients_in_common({"a": {b"1", b"2", b"3"}, "b": {b"2", b"3", b"4", b"5"}, "c": {b"6"}})
    assert check.outcome == "note"
    assert "a and b have 2 images in common" in check.sentence
    few = recording_checks.public_images({"a": {b"1"}}, {"x": [b"1", *(b"%d" % i for i in range(10, 60))]})
    assert few.outcome == "note"


FEDERATION = "from test_recording_checks import *\nglobals().update(given())\n"


def test_the_command_line_checks_and_plans(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, wrong = tmp_path / "mine.py", tmp_path / "wrong.py"
    file.write_text(FEDERATION)
    wrong.write_text(FEDERATION + "arguments = given()\nswapped(arguments)\nclients = arguments['clients']\n")
    words = ["--recording", str(recording), "--federation"]
    assert main([*words, str(file), "--check"]) == 0
    assert "checks: 0 error" in capsys.readouterr().out
    assert main([*words, str(wrong), "--check"]) == 2
    output = capsys.readouterr()
    assert "error  names" in output.out
    assert "what a sent fits the images given as c" in output.err
    plan = ["--dry-run", "--preset", "quick", "--attack", "client_size", "--threat", "server"]
    assert main([*words, str(file), *plan]) == 0
    planned = capsys.readouterr().out
    assert "client_size: " in planned
    assert "memory: about" in planned
    assert not list(tmp_path.glob("runs*"))


def test_check_takes_no_option_of_an_attack(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ("--check", "--check: want --recording with it"),
        ("--recording a --federation b --check --attack all", "--attack: has no effect with --check"),
        ("--recording a --federation b --check --out c", "--out: has no effect with --check"),
    ):
        assert main(words.split()) == 2
        assert message in capsys.readouterr().err


def test_a_note_stands_in_the_questions_that_it_concerns() -> None:
    note = RecordingCheck(check="public images", outcome="note", sentence="x", secrets=("membership",))
    assert note.concerns("model_state", "membership")
    assert not note.concerns("model_state", "labels")
    assert not RecordingCheck(check="buffers", outcome="note", sentence="x").concerns("model_state", "labels")
