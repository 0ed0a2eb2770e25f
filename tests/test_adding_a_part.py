"""docs/adding-a-part.md and your-defense.md: the parts they print are complete files that run by the commands they print."""

import importlib
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import audits_of, shortened

from fdgpriv import audit, registry
from fdgpriv.artifacts.moments import PAPER
from fdgpriv.artifacts.style import StyleDraft, StyleStatistics
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense
from fdgpriv.method import Method
from fdgpriv.results.finding import Results

DOCS = Path(__file__).parent.parent / "docs"
PAGE = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("adding-a-part.md", "your-defense.md"))
FILES = dict(re.findall(r"^## [^\n]*`(\S+\.py)`$.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```\npython -m fdgpriv.audit (.*)\n```$", PAGE, re.MULTILINE)
BRIGHTNESS = """
from fdgpriv.attacks.nearest_style import NearestStyle
from fdgpriv.tasks.brightness import Brightness
class MeanBrightness(NearestStyle):
    task = Brightness()
    def infer(self, adversary, observations, rng):
        return adversary.public_images[0].mean().repeat(len(observations))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files of the page, as if they stood in the project, and one attack with the page's task."""
    known = set(sys.modules)
    for path, text in {**FILES, "attacks/mean_brightness.py": BRIGHTNESS}.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        package = importlib.import_module("fdgpriv." + file.parent.name)
        if str(file.parent) not in package.__path__:
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(file.parent)])
    importlib.invalidate_caches()
    yield
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def run(installed: None, digits: Dataset, tmp_path: Path) -> Iterator[Callable[..., Results]]:
    """Runs a command of the page on the digits with 100 images a domain for one round, without drawings."""

    def run(part: str, *more: str) -> Results:
        (command,) = (shlex.split(command) for command in COMMANDS if part in command)
        assert audit.main([*command, *more, "--set", "rounds=1", "--out", str(tmp_path / "out")]) == 0
        return Results.load(tmp_path / "out" / "results.json")

    with audits_of(shortened(digits, 100), drawn=False):
        yield run


def test_each_file_of_the_page_has_15_to_40_lines() -> None:
    assert set(FILES) == {
        "attacks/centred_bias.py",
        "attacks/nearest_style.py",
        "defenses/rounded.py",
        "methods/fedmedian.py",
        "fdgpriv/tasks/brightness.py",
    }
    for path, text in FILES.items():
        assert 15 <= len([line for line in text.splitlines() if line]) <= 40, path


def test_the_attack_and_the_task_are_evaluated(run: Callable[..., Results]) -> None:
    (trained,) = run("nearest_style", "mean_brightness").runs
    nearest, bright = trained.attacks
    assert (nearest.attack, nearest.metrics[nearest.headline].n) == ("nearest_style", 9)  # 6 clients, 3 shadow clients
    assert {"noise", "mean_image", "other_domain"} <= set(nearest.controls)
    assert bright.controls["mean_image"][bright.headline].value == bright.metrics[bright.headline].value


def test_the_defense_protects_styles_alone(run: Callable[..., Results], rng: torch.Generator) -> None:
    mean, std = torch.randn(5, 8, generator=rng), torch.rand(5, 8, generator=rng)
    draft = StyleDraft(
        client="a", round=0, mean=mean, std=std, variances=False, granularity="client", at="stage1", rule=PAPER.name
    )
    safe = Defense.parse("rounded:step=0.5").shared(draft, rng)
    assert isinstance(safe, StyleStatistics)
    assert torch.equal(safe.mean, (2 * mean.mean(0)).round() / 2)
    plain, rounded = run("rounded", "--attack", "none").runs
    assert (plain.defense, rounded.defense) == ("none", "rounded:step=0.5")
    assert rounded.utility is not None


def test_the_method_trains(run: Callable[..., Results]) -> None:
    median, _ = run("fedmedian", "--attack", "none").runs
    assert Method.named("fedmedian")().disclosure().training is not None
    assert [row.kind for row in median.artifacts] == ["model_state", "model_state"]
    assert median.utility is not None


def test_an_installed_package_joins_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    declared: dict[str, Any] = tomllib.loads(text)["project"]["entry-points"]
    points = [EntryPoint(name, value, group) for group, all_ in declared.items() for name, value in all_.items()]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "style_attacks.py").write_text(FILES["attacks/nearest_style.py"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "installed", lambda group: tuple(p for p in points if p.group == group))
    assert "nearest_style" in Attack.names()
    assert Attack.parse("nearest_style").name() == "nearest_style"
