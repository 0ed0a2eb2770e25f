"""The transcript: what is kept, that it comes back as it was saved, and that no file can make it lie or run."""

import json
import pickle
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Fitted
from factories import refused
from factories_core import crossing, model_state, sample_count, style
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from fdgpriv import artifacts
from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.federation.transcript import MANIFEST, SMALL, TENSORS, DamagedTranscript, Record, Transcript
from fdgpriv.utils.file_memory import LARGE


def state(client: str, round: int, numbers: int = SMALL) -> ModelState:
    """A model state; by default of 4 * SMALL bytes, which is not small."""
    weight = torch.arange(numbers, dtype=torch.float32) + round
    return model_state(client, round, **{"weight": weight, "bn.num_batches_tracked": torch.tensor(3)})


def recorded(keep: str, rounds: int = 4, numbers: int = SMALL) -> Transcript:
    """Two clients: each round the model goes out, styles come in and are passed on, models come back."""
    made = Transcript(keep)
    for round in range(rounds):
        model = state(SERVER, round, numbers)
        styles = {client: style(client, round) for client in ("a", "b")}
        for client in ("a", "b"):
            made.add(crossing(model, SERVER, client, "style"), model)
        for client in ("a", "b"):
            made.add(crossing(styles[client], client, SERVER, "style"), styles[client])
        for client, other in (("a", "b"), ("b", "a")):
            made.add(crossing(styles[other], SERVER, client), styles[other])
        for client in ("a", "b"):
            back = state(client, round, numbers)
            made.add(crossing(back, client, SERVER), back)
            n = sample_count(client, round)
            made.add(crossing(n, client, SERVER), n)
    return made


def assert_equal(one: Transcript, other: Transcript) -> None:
    assert one.keep == other.keep
    assert one.records == other.records
    assert list(one.kept) == list(other.kept)
    for index, artifact in one.kept.items():
        again = other.kept[index]
        assert type(again) is type(artifact)
        assert again.facts() == artifact.facts()
        assert list(again.tensors()) == list(artifact.tensors())
        for name, tensor in artifact.tensors().items():
            assert again.tensors()[name].dtype == tensor.dtype
            assert torch.equal(again.tensors()[name], tensor)


# What is kept


def test_a_large_artifact_lies_in_one_file(tmp_path: Path) -> None:
    made, model = Transcript("ends"), state(SERVER, 0, LARGE // 4)
    stored = [made.add(crossing(model, SERVER, client), model) for client in ("a", "b")]
    assert stored[0] is stored[1] is made.kept[1] is not model
    assert isinstance(stored[0], ModelState)
    whole = {tensor.untyped_storage().data_ptr() for tensor in stored[0].state.values()}
    assert len(whole) == 1
    assert all(torch.equal(stored[0].state[name], tensor) for name, tensor in model.state.items())
    model.state["weight"].zero_()  # whoever sent it trains on
    assert float(stored[0].state["weight"][1]) == 1
    made.save(tmp_path)
    assert (tmp_path / TENSORS).stat().st_size < 1.1 * LARGE
    assert_equal(Transcript.load(tmp_path), made)
    small = style("a", 0)
    assert made.add(crossing(small, "a", SERVER, "style"), small) is small


@pytest.mark.parametrize(("keep", "rounds"), [("ends", {0, 3}), ("all", {0, 1, 2, 3}), ("small", set())])
def test_model_states_are_kept_by_rule(keep: str, rounds: set[int]) -> None:
    made = recorded(keep, numbers=4 if keep == "small" else SMALL)
    states = [record.round for record, artifact in made.of_kind("model_state") if artifact is not None]
    assert sorted(states) == sorted([*rounds] * 4)  # two sent, two back
    for kind in ("style_statistics", "sample_count"):
        assert all(artifact is not None for _, artifact in made.of_kind(kind))
    assert len(made.records) == 4 * 10


def test_the_last_uploads_are_kept_beside_a_final_model() -> None:
    """Of `rounds` trainings the final model is that of round `rounds`; a client answers it with little or nothing."""
    made, final = recorded("ends", rounds=4), state(SERVER, 4, 40_000)
    for client in ("a", "b"):
        made.add(crossing(final, SERVER, client, "validate"), final)
    kept = [record for record, artifact in made.of_kind("model_state") if artifact is not None]
    assert sorted({(record.round, record.sender == SERVER) for record in kept}) == [
        (0, False), (0, True), (3, False), (3, True), (4, True),
    ]  # fmt: skip


@pytest.mark.parametrize(("keep", "rounds"), [("last", {3}), ("ends", {0, 3}), ("all", {0, 1, 2, 3})])
def test_a_thinned_transcript_keeps_by_its_rule(keep: str, rounds: set[int], tmp_path: Path) -> None:
    """The last round is the last in which clients shared models, whatever small artifact they send later."""
    made = recorded("views", rounds=4)
    final = state(SERVER, 4, 40_000)
    made.add(crossing(final, SERVER, "a", "validate"), final)
    late = style("a", 4)
    made.add(crossing(late, "a", SERVER, "validate"), late)
    thin = made.thinned(keep)
    uploads = {record.round for record, a in thin.of_kind("model_state") if a is not None and record.sender != SERVER}
    assert uploads == rounds
    assert thin.model_sent(4) is not None
    assert thin.model_sent(0) is not None  # that first artifacts were computed under
    assert len(thin.records) == len(made.records)
    thin.save(tmp_path)
    again = Transcript.load(tmp_path)
    assert again.kept.keys() == thin.kept.keys()


def test_an_unknown_rule_is_refused() -> None:
    with refused("last, ends, all, small, views, got 'most'"):
        Transcript("most")


def test_the_model_of_a_round_is_the_first_sent() -> None:
    made = recorded("ends")
    for round in (0, 3):
        found = made.model_sent(round)
        assert found is not None
        assert (found.client, found.round) == (SERVER, round)
    assert made.model_sent(1) is made.model_sent(9) is None
    made, begun, merged = Transcript(), state(SERVER, 2, 4), state(SERVER, 2, 5)
    for verb, model in (("fit", begun), ("validate", merged)):
        made.add(crossing(model, SERVER, "a", verb), model)
    assert made.model_sent(2) is made.models_sent(2, "fit")["a"] is begun
    assert made.model_sent(2, "validate") is merged
    assert made.models_sent(2, "pretrain") == {}


# It comes back as it was saved


@pytest.mark.parametrize("what", ["ends", "small", "a real run", "nothing"])
def test_it_comes_back_as_it_was_saved(what: str, fitted: Fitted, tmp_path: Path) -> None:
    recorded("all", rounds=1).save(tmp_path)  # replaced
    made = {"a real run": fitted.transcript, "nothing": Transcript()}.get(what) or recorded(what)
    made.save(tmp_path)
    assert_equal(made, Transcript.load(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([MANIFEST, TENSORS])


def test_a_relayed_artifact_is_written_once(tmp_path: Path) -> None:
    """Though the server relays those of several clients in turn."""
    transcript = Transcript("all")
    numbers = LARGE // 4
    shared = [
        transcript.add(crossing(s, s.client, SERVER), s) for s in (state("a", 0, numbers), state("b", 0, numbers))
    ]
    for receiver in ("c", "d"):
        for artifact in shared:
            transcript.add(crossing(artifact, SERVER, receiver), artifact)
    assert [transcript.kept[i] is transcript.kept[i % 2] for i in range(6)] == [True] * 6
    transcript.save(tmp_path)
    assert (tmp_path / TENSORS).stat().st_size < 3 * shared[0].nbytes
    back = Transcript.load(tmp_path)
    assert back.records == transcript.records
    assert len({id(record.shapes) for record in back.records}) == 1


def test_artifacts_that_share_memory_are_saved(tmp_path: Path) -> None:
    views = torch.arange(48.0).view(6, 8).t()[:4]  # not contiguous, and rows of one storage
    own = style("a", mean=views[0], std=views[1], mean_var=views[2], std_var=views[3])
    made = Transcript()
    for artifact in (own, own.seen_as("b")):
        made.add(crossing(artifact, artifact.client, SERVER), artifact)
    made.save(tmp_path)
    assert_equal(made, Transcript.load(tmp_path))


# Hostile files


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    recorded("all", rounds=2, numbers=4).save(tmp_path)
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [json.loads(line) for line in (folder / MANIFEST).read_text().splitlines()]
    return found


def rewrite(folder: Path, entries: list[Any]) -> None:
    (folder / MANIFEST).write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def assert_refused(folder: Path, reason: str = "") -> None:
    """In one printable line that names the folder."""
    with refused(re.escape(reason), DamagedTranscript) as caught:
        Transcript.load(folder)
    assert str(caught.value).isprintable()
    assert str(folder) in str(caught.value)


def test_missing_or_cut_files_are_refused(saved: Path) -> None:
    assert_refused(saved / "nowhere")
    tensors = (saved / TENSORS).read_bytes()
    for path in (saved / TENSORS, saved / MANIFEST):
        whole = path.read_bytes()
        for share in (0, 0.0005, 0.5, 0.999):
            path.write_bytes(whole[: int(share * len(whole))])
            assert_refused(saved)
        path.unlink()
        assert_refused(saved)
        path.mkdir()
        assert_refused(saved)
        path.rmdir()
        path.write_bytes(whole)
    for length in (0, 2**31, 2**63, 2**64 - 1):  # of a header
        (saved / TENSORS).write_bytes(struct.pack("<Q", length) + tensors[8:])
        assert_refused(saved)
    header = json.dumps({"0/mean": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}).encode()
    (saved / TENSORS).write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    assert_refused(saved)
    (saved / TENSORS).write_bytes(tensors)
    Transcript.load(saved)
    rewrite(saved, lines(saved)[:-3])
    assert_refused(saved, "no record names")


def test_altered_tensors_are_refused(saved: Path) -> None:
    tensors = load_file(saved / TENSORS)
    changes: tuple[tuple[Callable[[Tensor], Tensor], str], ...] = (
        (lambda t: t[:-1].clone(), "wants"),
        (lambda t: t[None].clone(), "wants"),
        (lambda t: t.double(), "float64"),
        (lambda t: t.to(torch.int32), "int32"),
        (lambda t: t.to(torch.complex64), "complex64"),
        (lambda t: t * torch.nan, "NaN or an infinity"),
        (lambda t: (t + 1) / 0, "NaN or an infinity"),
    )
    for change, reason in changes:
        for key in ("0/weight", "2/mean"):
            save_file({**tensors, key: change(tensors[key])}, saved / TENSORS)
            assert_refused(saved, reason)
    for index in ("0", "99", "-1", "../../etc/passwd"):
        save_file({**tensors, f"{index}/extra": torch.zeros(2)}, saved / TENSORS)
        assert_refused(saved, "1 tensor")
    tensors.popitem()
    save_file(tensors, saved / TENSORS)
    assert_refused(saved)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("name", [TENSORS, MANIFEST])
def test_a_pickle_is_refused_and_not_run(saved: Path, name: str) -> None:
    mark = saved / "ran"
    bomb = pickle.dumps(Bomb(mark))
    pickle.loads(bomb)
    assert mark.exists()  # the bomb works
    mark.unlink()
    (saved / name).write_bytes(bomb)
    assert_refused(saved)
    torch.save({"a": Bomb(mark)}, saved / name)
    assert_refused(saved)
    assert not mark.exists()


def test_manifests_of_other_text_are_refused(saved: Path) -> None:
    """Bytes that are no UTF-8, lines that are no records, deep nesting, and more digits than Python reads."""
    whole = (saved / MANIFEST).read_bytes()
    text = whole.decode().splitlines()
    for encoded in (b"\xff\xfe", "ä".encode("latin-1"), "{}".encode("utf-16"), b"\x00" * 64):
        (saved / MANIFEST).write_bytes(encoded + whole)
        assert_refused(saved)
    deep = "[" * 100_000 + "]" * 100_000
    first = json.loads(text[1])
    changes = [(at, line) for line in ("", "null", "[]", '"x"', "{}", "{", "NaN", '{"record": 1}') for at in (0, 3)]
    changes += [(1, json.dumps({**first, "facts": "deep"}).replace('"deep"', deep))]
    changes += [(0, f'{{"keep": {deep}}}'), (1, text[1].replace('"round": 0', f'"round": {"9" * 5000}', 1))]
    for at, line in changes:
        (saved / MANIFEST).write_text("\n".join([*text[:at], line, *text[at + 1 :]]) + "\n")
        assert_refused(saved)


OF_RECORD = [f.name for f in fields(Record)]


@pytest.mark.parametrize("field", [*OF_RECORD, "facts", "stored", "record", "keep"])
def test_another_type_is_refused_or_harmless(saved: Path, field: str) -> None:
    """What does load has the types it promises."""
    before = (saved / MANIFEST).read_text()
    for value in (None, {}, [[]], {"a": {}}, "x", 1.5, True, -1, float("nan")):
        entries = [json.loads(line) for line in before.splitlines()]
        (entries[0] if field == "keep" else entries[1]["record"] if field in OF_RECORD else entries[1])[field] = value
        rewrite(saved, entries)
        if (loaded := refused_or_loaded(saved)) is not None:
            assert_well_typed(loaded)


def refused_or_loaded(folder: Path) -> Transcript | None:
    try:
        return Transcript.load(folder)
    except DamagedTranscript as error:
        text = str(error)
    assert text.isprintable()
    return None


def assert_well_typed(loaded: Transcript) -> None:
    """Every record has the types that Record declares, and every kept artifact is what its record says."""
    for index, record in enumerate(loaded.records):
        assert TypeAdapter(Record).validate_json(json.dumps(asdict(record)), strict=True) == record
        if (artifact := loaded.kept.get(index)) is not None:
            assert artifact.kind == record.kind
            assert {name: tuple(t.shape) for name, t in artifact.tensors().items()} == record.shapes
            assert (type(artifact.client), type(artifact.round)) == (str, int)
            assert artifact.not_finite() is None


FALSE_RECORDS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"kind": "style_statistic"}, "want a kind of"), ({"kind": ""}, "want a kind of"), ({"colour": "red"}, "colour"),
    *(({name: value}, "") for name, value in (
        ("shapes", {}), ("shapes", {"mean": [-6]}), ("shapes", {"mean": [10**30]}), ("dtypes", {}), ("nbytes", 10**30),
        ("nbytes", -1), ("nbytes", 0), ("samples", -1), ("clients", -1), ("round", -1), ("round", 10**30),
        ("origin", "somebody else"), ("level", "image"), ("layer", "layer9"),
    )),
)  # fmt: skip


def test_records_that_cannot_be_true_are_refused(saved: Path) -> None:
    """What a record says of a kept artifact must be what the artifact is."""
    before = lines(saved)
    at = next(i for i, entry in enumerate(before) if i and entry["record"]["kind"] == "style_statistics")
    for change, reason in FALSE_RECORDS:
        false = {**before[at], "record": before[at]["record"] | change}
        rewrite(saved, [*before[:at], false, *before[at + 1 :]])
        assert_refused(saved, reason)


def test_facts_of_another_form_are_refused(saved: Path) -> None:
    entries = lines(saved)
    entry = next(entry for entry in entries[1:] if entry["record"]["kind"] == "style_statistics")
    true = entry["facts"]
    typed = [{**true, "client": value} for value in (5, None, [], {})]
    typed += [{**true, "round": value} for value in ("five", None, [], {})]
    for facts in (None, [], "client", {}, {"client": "a"}, {"client": "a", "round": 0, "evil": 1}, *typed):
        entry["facts"] = facts
        rewrite(saved, entries)
        assert_refused(saved)


def test_false_references_are_refused(saved: Path) -> None:
    """To anything but an earlier artifact of the record's kind."""
    before = lines(saved)
    assert before[2]["stored"] == 0  # the second receiver of one model
    assert before[5]["record"]["kind"] == "style_statistics"  # and record 0 is a model state
    for at, stored in [(2, wrong) for wrong in (-1, 4, 10**6, 10**40, "0", 0.5, [0], "../0")] + [(5, 0)]:
        rewrite(saved, [{**entry, "stored": stored} if i == at else entry for i, entry in enumerate(before)])
        assert_refused(saved)


# Nothing in a manifest is a path

OPENED: list[str] = []
LISTENING: list[bool] = []


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if LISTENING and event == "open":
        OPENED.append(str(arguments[0]))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every file that is opened during the test, by Python or by safetensors."""
    if not OPENED:
        sys.addaudithook(_listen)  # stays for good; it hears only while LISTENING
    OPENED[:] = ["begun"]

    def spied(path: Any, *args: Any, **kwargs: Any) -> Any:
        OPENED.append(str(path))
        return safe_open(path, *args, **kwargs)

    monkeypatch.setattr("fdgpriv.federation.transcript.safe_open", spied)
    yield OPENED
    LISTENING.clear()


EVIL = ("../outside", "/etc/passwd", "~/outside", "two\nlines", "\x1b[31mred", "\u202eback")
NAME = "the name itself"
PLACES = [
    *((1, "record", field) for field in OF_RECORD),
    *((1, "facts", field) for field in ("client", "round")),
    *((1, "record", table, "weight") for table in ("dtypes", "shapes")),
    *(
        (0, "keep"),
        (1, "facts"),
        (1, "stored"),
        (1, "record", "shapes", NAME),
        (1, "record", NAME),
        (1, "facts", NAME),
        (1, NAME),
    ),
]


def test_no_string_of_a_manifest_is_opened(saved: Path, opened: list[str]) -> None:
    """And errors with it stay one printable line."""
    (saved.parent / "outside").write_text("secret")
    before = lines(saved)
    for evil in EVIL:
        for *steps, last in PLACES:
            entries: Any = json.loads(json.dumps(before))
            at = entries
            for step in steps:
                at = at[step]
            if last == NAME:
                at[evil] = at.pop("weight", 1)
            else:
                at[last] = evil
            rewrite(saved, entries)
            del opened[1:]
            LISTENING.append(True)
            refused_or_loaded(saved)
            LISTENING.clear()
            assert set(opened[1:]) <= {str(saved / TENSORS), str(saved / MANIFEST)}


# Whatever the bytes are


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """By name, the two files of a transcript."""
    folder = tmp_path_factory.mktemp("whole")
    recorded("all", rounds=1, numbers=4).save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from([TENSORS, MANIFEST]),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_flipped_bytes_are_refused_or_harmless(
    whole: dict[str, bytes], name: str, flips: list[tuple[float, int]]
) -> None:
    flipped = bytearray(whole[name])
    for where, mask in flips:
        flipped[int(where * len(flipped))] ^= mask
    with tempfile.TemporaryDirectory() as place:
        for other, data in {**whole, name: bytes(flipped)}.items():
            (Path(place) / other).write_bytes(data)
        if (loaded := refused_or_loaded(Path(place))) is not None:
            assert_well_typed(loaded)


def test_every_kind_is_known_to_a_bare_script(tmp_path: Path) -> None:
    """A script that imports the transcript alone reads prototypes; and each module of kinds is imported with any of them."""
    recorded("all", rounds=1, numbers=4).save(tmp_path)
    code = (
        "import sys; from pathlib import Path; from fdgpriv.federation.transcript import Transcript\n"
        "from fdgpriv.artifacts.artifact import Artifact; Transcript.load(Path(sys.argv[1])); print(*Artifact.kinds)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    folder = Path(artifacts.__path__[0])
    in_files = {
        kind for path in folder.glob("*.py") for kind in re.findall(r'^    kind.* = "(\w+)"', path.read_text(), re.M)
    }
    assert in_files
    assert in_files <= set(printed)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "which has no manifest.jsonl"), (b"", "manifest.jsonl is empty"), (b"\xff\n", "byte 0 is not UTF-8")],
)
def test_a_folder_without_a_manifest_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "manifest.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        Transcript.load(tmp_path)
    with pytest.raises(ValueError, match="which does not exist"):
        Transcript.load(tmp_path / "none")
