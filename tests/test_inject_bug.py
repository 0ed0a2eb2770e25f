"""--inject-bug: too little noise is real, recorded, said in the report, and a violation where it can be measured."""

from pathlib import Path

import pytest
from conftest import audits_of
from factories import refused

from fdgpriv.audit import main
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import Dataset
from fdgpriv.defense import Defense, defended
from fdgpriv.method import Method
from fdgpriv.privacy.release import measure, privacies
from fdgpriv.results.finding import Results
from fdgpriv.results.run import Privacy
from fdgpriv.utils.defaults import BUGS, Bug


def measured(method: str, defense: str, bug: Bug | None) -> Privacy:
    _, bound = defended(Method.parse(method), defense, bug)
    (found,) = privacies([measure(bound, 8, 100_000, 0)])
    return found


@pytest.mark.parametrize(
    ("method", "defense"),
    [
        ("ccst", "gaussian"),
        ("ccst", "laplace"),
        ("pardon", "gaussian"),
        ("pardon", "laplace"),
        ("ccst", "clip+gaussian"),
        ("fedavg:rounds=2", "client_dp"),
        ("stablefdg:rounds=2", "gaussian:on=all"),
        ("ccst", "gaussian:epsilon=1+laplace:epsilon=1"),
    ],
)
def test_only_a_bug_is_a_violation(method: str, defense: str) -> None:
    plain = measured(method, defense, None)
    assert plain.verdict == "consistent"
    assert "BUG" not in plain.statement
    assert (plain.epsilon_measured.gdp is None) == ("laplace" in defense)  # a bound for Gaussian noise alone
    for bug in ("half-noise", "wrong-sensitivity"):
        found = measured(method, defense, bug)
        assert found.verdict == "violation", (method, defense, bug)
        assert found.epsilon_proved == plain.epsilon_proved
        assert f"BUG INJECTED ({bug})" in found.statement


def test_2c_over_n_for_a_clustered_style_is_the_gravest_bug() -> None:
    """The image's sensitivity for PARDON's style: far more than a factor of 2."""
    half, by_n = (
        measured("pardon", "gaussian:epsilon=8", bug).epsilon_measured for bug in ("half-noise", "wrong-sensitivity")
    )
    assert (half.gdp or 0) < 20
    assert (by_n.gdp or 0) > 50


def test_a_defense_that_proves_nothing_has_no_bug() -> None:
    for name in Defense.names():
        part = Defense.named(name)()
        assert (part.with_bug("half-noise") == part) == (part.guarantee().epsilon is None), name


def test_it_is_refused_where_it_has_no_effect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--inject-bug", "half-noise"]) == 2
    assert "--inject-bug: has no effect without a defense that proves an epsilon" in capsys.readouterr().err
    assert main(["--inject-bug", "no-noise", "--defense", "gaussian"]) == 2
    assert f"--inject-bug: want one of {', '.join(BUGS)}; got 'no-noise'" in capsys.readouterr().err
    with refused("^--inject-bug: has no effect: none of .* adds noise to what "):
        AuditConfig(methods=("stablefdg",), defenses=("none", "clip"), inject_bug="half-noise").checked()
    AuditConfig(methods=("ccst", "stablefdg"), defenses=("none", "gaussian"), inject_bug="half-noise").checked()


def test_an_audit_reports_its_injected_bug(tiny: Dataset, tmp_path: Path) -> None:
    said = ["--method", "pardon", "--preset", "quick", "--attack", "none", "--clients", "3", "--set", "rounds=1"]
    privacy = {}
    with audits_of(tiny):
        for bug in ("none", "wrong-sensitivity"):
            words = [] if bug == "none" else ["--inject-bug", bug]
            out = tmp_path / bug
            assert main([*said, "--defense", "gaussian", *words, "--device", "cpu", "--out", str(out)]) == 0
            results = Results.load(out / "results.json")
            privacy[bug] = results.runs[0].privacy
            assert results.config["inject_bug"] == (None if bug == "none" else bug)
            assert ("BUG INJECTED" in (out / "report.md").read_text()) == (bug != "none")
    assert [found.verdict for found in privacy.values()] == ["consistent", "violation"]
