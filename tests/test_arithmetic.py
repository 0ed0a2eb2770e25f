"""Arithmetic does not depend on the number of cores, nor on which thread calls a vector function first."""

from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch.backends import cudnn
from torch.nn.attention import SDPBackend, sdpa_kernel

import fdgpriv
from fdgpriv.cell_runner import CellRunner
from fdgpriv.utils import arithmetic
from fdgpriv.utils.arithmetic import fixed_arithmetic, whole_precision


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_torch_and_blas_have_one_thread_within() -> None:
    @fixed_arithmetic()
    def failing() -> None:
        assert torch.get_num_threads() == 1
        assert blas_threads() == {1}
        raise KeyError

    before = torch.get_num_threads()
    with threadpool_limits(2, user_api="blas"):
        torch.set_num_threads(2)
        try:
            with pytest.raises(KeyError):
                failing()
            assert torch.get_num_threads() == 2
            assert blas_threads() == {2}
        finally:
            torch.set_num_threads(before)


def test_attention_has_a_second_derivative_within() -> None:
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    tokens = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)

    def second_derivative() -> torch.Tensor:
        output = layer(tokens, tokens, tokens, need_weights=False)[0].square().sum()
        (gradient,) = torch.autograd.grad(output, layer.in_proj_weight, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), tokens)[0]

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        with pytest.raises(RuntimeError, match="derivative"):
            second_derivative()
        with fixed_arithmetic():
            assert second_derivative().abs().sum() > 0


def test_vector_functions_are_called_once_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, torch.dtype, int]] = []
    for name in arithmetic._VECTOR_FUNCTIONS:
        plain = getattr(torch, name)

        def count(number: torch.Tensor, name: str = name, plain: object = plain) -> torch.Tensor:
            called.append((name, number.dtype, number.numel()))
            return plain(number)  # type: ignore[operator]

        monkeypatch.setattr(torch, name, count)
    with fixed_arithmetic():
        once = [(name, kind, 1) for kind in (torch.float32, torch.float64) for name in arithmetic._VECTOR_FUNCTIONS]
        assert called == once


def test_an_audit_computes_so_from_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, set[int]]] = []

    def load(*given: object, **named: object) -> object:
        seen.append((torch.get_num_threads(), blas_threads()))
        raise ValueError("far enough")

    monkeypatch.setattr("fdgpriv.data.load", load)
    torch.set_num_threads(2)
    with threadpool_limits(2, user_api="blas"), pytest.raises(ValueError, match="far enough"):
        fdgpriv.run_audit("fedavg", preset="quick", progress=False)
    assert seen == [(1, {1})]


# Convolutions on a GPU


def convolution_settings() -> tuple[bool, bool, bool]:
    return cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32


def test_convolutions_are_whole_within() -> None:
    before = convolution_settings()
    with whole_precision():
        assert convolution_settings() == (True, True, False)
    assert convolution_settings() == before


def test_every_cell_of_a_run_has_whole_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen, nothing = convolution_settings(), [], Any
    monkeypatch.setattr(CellRunner, "_run_cell", lambda *_: seen.append(convolution_settings()))
    runner: Any = CellRunner
    runner(nothing, nothing, nothing, nothing, 1).run(["one", "another"], {})
    assert seen == [(True, True, False)] * 2
    assert convolution_settings() == before
