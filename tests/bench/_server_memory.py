"""Two rounds of hFedF's server against clients that answer noise: prints its peak memory in bytes of theta.

A process of its own: the kernel keeps the peak of a whole process. What clients are sent and answer is counted too.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from fdgpriv import data
from fdgpriv.artifacts.parameters import ModelUpdate
from fdgpriv.config import AuditConfig
from fdgpriv.federation.partition import populate
from fdgpriv.method import Method
from fdgpriv.utils.seeds import generator


def resident(field: str) -> int:
    """Bytes by the kernel's count: VmRSS now, VmHWM at the peak."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def steps(clients: int) -> Iterator[int]:
    """Bytes of theta (of its heads), then, after each of two steps of the server, the peak so far."""
    dataset = data.load("digits")
    population = populate(dataset, dataset.default_target, "single", clients, 0)
    federation = AuditConfig().checked().federation(dataset, list(population.clients), 0)
    method = Method.named("hfedf").configured({**Method.named("hfedf").presets["default"], "rounds": 3})
    before = resident("VmRSS")
    server = method.server(federation, generator(0))
    ask = next(server)
    (sent,) = ask.messages[federation.clients[0]]
    values = sum(tensor.numel() for tensor in sent.tensors().values())
    yield 4 * 51 * values  # and a trunk of a few thousand
    for round in range(2):
        answers = {}
        for client in ask.messages:
            noise = {name: 1e-3 * torch.randn(tensor.shape) for name, tensor in sent.tensors().items()}
            answers[client] = [ModelUpdate(client=client, round=round, state=noise)]
        ask = server.send(answers)
        yield resident("VmHWM") - before


if __name__ == "__main__":
    theta, *peaks = steps(int(sys.argv[1]))
    print(f"{peaks[-1] / theta:.2f} (theta: {theta / 1e6:.0f} MB)")
