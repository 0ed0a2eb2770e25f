"""Makes arithmetic the same in every start: on the CPU one thread per computation, and MKL's kernels chosen by one thread."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import scipy.linalg  # noqa: F401 - so that its BLAS is loaded, and limited
import torch
from threadpoolctl import threadpool_limits
from torch.nn.attention import SDPBackend, sdpa_kernel

# What torch computes by MKL's vector functions
_VECTOR_FUNCTIONS = (
    *("acos", "asin", "atan", "cos", "sin", "tan", "tanh", "exp", "expm1", "log", "log10", "log1p", "log2"),
    *("sqrt", "erf", "erfc", "erfinv", "trunc"),
)


@contextmanager
def fixed_arithmetic() -> Iterator[None]:
    """Within, this thread and the BLAS of numpy and scipy compute on one thread each.

    Sums depend on the number of threads that they are divided among, so that figures would depend on the number of cores. An
    audit works on several clients and attacks side by side instead; each of its threads needs `torch.set_num_threads(1)`.

    Attention is computed by plain operations, in all threads: torch's fused kernels have no second derivative on a CPU, which
    inversions of gradients take.
    """
    _choose_kernels()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.set_num_threads(threads)


def _choose_kernels() -> None:
    """Calls each vector function of MKL once, on one number and so on one thread.

    The first call of a process looks up the processor's number and stores it twice: first as it is, then translated to an index
    of kernels. Another thread that calls in between takes the first for an index, and on Intel processors with AVX-512 gets a
    kernel with 12 correct bits for this one call (MKL 2024.2, in torch's wheels; PyTorch issue 188792).
    """
    for precision in (torch.float32, torch.float64):
        number = torch.full((1,), 0.5, dtype=precision)
        for name in _VECTOR_FUNCTIONS:
            getattr(torch, name)(number)


def whole_precision() -> AbstractContextManager[None]:
    """Within, convolutions on a GPU are deterministic and do not round their inputs to TF32's 10 bits.

    By default they do, so that artifacts that clients compute there would differ by a thousandth from what an adversary
    computes from the same images on the CPU. Nothing changes on the CPU.
    """
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
    return flags
