"""Tests of recordings: what any training loop writes with `fdgpriv.record`, and what is read of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch

import fdgpriv
from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.federation.transcript import MANIFEST, DamagedTranscript, Transcript, tensors_file

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "want something that was sent"),
        ({"rows": torch.ones(2)}, "rows without a kind"),
        ({"kind": "prototype"}, "without any"),
        ({"kind": "model_state", "rows": torch.ones(2)}, "other than"),
        ({"style": (torch.ones(2),)}, "got 1 parts"),
        ({"style": (torch.ones(2), torch.ones(3))}, "one shape"),
        ({"n": 0}, "n at least 1"),
        ({"model": {"weight": "heavy"}}, "weight to be a tensor"),
    ],
)
def test_bad_messages_are_refused(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with fdgpriv.record(tmp_path / "run") as wire, pytest.raises(ValueError, match=message):
        wire.up("a", 0, **arguments)  # type: ignore[arg-type]


def test_a_client_sends_once_in_a_round(tmp_path: Path) -> None:
    with fdgpriv.record(tmp_path / "run") as wire:
        wire.up("a", 0, n=3)
        with pytest.raises(ValueError, match="one sample_count from a in round 0"):
            wire.up("a", 0, n=3)
        wire.up("a", 1, n=3)
        with pytest.raises(ValueError, match="other than server"):
            wire.up(SERVER, 1, n=3)
        with pytest.raises(ValueError, match="a round from 0"):
            wire.up("a", -1, n=3)
    with pytest.raises(ValueError, match="is closed"):
        wire.up("a", 2, n=3)


def test_a_recording_overwrites_nothing(tmp_path: Path) -> None:
    two_rounds(tmp_path / "run")
    with pytest.raises(ValueError, match="new or empty folder"):
        fdgpriv.record(tmp_path / "run")
