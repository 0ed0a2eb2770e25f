"""Every part there is keeps what its role promises; a new file is asked the day it lands."""

import dataclasses
import importlib.metadata
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from factories import equal, refused, seeded
from factories_core import draft, model_state, sample_count, style

import fdgpriv
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.attack import GROUP_SIZES, Attack
from fdgpriv.audit import main
from fdgpriv.config import PRESETS
from fdgpriv.defense import Defense, defended
from fdgpriv.method import Method, Role
from fdgpriv.report import Report
from fdgpriv.simulation.honest_mean import HONEST_MEAN
from fdgpriv.simulation.shared_model import GLOBAL_MODEL
from fdgpriv.threat import THREATS

ROOT = Path(fdgpriv.__file__).resolve().parent.parent
ROLES: tuple[type[Role], ...] = (Method, Attack, Defense, Report)
PARTS = [(role, name) for role in ROLES for name in role.names()]
EACH_ROLE = pytest.mark.parametrize("role", ROLES, ids=lambda role: str(role.folder))
EACH_PART = pytest.mark.parametrize(("role", "name"), PARTS, ids=[f"{role.folder}/{name}" for role, name in PARTS])


@EACH_ROLE
def test_names_are_the_files_and_others_list_them(role: type[Role]) -> None:
    files = {path.stem for path in (ROOT / role.folder).glob("*.py") if not path.name.startswith("_")}
    joined = {point.name for point in importlib.metadata.entry_points(group=f"fdgpriv.{role.folder}")}
    assert list(role.names()) == sorted(files | joined)
    for name in ("nobody", "", "_helper", "Gan", "../secrets", "os"):
        with refused(re.escape(repr(name))) as caught:
            role.named(name)
        assert all(known in str(caught.value) for known in role.names())


@EACH_PART
def test_a_part_has_a_name_defaults_and_is_frozen(role: type[Role], name: str) -> None:
    part = role.named(name)
    assert issubclass(part, role)
    assert part.name() == name
    assert not getattr(part, "__abstractmethods__", None)
    for said in (sys.modules[part.__module__].__doc__, part.__doc__):
        assert said
        assert said.splitlines()[0].rstrip().endswith((".", ":", "?")) or ". " in said
    defaults, parsed = part(), role.parse(name)
    assert (type(parsed), vars(parsed)) == (type(defaults), vars(defaults))
    known = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    with refused(f"{name}.*'colour'") as caught:
        role.parse(f"{name}:colour=red")
    assert all(field.name in str(caught.value) for field in known)
    for field in known:  # each is read back from its own text
        value = getattr(defaults, field.name)
        text = "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert part.configured({field.name: text}) == part.configured({field.name: value}) == defaults, field.name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(defaults, field.name, None)


def join(monkeypatch: pytest.MonkeyPatch, group: str, name: str, part: type[Role]) -> None:
    """Installs `part` as a third-party package would, in a module of another name."""
    module = types.ModuleType("third_party_package.attacks_of_ours")
    module.__doc__ = "An attack from elsewhere."
    part.__module__ = module.__name__
    setattr(module, part.__name__, part)
    monkeypatch.setitem(sys.modules, "third_party_package", types.ModuleType("third_party_package"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    point = importlib.metadata.EntryPoint(name, f"{module.__name__}:{part.__name__}", group)

    def installed(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
        return (point,) if group == point.group else ()

    monkeypatch.setattr("fdgpriv.registry.installed", installed)


def test_installed_parts_join(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass(frozen=True)
    class Elsewhere(Attack.named("identification")):  # type: ignore[misc]
        """Identification, from another package."""

        strength: int = 1

    shipped = Attack.names()
    join(monkeypatch, "fdgpriv.attacks", "elsewhere", Elsewhere)
    assert set(Attack.names()) == {*shipped, "elsewhere"}
    assert Attack.named("elsewhere") is Elsewhere
    assert Elsewhere.name() == "elsewhere"  # the results name an attack so, and it can be asked for by that name
    assert Attack.parse("elsewhere:strength=3") == Elsewhere(strength=3)
    assert "elsewhere" not in Defense.names()
    assert main(["--list"]) == 0
    assert "elsewhere" in capsys.readouterr().out
    join(monkeypatch, "fdgpriv.defenses", "elsewhere", Elsewhere)
    with refused("want"):  # an attack is no defense
        Defense.named("elsewhere")


def test_settings_are_read_by_their_types() -> None:
    part = Method.parse("stablefdg:participants=none,explore_layers=layer1+layer3,qk_norm=false")
    assert part == Method.named("stablefdg")(participants=None, explore_layers=("layer1", "layer3"), qk_norm=False)
    for spec in ("gaussian:epsilon", "gaussian:=4"):
        with refused(f"name:field=value.*{spec!r}"):
            Defense.parse(spec)


@pytest.mark.parametrize("name", Attack.names())
def test_an_attack_declares_what_it_is(name: str) -> None:
    part = Attack.named(name)
    assert part.task.secret
    assert part.task.metric
    assert part.task.relevant > 0
    assert part.task.bounds is None or part.task.bounds[0] < part.task.bounds[1]
    assert {*part.task.scopes} <= {"client", "domain"}
    assert {*part.kinds()} <= {*Artifact.kinds, GLOBAL_MODEL, HONEST_MEAN}
    assert {*part.threats} <= {*THREATS}
    assert {*part.ablations} <= {"layer", "rounds"}
    sizes = GROUP_SIZES if part.group_sizes is None else part.group_sizes
    assert 1 in sizes or sizes == (None,)  # the positive control: a single image, or the client once more
    assert all(size is None or size >= 1 for size in sizes)
    for names in (part.kinds(), part.threats, part.task.scopes, sizes):
        assert len(set(names)) == len(names) > 0
    assert all(f"{field}=" in part().budget() for field in vars(part()))


def test_presets_and_releases_of_all_parts() -> None:
    for role in (Method, Attack):
        for part in map(role.named, role.names()):
            assert set(part.presets) <= set(PRESETS)
            for settings in part.presets.values():
                part.configured(settings)
    for role in ("client", "third_party"):
        assert THREATS[role].capabilities <= THREATS["server"].capabilities
    for part in map(Method.named, Method.names()):
        assert {*part.presets, "thorough"} == set(PRESETS)  # which trains as default does
        most = 2 * part().rounds  # FedDG-GA's clients evaluate two models in each round
        assert all(0 <= part().disclosure().releases(kind) <= most for kind in Artifact.kinds)


OUTGOING: tuple[Callable[[], Artifact | StyleDraft], ...] = (
    draft,
    lambda: draft(variances=False),
    style,
    lambda: style(variances=False),
    model_state,
    sample_count,
)


def tensors(outgoing: Artifact | StyleDraft) -> dict[str, torch.Tensor]:
    held: dict[str, torch.Tensor] = vars(outgoing).get("state") or vars(outgoing)
    return {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("name", Defense.names())
def test_a_defense_keeps_kind_owner_and_shape(name: str) -> None:
    """It leaves what it is given as it was, and draws from the given generator only."""
    for make in OUTGOING:
        outgoing, untouched = make(), make()
        expected = outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing
        before = torch.random.get_rng_state()
        safe, again = (Defense.named(name)().shared(outgoing, seeded(5)) for _ in range(2))
        assert torch.equal(torch.random.get_rng_state(), before)
        assert equal(safe.tensors(), again.tensors())
        assert type(safe) is type(expected)
        assert safe.facts() == expected.facts()
        shapes = {key: (tensor.shape, tensor.dtype) for key, tensor in expected.tensors().items()}
        assert {key: (tensor.shape, tensor.dtype) for key, tensor in safe.tensors().items()} == shapes
        assert safe.not_finite() is None
        assert tensors(outgoing)
        assert equal(tensors(outgoing), tensors(untouched))
        assert name != "none" or equal(safe.tensors(), expected.tensors())


@pytest.mark.parametrize("name", Defense.names())
def test_a_defense_says_what_it_guarantees(name: str) -> None:
    try:
        _, defense = defended(Method.named("stablefdg")(), name)
    except ValueError:  # not applicable to it
        _, defense = defended(Method.named("fedavg")(), name)
    proved = defense.guarantee()
    assert proved.statement.strip()
    assert set(proved.protects) <= set(Artifact.kinds)
    assert (proved.epsilon is None) == (proved.delta is None) == (not proved.protects)


def test_each_report_writes_a_file_of_its_own() -> None:
    names = [Report.named(name).filename for name in Report.names()]
    assert len(set(names)) == len(names)
    assert all(Path(name).name == name and not name.startswith(".") for name in names)


def test_the_list_shows_every_part_and_threat_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    heading, listed = "", set()
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("  "):
            name, *description = line.split()
            assert description
            listed.add((heading, name))
        else:
            heading = line.rstrip(":")
    assert listed >= {(role.folder, name) for role, name in PARTS} | {("threats", role) for role in THREATS}
