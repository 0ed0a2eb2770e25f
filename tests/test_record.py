"""Tests of recordings: what any training loop writes with `fdgpriv.record`, and what is read of it."""

import errno
import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fdgpriv
from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.federation.transcript import MANIFEST, DamagedTranscript, Transcript, tensors_file
from fdgpriv.utils import checksum

STATE = {"conv.weight": torch.arange(6.0).view(2, 3), "bn.num_batches_tracked": torch.tensor(4)}
STYLE = (torch.ones(3), torch.full((3,), 2.0))


def two_rounds(folder: Path) -> Path:
    """A recording of two clients: models, counts, styles that the server passes on, and prototypes."""
    with fdgpriv.record(folder) as wire:
        for round in range(2):
            sent = {name: tensor + round for name, tensor in STATE.items()}
            for client in ("a", "b"):
                wire.down(client, round, model=sent)
            for client, shift in (("a", 1), ("b", 2)):
                trained = {name: tensor + shift for name, tensor in sent.items()}
                wire.up(client, round, model=trained, n=10 * shift, style=[m * shift for m in STYLE])
                wire.up(client, round, kind="prototype", rows=torch.full((2, 3), float(shift)))
            wire.down("b", round, style=STYLE)
    return folder


def test_what_is_recorded_is_read(tmp_path: Path) -> None:
    transcript = Transcript.load(two_rounds(tmp_path / "run"))
    assert transcript.closed
    assert len(transcript.records) == len(transcript.kept) == 22
    ups = [(r.sender, r.kind) for r in transcript.records if r.round == 1 and r.receiver == SERVER]
    kinds = ("model_state", "style_statistics", "sample_count", "prototype")
    assert ups == [(client, kind) for client in ("a", "b") for kind in kinds]
    uploads = [a for r, a in transcript.of_kind("model_state") if r.sender == "b" and r.round == 1]
    assert uploads[0] is not None
    assert all(torch.equal(uploads[0].tensors()[name], tensor + 3) for name, tensor in STATE.items())
    assert uploads[0].tensors()["bn.num_batches_tracked"].dtype == torch.int64


def test_a_model_for_all_is_stored_once(tmp_path: Path) -> None:
    folder = two_rounds(tmp_path / "run")
    transcript = Transcript.load(folder)
    assert transcript.model_sent(1) is not None
    assert len(list(folder.glob("tensors-*"))) == 22 - 2 * 2  # of each round, a second model and a relayed style


def test_a_relayed_style_has_its_origin(tmp_path: Path) -> None:
    records = Transcript.load(two_rounds(tmp_path / "run")).records
    assert [(r.origin, r.receiver) for r in records if r.relayed] == [("a", "b")] * 2


def test_an_update_is_received_minus_trained(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, update={"weight": torch.tensor([3.0])})
    (artifact,) = Transcript.load(tmp_path / "run").kept.values()
    assert artifact.kind == "model_update"
    assert artifact.tensors()["weight"].tolist() == [-3.0]


def test_views_and_shared_tensors_are_written(tmp_path: Path) -> None:
    table = torch.arange(12.0).view(3, 4)
    state = {"a": table, "b": table, "rows": table[1:], "columns": table.T, "empty": table[:0]}
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, model=state)
    (artifact,) = Transcript.load(tmp_path / "run").kept.values()
    assert all(torch.equal(artifact.tensors()[name], tensor) for name, tensor in state.items())


def test_metrics_and_heads(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, head=STATE, metrics={"accuracy": 0.5, "loss": 1.25})
    kept = {a.kind: a for a in Transcript.load(tmp_path / "run").kept.values()}
    assert float(kept["validation_metrics"].tensors()["accuracy"]) == 0.5
    assert float(kept["metrics"].tensors()["loss"]) == 1.25
    assert kept["classifier_head"].tensors().keys() == STATE.keys()


def test_a_killed_training_is_readable(tmp_path: Path) -> None:
    script = """
        import os, signal, sys, torch, fdgpriv
        wire = fdgpriv.record(sys.argv[1])
        for round in range(3):
            wire.up("a", round, model={"weight": torch.full((40_000,), float(round))})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    process = subprocess.run([sys.executable, "-c", dedent(script), str(tmp_path / "run")], env=dict(os.environ))
    assert process.returncode == -signal.SIGKILL
    transcript = Transcript.load(tmp_path / "run")
    assert [float(a.tensors()["weight"][0]) for a in transcript.kept.values()] == [0.0, 1.0, 2.0]
    assert not transcript.closed


@pytest.mark.parametrize("at", [1, 40, -1])
def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path, at: int) -> None:
    folder = two_rounds(tmp_path / "run")
    text = (folder / MANIFEST).read_text()
    lines = text.splitlines(keepends=True)
    for index in (20, 21):
        (folder / tensors_file(index)).unlink(missing_ok=True)
    (folder / MANIFEST).write_text("".join(lines[:21]) + lines[21][:at])
    transcript = Transcript.load(folder)
    assert len(transcript.records) == 20
    assert not transcript.closed


def test_a_cut_manifest_is_refused(tmp_path: Path) -> None:
    folder = two_rounds(tmp_path / "run")
    lines = (folder / MANIFEST).read_text().splitlines(keepends=True)
    (folder / MANIFEST).write_text("".join(lines[:9]))
    with pytest.raises(DamagedTranscript, match="was cut after 8 records"):
        Transcript.load(folder)
    (folder / MANIFEST).write_text("".join(lines[:9]) + lines[9][:50] + "\n" + "".join(lines[10:]))
    with pytest.raises(DamagedTranscript, match="record 8 is cut"):
        Transcript.load(folder)


def test_altered_tensors_are_refused(tmp_path: Path) -> None:
    folder = two_rounds(tmp_path / "run")
    file = folder / tensors_file(0)
    content = file.read_bytes()
    file.write_bytes(content[:-8] + bytes(8))
    with pytest.raises(DamagedTranscript, match=r"record 0.*as they were written"):
        Transcript.load(folder)
    file.write_bytes(content[:-8])
    with pytest.raises(DamagedTranscript, match="record 0"):
        Transcript.load(folder)
    file.unlink()
    with pytest.raises(DamagedTranscript, match="record 0"):
        Transcript.load(folder)


def omitted(folder: Path) -> list[str]:
    """What a recording lacks, each as text."""
    return [str(omission) for omission in Transcript.load(folder).omissions]


class Hostile:
    """An object that cannot be read in any way."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


LOOP: dict[str, object] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "content .*want something that was sent"),
        ({"kind": "prototype"}, "prototype .*got dict of 0"),
        ({"style": (torch.ones(2),)}, "style_statistics .*got 1 parts"),
        ({"style": (torch.ones(2), torch.ones(3))}, "style_statistics .*one shape"),
        ({"style": 3}, "style_statistics .*int"),
        ({"n": 0}, "sample_count .*want n from 1"),
        ({"n": float("nan")}, "sample_count .*got nan"),
        ({"n": "many"}, "sample_count .*got str"),
        ({"n": 2**40}, "sample_count .*got 1099511627776"),
        ({"model": {"weight": "heavy"}}, "weight of the model_state .*got str"),
        ({"model": {"weight": torch.ones(2, dtype=torch.complex64)}}, "weight of the model_state .*complex64"),
        ({"model": {"weight": None}}, "weight of the model_state .*NoneType"),
        ({"model": {"weight": 2**70}}, "weight of the model_state .*"),
        ({"model": {"weight": torch.ones(2, device="meta")}}, "weight of the model_state .*"),
        ({"model": {"weight": np.array(["a"])}}, "weight of the model_state .*got ndarray of <U1"),
        ({"model": {1: torch.ones(1), "1": torch.ones(2)}}, "1 of the model_state .*got two"),
        ({"model": {"weight": Hostile()}}, "weight of the model_state .*"),
        ({"model": Hostile()}, "model_state .*"),
        ({"model": LOOP}, "model_state .*RecursionError"),
        ({"model": iter([torch.ones(2)])}, "model_state .*iterator"),
        ({"update": [Hostile()]}, "0 of the model_update .*"),
        ({"metrics": {"accuracy": "good"}}, "validation_metrics .*"),
        ({"metrics": 0.5}, "metrics .*got 0.5"),
        ({"kind": "prototype", "client": torch.ones(1)}, "message .*client"),
        ({"kind": "prototype", "self": torch.ones(1)}, "message .*self"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_recorded_is_noted(
    tmp_path: Path, arguments: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        for client in ("a", "b"):
            wire.up(client, 0, **arguments)
            wire.up(client, 0, head=STATE)
    transcript = Transcript.load(tmp_path / "run")
    assert [record.kind for record in transcript.records if record.kind == "classifier_head"] == ["classifier_head"] * 2
    matching = [omission for omission in omitted(tmp_path / "run") if re.match(message, omission)]
    assert [omission.split(" from ")[1][0] for omission in matching] == ["a", "b"]
    lines = [line for line in caplog.messages if re.search(message, line)]
    assert len(lines) == 1
    assert all("\n" not in line for line in lines)


@pytest.mark.parametrize(
    ("client", "round"),
    [
        (SERVER, 0),
        ("", 0),
        ("a\0", 0),
        (None, 0),
        (Hostile(), 0),
        (b"a", 0),
        ("a", -1),
        ("a", "0"),
        ("a", None),
        ("a", 0.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_of_nobody_is_noted(tmp_path: Path, client: Any, round: Any) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up(client, round, n=3)
        wire.down(client, round, model=STATE)
        wire.up("b", 0, n=3)
    assert [omission.content for omission in Transcript.load(tmp_path / "run").omissions] == ["message"] * 2
    assert len(Transcript.load(tmp_path / "run").records) == 1


def test_one_line_is_logged_for_all_tensors_of_a_type(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        for client in ("a", "b"):
            wire.up(client, 0, model={"ok": torch.ones(1), **{f"layer{i}": torch.ones(1) * 1j for i in range(9)}})
    assert len(caplog.messages) == 1
    assert len(omitted(tmp_path / "run")) == 18


def test_a_call_without_a_round_is_noted(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a")  # type: ignore[call-arg]
        wire.down()  # type: ignore[call-arg]
        wire.up("a", 0, n=3)
    assert len(omitted(tmp_path / "run")) == 2


class Array:
    """An array of another library."""

    def numpy(self) -> np.ndarray[Any, Any]:
        return np.full(2, 3, dtype=">i4")


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (torch.tensor([1.5]).half(), torch.tensor([1.5])),
        (torch.tensor([1.5]).bfloat16(), torch.tensor([1.5])),
        (torch.tensor([1.5]).to(torch.float8_e4m3fn), torch.tensor([1.5])),
        (np.array([1.5], dtype=np.float16), torch.tensor([1.5])),
        (torch.quantize_per_tensor(torch.tensor([1.5, 2.0]), 0.5, 0, torch.qint8), torch.tensor([1.5, 2.0])),
        (torch.tensor([0.0, 2.0]).to_sparse(), torch.tensor([0.0, 2.0])),
        (torch.ones(2, requires_grad=True), torch.ones(2)),
        (np.arange(4)[::-2], torch.tensor([3, 1])),
        (np.longdouble(0.25), torch.tensor(0.25, dtype=torch.float64)),
        (Array(), torch.tensor([3, 3], dtype=torch.int32)),
        ([1.0, 2.0], torch.tensor([1.0, 2.0])),
        (True, torch.tensor(True)),
        (2, torch.tensor(2)),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")])),
    ],
)
def test_values_of_many_types_are_recorded(tmp_path: Path, value: Any, recorded: torch.Tensor) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, model={"weight": value})
    (artifact,) = Transcript.load(tmp_path / "run").kept.values()
    torch.testing.assert_close(artifact.tensors()["weight"], recorded, rtol=0, atol=0, equal_nan=True)


def test_models_in_many_forms_are_recorded(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(2, 3))
    state = network.state_dict()
    forms: list[Any] = [network, state, state.items(), {"0": {"weight": state["0.weight"], "bias": state["0.bias"]}}]
    with fdgpriv.record(tmp_path / "run") as wire:
        for round, form in enumerate(forms):
            wire.up("a", round, model=form)
        forms.append(list(state.values()))
        wire.up("a", 4, model=forms[-1])
    *named, listed = (artifact.tensors() for artifact in Transcript.load(tmp_path / "run").kept.values())
    assert all(tensors.keys() == state.keys() for tensors in named)
    assert listed.keys() == {"0", "1"}
    assert torch.equal(listed["1"], state["0.bias"])


def test_counts_in_many_forms_are_recorded(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        for round, n in enumerate([np.int32(7), torch.tensor(7), 7.0, np.array(7)]):
            wire.up("a", torch.tensor(round), n=n)  # type: ignore[arg-type]
    transcript = Transcript.load(tmp_path / "run")
    assert [(r.round, int(transcript.kept[i].tensors()["count"])) for i, r in enumerate(transcript.records)] == [
        (round, 7) for round in range(4)
    ]


def test_each_kind_has_a_word_of_its_own(tmp_path: Path) -> None:
    keys = [
        "train-metrics",
        "train_metrics",
        "Train-Metrics",
        "model_state",
        "指标",
        "3",
        "",
        "x" * 99,
        "x" * 98,
        "metrics",
    ]
    with fdgpriv.record(tmp_path / "run") as wire:
        for _ in range(2):
            for place, key in enumerate(keys):
                wire.up("a", 0, kind=key, rows=torch.tensor(place))
    transcript = Transcript.load(tmp_path / "run")
    kinds = [record.kind for record in transcript.records]
    assert kinds[:4] == ["train_metrics", "train_metrics_2", "train_metrics_3", "model_state_2"]
    assert len(set(kinds)) == len(keys)
    assert [int(artifact.tensors()["rows"]) for artifact in transcript.kept.values()] == list(range(len(keys)))
    assert not transcript.omissions


def test_a_client_sends_once_in_a_round(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        for n in (3, 3, 4):
            wire.up("a", 0, n=n)
        wire.up("a", 1, n=4)
    assert len(Transcript.load(tmp_path / "run").records) == 2
    assert omitted(tmp_path / "run") == [
        "sample_count from a to server in round 0 (want one in a round, got a second one, which differs)"
    ]


def test_a_message_after_the_end_is_noted(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, n=3)
    wire.up("a", 1, n=3)
    wire.close()
    assert Transcript.load(tmp_path / "run").closed
    assert ["is closed" in omission for omission in omitted(tmp_path / "run")] == [True]


def test_a_full_disk_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, where = checksum.save_tensors, "fdgpriv.federation.recording.save_tensors"

    def full(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        save(path, tensors)
        raise OSError(errno.ENOSPC, "No space left on device")

    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, model=STATE)
        monkeypatch.setattr(where, full)
        wire.up("b", 0, model={"weight": torch.ones(3)})
        monkeypatch.setattr(where, save)
        wire.up("c", 0, model={"weight": torch.ones(4)})
        wire.up("c", 1, model={"weight": torch.ones(4)})
    transcript = Transcript.load(tmp_path / "run")
    assert [(r.sender, r.round) for r in transcript.records] == [("a", 0), ("c", 0), ("c", 1)]
    assert len(list((tmp_path / "run").glob("tensors-*"))) == 3
    assert ["No space left" in omission for omission in omitted(tmp_path / "run")] == [True]


def test_omissions_are_noted_when_the_disk_has_space_again(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, n=3)
        (tmp_path / "run").rename(tmp_path / "gone")
        wire.up("a", 1, n=3)
        wire.up("a", 2, n=3)
        (tmp_path / "gone").rename(tmp_path / "run")
        wire.up("a", 3, n=3)
    assert [record.round for record in Transcript.load(tmp_path / "run").records] == [0, 3]
    assert [omission.round for omission in Transcript.load(tmp_path / "run").omissions] == [1, 2]


def test_a_line_that_is_cut_by_a_full_disk_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, n=3)
        size = (tmp_path / "run" / MANIFEST).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))
        try:
            wire.up("a", 1, n=3)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert (tmp_path / "run" / MANIFEST).stat().st_size == size
        wire.up("a", 2, n=3)
    assert [record.round for record in Transcript.load(tmp_path / "run").records] == [0, 2]
    assert ["File too large" in omission for omission in omitted(tmp_path / "run")] == [True]


def test_a_folder_that_failed_to_open_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "run", tmp_path / "mine"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (3, resource.RLIM_INFINITY))
        try:
            with pytest.raises(OSError, match="File too large"):
                fdgpriv.record(folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        two_rounds(folder)


def test_a_recording_of_nothing_blocks_no_other(tmp_path: Path) -> None:
    with suppress(ZeroDivisionError), fdgpriv.record(tmp_path / "run"):
        raise ZeroDivisionError
    two_rounds(tmp_path / "run")
    assert Transcript.load(tmp_path / "run").closed


def test_a_recording_overwrites_nothing(tmp_path: Path) -> None:
    two_rounds(tmp_path / "run")
    with pytest.raises(ValueError, match="new or empty folder"):
        fdgpriv.record(tmp_path / "run")
