"""Every part there is keeps what its role promises; a new file is asked the day it lands."""

import dataclasses
import importlib.metadata
import runpy
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import fdgpriv
from fdgpriv.artifact import Artifact, ModelState, SampleCount, StyleDraft, StyleStatistics
from fdgpriv.audit import main
from fdgpriv.plan import PRESETS
from fdgpriv.roles import Attack, Defense, Method, Report, Role
from fdgpriv.subjects.shared_model import GLOBAL_MODEL
from fdgpriv.threat import THREATS

ROOT = Path(fdgpriv.__file__).resolve().parent.parent
ROLES: tuple[type[Role], ...] = (Method, Attack, Defense, Report)
PARTS = [(role, name) for role in ROLES for name in role.names()]
EACH_ROLE = pytest.mark.parametrize("role", ROLES, ids=lambda role: str(role.folder))
EACH_PART = pytest.mark.parametrize(("role", "name"), PARTS, ids=[f"{role.folder}/{name}" for role, name in PARTS])

FAMILIES = {"reconstruction", "identification", "membership", "property", "algebra"}


def draft(variances: bool = True) -> StyleDraft:
    rng = torch.Generator().manual_seed(1)
    return StyleDraft(
        client="photo",
        round=3,
        mean=torch.randn(9, 4, generator=rng),
        std=torch.rand(9, 4, generator=rng),
        variances=variances,
        behind="client",
        at="layer1",
        rule="paper_eps",
    )


# How parts are found


@EACH_ROLE
def test_the_names_are_the_files(role: type[Role]) -> None:
    files = {path.stem for path in (ROOT / role.folder).glob("*.py") if not path.name.startswith("_")}
    joined = {point.name for point in importlib.metadata.entry_points(group=f"fdgpriv.{role.folder}")}
    assert set(role.names()) == files | joined
    assert list(role.names()) == sorted(role.names())


@EACH_PART
def test_a_part_is_found_by_its_name_and_knows_it(role: type[Role], name: str) -> None:
    part = role.named(name)
    assert issubclass(part, role)
    assert part.name() == name
    assert not getattr(part, "__abstractmethods__", None)


@EACH_PART
def test_a_part_stands_with_its_defaults_and_is_frozen(role: type[Role], name: str) -> None:
    part = role.named(name)()
    if dataclasses.is_dataclass(part):
        assert part == role.named(name)()
        for field in dataclasses.fields(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, field.name, None)


@EACH_PART
def test_a_part_opens_with_a_sentence(role: type[Role], name: str) -> None:
    for said in (sys.modules[role.named(name).__module__].__doc__, role.named(name).__doc__):
        assert said
        assert said.splitlines()[0].rstrip().endswith((".", ":", "?")) or ". " in said


@EACH_ROLE
@pytest.mark.parametrize("name", ["nobody", "", "_helper", "Gan", "../secrets", "os"])
def test_an_unknown_name_lists_the_known_ones(role: type[Role], name: str) -> None:
    with pytest.raises(ValueError) as caught:
        role.named(name)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert all(known in said for known in role.names())
    assert repr(name) in said


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

    monkeypatch.setattr("fdgpriv.role.installed", installed)


def identification_from_elsewhere() -> type[Attack]:
    @dataclass(frozen=True)
    class Elsewhere(Attack.named("identification")):  # type: ignore[misc]
        """Identification, from another package."""

        strength: int = 1

    found: type[Attack] = Elsewhere
    return found


def test_installed_parts_join(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    part = identification_from_elsewhere()
    own = Attack.names()
    join(monkeypatch, "fdgpriv.attacks", "elsewhere", part)
    assert set(Attack.names()) == {*own, "elsewhere"}
    assert Attack.named("elsewhere") is part
    assert Attack.parse("elsewhere:strength=3") == part(strength=3)  # type: ignore[call-arg]
    assert "elsewhere" not in Defense.names()
    with pytest.raises(ValueError, match="elsewhere"):
        Attack.named("nobody")
    assert main(["--list"]) == 0
    assert "elsewhere" in capsys.readouterr().out


def test_an_installed_part_has_the_name_it_was_installed_under(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results name an attack by it, and a reader must be able to ask for that name."""
    join(monkeypatch, "fdgpriv.attacks", "elsewhere", identification_from_elsewhere())
    assert Attack.named("elsewhere").name() == "elsewhere"


def test_a_part_of_another_role_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    join(monkeypatch, "fdgpriv.defenses", "elsewhere", identification_from_elsewhere())
    with pytest.raises(ValueError, match="want"):
        Defense.named("elsewhere")


# What the command line writes


@EACH_PART
def test_a_name_alone_means_the_defaults(role: type[Role], name: str) -> None:
    part, defaults = role.parse(name), role.named(name)()
    assert type(part) is type(defaults)
    assert vars(part) == vars(defaults)


@EACH_PART
def test_every_field_is_read_back_from_its_own_text(role: type[Role], name: str) -> None:
    part = role.named(name)
    if not dataclasses.is_dataclass(part):
        return
    defaults = part()
    for field in dataclasses.fields(part):
        value = getattr(defaults, field.name)
        text = "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert part.configured({field.name: text}) == defaults, field.name
        assert part.configured({field.name: value}) == defaults, field.name


@EACH_PART
def test_an_unknown_field_lists_the_known_ones(role: type[Role], name: str) -> None:
    part = role.named(name)
    known: list[str] = [field.name for field in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []
    with pytest.raises(ValueError) as caught:
        role.parse(f"{name}:colour=red")
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert name in said
    assert "'colour'" in said
    assert all(field in said for field in known)


@pytest.mark.parametrize(
    ("role", "spec", "told"),
    [
        (Defense, "gaussian:epsilon=much", r"gaussian\.epsilon: want float, got 'much'"),
        (Defense, "gaussian:epsilon", "name:field=value.*'gaussian:epsilon'"),
        (Defense, "gaussian:=4", "name:field=value.*'gaussian:=4'"),
        (Defense, "gaussian:epsilon=", r"gaussian\.epsilon: want float, got ''"),
        (Defense, "gaussian:releases=1.5", r"gaussian\.releases: want int, got '1.5'"),
        (Defense, "gaussian:epsilon=0", "epsilon: want more than 0"),
        (Defense, "gaussian:epsilon=nan", "epsilon: want"),
        (Defense, "gaussian:epsilon=inf", "epsilon: want"),
        (Defense, "gaussian:clip=inf", "clip: want"),
        (Defense, "gaussian:scale=inf", "scale: want"),
        (Defense, "gaussian:scale=-1", "scale: want more than 0"),
        (Defense, "gaussian:delta=1", "delta: want 0 < delta < 1"),
        (Defense, "gaussian:delta=nan", "delta: want"),
        (Defense, "gaussian:unit=country", "unit: want one of image, client; got 'country'"),
        (Defense, "gaussian:releases=0", "releases: want at least 1"),
        (Defense, "none:strength=1", r"none: want a field of \(none\); got 'strength'"),
        (Attack, "gan:loss=kl", "loss: want one of mse"),
        (Attack, "gan:lr=nan", "lr: want"),
        (Attack, "gan:steps=ten", r"gan\.steps: want int, got 'ten'"),
        (Attack, "gan:steps=0", "steps: want more than 0"),
        (Attack, "gan:batch_size=1", "batch_size: want at least 2"),
        (Attack, "identification:practice=0", "practice: want"),
        (Attack, "domain_inference:practice=-3", "practice: want"),
        (Attack, "label_histogram:practice=0", "practice: want"),
        (Attack, "label_histogram:alphas=0.5+-1", "alphas: want"),
        (Attack, "class_probe:practice=3", "class_probe: want a field of"),
        (Method, "stablefdg:rounds=0", "rounds: want more than 0"),
        (Method, "stablefdg:lr=nan", "lr: want"),
        (Method, "stablefdg:lr=inf", "lr: want"),
        (Method, "stablefdg:momentum=-1", "momentum: want"),
        (Method, "stablefdg:weight_decay=-1", "weight_decay: want"),
        (Method, "stablefdg:p=2", "p: want a probability"),
        (Method, "stablefdg:mixing=2", "mixing: want"),
        (Method, "stablefdg:exploration=nan", "exploration: want"),
        (Method, "stablefdg:attention_dim=0", "attention_dim: want"),
        (Method, "stablefdg:sharing=never", "sharing: want one of random, farthest; got 'never'"),
        (Method, "pardon:alpha=2", r"alpha: want a number in \[0, 1\], got 2"),
        (Method, "pardon:codec=jpeg", "codec: want one of digits, adain_vgg; got 'jpeg'"),
        (Method, "fedavg:weighting=age", "weighting: want samples or uniform, got 'age'"),
        (Method, "fedavg:schedule=lunar", "schedule: want one of"),
    ],
)
def test_a_wrong_value_is_told_in_one_line(role: type[Role], spec: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        role.parse(spec)
    assert len(str(caught.value).splitlines()) == 1


def test_optional_fields_take_none_and_lists_take_plus() -> None:
    part = Method.parse("stablefdg:participants=none,explore_layers=layer1+layer3,qk_norm=false")
    assert (part.participants, part.explore_layers, part.qk_norm) == (  # type: ignore[attr-defined]
        None,
        ("layer1", "layer3"),
        False,
    )


# What each role promises

EACH_ATTACK = pytest.mark.parametrize("name", Attack.names())


@EACH_ATTACK
def test_an_attack_declares_what_it_is(name: str) -> None:
    part = Attack.named(name)
    assert part.family in FAMILIES
    assert set(part.reads) <= {*Artifact.kinds, GLOBAL_MODEL}
    assert part.headline
    assert isinstance(part.higher_leaks, bool)
    assert part.bounds is None or part.bounds[0] < part.bounds[1]
    assert part.lines
    assert set(part.lines) <= {"client", "domain"}
    assert part.threats
    assert set(part.threats) <= set(THREATS)
    assert len(set(part.threats)) == len(part.threats)
    assert part.sizes
    assert all(size is None or size >= 1 for size in part.sizes)
    assert 1 in part.sizes or part.sizes == (None,)  # the positive control: a single image, or the client once more


@EACH_ATTACK
def test_an_attack_tells_its_budget_in_words(name: str) -> None:
    part = Attack.named(name)()
    said = part.budget()
    assert said
    assert all(f"{field}=" in said for field in vars(part))


@pytest.mark.parametrize("role", [Method, Attack])
def test_presets_are_known_and_set_known_fields(role: type[Method | Attack]) -> None:
    for name in role.names():
        part = role.named(name)
        assert set(part.presets) <= set(PRESETS)
        if issubclass(part, Method):
            assert set(part.presets) == set(PRESETS)
        for settings in part.presets.values():
            part.configured(settings)


@pytest.mark.parametrize("name", Method.names())
def test_a_method_shares_at_most_once_a_round(name: str) -> None:
    part = Method.named(name)()
    assert part.rounds >= 1
    for kind in Artifact.kinds:
        assert 0 <= part.releases(kind) <= part.rounds


def style(variances: bool) -> StyleStatistics:
    return draft(variances).finish()


def state() -> ModelState:
    tensors = {"w": torch.randn(3, 2, generator=torch.Generator().manual_seed(2)), "n": torch.tensor(4)}
    return ModelState(client="photo", round=3, state=tensors)


def count() -> SampleCount:
    return SampleCount(client="photo", round=3, count=torch.tensor(9))


EACH_DEFENSE = pytest.mark.parametrize("name", Defense.names())
OUTGOING: dict[str, Callable[[], Artifact | StyleDraft]] = {
    "draft": draft,
    "draft without variances": lambda: draft(False),
    "style": lambda: style(True),
    "style without variances": lambda: style(False),
    "model state": state,
    "sample count": count,
}


@EACH_DEFENSE
@pytest.mark.parametrize("what", OUTGOING)
def test_a_defense_keeps_kind_owner_and_shape(name: str, what: str, rng: torch.Generator) -> None:
    outgoing = OUTGOING[what]()
    expected = outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing
    safe = Defense.named(name)().protect(outgoing, rng)
    assert type(safe) is type(expected)
    assert safe.facts() == expected.facts()
    shapes = {key: (tensor.shape, tensor.dtype) for key, tensor in expected.tensors().items()}
    assert {key: (tensor.shape, tensor.dtype) for key, tensor in safe.tensors().items()} == shapes
    assert safe.not_finite() is None


@EACH_DEFENSE
@pytest.mark.parametrize("what", OUTGOING)
def test_a_defense_leaves_what_it_was_given_as_it_was(name: str, what: str, rng: torch.Generator) -> None:
    def tensors(outgoing: Artifact | StyleDraft) -> list[torch.Tensor]:
        return list(vars(outgoing).get("state", {}).values()) or [
            value for value in vars(outgoing).values() if isinstance(value, torch.Tensor)
        ]

    outgoing, untouched = OUTGOING[what](), OUTGOING[what]()
    Defense.named(name)().protect(outgoing, rng)
    assert tensors(outgoing)
    assert all(torch.equal(a, b) for a, b in zip(tensors(outgoing), tensors(untouched), strict=True))


@EACH_DEFENSE
def test_a_defense_draws_from_the_given_generator_only(name: str) -> None:
    before = torch.random.get_rng_state()
    shared = [Defense.named(name)().protect(draft(), torch.Generator().manual_seed(seed)) for seed in (5, 5)]
    assert torch.equal(torch.random.get_rng_state(), before)
    for key, tensor in shared[0].tensors().items():
        assert torch.equal(tensor, shared[1].tensors()[key])


@EACH_DEFENSE
def test_a_defense_says_what_it_guarantees_for_known_kinds(name: str) -> None:
    proved = Defense.named(name)().bound_to(Method.named("stablefdg")()).guarantee()
    assert proved.statement.strip()
    assert set(proved.protects) <= set(Artifact.kinds)
    assert (proved.epsilon is None) == (proved.delta is None) == (not proved.protects)
    if proved.epsilon is None:
        assert "no finite epsilon" in proved.statement


def test_no_defense_changes_nothing(rng: torch.Generator) -> None:
    safe = Defense.named("none")().protect(draft(), rng)
    for name, tensor in style(True).tensors().items():
        assert torch.equal(safe.tensors()[name], tensor)


def test_each_report_writes_a_file_of_its_own() -> None:
    names = [Report.named(name).filename for name in Report.names()]
    assert len(set(names)) == len(names)
    assert all(Path(name).name == name and not name.startswith(".") for name in names)


# The list


def test_the_list_shows_every_part_and_threat_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["audit", "--list"])
    monkeypatch.delitem(sys.modules, "fdgpriv.audit")
    with pytest.raises(SystemExit) as left:
        runpy.run_module("fdgpriv.audit", run_name="__main__", alter_sys=False)
    assert left.value.code == 0
    heading, shown = "", set()
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("  "):
            name, *said = line.split()
            assert said
            shown.add((heading, name))
        else:
            heading = line.rstrip(":")
    assert shown == {(role.folder, name) for role, name in PARTS} | {("threat models", role) for role in THREATS}
