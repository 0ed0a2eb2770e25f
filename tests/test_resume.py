"""An interrupted training continues after its last complete round, and ends with every bit as if nothing had happened."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import audits_of, mostly_slow, shortened
from factories import SMALL, refused
from test_bad_populations import folder
from torch import Tensor, nn

from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.federation.checkpoint import INDEX, TRIAL, Checkpoints
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.state import Resumable, StateDecoder, StateEncoder
from fdgpriv.federation.transcript import Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.training import Cell, train, trained_file
from fdgpriv.utils.checksum import DamagedFile, write_json
from fdgpriv.utils.console import ProgressLog

ROUNDS = 3
FEWER = {name: {"hidden": "2"} for name in ("hfedf", "pfedhn")}  # they spend most of their time on writing checkpoints
CASES = [
    ("fedavg", {}, "none", 1),
    ("fedavg", {"selection": "validation", "buffers": "keep_local", "participants": "2"}, "gaussian:epsilon=4,on=all", 2),
    ("fedavg", {"network": "inception"}, "none", 2),  # draws in its dropout
    ("stablefdg", {}, "gaussian:epsilon=4", 2),
    ("fedavg", {"participants": "2", "batch_size": "20"}, "dpsgd", 2),
    ("ccst", {"split": "before", "batch_size": "40"}, "dpsgd", 1),
    ("ccst", {"selection": "validation"}, "none", 1),
    ("ccst", {"split": "after", "style": "single", "images_per_style": "8"}, "none", 2),
    ("pardon", {"optimizer": "adam"}, "none", 2),
    ("hfedf", {"warmup": "0"}, "none", 1),
    ("hfedf", {"ema": "shadow", "warmup": "1", "embedding": "random"}, "none", 2),
    ("hfedf", {"ema": "evaluate", "embedding": "autoencoder", "autoencoder_epochs": "1"}, "none", 2),
    ("pfedhn", {"participants": "2"}, "none", 1),
    ("lsi", {"keep_momentum": "true", "recalibrate_bn": "true"}, "none", 1),
    ("lsi", {"select": "validation", "normaliser": "clients", "stage4_start": "global"}, "gaussian:epsilon=4", 2),
    ("elcfs", {"participants": "2"}, "none", 1),
    ("feddg_ga", {"participants": "2"}, "none", 1),
    ("fpl", {"participants": "2"}, "none", 1),
    ("gperxan", {"participants": "2"}, "none", 1),
    ("copa", {}, "none", 2),
]  # fmt: skip
QUICKLY = [CASES[i] for i in (3,)]  # the others only among the slow tests


class Killed(BaseException):
    """Ends a training at once, as a signal would."""


@pytest.fixture(autouse=True)
def _stores_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "due", property(lambda self: True))


@pytest.fixture(scope="module")
def few(digits: Dataset) -> Iterator[Dataset]:
    """The digits with 24 images a domain; the default network is narrow as long as they are in use."""
    with audits_of(few := shortened(digits, 24)):
        yield few


class Answers:
    """Counts the answers in a training; the one after `most` kills it."""

    def __init__(self, patch: pytest.MonkeyPatch, most: int) -> None:
        self.count = 0
        receive = Wire._check

        def killed(wire: Wire, *given: Any) -> Any:
            if self.count == most:
                raise Killed
            self.count += 1
            return receive(wire, *given)

        patch.setattr(Wire, "_check", killed)


def trained(
    folder: Path,
    dataset: Dataset,
    method: str,
    settings: dict[str, Any],
    defense: str,
    workers: int,
    most: int = -1,
    quiet: bool = True,
) -> int:
    """Trains, or goes on; how many answers there were."""
    small = {name: str(value) for name, value in SMALL.get(method, SMALL["fedavg"]).items()} | FEWER.get(method, {})
    chosen = {**small, "rounds": str(ROUNDS), "local_epochs": "1", **settings}
    config = AuditConfig(methods=(method,), preset="quick", settings=chosen, clients=3, device="cpu").checked()
    with pytest.MonkeyPatch.context() as patch:
        answers = Answers(patch, most)
        train(config, dataset, Cell(method, dataset.default_target, 0, defense), folder, ProgressLog(quiet), workers)
    return answers.count


def told(folder: Path) -> dict[str, Any]:
    """The bytes that a training leaves, and what its record says but for times."""
    (place,) = (folder / "transcript").iterdir()
    found: dict[str, Any] = {path.name: path.read_bytes() for path in place.iterdir() if path.suffix != ".json"}
    record = json.loads((place / "trained.json").read_text())["content"]
    return found | {name: value for name, value in record.items() if name not in ("train_s", "wire_s")}


@pytest.mark.parametrize(
    ("method", "settings", "defense", "workers"),
    mostly_slow(CASES, QUICKLY),
)
def test_an_interrupted_training_ends_alike(
    method: str, settings: dict[str, Any], defense: str, workers: int, few: Dataset, tmp_path: Path
) -> None:
    """Killed in the middle, just after going on, and in the last round."""
    case = (few, method, settings, defense)
    total = trained(tmp_path / "whole", *case, workers)
    for most in (total // 2, 1, total - total // 2 - 1):
        with pytest.raises(Killed):
            trained(tmp_path / "killed", *case, workers, most)
    assert trained(tmp_path / "killed", *case, 3 - workers) <= total // 2  # it did not begin anew
    assert told(tmp_path / "killed") == told(tmp_path / "whole")
    assert not list((tmp_path / "killed").rglob("checkpoint*"))


@pytest.fixture(scope="module")
def stopped(few: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an interrupted FedAvg."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "due", property(lambda self: True))
        with pytest.raises(Killed):
            trained(folder, few, "fedavg", {}, "none", 1, most=7)
    return folder


@pytest.fixture
def index(stopped: Path, tmp_path: Path) -> Path:
    """Where the checkpoint of a copy of it lies, in `tmp_path`."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    (found,) = tmp_path.rglob(INDEX)
    return found


def test_a_checkpoint_of_other_settings_is_refused(few: Dataset, index: Path, tmp_path: Path) -> None:
    with refused(r"method: was FedAvg.*lr=0.1.*, now FedAvg.*lr=0.2.*remove .*checkpoint.json", DamagedFile):
        trained(tmp_path, few, "fedavg", {"lr": "0.2"}, "none", 1)
    with refused("labels: was", DamagedFile):
        trained(tmp_path, shortened(few, 20), "fedavg", {}, "none", 1)


DAMAGED = [
    ("state.safetensors", "bit"),
    ("manifest.jsonl", "gone"),
    ("checkpoint.json", "bit"),
    ("state.safetensors", "gone"),
    ("tensors.safetensors", "bit"),
]


@pytest.mark.parametrize(("name", "damage"), mostly_slow(DAMAGED, DAMAGED[:3]))
def test_a_damaged_checkpoint_is_refused(name: str, damage: str, few: Dataset, index: Path, tmp_path: Path) -> None:
    (path,) = index.parent.rglob(name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    if damage == "gone":
        path.unlink()
    with refused(f"remove {re.escape(str(index))}", DamagedFile):
        trained(tmp_path, few, "fedavg", {}, "none", 1)


def test_without_its_index_no_checkpoint_is_complete(few: Dataset, index: Path, tmp_path: Path) -> None:
    """As the lines of the refusals say, training then begins anew."""
    index.unlink()
    assert trained(tmp_path, few, "fedavg", {"lr": "0.2"}, "none", 1) == 3 * ROUNDS


def entries(state: Any, kind: str) -> Iterator[dict[str, Any]]:
    """The parts of this kind in a stored state."""
    for part in state.values() if isinstance(state, dict) else state if isinstance(state, list) else ():
        yield from entries(part, kind)
    if isinstance(state, dict) and kind in state:
        yield state


FORGED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tensor", {"tensor": "no such"}),
    ("tensor", {"stride": [2**40] * 4}),
    ("tensor", {"stride": "1"}),
    ("training", {"training": [True]}),
    ("generator", {"generator": 1}),
    ("dict", {"dict": [[1]]}),
    ("module", {"module": {"dict": []}}),
    ("object", {"object": {}}),
    ("module", {"module": [[]] * 3}),
)


def test_a_forged_checkpoint_is_refused(few: Dataset, index: Path, tmp_path: Path) -> None:
    """The digests fit, so that only the forms are left to tell; and it names no place outside."""
    whole = index.read_text()
    for kind, changed in (*FORGED, ("folder", {"folder": "../elsewhere"})):
        content = json.loads(whole)["content"]
        (content if kind == "folder" else next(entries(content["state"], kind))).update(changed)
        write_json(index, json.dumps(content).encode())
        wanted = "folder: String should match pattern" if kind == "folder" else "want a checkpoint of this training in "
        with refused(f"{wanted}.*; remove ", DamagedFile):
            trained(tmp_path, few, "fedavg", {}, "none", 1)


def test_checkpoints_take_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = [0.0]
    monkeypatch.undo()
    monkeypatch.setattr("fdgpriv.federation.checkpoint.perf_counter", lambda: now[0])
    checkpoints = Checkpoints(tmp_path, {}, cost=0.05)
    assert not checkpoints.due
    now[0] = 1.0
    assert checkpoints.due

    class Slow(Resumable):
        checkpointed = ("value",)

        @property
        def value(self) -> int:
            now[0] += 2.0
            return 1

    checkpoints.save("rounds", 1, {"slow": Slow()}, Transcript())
    assert not checkpoints.due
    now[0] = 3.0 + 39.9
    assert not checkpoints.due
    now[0] = 3.0 + 40.1
    assert checkpoints.due


def test_a_client_without_checkpoints_is_trained(few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own method need not know of checkpoints."""
    kind = type(Method.named("fedavg")())

    class Bare:
        def __init__(self, inner: Any) -> None:
            self.fit = inner.fit

    whole = kind.client
    monkeypatch.setattr(kind, "client", lambda *given: Bare(whole(*given)))
    with pytest.raises(Killed):
        trained(tmp_path, few, "fedavg", {}, "none", 1, most=7)
    assert not list(tmp_path.rglob("checkpoint*"))
    assert trained(tmp_path, few, "fedavg", {}, "none", 1) == 3 * ROUNDS


def test_values_are_stored_bit_for_bit() -> None:
    one = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(3))
    values = {
        "channels_last": one.to(memory_format=torch.channels_last),
        "narrow": torch.randn(4, 3, 1, 1).to(memory_format=torch.channels_last),
        "transposed": one[0, 0].T,
        "sliced": one[1:3, :, ::2],
        "same": [one, one],
        "none": None,
        "numbers": (1, 0.1, float("inf"), True, "text", 2**40),
        3: torch.tensor(7),
        "empty": [torch.zeros(0, 3), torch.zeros(0, 3)],
        "artifact": SampleCount(client="a", round=2, count=torch.tensor(5)),
    }
    encoder = StateEncoder()
    stored = json.loads(json.dumps(encoder.encode(values)))
    copies = {name: tensor.clone() for name, tensor in encoder.tensors.items()}
    found = StateDecoder(copies, torch.device("cpu")).decode(stored)
    assert list(found) == list(values)
    assert found["same"][0] is found["same"][1]
    assert found["numbers"] == values["numbers"]
    assert (found["artifact"].client, found["artifact"].round, int(found["artifact"].count)) == ("a", 2, 5)
    for name in ("channels_last", "narrow", "transposed", "sliced"):
        wanted: Any = values[name]
        assert torch.equal(found[name], wanted)
        assert name == "sliced" or found[name].stride() == wanted.stride()


def test_a_network_is_loaded_in_place() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    optimizer, second = (torch.optim.SGD(net.parameters(), 0.1, 0.9) for net in (model, other))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    model.eval()
    encoder = StateEncoder()
    stored = encoder.encode({"net": model, "optimizer": optimizer})
    parameters: list[Tensor] = list(other.parameters())
    copies = {name: tensor.clone() for name, tensor in encoder.tensors.items()}
    StateDecoder(copies, torch.device("cpu")).decode(stored, {"net": other, "optimizer": second})
    assert all(a is b for a, b in zip(parameters, other.parameters(), strict=True))
    assert not other.training
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    assert other[0].weight.stride() == model[0].weight.stride()
    buffers = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
    others = [second.state[p]["momentum_buffer"] for p in other.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(buffers, others, strict=True))


def test_loops_without_an_engine_are_ranges() -> None:
    world = Federation(("a",), 2, 8, lambda rng: None, 0)  # type: ignore[arg-type,return-value]
    assert list(world.rounds(3, model=1)) == [0, 1, 2]
    assert list(world.stage("first")) == [0]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_audit_that_is_killed_goes_on(how: signal.Signals, tmp_path: Path) -> None:
    words = ["-m", "fdgpriv.audit", "--method", "fedavg", "--preset", "quick", "--clients", "3", "--attack", "none"]
    images = folder(tmp_path / "images", {name: {"p": 20, "q": 20} for name in ("a", "b", "t")})
    words += ["--dataset", "folder", "--data-root", str(images), "--target", "t", "--image-size", "16"]
    words += ["--set", "rounds=30", "local_epochs=1"]  # more than the one second in which nothing is stored
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *words, "--out", str(tmp_path / "out")], env=environment, stderr=subprocess.DEVNULL
    )
    index = trained_file(tmp_path / "out", Cell("fedavg", "t", 0, "none")).with_name(INDEX)
    end = time.monotonic() + 120
    while not index.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(how)
    assert process.wait(60) == (-9 if how == signal.SIGKILL else 3)
    assert index.exists()

    def run(*more: str) -> str:
        """Stderr of an audit in a process of its own, in which no fixture has narrowed the network."""
        return subprocess.run(
            [sys.executable, *words, *more], env=environment, check=True, stderr=subprocess.PIPE, text=True
        ).stderr

    assert "continues after round " in run("--out", str(tmp_path / "out"), "--resume")
    if how == signal.SIGKILL:
        run("--out", str(tmp_path / "whole"))
        assert told(tmp_path / "out") == told(tmp_path / "whole")


# Methods of users, whose state may not be complete: a pass that is repeated from the first checkpoint is compared.

FedAvg = type(Method.named("fedavg")())


@dataclass(frozen=True)
class Complete(FedAvg):  # type: ignore[misc, valid-type]
    """FedAvg in a file of a user."""


@dataclass(frozen=True)
class ForgetfulServer(FedAvg):  # type: ignore[misc, valid-type]
    """The server adds a part of the last round's change, which it does not name to `Federation.rounds`."""

    def aggregation(self, federation: Federation) -> Any:
        aggregation = super().aggregation(federation)
        merge, velocity = aggregation.merge, dict[str, Tensor]()

        def with_momentum(model: nn.Module, answers: Any, round: int) -> None:
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            merge(model, answers, round)
            with torch.no_grad():
                for name, p in model.named_parameters():
                    velocity[name] = p - before[name] + 0.5 * velocity.get(name, torch.zeros_like(p))
                    p.copy_(before[name] + velocity[name])

        aggregation.merge = with_momentum
        return aggregation


@dataclass(frozen=True)
class ForgetfulClients(FedAvg):  # type: ignore[misc, valid-type]
    """Clients scale their updates by a counter that is not in `checkpointed`."""

    def client(self, federation: Federation, data: Any, rng: torch.Generator) -> Any:
        client = super().client(federation, data, rng)
        fit, counter = client.fit, [0]

        def counted(message: Any) -> Any:
            counter[0] += 1
            scale = 1 + counter[0] / 100
            state, *others = fit(message)
            scaled = {name: t * scale if t.is_floating_point() else t for name, t in state.state.items()}
            return [replace(state, state=scaled), *others]

        client.fit = counted
        return client


@dataclass(frozen=True)
class GlobalDraws(FedAvg):  # type: ignore[misc, valid-type]
    """Clients draw from torch's global generator."""

    def loss(self, model: nn.Module, batch: Any, rng: torch.Generator) -> Tensor:
        return super().loss(model, batch, rng) * (1 + torch.rand(()))


INCOMPLETE = [(Complete, ""), *((kind, "server: model") for kind in (ForgetfulServer, ForgetfulClients, GlobalDraws))]


@pytest.mark.parametrize(("kind", "differing"), mostly_slow(INCOMPLETE, INCOMPLETE[:2]))
def test_state_that_is_not_stored_is_found(
    kind: Any, differing: str, few: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then nothing is stored, and a resumed training begins at the first round; otherwise it continues."""
    name = kind.register()
    rounds = {"rounds": "4"}
    with pytest.raises(Killed):
        trained(tmp_path / "killed", few, name, rounds, "none", 1, most=10, quiet=False)
    printed = capsys.readouterr().err
    if differing:
        assert re.search(
            rf"no checkpoints: a pass of rounds that is repeated from one ends otherwise \(.*{differing}", printed
        )
        assert not list(tmp_path.rglob("checkpoint*"))
        assert trained(tmp_path / "killed", few, name, rounds, "none", 1) == 3 * (4 + 1)  # a pass twice
    else:
        assert "no checkpoints" not in printed
        assert list(tmp_path.rglob(INDEX))
        assert trained(tmp_path / "killed", few, name, rounds, "none", 1) == 3 * 2
        trained(tmp_path / "whole", few, name, rounds, "none", 1)
        assert told(tmp_path / "killed") == told(tmp_path / "whole")


def test_a_trial_is_not_continued_from(few: Dataset, tmp_path: Path) -> None:
    """Killed before the pass after the first checkpoint ended, which is when it is checked."""
    name = Complete.register()
    with pytest.raises(Killed):
        trained(tmp_path, few, name, {}, "none", 1, most=4)
    assert not list(tmp_path.rglob(f"{TRIAL}/../{INDEX}"))
    assert trained(tmp_path, few, name, {}, "none", 1) == 3 * (ROUNDS + 1)  # a pass twice
    assert not list(tmp_path.rglob("checkpoint*"))
