"""A SuperLink and three SuperNodes on this machine, one of them in a network of its own: two rounds; and what is said when
one node is killed.
"""

import os
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
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
HERE, THERE = "198.18.77.1", "198.18.77.2"  # ends of the cable to another network, of a range for tests (RFC 2544)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listening in sockets:
            listening.bind(("127.0.0.1", 0))
        return [listening.getsockname()[1] for listening in sockets]


@contextmanager
def network_namespace() -> Iterator[str]:
    """The name of a network namespace with a cable to this one; skips the test where the machine gives none."""
    name, ours, theirs = (f"fdg{os.getpid()}{end}" for end in ("", "a", "b"))
    steps = (
        f"netns add {name}",
        f"link add {ours} type veth peer name {theirs} netns {name}",
        f"addr add {HERE}/30 dev {ours}",
        f"link set {ours} up",
        f"-n {name} addr add {THERE}/30 dev {theirs}",
        f"-n {name} link set {theirs} up",
        f"-n {name} link set lo up",
    )
    if (ip := shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")) is None:
        pytest.skip("no program ip to make a network namespace with")
    try:
        for step in steps:
            done = subprocess.run([ip, *step.split()], capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no network namespace here: ip {step}: {done.stderr.strip()}")
        yield name
    finally:
        for step in (f"link del {ours}", f"netns del {name}"):
            subprocess.run([ip, *step.split()], capture_output=True, check=False)


class Federation:
    """The processes of a deployed federation, whose output is in files of a folder.

    Args:
        folder: A new one.
        dataset: Each node has images of one of its domains.
        namespace: The network namespace of the last node; None where it shares that of the others.
    """

    def __init__(self, folder: Path, dataset: Dataset, namespace: str | None) -> None:
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
        host = "127.0.0.1" if namespace is None else "0.0.0.0"
        self.start("superlink", "flower-superlink", "--insecure", "--host", host, "--port", str(superlink))
        for name, port, domain in zip(NAMES, ports, dataset.domains, strict=False):
            for label in (0, 1):
                (folder / name / str(label)).mkdir(parents=True)
                for i in (domain.labels == label).nonzero().flatten()[:6].tolist():
                    pixels = (domain.pixels[i] * 255).byte() if domain.pixels.is_floating_point() else domain.pixels[i]
                    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / name / str(label) / f"{i}.png")
            config = f'name="{name}" data="{folder / name}"'
            within, link = list[str](), address
            if namespace is not None and name == NAMES[-1]:
                within, link = ["ip", "netns", "exec", namespace], f"{HERE}:{superlink}"
            options = ("--insecure", "--superlink", link, "--port", str(port), "--node-config", config)
            self.start(name, *within, "flower-supernode", *options)
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
def deployed(folder: Path, dataset: Dataset, namespace: str | None = None) -> Iterator[Federation]:
    federation = Federation.__new__(Federation)
    try:
        federation.__init__(folder, dataset, namespace)  # type: ignore[misc]
        federation.start("run", "flwr", "run", str(folder / "app"), "here", "--stream")
        yield federation
    finally:
        for process in reversed(federation.processes.values()):
            process.terminate()
        for process in federation.processes.values():
            process.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("networks", [1, 2])
def test_three_nodes_train_two_rounds(networks: int, tmp_path: Path, digits: Dataset) -> None:
    with (
        network_namespace() if networks == 2 else nullcontext() as namespace,
        deployed(tmp_path, digits, namespace) as federation,
    ):
        if namespace is not None:
            apart = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
            assert str(federation.processes[NAMES[-1]].pid) in apart.stdout.split()
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
