"""LSI's translator as what is evaluated: position by position, and simulated only with a whole federation."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Fitted, mostly_slow, shortened
from factories import LSI_IN_HASTE, fitted_once, mean
from factories_scores import RUN_KEY
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ClassifierHead, RepresentationTranslator
from fdgpriv.artifacts.statistics import TranslatedLatents
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.attack import Attack
from fdgpriv.data.dataset import Dataset, Domain
from fdgpriv.defense import Defense, Guarantee
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.simulation.head import SentHeadSimulator
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.translator import TranslatorSimulator
from fdgpriv.threat import threat
from fdgpriv.utils.seeds import generator
from fdgpriv.verdicts.attack_scores import AttackScores

KIND = RepresentationTranslator.kind


class Moves(nn.Module):
    """A translator by hand: latents of any client, stretched and shifted to the client they are asked for."""

    def __init__(self, stretch: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.stretch, self.shift = stretch, shift

    def forward(self, latents: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """The same shape."""
        return latents * self.stretch[target][:, None] + self.shift[target]


@pytest.fixture(scope="module")
def translated(digits: Dataset) -> Fitted:
    """LSI in a hurry, two clients to a domain."""
    return fitted_once(shortened(digits, 96), clients=6, method="lsi", settings=LSI_IN_HASTE)


def simulator_of(fitted: Fitted) -> TranslatorSimulator:
    simulator = fitted.evaluator().series(KIND).simulator
    assert isinstance(simulator, TranslatorSimulator)
    return simulator


def parties(fitted: Fitted, count: int, size: int) -> list[ClientSample]:
    """Of public images, the domains in turn."""
    sent = next(iter(fitted.evaluator().series(KIND).received_model.values()))
    domains: Sequence[Domain] = list(fitted.population.auxiliary.values())
    chosen = [domains[turn % len(domains)] for turn in range(count)]
    return [ClientSample(ClientImages(d.images, d.labels, sent), torch.arange(size)) for d in chosen]


# What is told


def test_a_vector_is_each_client_s_own_shift(translated: Fitted) -> None:
    simulator, p = simulator_of(translated), translated.method.latent_dim  # type: ignore[attr-defined]
    shift = torch.randn(4, p, generator=generator(1))
    told = torch.stack([one.moments for one in simulator.translated(Moves(torch.ones(4), shift), 4)])
    torch.testing.assert_close(told[:, :p], shift - shift.mean(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(told[:, p:], torch.zeros(4, p), atol=1e-5, rtol=0)
    stretch = torch.tensor([1.0, 2.0, 3.0, 6.0])
    told = torch.stack([one.moments for one in simulator.translated(Moves(stretch, torch.zeros(4, p)), 4)])
    apart = told[:, p:] / (stretch - 3)[:, None].where(stretch[:, None] != 3, torch.nan)
    assert bool((told[2, p:].abs() < 1e-5).all())
    for row in (0, 1, 3):  # the deviations of the latents themselves
        torch.testing.assert_close(apart[row], apart[0], atol=1e-5, rtol=1e-4)
        assert float(apart[row].mean()) == pytest.approx(1, abs=0.1)


def test_the_target_is_the_translator_that_crossed(translated: Fitted) -> None:
    target = translated.evaluator().series(KIND)
    assert tuple(target.wire) == translated.federation.clients
    (sent,) = {id(a): a for _, a in translated.transcript.of_kind(KIND) if a is not None}.values()
    method: Any = translated.method
    network = method.received(sent, 6, generator(9))
    latents = torch.randn(256, method.latent_dim, generator=generator(translated.federation.seed, 21))
    rows = []
    for to in range(6):
        made = [network(latents[i : i + 1], torch.tensor([i % 6]), torch.tensor([to]))[0] for i in range(256)]
        rows.append([[float(z[k]) for z in made] for k in range(method.latent_dim)])
    means = np.array(rows).mean(2)
    for place, artifact in enumerate(target.wire.values()):
        assert isinstance(artifact, TranslatedLatents)
        found = artifact.moments[: method.latent_dim].numpy()
        np.testing.assert_allclose(found, means[place] - means.mean(0), atol=1e-4)


def test_moments_come_in_pairs() -> None:
    with pytest.raises(ValueError, match=r"want moments \(2p,\), got \(3,\)"):
        TranslatedLatents(client="server", round=0, moments=torch.zeros(3))


# Simulated


def test_a_translator_is_made_of_trained_heads(translated: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    simulator, asked = simulator_of(translated), parties(translated, 4, 12)
    own: Any = type(translated.method)
    plain, calls = own.translator, []

    def recording(self: Any, federation: Any, answers: Any, rng: torch.Generator) -> Any:
        calls.append((federation.clients, answers))
        return plain(self, federation, answers, rng)

    monkeypatch.setattr(own, "translator", recording)
    made = simulator.simulate_jointly(asked, generator(3))
    ((names, answers),) = calls
    assert len(made) == len(names) == 4
    heads = translated.evaluator().series(ClassifierHead.kind).simulator
    assert isinstance(heads, SentHeadSimulator)
    rng = generator(3)
    for name, sample in zip(names, asked, strict=True):
        expected, _ = heads.trained(sample, rng)
        (found,) = (artifact for artifact in answers[name] if isinstance(artifact, ClassifierHead))
        assert all(torch.equal(tensor, found.state[key]) for key, tensor in expected.state.items())
    again = simulator.simulate_jointly(asked, generator(3))
    assert all(torch.equal(a.tensors()["moments"], b.tensors()["moments"]) for a, b in zip(made, again, strict=True))


def test_one_client_differs_from_nobody(translated: Fitted) -> None:
    (sample,) = parties(translated, 1, 12)
    made = simulator_of(translated).simulate(sample, generator(0))
    torch.testing.assert_close(made.tensors()["moments"], torch.zeros_like(made.tensors()["moments"]))


def test_a_translator_has_no_shadows(translated: Fitted) -> None:
    evaluator = translated.evaluator()
    target = evaluator.series(KIND)
    assert target.needs_all_clients
    (adversary_trials,) = evaluator.adversaries(target, threat("server"), (None,))
    assert {trial.client for trial in adversary_trials.trials} == set(translated.federation.clients)
    assert all("random_style" not in trial.by_role for trial in adversary_trials.trials)
    assert all({"attack", "other_client", "other_domain"} <= set(trial.by_role) for trial in adversary_trials.trials)


# Which domain


def evaluated(fitted: Fitted, out: Path) -> AttackScores:
    part = Attack.named("domain_inference").configured({"expensive_simulations": 12})
    trials = AttackTrials(fitted.evaluator(), part, threat("server"))
    (found,) = AttackEvaluation(trials, "domain_inference", KIND, True, out, "c", RUN_KEY).run().values()
    return found


def tinted(dataset: Dataset) -> Dataset:
    """Each domain in a colour of its own, so that barely trained heads differ by domain."""
    colours = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])[:, :, None, None]
    pairs = zip(dataset.domains, colours, strict=True)
    return replace(dataset, domains=tuple(replace(d, pixels=0.3 * d.images + 0.7 * c) for d, c in pairs))


def by_heads(informed: bool) -> Any:
    """In the server's place of stage 3: translators that move latents to the mean in each client's head, or nowhere."""

    def translator(self: Any, federation: Any, answers: Any, rng: torch.Generator) -> Any:
        heads = [a for name in federation.clients for a in answers[name] if isinstance(a, ClassifierHead)]
        means = torch.stack([head.state["norm.running_mean"] for head in heads])
        return Moves(torch.ones(len(heads)), means if informed else torch.zeros_like(means)), 0.0

    return translator


@pytest.mark.parametrize(
    ("informed", "least", "most"), mostly_slow([(True, 0.99, 1.0), (False, 0.0, 0.5)], [(True, 0.99, 1.0)])
)
def test_domains_are_inferred_from_a_translator(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, informed: bool, least: float, most: float
) -> None:
    fitted = fitted_once(
        tinted(shortened(digits, 128)), clients=6, method="lsi", settings=LSI_IN_HASTE | {"lr": "0.001"}
    )
    own: Any = type(fitted.method)
    monkeypatch.setattr(own, "translator", by_heads(informed))
    heads = {r.origin: [a] for r, a in fitted.transcript.of_kind(ClassifierHead.kind) if a is not None}
    wire, _ = fitted.method.translator(fitted.federation, heads, generator(0))  # type: ignore[attr-defined]
    monkeypatch.setattr(own, "received", lambda *_: wire)
    found = evaluated(fitted, tmp_path)
    assert found.shared
    assert set(found.by_size) == {None}
    scores = found.by_size[None]
    assert least <= mean(scores) <= most
    assert found.undefended is not None
    assert least <= mean(found.undefended) <= most
    if informed:
        assert mean(scores, "other_domain") < 0.2
    assert set(scores.clients) == set(fitted.federation.clients)


class Passed(Defense):
    """A defense by another name than none, which changes nothing."""

    def protect(self, outgoing: Any, rng: torch.Generator, received: Any = None) -> Artifact:
        return outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "nothing")


@pytest.mark.parametrize(
    ("defense", "federations"), [(None, [12]), pytest.param(Passed(), [6, 12, 12], marks=pytest.mark.slow)]
)
def test_a_defended_federation_is_simulated_apart(
    translated: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defense: Defense | None, federations: list[int]
) -> None:
    sizes: list[int] = []
    plain = TranslatorSimulator.simulate_jointly

    def counting(self: TranslatorSimulator, samples: list[ClientSample], rng: torch.Generator) -> list[Artifact]:
        sizes.append(len(samples))
        return plain(self, samples, rng)

    monkeypatch.setattr(TranslatorSimulator, "simulate_jointly", counting)
    found = evaluated(translated if defense is None else replace(translated, defense=defense), tmp_path)
    assert sorted(sizes) == federations
    assert found.undefended is not None
    assert (found.undefended is found.by_size[None]) == (defense is None)


def test_no_target_without_a_translator(digits: Dataset) -> None:
    plain = fitted_once(shortened(digits, 64), clients=3, method="lsi", settings=LSI_IN_HASTE | {"invariance": "0"})
    assert KIND not in plain.evaluator().artifact_series
