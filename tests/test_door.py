"""The command line answers at once: torch is imported when something is to be computed, never to print a line."""

import dataclasses
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from fdgpriv import __version__, data
from fdgpriv.attack import Attack
from fdgpriv.audit import main
from fdgpriv.cli import catalogue
from fdgpriv.cli.options import OPTIONS, Options
from fdgpriv.data.benchmarks import BENCHMARKS
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.method import Method
from fdgpriv.models.architectures import ARCHITECTURES
from fdgpriv.models.names import BACKBONES
from fdgpriv.report import Report
from fdgpriv.utils.fields import PositiveFloat

ROOT = Path(__file__).parents[1]
SECOND = 1.0  # of processor time

# Answers one command line after the other, in one process: exit code, what is printed, whether torch is imported by then.
ANSWER_EACH = """
import contextlib, io, json, sys
from fdgpriv.__main__ import main
for line in json.load(sys.stdin):
    sys.argv = ["fdgpriv", *line.split()]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except SystemExit as left:
            code = left.code
    print(json.dumps([code, out.getvalue(), err.getvalue(), "torch" in sys.modules]))
"""
LINES = {
    "": (0, "fdgpriv selftest"),
    "--help": (0, "fdgpriv audit"),
    "launch": (2, "want a command of audit, compare, leaderboard, verify, selftest; got 'launch'\n"),
    "audit --help": (0, "examples:"),
    "--version": (0, f"fdgpriv {__version__}"),
    "adit": (2, "did you mean 'audit'?"),
    "--list gan": (2, "options follow a command: fdgpriv audit --list gan"),
    "audit --version": (0, f"fdgpriv {__version__}"),
    "audit --list": (0, "stablefdg"),
    "audit --list gan": (0, "steps=15         a whole number of at least 1  Largest number of training steps"),
    "audit --list gna": (2, "got 'gna'; did you mean 'gan'?"),
    "audit --methods stablefdg": (2, "got --methods; did you mean '--method'?"),
    "audit StableFDG": (2, "want an option before 'StableFDG'; did you mean --method StableFDG?"),
    "version": (0, f"fdgpriv {__version__}"),
    "audit --method StableFDG,FedAvg": (2, "want several separated by blanks, --method StableFDG FedAvg; got"),
    "audit --defense gaussian epsilon=4": (2, "want settings joined to their part, --defense gaussian:epsilon=4; got"),
    "audit --defense gaussian:epsilon=4 delta=.1": (2, "joined to their part, --defense gaussian:epsilon=4,delta=.1"),
    "audit --seed x": (2, "--seed: want a whole number, got 'x'"),
    "audit --method": (2, "--method: want a value, got none"),
    "audit --method nobody": (2, f"want one of the methods {', '.join(Method.names())}; got 'nobody'\n"),
    "audit --defense none+wall": (2, "want one of the defenses "),
    "audit --target sketch": (2, "want a domain of scan, blend, type, outline; got 'sketch'"),
    "audit --set rounds=ten": (2, "stablefdg.rounds: want"),
    "audit --attack gan:colour=red": (2, "gan: want a field of steps"),
    "audit --defense gaussian:epsilon=much": (2, "gaussian.epsilon: want"),
    "audit --images 5": (2, "--images: want at least 20 images of each domain, got 5"),
    "audit --auxiliary 5": (2, "--auxiliary: want at least 20 images of each domain, got 5"),
    "audit --units-per-domain 0": (2, "--units-per-domain: want at least 1, got 0"),
    "audit --figures pdf --attack none": (2, "--figures: want an attack to run, got --attack none"),
    "audit --figures gif": (2, "--figures: want one of pdf, png, svg; got 'gif'"),
    "audit --units-per-domain 9 --attack none": (2, "--units-per-domain: want an attack to run, got --attack none"),
    "audit --auxiliary 50 --attack none": (2, "--auxiliary: want an attack to run, got --attack none"),
    "audit --lr 0.1": (2, "got --lr; did you mean --set lr=VALUE?"),
    "audit --device gpu": (2, "--device: want cuda for a GPU, got gpu"),
    "audit --partition dirichlet": (2, "domains:D (>= 1), given, flwr:NAME; got 'dirichlet'\n"),
    "audit --partition pie": (2, "want a partition of"),
    "audit --fail-on leak:mild": (2, "--fail-on: want leak or leak:GRADE (trace, moderate, severe), got 'leak:mild'"),
    "audit --fail-on leak --attack none": (2, "--fail-on: want an attack to run, got --attack none"),
    "audit --artifact missing.npz": (2, "missing.npz, got no file; give one .npz"),
    "compare --help": (0, "--fail-on"),
    "compare runs/one": (2, "fdgpriv compare: want at least two runs, the baseline first, got 1"),
    "compare runs/one runs/two": (2, "got runs/one, which does not exist"),
    "compare runs/one runs/two --fail-on never": (
        2,
        "--fail-on: want leak or leak:GRADE (trace, moderate, severe), or worse, after the runs; got 'never'",
    ),
    "selftest --help": (0, "--draws"),
    "selftest --runs 0": (2, "fdgpriv selftest: --runs: want at least 1, got 0"),
}


def test_no_line_imports_torch() -> None:
    process = subprocess.run(
        [sys.executable, "-c", ANSWER_EACH], input=json.dumps(list(LINES)), cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    answers = map(json.loads, process.stdout.splitlines())
    for (line, (wanted_code, told)), (code, out, err, torch_is_imported) in zip(LINES.items(), answers, strict=True):
        assert (code, torch_is_imported) == (wanted_code, False), (line, err)
        assert told in out + err, line
        assert len(err.splitlines()) == (code != 0), line


@pytest.mark.parametrize("line", ["--help", "audit --list gan", "audit --attack gan:colour=red"])
def test_a_line_takes_less_than_a_second(line: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run(
        [sys.executable, "-m", "fdgpriv", *line.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == LINES[line][0], process.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECOND


@pytest.mark.parametrize("role", [Method, Attack, Defense, Report], ids=lambda role: str(role.folder))
def test_the_catalogue_knows_every_part_as_its_class_is(role: type[Method | Attack | Defense | Report]) -> None:
    for name in role.names():
        part, found = role.named(name), catalogue.fields(role.folder, name)
        hints = get_type_hints(part, include_extras=True)
        real = (
            {f.name: hints[f.name] for f in dataclasses.fields(part) if f.init}
            if dataclasses.is_dataclass(part)
            else {}
        )
        assert found is not None
        assert list(found) == list(real)
        assert all(str(field.kind) == str(real[key]) for key, field in found.items())
        assert all(field.about for field in found.values()), name
        defaults = {f.name: f.default for f in dataclasses.fields(part)} if real else {}
        assert {key: field.value for key, field in found.items()} == {key: defaults[key] for key in found}
        assert catalogue.class_value(role.folder, name, "presets") in (getattr(part, "presets", catalogue.UNKNOWN), {})
        assert catalogue.summary(role.folder, name) == (sys.modules[part.__module__].__doc__ or "").splitlines()[0]


def test_names_known_without_torch_are_those_there_are(digits: Dataset) -> None:
    assert set(data.names()) == {"digits", "folder", "camelyon17", "iwildcam", *(one.name for one in BENCHMARKS)}
    assert tuple(ARCHITECTURES) == BACKBONES
    for domain in digits.names:
        data.check_domain("digits", domain)
    for one in BENCHMARKS:
        assert one.default_target in one.domains
        assert set(one.also) <= set(one.domains)


def test_details_are_of_what_the_name_means(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts, sorts of parts, datasets and threat models; case does not matter, and presets are as the class has them."""
    assert main(["--list", "StableFDG", "defenses", "PACS", "server"]) == 0
    said = capsys.readouterr().out
    presets = Method.named("stablefdg").presets
    for preset in ("quick", "default"):
        assert f"--preset {preset}: rounds={presets[preset]['rounds']} participants=none " in said
    for text in ("rounds=50", "defenses:\n", "default --target: sketch", "capabilities: has_bn"):
        assert text in said


def test_details_of_a_registered_part_need_its_class(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclasses.dataclass(frozen=True)
    class Halving(Defense):
        factor: PositiveFloat = 0.5

    Halving.register()
    assert main(["--list", "halving"]) == 0
    assert "factor=0.5  a finite number above 0  (no description)" in capsys.readouterr().out


def test_names_are_spelled_as_they_are_known() -> None:
    options = Options(
        methods=("StableFDG:lr=0.1",),
        defenses=("None", "Gaussian:epsilon=2+Secure-Aggregation"),
        attacks=("GAN", "DomainInference"),
        threats=("Third-Party",),
        dataset="Digits",
        targets=("Scan",),
        partition="Dirichlet:0.5",
        preset="Quick",
    )
    options.check()
    assert (options.methods, options.attacks) == (("stablefdg:lr=0.1",), ("gan", "domain_inference"))
    assert options.defenses == ("none", "gaussian:epsilon=2+secure_aggregation")
    assert (options.threats, options.dataset, options.targets) == (("third_party",), "digits", ("scan",))
    assert (options.partition, options.preset) == ("dirichlet:0.5", "quick")


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of an audit that is refused."""
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    (said,) = captured.err.splitlines()
    assert captured.out == ""
    return str(said).removeprefix("fdgpriv audit: ")


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("--method fedavg --method ccst lsi", "methods", ("fedavg", "ccst", "lsi")),
        ("--target scan --target type", "targets", ("scan", "type")),
        ("--set rounds=2 --set lr=.1", "settings", {"rounds": "2", "lr": ".1"}),
        ("--attack gan --attack linkage", "attacks", ("gan", "linkage")),
        ("--threat server --threat client", "threats", ("server", "client")),
        ("--defense none --defense gaussian", "defenses", ("none", "gaussian")),
        ("--seed 0 --seed 1 2", "seeds", (0, 1, 2)),
    ],
)
def test_a_repeated_option_extends(words: str, field: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []

    def noted(options: Options) -> None:
        asked.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Options, "check", noted)
    assert main(words.split()) == 3
    assert getattr(asked[0], field) == value


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--seed 1 --seed 1", "--seed: want each value once, got 1 1"),
        ("--defense none --defense none", "--defense: want each value once"),
        ("--threat server server", "--threat: want each value once"),
        ("--set rounds=2 --set rounds=3", "--set: want each field once, got rounds=2 and rounds=3"),
        ("--attack gan:steps=2,steps=3", "want each field once, got steps twice"),
        ("--preset quick --preset paper", "--preset: want it once, got quick and paper"),
        ("--artifact x.npy --artifact x.npy", "--artifact: want each value once"),
        # without effect
        ("--image-size 64", "--image-size: has no effect"),
        ("--data-root .", "--data-root: has no effect: digits is built in"),
        ("--groups 3+4", "--groups: want --artifact with it"),
        ("--resume", "--resume: want --out"),
        ("--attack none --threat server", "--threat: want an attack to run"),
        ("--set rounds=2 --method fedavg:rounds=3", "--set: want a field that --method does not set, got rounds"),
        ("--artifact x.npz --seed 0 1", "--seed: want one number"),
        ("--weights no/where", "--weights: want a folder or a file, got no/where"),
        # with effect in other company
        ("--attack linkage --threat insider", "--threat: want a role of one of the attacks"),
        ("--attack gan linkage --threat insider", "--attack: linkage has the roles server"),
        (
            "--attack gan --method fedavg",
            "--attack: gan reads style_statistics or interpolation_style, which fedavg does",
        ),
        ("--attack gan --method stablefdg:received=0", "--attack: gan reads style_statistics"),
        ("--dry-run --log mlflow", "--log: has no effect with --dry-run"),
        ("--method hfedf --backbone resnet18 --preset quick", "--backbone: has no effect"),
        ("--method hfedf --weights . --preset quick", "--weights: has no effect"),
        (
            "--units-per-domain 9 --partition domains:2 --preset quick",
            "--units-per-domain: has no effect: clients hold",
        ),
    ],
)
def test_what_has_no_effect_is_refused(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(words, capsys).startswith(told)


@pytest.mark.parametrize("beside", ["--list", "--artifact x.npz"])
def test_every_option_has_an_effect_or_is_refused(beside: str, capsys: pytest.CaptureFixture[str]) -> None:
    read_with_artifact = ("--groups", "--seed", "--out", "--fail-on") if "--artifact" in beside else ()
    for option in OPTIONS.values():
        if option not in (*beside.split(), *read_with_artifact):
            value = "" if option in ("--resume", "--list", "--dry-run") else "3"
            assert "has no effect with" in refused(f"{beside} {option} {value}", capsys), option


def test_groups_may_be_given_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", mean=np.ones((5, 2)), std=np.ones((5, 2)))
    assert "add up to 5 clients, got 2+4" in refused(f"--artifact {tmp_path}/x.npz --groups 2 --groups 4", capsys)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.npz", b"no archive", "cannot be read"),
        ("x.npz", b"", "cannot be read"),
        ("x.npz", "folder", "got a folder"),
        ("x.npz", None, "got no file"),
        ("x.txt", b"text", "want one .npz"),
        ("x.npy", b"one of two", "want one .npz"),
    ],
)
def test_an_artifact_file_that_cannot_be_read_is_refused(
    name: str, content: bytes | str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "folder":
        path.mkdir()
    said = refused(f"--artifact {path} --out {tmp_path}/out", capsys)
    assert all(text in said for text in (told, os.fspath(path), "one .npz or .safetensors"))
    assert not (tmp_path / "out").exists()
