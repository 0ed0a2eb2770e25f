"""A lying or crashing client ends its run with one line that names it, the round and what was wrong."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from _lies import (
    LIAR,
    Lie,
    Outcome,
    accuracy,
    corrupt,
    count,
    doubled,
    field,
    forged,
    in_round,
    named,
    of_kind,
    raised,
    style,
    style_of_nothing,
    tensor,
    without_last,
)
from conftest import fit, mostly_slow, shortened
from factories import seeded
from factories_wire import defended
from torch import Tensor

from fdgpriv.artifacts.artifact import MAX_COUNT, Message
from fdgpriv.artifacts.parameters import ClassifierHead, ImportanceWeights, ModelUpdate, TensorState
from fdgpriv.artifacts.statistics import LabelMarginal, SampleCount
from fdgpriv.data.dataset import Dataset
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.request import Request, Server
from fdgpriv.federation.upload import ClientFailed, client_errors
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method

LSI = {"inversion_steps": "1", "inversion_batches": "1", "translator_steps": "1", "inversion_labels": "marginal"}
SHALLOW = {"hidden": "4", "local_steps": "1"}
EMBEDDING = {"embedding": "autoencoder", "autoencoder_epochs": "1"}
VALIDATING = {"selection": "validation", "rounds": "2"}


@pytest.fixture(scope="module")
def few(digits: Dataset) -> Dataset:
    """20 images a domain, the least that leaves each client some held-out images."""
    return shortened(digits, 20)


BIAS = "model_state: want head.bias (10,) float32"
MOMENTS = ("mean", "std", "mean_var", "std_var")


def head_of(artifact: TensorState) -> ClassifierHead:
    return ClassifierHead(client=artifact.client, round=artifact.round, state=artifact.state)


def share(change: Callable[[Tensor], Tensor]) -> Lie:
    return of_kind(LabelMarginal, lambda artifact: forged(artifact, share=change(artifact.share)))


Lies = tuple[tuple[str, Lie, str], ...]
FEDAVG: Lies = (
    ("fit", tensor("head.bias", lambda t: t[:1]), f"{BIAS}, got (1,) float32"),  # a shape that broadcasts
    ("fit", tensor("head.weight", lambda t: t.T), "want head.weight (10, 48) float32, got (48, 10)"),
    ("fit", tensor("head.bias", Tensor.double), f"{BIAS}, got (10,) float64"),
    ("fit", tensor("head.bias", lambda t: t.to(torch.complex64)), "got (10,) complex64"),
    ("fit", named(without_last), "model_state: want the tensor head.bias, got none of that name"),
    ("fit", named(lambda s: {**s, "more\n": torch.ones(1)}), "want no tensor more , got one"),
    ("fit", tensor("head.weight", Tensor.to_sparse), "want head.weight dense in CPU memory, got sparse_coo"),
    ("fit", tensor("head.bias", lambda t: t.to("meta")), "dense in CPU memory, got strided on meta"),
    ("fit", tensor("head.bias", Tensor.tolist), "model_state: want head.bias to be a tensor, got list"),
    ("fit", field(state=None), "model_state: want state to be a dictionary of tensors, got NoneType"),
    ("fit", field(round=7), "model_state: want round 0, got 7"),
    ("fit", field(round="0"), "model_state: want round 0, got '0'"),
    ("fit", field(client="client-00"), "model_state: want client client-01, got client-00"),
    ("fit", count(0), "sample_count: want count in [1, 2147483648], got 0"),
    ("fit", count(2**31 + 1), "sample_count: want count in [1, 2147483648], got 2147483649"),
    ("fit", count([3, 4]), "sample_count: want count () int64, got (2,) int64"),
    ("fit", count(3.5), "sample_count: want count () int64, got () float32"),
    ("fit", tensor("running_var", Tensor.neg), "running_var at least 0, got -"),
    ("fit", tensor("batches_tracked", lambda t: t * 0 - 1), "tracked in [0, 2147483648], got -1"),
    ("fit", tensor("batches_tracked", lambda t: t * 0 + 2**62), f"batches_tracked in [0, 2147483648], got {2**62}"),
    ("fit", lambda answer: [head_of(answer[0]), answer[1]], "want 1 model_state, got 0"),  # another kind
    ("fit", lambda answer: [*answer, style_of_nothing()], "want model_state, sample_count, got style_statistics"),
    ("fit", lambda answer: answer * 2, "want 1 model_state, got 2"),
    ("fit", lambda answer: None, "want a list of artifacts, got NoneType"),
    ("fit", lambda answer: answer[0], "want a list of artifacts, got ModelState"),
    ("fit", lambda answer: [{"w": 1}], "want an artifact on the wire, got dict"),
)  # fmt: skip

GROUPS: tuple[tuple[str, Mapping[str, str], Lies], ...] = (
    ("fedavg", {}, FEDAVG),
    ("fedavg", VALIDATING, (
        ("fit", accuracy(2.0), "fit of round 1: validation_metrics: want accuracy in [0, 1], got 2"),
        ("fit", accuracy(float("nan")), "want accuracy in [0, 1], got nan"),
        ("validate", accuracy(-0.1), "round 2: validation_metrics: want accuracy in [0, 1], got -0.1"),
        ("validate", lambda answer: [], "want 1 validation_metrics, got 0"),
        ("fit", in_round(1, tensor("tracked", torch.zeros_like)), "tracked in [1, 2147483649], got 0"),
    )),
    ("stablefdg", {}, (
        ("style", style(std=Tensor.neg), "style of round 0: style_statistics: want std at least 0, got -"),
        ("style", style(mean_var=lambda t: t - 9), "style_statistics: want mean_var at least 0, got -"),
        ("style", style(**dict.fromkeys(MOMENTS, doubled)), "want mean (16,) float32, got (32,) float32"),
        ("style", style(mean_var=torch.empty(0), std_var=torch.empty(0)), "want mean_var (16,) float32, got (0,)"),
        ("style", style(at="layer2"), "style_statistics: want at layer1, got layer2"),
        ("style", style(rule="dassl"), "style_statistics: want rule paper_eps, got dassl"),
        ("style", style(granularity="image"), "style_statistics: want granularity client, got image"),
        ("style", field(std=lambda t: t.T), "want mean and std of one shape"),
        ("style", field(rule="no such rule"), "KeyError: 'no such rule'"),
        ("fit", tensor("head.bias", Tensor.double), f"{BIAS}, got (10,) float64"),
    )),
    ("pardon", {}, (
        ("style", style(mean=lambda t: t[:4], std=lambda t: t[:4]), "want mean (64,) float32, got (4,) float32"),
        ("adopt", lambda answer: [style_of_nothing()], "adopt of round 0: want no artifact, got style_statistics"),
    )),
    ("ccst", {"style": "single", "style_of": "amplitude"}, (
        ("style", lambda answer: [], "want 1 to 67108864 amplitude_spectrum, got 0"),
        ("style", field(amplitude=Tensor.neg), "want amplitude at least 0, got -"),
        ("style", field(amplitude=lambda t: t[:, :2]), "(3, 32, 32) float32, got (3, 2, 32)"),
    )),
    ("hfedf", {**SHALLOW, **EMBEDDING}, (
        ("fit", named(without_last, ModelUpdate), "model_update: want the tensor head.bias"),
        ("embed", field(vector=doubled), "client_embedding: want vector ("),
    )),
    ("lsi", {**LSI, "normaliser": "clients"}, (
        ("pretrain", share(lambda t: t * 2), "label_marginal: want share to sum to 1, got 2"),
        ("pretrain", share(lambda t: t - 1), "label_marginal: want share in [0, 1], got -"),
        ("pretrain", share(lambda t: t * torch.nan), "want share in [0, 1], got nan"),
        ("pretrain", tensor("r.weight", lambda t: t[:1], ClassifierHead), "weight (10, 32) float32, got (1, 32)"),
        ("fit", tensor("r.weight", lambda t: -1 - t, ImportanceWeights), "want head.linear.weight at least 0, got -"),
        ("fit", named(without_last, ImportanceWeights), "importance_weights: want the tensor head.linear.bias"),
        ("recalibrate", lambda answer: answer * 2, "recalibrate of round 0: want 1 bn_statistics, got 2"),
        ("validate", lambda answer: answer * 2, "want 0 to 1 validation_metrics, got 2"),
        ("weigh", named(without_last), "model_state: want the tensor head.linear.bias"),
    )),
)  # fmt: skip


@pytest.mark.parametrize(("method", "settings", "lies"), GROUPS, ids=[f"{group[0]}-{group[1]}" for group in GROUPS])
def test_lies_are_refused_in_one_line(
    method: str, settings: Mapping[str, str], lies: Lies, few: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told in an honest run, in the place of each answer of one client, and not recorded."""
    refusals: list[list[str]] = [[] for _ in lies]
    honest: dict[str, Outcome] = {}
    check = Wire._check

    def tried(wire: Wire, client: str, verb: str, message: Message, round: int, wanted: Any) -> None:
        for (verb_of_lie, lie, _), texts in zip(lies, refusals, strict=True):
            if (client, verb) == (LIAR, verb_of_lie):
                try:
                    lying = defended(wire, client, verb, lie(honest[verb]), seeded(0), round)
                    check(wire, client, verb, lying, round, wanted)
                except ClientFailed as error:
                    texts.append(str(error))
        check(wire, client, verb, message, round, wanted)

    monkeypatch.setattr(Wire, "_check", tried)
    for verb in {verb for verb, _, _ in lies}:
        corrupt(monkeypatch, method, verb, lambda answer, verb=verb: (honest.update({verb: answer}), answer)[1])
    fit(few, clients=3, method=method, settings=settings)
    for (verb, _, reason), texts in zip(lies, refusals, strict=True):
        assert texts, reason
        assert texts[0].startswith(f"{LIAR} failed in {verb} of round "), texts[0]
        assert reason in texts[0], texts[0]
        assert settings or " of round 0: " in texts[0]
        assert texts[0].isprintable()


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (tensor("head.bias", Tensor.double), f"{BIAS}, got (10,) float64"),
        (raised(KeyError("head\nbias")), "KeyError: 'head\\nbias'"),
        (raised(RuntimeError("no\nmemory\x1b[0m")), "RuntimeError: no memory?[0m"),
        (raised(StopIteration("all done")), "StopIteration: all done"),  # which ends generators
    ],
)
def test_a_lie_or_an_exception_ends_the_run(lie: Lie, reason: str, few: Dataset, monkeypatch: Any) -> None:
    corrupt(monkeypatch, "fedavg", "fit", lie)
    with pytest.raises(ClientFailed) as caught:
        fit(few, clients=3, method="fedavg")
    assert str(caught.value).startswith("client-01 failed in fit of round 0: ")
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


def test_ctrl_c_in_a_client_is_no_failure_of_it(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    corrupt(monkeypatch, "fedavg", "fit", raised(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        fit(few, clients=3, method="fedavg")
    error = ZeroDivisionError("by 0")
    with pytest.raises(ClientFailed) as caught, client_errors(LIAR, "fit", 2):
        raise error
    assert caught.value.__cause__ is error


def largest(answer: Outcome) -> Outcome:
    """What an honest client may answer at the edge of what is allowed."""
    return [forged(item, count=torch.tensor(MAX_COUNT)) if isinstance(item, SampleCount) else item for item in answer]


HONEST: list[tuple[str, Mapping[str, str], str]] = [
    ("fedavg", {**VALIDATING, "participants": "2"}, "none"),
    ("fedavg", {"buffers": "keep_local", "rounds": "2", "weights": "uniform"}, "none"),
    ("stablefdg", {"rounds": "2"}, "gaussian:epsilon=0.1"),
    ("pardon", {"code_compat": "true"}, "gaussian:epsilon=0.1,unit=client"),
    ("ccst", {"style": "single", "images_per_style": "4", "augmentation": "2"}, "gaussian:epsilon=0.1"),
    ("ccst", {"style": "single", "style_of": "amplitude", "split": "after"}, "none"),
    ("hfedf", {**SHALLOW, **EMBEDDING}, "none"),
    ("lsi", {**LSI, "rounds": "2"}, "none"),
    ("stablefdg", {"rounds": "2"}, "clip+sparsify:on=all+quantize:on=all"),
]
MORE_HONEST: list[tuple[str, Mapping[str, str], str]] = [  # only among the slow tests
    ("pfedhn", {**SHALLOW, "rounds": "2", "participants": "2"}, "none"),
    ("lsi", {**LSI, "rounds": "2", "normaliser": "clients", "recalibrate_bn": "false"}, "none"),
    ("lsi", {**LSI, "rounds": "2"}, "gaussian:epsilon=1e4,on=all"),
    ("fedavg", {"buffers": "freeze", "rounds": "2"}, "none"),
    ("stablefdg", {"code_compat": "true", "p": "0"}, "none"),
    ("pardon", {"style_transfer": "false"}, "none"),
    ("ccst", VALIDATING, "gaussian:epsilon=0.1"),
    ("hfedf", {**SHALLOW, "rounds": "2"}, "none"),
    ("lsi", {**LSI, "importance_sign": "signed", "stage4_start": "global"}, "none"),
    ("lsi", {**LSI, "aggregation": "mean", "stage1_start": "own", "keep_momentum": "true"}, "none"),
    ("lsi", {"invariance": "0", "buffers": "keep_local", "recalibrate_bn": "false", "rounds": "2"}, "none"),
    ("lsi", {**LSI, "importance_sign": "signed"}, "laplace"),
    ("hfedf", {**SHALLOW, **EMBEDDING}, "client_dp+gaussian"),
    ("ccst", {"style": "single", "style_of": "amplitude"}, "laplace"),
]


@pytest.mark.parametrize(("method", "settings", "defense"), mostly_slow([*HONEST, *MORE_HONEST], HONEST))
def test_honest_clients_pass_in_every_method(
    method: str, settings: Mapping[str, str], defense: str, few: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []
    part = Method.named(method)
    server: Any = part.server

    def listening(self: Method, federation: Federation, rng: torch.Generator) -> Server:
        inner = server(self, federation, rng)
        ask = next(inner)
        while True:
            asked.append(ask)
            answers = yield ask
            try:
                ask = inner.send(answers)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]

    monkeypatch.setattr(part, "server", listening)
    corrupt(monkeypatch, method, "pretrain" if method == "lsi" else "fit", largest)
    fit(few, clients=3, method=method, settings=settings, defense=defense)
    assert asked
    assert [ask.verb for ask in asked if ask.wanted is None] == []
