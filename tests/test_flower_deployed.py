"""A SuperLink and three SuperNodes on this machine: two rounds; and what is said when one node is killed."""

import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from factories import equal
from safetensors.torch import load_file

from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.federation.local_engine import LocalEngine
from fdgpriv.federation.transcript import VIEWS, Transcript
from fdgpriv.federation.wire import Wire

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fdgpriv[flower]'")
from PIL import Image

from fdgpriv.flower.deployment import Deployment

APP = Path(__file__).parent.parent / "examples" / "flower_app" / "pyproject.toml"
NAMES = ("hospital-a", "hospital-b", "hospital-c")
OFF = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
PATIENCE = 900  # seconds, of a machine that does much else


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listening in sockets:
            listening.bind(("127.0.0.1", 0))
        return [listening.getsockname()[1] for listening in sockets]


class Federation:
    """The processes of a deployed federation, whose output is in files of a folder."""

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self.folder, self.processes = folder, dict[str, subprocess.Popen[bytes]]()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {
            **os.environ,
            **OFF,
            "PATH": path,
            "FLWR_HOME": str(folder / "home"),
            "OMP_NUM_THREADS": "1",
        }
        superlink, *ports = free_ports(1 + len(NAMES))
        address = f"127.0.0.1:{superlink}"
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(f'[superlink.here]\naddress = "{address}"\ninsecure = true\n')
        (folder / "app").mkdir()
        app = APP.read_text().replace('"runs/flower"', f'"{folder / "out"}"')
        (folder / "app" / "pyproject.toml").write_text(app)
        self.start("superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(superlink))
        for name, port, domain in zip(NAMES, ports, dataset.domains, strict=False):
            for label in (0, 1):
                (folder / name / str(label)).mkdir(parents=True)
                for i in (domain.labels == label).nonzero().flatten()[:6].tolist():
                    pixels = (domain.pixels[i] * 255).byte() if domain.pixels.is_floating_point() else domain.pixels[i]
                    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / name / str(label) / f"{i}.png")
            config = f'name="{name}" data="{folder / name}"'
            options = ("--insecure", "--superlink", address, "--port", str(port), "--node-config", config)
            self.start(name, "flower-supernode", *options)
        for name in NAMES:
            self.wait_for(name, "SuperNode ID")

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=subprocess.STDOUT)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, text: str) -> None:
        end = monotonic() + PATIENCE
        while text not in self.log(name):
            assert monotonic() < end, f"want {text} of {name}, got {self.log(name)[-2000:]}"
            sleep(0.2)


@contextmanager
def deployed(folder: Path, dataset: Dataset) -> Iterator[Federation]:
    federation = Federation.__new__(Federation)
    try:
        federation.__init__(folder, dataset)  # type: ignore[misc]
        federation.start("run", "flwr", "run", str(folder / "app"), "here", "--stream")
        yield federation
    finally:
        for process in reversed(federation.processes.values()):
            process.terminate()
        for process in federation.processes.values():
            process.wait(60)


@pytest.mark.slow
def test_three_nodes_train_two_rounds(tmp_path: Path, digits: Dataset) -> None:
    with deployed(tmp_path, digits) as federation:
        federation.wait_for("run", "trained; transcript and model are in")
    local = Wire({}, Defense(), Transcript(VIEWS))
    here = Deployment.of(tomllib.loads(APP.read_text())["tool"]["flwr"]["app"]["config"])
    data = {name: here.data(name, tmp_path / name) for name in NAMES}
    method, local.defense, world = here.parts(NAMES)
    local.sizes = {name: len(part) for name, part in data.items()}
    model = LocalEngine(1).run(method, world, data, local)
    assert equal(dict(model.state_dict()), load_file(tmp_path / "out" / "model.safetensors"))
    transcript = Transcript.load(tmp_path / "out" / "transcript")
    assert transcript.records == local.transcript.records
    assert len({r.origin for r in transcript.records}) == 1 + len(NAMES)
    for index, artifact in local.transcript.kept.items():
        assert equal(artifact.tensors(), transcript.kept[index].tensors())


@pytest.mark.slow
def test_a_killed_node_is_named(tmp_path: Path, digits: Dataset) -> None:
    with deployed(tmp_path, digits) as federation:
        federation.wait_for("run", "fdgpriv: round 1 of 2")
        federation.processes["hospital-c"].kill()
        federation.wait_for("run", "hospital-c failed in fit of round 1: Flower says: ")
    assert not (tmp_path / "out").exists()
