"""Options from a TOML file or a run's config.json: the same as on the command line, which wins; and sweeps of settings."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fdgpriv.api import _folder_name
from fdgpriv.audit import main
from fdgpriv.cli import config_file
from fdgpriv.cli.options import Options, swept
from fdgpriv.config import AuditConfig
from fdgpriv.utils import run_folder

TOML = """
method = ["FedAvg", "stablefdg"]
preset = "quick"
seed = [0, 1]
held-out = 0.2
attack = "domain_inference"

[set]
rounds = 3
lr = [0.1, 0.05]
"""
Given = Callable[[str], Options]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """The options of a command line, which goes no further."""
    asked: list[Options] = []

    def noted(options: Options) -> None:
        asked.append(options)
        raise KeyboardInterrupt

    def options(words: str) -> Options:
        with monkeypatch.context() as patch:
            patch.setattr(Options, "check", noted)
            assert main(words.split()) == 3
        return asked[-1]

    return options


def test_a_repeated_option_extends(given: Given) -> None:
    apart = (
        "--method fedavg --method ccst lsi --target scan --target type --attack gan --attack linkage --seed 0 --seed 1"
    )
    joined = "--method fedavg ccst lsi --target scan type --attack gan linkage --seed 0 1"
    more = ("--set rounds=2 --set lr=.1 --defense none --defense clip", "--set rounds=2 lr=.1 --defense none clip")
    assert given(f"{apart} {more[0]}") == given(f"{joined} {more[1]}")
    assert given(joined).methods == ("fedavg", "ccst", "lsi")


def test_a_file_gives_what_the_words_give(tmp_path: Path, given: Given) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    words = "--method fedavg stablefdg --preset quick --seed 0 1 --held-out 0.2 --attack domain_inference"
    assert given(f"--config {tmp_path}/a.toml") == given(f"{words} --set rounds=3 lr=0.1,0.05")


def test_the_command_line_wins(tmp_path: Path, given: Given) -> None:
    """Over options as a whole, over settings one by one."""
    (tmp_path / "a.toml").write_text(TOML)
    options = given(f"--config {tmp_path}/a.toml --seed 7 --set lr=0.2 --method ccst")
    assert (options.methods, options.seeds, options.settings) == (("ccst",), (7,), {"rounds": "3", "lr": "0.2"})
    assert (options.preset, options.held_out) == ("quick", 0.2)


def test_an_option_may_want_what_the_file_gives(tmp_path: Path, given: Given) -> None:
    (tmp_path / "a.toml").write_text(f"dataset = 'folder'\ndata_root = '{tmp_path}'")
    assert given(f"--config {tmp_path}/a.toml --image-size 64")
    (tmp_path / "b.toml").write_text(f"out = '{tmp_path}/run'")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    assert given(f"--config {tmp_path}/b.toml --resume")


@pytest.mark.parametrize(
    "words",
    [
        "--preset quick --clients 6 --set rounds=1",
        "--preset quick --attack none --seed 0 1",
        "--preset paper --method stablefdg hfedf --threat server client",
        "--attack gan:steps=2 --defense none gaussian:epsilon=1 --keep all --images 100 --auxiliary 30",
        "--preset quick --method fedavg --set lr=0.1,0.05 --target scan type",
    ],
)
def test_a_run_can_be_asked_for_again(words: str, tmp_path: Path, given: Given) -> None:
    """Its config.json gives options whose config.json is equal, so that they continue the run."""

    def config(options: Options) -> str:
        dataset, checked = AuditConfig(**vars(options)).checked().load()
        return run_folder.settings(checked.as_config(len(dataset.domains) - 1), dataset.sha256, checked.basis())

    first = config(given(words))
    (tmp_path / "config.json").write_text(first)
    assert config(given(f"--config {tmp_path}/config.json")) == first
    again = config(given(f"--config {tmp_path}/config.json --device cpu --seed 5"))
    assert list(run_folder.differences(first.encode(), again)) == ["seeds"]
    setup = {"fedavg": {"clients": 6, "backbone": "a"}}
    changes = {
        "preset": ("quick", "default"),
        "setup": (setup, {"fedavg": {"clients": 9, "backbone": "a"}, "ccst": {"clients": 9}}),
        "settings": ("absent", {"lr": 1}),
    }
    assert run_folder.changes_text(changes) == (
        "preset: was quick, now default; setup.fedavg.clients: was 6, now 9; settings: was absent, now {'lr': 1}"
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.toml", "methd = 1", "got 'methd' in .*; did you mean 'method'"),
        ("a.toml", "resume = true", "got 'resume' in .*, which is for the command line"),
        ("a.toml", "set = 3", r"want a table \[set\]"),
        ("a.toml", "method = {a = 1}", "want text, a number or a list of these for method"),
        ("a.toml", "[set]\nlr = []", "want text, a number or a list of these for lr"),
        ("a.toml", "method = [", "want TOML in"),
        ("a.json", "{", "want JSON in"),
        ("a.json", "[1]", "want a JSON object"),
        ("a.toml", 'method = "stabelfdg"', r"did you mean 'stablefdg'\? \(with the options of .*a.toml\)"),
        ("a.toml", "preset = ['quick', 'paper']", "--preset: want it once, got quick and paper"),
        (".", "", "got the folder"),
        ("none.toml", None, "want a file, got .*none.toml, which does not exist"),
    ],
)
def test_a_bad_file_is_one_line(
    name: str, text: str | None, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text:
        (tmp_path / name).write_text(text)
    assert main(["--config", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(reason, line), line


def test_the_command_of_the_report_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    commands: list[str] = []

    def audit(options: Options, out: Path | None, *, command: str, **more: Any) -> None:
        commands.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr("fdgpriv.api.audit", audit)
    assert main(["--seed", "7", "--config", str(tmp_path / "a.toml"), "--out", str(tmp_path / "out")]) == 3
    assert commands == [
        "python -m fdgpriv.audit --method=FedAvg --method=stablefdg --preset=quick --held-out=0.2 "
        "--attack=domain_inference --set=rounds=3 --set=lr=0.1,0.05 --seed 7"
    ]


def test_keys_are_options_or_what_a_run_calls_them(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"Data_Root": "x", "methods": ["a"], "units-per-domain": 3}))
    assert config_file.words(tmp_path / "a.json") == ["--data-root=x", "--method=a", "--units-per-domain=3"]


@pytest.mark.parametrize(
    ("specs", "values", "rows", "others"),
    [
        (("fedavg",), {"lr": "0.1, 0.05", "rounds": "2"}, ("fedavg:lr=0.1", "fedavg:lr=0.05"), {"rounds": "2"}),
        (("fedavg:rounds=2", "lsi"), {"lr": "1,2"},
         ("fedavg:rounds=2,lr=1", "fedavg:rounds=2,lr=2", "lsi:lr=1", "lsi:lr=2"), {}),
        (("fedavg:lr=3", "lsi"), {"lr": "1,2"}, ("fedavg:lr=3", "lsi:lr=1", "lsi:lr=2"), {}),
        (("lsi",), {"lr": "1,2", "rounds": "3,4"},
         ("lsi:lr=1,rounds=3", "lsi:lr=1,rounds=4", "lsi:lr=2,rounds=3", "lsi:lr=2,rounds=4"), {}),
        (("stablefdg",), {"explore_layers": "layer1+layer2,layer3"},
         ("stablefdg:explore_layers=layer1+layer2", "stablefdg:explore_layers=layer3"), {}),
        (("ccst",), {"codec_weights": "a,b"}, ("ccst",), {"codec_weights": "a,b"}),
    ],
)  # fmt: skip
def test_a_sweep_is_a_row_for_each_combination(
    specs: tuple[str, ...], values: dict[str, str], rows: tuple[str, ...], others: dict[str, str]
) -> None:
    assert swept(specs, values) == (rows, others)


def test_a_long_sweep_has_a_short_folder(given: Given) -> None:
    def name(words: str) -> str:
        _, config = AuditConfig(**vars(given(words))).checked().load()
        return _folder_name(config)

    assert name("--preset quick --set lr=0.1,0.05") == "stablefdg_lr=0.1+stablefdg_lr=0.05-digits-blend-quick"
    rates = ",".join(f"0.{n}" for n in range(1, 10))
    assert name(f"--preset quick --set lr={rates}") == "stablefdg_lr=0.1+8-digits-blend-quick"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--set lr=0.1,", "--set: want a value before and after each comma, got lr=0.1,"),
        ("--set lr=0.1,much", "stablefdg.lr: want a finite number above 0, got 'much'"),
        ("--set lr=0.1, 0.2", "--set: want the values of a sweep without blanks, lr=0.1,0.2; got lr=0.1, 0.2"),
        ("--set lr=0.1,0.1", "--method: want each value once"),
    ],
)
def test_a_bad_sweep_is_one_line(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_a_resumed_run_needs_no_other_option(tmp_path: Path, given: Given, capsys: pytest.CaptureFixture[str]) -> None:
    """Its config.json has them; a run of a recording needs that, too."""
    setup = {
        "fedavg": {"clients": 5, "partition": "single", "backbone": "small_resnet", "image_size": 32, "held_out": 0.1}
    }
    asked = {
        "methods": ["fedavg"],
        "dataset": "digits",
        "preset": "quick",
        "setup": setup,
        "attacks": ["gan:steps=3"],
        "seeds": [7],
    }
    (tmp_path / "config.json").write_text(json.dumps({**asked, "basis": {"versions": {}, "parts": {}}}))
    options = given(f"--out {tmp_path} --resume")
    assert (options.methods, options.clients, options.attacks, options.seeds) == (
        ("fedavg",),
        5,
        ("gan:steps=3",),
        (7,),
    )
    assert options == given(f"--config {tmp_path}/config.json --out {tmp_path} --resume")
    assert given(f"--method ccst --out {tmp_path} --resume").clients is None  # as asked, to be refused where it differs
    (tmp_path / "config.json").write_text(json.dumps({**asked, "recording": "0"}))
    assert main(["--out", str(tmp_path), "--resume"]) == 2
    assert "want --recording DIR and --federation FILE with it" in capsys.readouterr().err
