"""The command line: what it answers without torch, and that each wrong word is one line and writes nothing."""

import dataclasses
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
import torch

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

# Answers one command line after the other, in one process in which importing torch is an error: exit code, what is printed.
ANSWER_EACH = """
import contextlib, io, json, sys
sys.modules["torch"] = None
from fdgpriv.__main__ import main
for line in json.load(sys.stdin):
    sys.argv = ["fdgpriv", *line.split()]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except (SystemExit, ImportError) as left:
            code = getattr(left, "code", str(left))
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
ANSWERED = {
    "": "fdgpriv selftest",
    "--version": f"fdgpriv {__version__}\n",
    "version": f"fdgpriv {__version__}\n",
    "audit --version": f"fdgpriv {__version__}\n",
    "audit --help": "examples:",
    "audit --list": "stablefdg",
    "audit --list gan": "steps=15         a whole number of at least 1  Largest number of training steps",
    "compare --help": "--fail-on",
    "selftest --help": "--draws",
}
REFUSED_AT_ONCE = {
    "adit": "want a command of audit, compare, leaderboard, verify, selftest; got 'adit'; did you mean 'audit'?",
    "--list gan": "options follow a command: fdgpriv audit --list gan",
    "audit --methods stablefdg": "got --methods; did you mean '--method'?",
    "audit --lr 0.1": "got --lr; did you mean --set lr=0.1?",
    "audit --clients 2": "--clients: want at least one client per source domain .3., got 2",
    "audit --dry-run --fail-on leek": "--fail-on: want .* got 'leek'; did you mean 'leak'",
    "audit --lr": "got --lr; did you mean --set lr=VALUE?",
    "audit --epsilon 8": "got --epsilon; did you mean --defense gaussian:epsilon=8, or of client_dp, dpsgd",
    "audit --epsilon=4": "got --epsilon; did you mean --defense gaussian:epsilon=4, or of ",
    "audit --epsilon": "did you mean --defense gaussian:epsilon=VALUE",
    "audit --attack mia": "got 'mia'; did you mean membership",
    "audit --attack DLG": "got 'DLG'; did you mean gradient_inversion",
    "audit --defense dp": "got 'dp'; did you mean client_dp, dpsgd or gaussian",
    "audit --defense clip+secagg": "got 'secagg'; did you mean secure_aggregation",
    "audit StableFDG": "want an option before 'StableFDG'; did you mean --method StableFDG?",
    "audit --method StableFDG,FedAvg": "want several separated by blanks, --method StableFDG FedAvg; got",
    "audit --defense gaussian epsilon=4": "want settings joined to their part, --defense gaussian:epsilon=4; got",
    "audit --defense gaussian:epsilon=4 delta=.1": "joined to their part, --defense gaussian:epsilon=4,delta=.1",
    "audit --method": "--method: want a value, got none",
    # names
    "audit --list gna": "got 'gna'; did you mean 'gan'?",
    "audit --method nobody": f"want one of the methods {', '.join(Method.names())}; got 'nobody'\n",
    "audit --attack nobody": "got 'nobody'",
    "audit --defense none+wall": "want one of the defenses ",
    "audit --dataset mnist": "digits, .*; got 'mnist'",
    "audit --target sketch": "want a domain of scan, blend, type, outline; got 'sketch'",
    "audit --preset fast": "quick, default, thorough, paper; got 'fast'",
    "audit --threat nsa": "server, client, third_party, insider; got 'nsa'",
    "audit --partition dirichlet": r"domains:D \(>= 1\), given, flwr:NAME; got 'dirichlet'\n",
    "audit --partition pie": "want a partition of",
    "audit --engine warp": "--engine: want .*local.*'warp'",
    "audit --device tpu": "auto, cpu, cuda; got 'tpu'",
    "audit --device gpu": "--device: want cuda for a GPU, got gpu",
    "audit --backbone vgg": "small_resnet.*'vgg'",
    "audit --keep most": "ends, all, small.*'most'",
    "audit --figures gif": "--figures: want one of pdf, png, svg; got 'gif'",
    "audit --fail-on leak:mild": r"--fail-on: want leak or leak:GRADE \(trace, moderate, severe\), got 'leak:mild'",
    # values
    "audit --seed x": "--seed: want a whole number, got 'x'",
    "audit --seed -1": r"--seed: want a whole number from 0 to 2\^63 - 1, got -1",
    "audit --clients 0": "at least 1 client, got 0",
    "audit --images 5": "--images: want at least 20 images of each domain, got 5",
    "audit --auxiliary 5": "--auxiliary: want at least 20 images of each domain, got 5",
    "audit --units-per-domain 0": "--units-per-domain: want at least 1, got 0",
    "audit --held-out 1": "--held-out: want a share between 0 and 1, got 1",
    "audit --held-out nan": "--held-out: want a share between 0 and 1, got nan",
    "audit --dataset pacs": "want the folder of pacs",
    "audit --dataset folder --data-root no/where": "--data-root: want .*no/where",
    "audit --weights no/where": "--weights: want a folder or a file, got no/where",
    "audit --artifact missing.npz": "missing.npz, got no file; give one .npz",
    "audit --out runs/none --resume": "--resume: want a folder of an earlier run, got runs/none",
    # settings
    "audit --set rounds=ten": "stablefdg.rounds: want",
    "audit --set rounds": "--set: want FIELD=VALUE, got 'rounds'",
    "audit --set colour=red": "stablefdg: want a field of .*rounds.*'colour'",
    "audit --set stablefdg:received=3": "--set: want a field of every method.*--method stablefdg:received=3",
    "audit --method stablefdg:recieved=2": r"got 'recieved'; did you mean 'received'\?$",
    "audit --defense gaussian:epsilon=much": "gaussian.epsilon: want",
    # more than once
    "audit --preset quick --preset paper": "--preset: want it once, got quick and paper",
    "audit --seed 1 --seed 1": "--seed: want each value once, got 1 1",
    "audit --threat server server": "--threat: want each value once",
    "audit --target blend blend": "--target: want each value once",
    "audit --figures pdf pdf": "--figures: want each value once",
    "audit --method fedavg fedavg": "--method: want each value once",
    "audit --attack gan gan": "--attack: want each value once",
    "audit --defense none None": "--defense: want each value once",
    "audit --artifact x.npy x.npy": "--artifact: want each value once",
    "audit --set rounds=2 --set rounds=3": "--set: want each field once, got rounds=2 and rounds=3",
    "audit --attack gan:steps=2,steps=3": "want each field once, got steps twice",
    "audit --set rounds=2 --method fedavg:rounds=3": "--set: want a field that --method does not set, got rounds",
    # without effect
    "audit --attack none gan": "--attack: want only none, or attacks without none; got none gan",
    "audit --image-size 64": "--image-size: has no effect",
    "audit --data-root .": "--data-root: has no effect: digits is built in",
    "audit --groups 3+4": "--groups: want --artifact with it",
    "audit --resume": "--resume: want --out",
    "audit --dry-run --log mlflow": "--log: has no effect with --dry-run",
    "audit --artifact x.npz --seed 0 1": "--seed: want one number",
    **{
        f"audit {option} --attack none": f"{option.split()[0]}: want an attack to run, got --attack none"
        for option in ("--figures pdf", "--units-per-domain 9", "--auxiliary 50", "--fail-on leak", "--threat server")
    },
    # other commands
    "compare runs/one": "fdgpriv compare: want at least two runs, the baseline first, got 1",
    "compare runs/one runs/two": "got runs/one, which does not exist",
    "compare runs/one runs/two --fail-on never": "--fail-on: want leak or .*, or worse, after the runs; got 'never'",
    "selftest --runs 0": "fdgpriv selftest: --runs: want at least 1, got 0",
}
REFUSED_BY_PARTS = {
    "--set style_layer=layer9": "'layer9'",
    "--clients 2": "at least one client per source domain",
    "--clients 5000": "fewer clients",
    "--partition domains:9": "at most 3 domains per client, got 9",
    "--method stablefdg stablefdg:received=1": "--method: want each method once",
    "--attack linkage --threat insider": "--threat: want a role of one of the attacks",
    "--attack gan linkage --threat insider": "--attack: linkage has the roles server",
    "--attack gan --method fedavg": "--attack: gan reads .*, which fedavg does not share.* want attacks that read these: ",
    "--attack gan --method stablefdg:received=0": "--attack: gan reads style_statistics",
    "--method hfedf --backbone resnet18": "--backbone: has no effect on the networks of hfedf; leave it out",
    "--method hfedf --weights .": "--weights: has no effect on the networks of hfedf; leave it out",
    "--units-per-domain 9 --partition domains:2": "--units-per-domain: has no effect: clients hold",
    "--device cuda": "--device cpu",
}


def test_answers_and_refusals_import_no_torch(tmp_path: Path) -> None:
    lines = {line: (0, phrase) for line, phrase in ANSWERED.items()}
    lines |= {line: (2, phrase) for line, phrase in REFUSED_AT_ONCE.items()}
    process = subprocess.run(
        [sys.executable, "-c", ANSWER_EACH], input=json.dumps(list(lines)), cwd=tmp_path, capture_output=True, text=True,
        check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    answers = map(json.loads, process.stdout.splitlines())
    for (line, (wanted_code, phrase)), (code, out, err) in zip(lines.items(), answers, strict=True):
        assert code == wanted_code, (line, err)
        assert (phrase in out) if code == 0 else re.search(phrase, err), (line, err)
        assert len(err.splitlines()) == (code != 0), line
        assert code == 0 or out == "", line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", REFUSED_BY_PARTS)
def test_what_the_parts_refuse_is_one_line(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "cuda" in line and torch.cuda.is_available():
        pytest.skip("there is one")
    monkeypatch.chdir(tmp_path)
    assert main([*line.split(), "--preset", "quick", "--out", "out"]) == 2
    captured = capsys.readouterr()
    (printed,) = captured.err.splitlines()
    assert re.search(f"^fdgpriv audit: .*{REFUSED_BY_PARTS[line]}", printed)
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_line_takes_less_than_a_second() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "fdgpriv", "audit", "--list"], cwd=ROOT, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECOND


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^  (--[a-z0-9-]+)", capsys.readouterr().out, re.M)
    assert set(listed) - {"--version"} == set(OPTIONS.values())


@pytest.mark.parametrize("other", ["--list", "--artifact x.npz"])
def test_every_option_has_an_effect_or_is_refused(other: str, capsys: pytest.CaptureFixture[str]) -> None:
    read_with_artifact = ("--groups", "--seed", "--out", "--fail-on") if "--artifact" in other else ()
    for option in OPTIONS.values():
        if option not in (*other.split(), *read_with_artifact):
            value = "" if option in ("--resume", "--list", "--dry-run", "--check") else "3"
            assert main(f"{other} {option} {value}".split()) == 2
            assert "has no effect with" in capsys.readouterr().err, option


@pytest.mark.parametrize("role", [Method, Attack, Defense, Report], ids=lambda role: str(role.folder))
def test_the_catalogue_knows_parts_as_classes_are(role: type[Method | Attack | Defense | Report]) -> None:
    for name in role.names():
        part, known = role.named(name), catalogue.fields(role.folder, name)
        hints = get_type_hints(part, include_extras=True)
        real = (
            {f.name: hints[f.name] for f in dataclasses.fields(part) if f.init}
            if dataclasses.is_dataclass(part)
            else {}
        )
        assert known is not None
        assert list(known) == list(real)
        assert all(str(field.kind) == str(real[key]) for key, field in known.items())
        assert all(field.about for field in known.values()), name
        defaults = {f.name: f.default for f in dataclasses.fields(part)} if real else {}
        assert {key: field.value for key, field in known.items()} == {key: defaults[key] for key in known}
        assert catalogue.class_value(role.folder, name, "presets") in (getattr(part, "presets", catalogue.UNKNOWN), {})
        assert catalogue.summary(role.folder, name) == (sys.modules[part.__module__].__doc__ or "").splitlines()[0]


def test_names_known_without_torch_are_those_there_are(digits: Dataset) -> None:
    assert tuple(ARCHITECTURES) == BACKBONES
    for domain in digits.names:
        data.check_domain("digits", domain)
    for one in BENCHMARKS:
        assert one.default_target in one.domains
        assert set(one.also) <= set(one.domains)


def test_details_are_of_what_the_name_means(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts, sorts of parts, datasets and threat models; case does not matter, and presets are as the class has them."""
    assert main(["--list", "StableFDG", "defenses", "PACS", "server"]) == 0
    printed = capsys.readouterr().out
    presets = Method.named("stablefdg").presets
    for preset in ("quick", "default"):
        assert f"--preset {preset}: rounds={presets[preset]['rounds']} participants=none " in printed
    for text in ("rounds=50", "defenses:\n", "default --target: sketch", "capabilities: has_bn"):
        assert text in printed


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
