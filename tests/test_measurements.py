"""What the evaluator measures beside the attacks: presence in the style of all, moments told by a translator."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Fitted, fit, mostly_slow
from factories import fitted_once
from torch import Tensor, nn

from fdgpriv.artifacts.style import InterpolationStyle
from fdgpriv.claims import measurements as measured
from fdgpriv.claims.measurements import facts
from fdgpriv.claims.presence import presence
from fdgpriv.claims.translation import translation
from fdgpriv.data.dataset import Dataset
from fdgpriv.method import Method


@pytest.fixture(scope="module")
def pardon(tiny: Dataset) -> Fitted:
    """Five clients to a domain."""
    return fit(tiny, clients=15, method="pardon")


@pytest.fixture(scope="module")
def lsi(tiny: Dataset) -> Fitted:
    return fit(tiny, clients=6, method="lsi", settings={"rounds": "2"})


def blending(monkeypatch: pytest.MonkeyPatch, rule: Any) -> None:
    """The server makes `rule` of its clients' styles (N, 2C)."""

    def interpolation(self: object, styles: Any) -> InterpolationStyle:
        made = rule(torch.stack([torch.cat([style.mean, style.std]) for style in styles])).chunk(2)
        return InterpolationStyle(client="server", round=0, mean=made[0], std=made[1], at=styles[0].at, rule="")

    monkeypatch.setattr(type(Method.named("pardon")()), "interpolation", interpolation)


def test_each_of_two_clients_is_detected_and_no_other(pardon: Fitted) -> None:
    found = presence(pardon.evaluator())
    assert found["presence_2_low"] > 0.6
    assert found["absent_2_low"] < 0.5 < found["absent_2_high"]
    assert found["presence_10"] < found["presence_2"]
    assert set(found) == {
        f"{who}_{m}{end}"
        for who in ("presence", "absent", "presence_lead")
        for m in (2, 10)
        for end in ("", "_low", "_high", "_n")
    }
    assert found["presence_lead_2"] == pytest.approx(found["presence_2"] - found["absent_2"])


def test_presence_of_constant_and_single_styles(pardon: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    blending(monkeypatch, lambda rows: torch.zeros(rows.shape[1]))
    found = presence(pardon.evaluator())
    plain = {name: value for name, value in found.items() if not name.endswith(("low", "high", "_n"))}
    assert all(value == (0 if "lead" in name else 0.5) for name, value in plain.items())
    blending(monkeypatch, lambda rows: rows[-1])
    found = presence(pardon.evaluator())
    assert found["presence_10_low"] > 0.9
    assert found["presence_10"] == pytest.approx(found["presence_2"], abs=0.1)


class Oracle(nn.Module):
    """Moves latents to the very moments of the client they are translated to, or to those of the next one."""

    def __init__(self, moments: Tensor, shift: int) -> None:
        super().__init__()
        self.moments, self.shift = moments, shift

    def forward(self, latents: Tensor, source: Tensor, target: Tensor) -> Tensor:
        mean, std = self.moments[(int(target[0]) + self.shift) % len(self.moments)]
        return (latents - latents.mean(0)) / latents.std(0, correction=0).clamp_min(1e-9) * std + mean


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "told"), [(0, True), (1, False)])
def test_gain_of_a_perfect_and_of_a_wrong_translator(
    lsi: Fitted, monkeypatch: pytest.MonkeyPatch, shift: int, told: bool
) -> None:
    evaluator = lsi.evaluator()
    model: Any = evaluator.method.model(evaluator.federation, torch.Generator().manual_seed(0))
    rounds = [record.round for record in lsi.transcript.records if record.verb == "validate"]
    last = lsi.transcript.model_sent(max(rounds), "validate")
    assert last is not None
    last.load_into(model)
    with torch.no_grad():
        latents = [model.eval().embedding(data.images) for data in lsi.population.clients.values()]
    moments = torch.stack([torch.stack([own.mean(0), own.std(0, correction=0)]) for own in latents])
    monkeypatch.setattr(type(evaluator.method), "received", lambda *_: Oracle(moments, shift))
    found = translation(evaluator)
    assert (found["translation_gain_low"] > 0) == told
    assert (found["translated_error"] < 0.05 * found["untranslated_error"]) == told


@pytest.mark.slow
def test_the_translator_on_the_wire_is_measured(lsi: Fitted) -> None:
    found = translation(lsi.evaluator())
    assert found["translation_gain_low"] <= found["translation_gain"] <= found["translation_gain_high"]
    assert min(found[f"{name}_error"] for name in ("translated", "untranslated", "elsewhere")) > 0


def test_nothing_is_measured_where_nothing_crossed(pardon: Fitted, lsi: Fitted) -> None:
    assert presence(lsi.evaluator()) == {}
    assert translation(pardon.evaluator()) == {}
    apart = {name: torch.tensor([i]) for i, name in enumerate(pardon.population.domain_of)}
    few = replace(pardon, population=replace(pardon.population, domain_of=apart))
    assert presence(few.evaluator()) == {}


@pytest.mark.parametrize("name", mostly_slow(Method.names(), ("copa", "lsi")))
def test_no_measurement_fails_on_any_method(name: str, tiny: Dataset, tmp_path: Path) -> None:
    evaluator = fitted_once(tiny, clients=6, method=name, settings={"rounds": "2"}).evaluator()
    assert facts(evaluator, tmp_path).failures == []


def test_figures_are_measured_once(lsi: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "MEASURED", (lambda _: {"a": 1.5}, lambda _: {"b": 2.0}))
    monkeypatch.setattr(measured, "GENERATED", (lambda _, gan: {"steps": float(gan.steps)},))
    found = {"a": 1.5, "b": 2.0, "steps": 7.0}
    assert facts(lsi.evaluator(), tmp_path / "cell", ("linkage", "gan:steps=7")) == (found, [])
    monkeypatch.setattr(measured, "MEASURED", (lambda _: {"a": 7.0},))
    assert facts(lsi.evaluator(), tmp_path / "cell") == (found, [])
