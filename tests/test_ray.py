"""--ray: a cluster on this machine gives the results of one process; lost workers, Ctrl-C and wrong addresses are one line."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import with_extra
from test_jobs import short  # noqa: F401 - a fixture

import fdgpriv
from fdgpriv import cluster
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.audit import main
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.results.finding import Results
from fdgpriv.utils import ray_environment  # noqa: F401 - before ray
from fdgpriv.utils.checksum import read_sums

WORDS = ["--ray"]


@dataclass(frozen=True)
class Mortal(Defense):
    """Changes nothing; kills its process, or waits, as often as there are files in `marks`, one of which it removes."""

    marks: str = ""
    waits: bool = False

    def protect(
        self, outgoing: Artifact | StyleDraft, rng: Any, received: ModelState | None = None
    ) -> Artifact | StyleDraft:
        for file in Path(self.marks).iterdir() if self.marks else ():
            file.unlink()
            if self.waits:
                time.sleep(300)
            os.kill(os.getpid(), signal.SIGKILL)
        return outgoing

    def alters(self, kind: str) -> bool:
        return False

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "Proves nothing.")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two machines with a core each, as processes of this one."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'fdgpriv[ray]'")
    from ray.cluster_utils import Cluster

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    size: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    head = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    head.add_node(**size)
    yield head.address
    head.shutdown()


def audited(out: Path, short: dict[str, Any], defenses: list[Any], **more: Any) -> Results:  # noqa: F811
    given = {"attacks": "domain_inference:simulations=4,expensive_simulations=2", "threats": ("server",)}
    return fdgpriv.run_audit("stablefdg", defenses=defenses, out=out, **{**given, **short, **more})


@pytest.fixture(scope="module")
def local(short: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """The folder of the audit in one process."""
    out = tmp_path_factory.mktemp("local") / "run"
    audited(out, short, ["none", "gaussian"])
    return out


def stored(out: Path) -> dict[str, str]:
    """The SHA-256 of what a run leaves, but for files with times."""
    timed = ("results.", "report.", "trained.json", "evaluations.parquet", ".zip")
    return {name: sha256 for name, sha256 in read_sums(out).items() if not any(part in name for part in timed)}


@pytest.mark.parametrize("address", ["127.0.0.1:9", "no-such-host.invalid:6379", "auto"])
def test_where_no_cluster_is_one_line(
    address: str,
    short: dict[str, Any],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fdgpriv[ray]'")
    from ray._private.services import find_gcs_addresses

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    if address == "auto" and (running := find_gcs_addresses()):
        pytest.skip(f"auto would take the cluster of this machine at {min(running)}")
    start = time.monotonic()
    with pytest.raises(ValueError, match=f"--ray: want a Ray cluster .*, got none at {address}: ") as error:
        audited(tmp_path / "run", short, ["none"], attacks="none", threats=(), ray=address)
    assert "\n" not in str(error.value)
    assert time.monotonic() - start < 30


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_cluster_gives_the_results_of_one_process(
    is_shared: bool,
    address: str,
    local: Path,
    short: dict[str, Any],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if not is_shared:
        ask: Callable[..., Any] = cluster._machines
        elsewhere = [cluster.Machine(cluster._versions(), False)]
        monkeypatch.setattr(cluster, "_machines", lambda *given: ask(*given) and elsewhere)
    results = audited(tmp_path / "run", short, ["none", "gaussian"], ray=address, progress=True)
    assert results.comparable() == fdgpriv.Results.load(local).comparable()
    assert stored(tmp_path / "run") == stored(local)
    assert read_sums(tmp_path / "run").keys() == read_sums(local).keys()
    assert not list((tmp_path / "run").glob(".shared*"))
    out, err = capfd.readouterr()
    assert ("one folder" if is_shared else "files are copied") in err
    assert out == ""


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_lost_worker_s_row_is_tried_again_once(
    deaths: int,
    address: str,
    short: dict[str, Any],  # noqa: F811
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "deaths").mkdir()
    for number in range(deaths):
        (tmp_path / "deaths" / str(number)).touch()
    defenses = [Mortal(str(tmp_path / "deaths")), "none"]
    results = audited(tmp_path / "run", short, defenses, attacks="none", threats=(), ray=address, progress=True)
    out, err = capfd.readouterr()
    assert err.count("its worker was lost (WorkerCrashedError); it is tried again") == 1
    assert [run.failed for run in results.runs] == [
        None if deaths == 1 else "its worker was lost (WorkerCrashedError)",
        None,
    ]
    assert out == ""


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Ctrl-C reaches this process also where a shell without job control began it in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("_interruptible")
def test_ctrl_c_keeps_what_is_finished(
    address: str,
    short: dict[str, Any],  # noqa: F811
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "waits").mkdir()
    (tmp_path / "waits" / "0").touch()
    trained = tmp_path / "run" / "transcript" / "stablefdg-t-0-none" / "trained.json"

    def interrupt() -> None:
        while not trained.is_file() or list((tmp_path / "waits").iterdir()):
            time.sleep(0.2)
        time.sleep(3)  # until the results of the finished row have arrived
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    defenses = ["none", Mortal(str(tmp_path / "waits"), waits=True)]
    given: dict[str, Any] = {"attacks": "none", "threats": (), "ray": address, "progress": True}
    results = audited(tmp_path / "run", short, defenses, **given)
    assert results.interrupted
    assert [run.defense for run in results.runs] == ["none"]
    assert "interrupted: keeping finished work" in capfd.readouterr().err
    again = audited(tmp_path / "run", short, defenses, **given, resume=True)
    assert [run.failed for run in again.runs] == [None, None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ray://host:10001"], "want HOST:PORT"),
        (["here"], "want HOST:PORT"),
        (["127.0.0.1:9", "--jobs", "2"], "--jobs: has no effect with --ray"),
        pytest.param(
            ["127.0.0.1:9", "--engine", "flower"],
            "--engine: want local with --ray",
            marks=with_extra("flower", "flwr"),
        ),
        (["127.0.0.1:9", "--log", "mlflow"], "--log: want tensorboard with --ray"),
        (["127.0.0.1:9", "--recording", "x", "--federation", "y"], "--ray: has no effect with --recording"),
    ],
)
def test_bad_usage_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_without_ray_the_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fdgpriv.utils.extras.find_spec", lambda name: None)
    assert main([*WORDS, "127.0.0.1:9"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--ray: want the package ray, got none; to install it: pip install 'fdgpriv[ray]'" in line
