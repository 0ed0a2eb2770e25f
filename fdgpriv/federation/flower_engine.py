"""Runs a server generator over Flower's simulation: clients in processes of Ray, the server in this one.

Results equal those of the local engine bit for bit on one machine: the same server generator, the same client and the same
two halves of the wire run, each client on one thread.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from torch import nn

from fdgpriv.data.dataset import ClientData
from fdgpriv.federation.disclosure import FederatedMethod
from fdgpriv.federation.engine import Clients, Engine
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.flower_clients import (
    ClientWorld,
    FederationEnded,
    FlowerClients,
    Node,
    client_app,
    nodes_of,
)
from fdgpriv.federation.wire import Wire
from fdgpriv.utils import flower_import as flower
from fdgpriv.utils.extras import optional

_WORLDS: dict[int, ClientWorld] = {}  # of this process, by Flower's number of the run


@dataclass(frozen=True)
class SimulatedNodes:
    """Finds a simulated node's client.

    Attributes:
        names: The clients, in the order of Flower's partitions.
        build: Called once in each process, with all clients' data in the result.
    """

    names: tuple[str, ...]
    build: Callable[[], ClientWorld]

    def __call__(self, context: flower.Context, clients: tuple[str, ...]) -> tuple[ClientWorld, str]:
        if context.run_id not in _WORLDS:
            _WORLDS[context.run_id] = self.build()
        return _WORLDS[context.run_id], self.names[int(context.node_config["partition-id"])]


@dataclass
class GridEngine(Engine):
    """Runs one federated training on the nodes of a Flower federation.

    Attributes:
        grid: Flower's connection to the nodes.
        evaluated: As of `client_app`.
        stopped: Set when Flower has ended.
        nodes: By client, its node; None for the first that connect.
    """

    grid: flower.Grid | None = None
    evaluated: bool = False
    stopped: Event = field(default_factory=Event)
    nodes: Mapping[str, Node] | None = None

    def clients(
        self,
        method: FederatedMethod,
        federation: Federation,
        data: Mapping[str, ClientData],
        wire: Wire,
        pool: ThreadPoolExecutor,
    ) -> AbstractContextManager[Clients]:
        assert self.grid is not None
        if not method.federated:
            raise ValueError(
                f"--engine: {method.name()} is no federation of clients, and runs with --engine local only"
            )
        nodes = self.nodes or nodes_of(self.grid, len(federation.clients), self.stopped)
        if {name: node.samples for name, node in nodes.items()} != dict(wire.sizes):
            raise ValueError(
                f"want the clients {', '.join(federation.clients)} with their data, got {', '.join(nodes)}"
            )
        arguments = (federation.clients, federation.device, self.evaluated, self.stopped)
        return nullcontext(FlowerClients(self.grid, nodes, *arguments))


@dataclass
class SimulationEngine(GridEngine):
    """Runs one federated training over Flower's simulation.

    Attributes:
        build: As of `SimulatedNodes`. Ray sends it to processes of this machine by its own means.
    """

    build: Callable[[], ClientWorld] = field(kw_only=True)
    evaluated: bool = True

    def run(
        self, method: FederatedMethod, federation: Federation, data: Mapping[str, ClientData], wire: Wire
    ) -> nn.Module:
        server, result = flower.ServerApp(), Future[nn.Module]()

        def main(grid: flower.Grid, context: flower.Context) -> None:
            self.grid = grid
            try:
                result.set_result(GridEngine.run(self, method, federation, data, wire))
            except BaseException as error:
                result.set_exception(error)

        server.main()(main)
        optional("ray", "flower", "--engine flower")
        from flwr.simulation import run_simulation

        clients = client_app(SimulatedNodes(federation.clients, self.build), evaluated=True)
        with _flower_quiet():
            try:
                run_simulation(server, clients, len(federation.clients), backend_config=self._backend(federation))
            except Exception as error:  # Ray did not start, or died
                if not result.done():
                    raise FederationEnded(f"Flower's simulation ended: {_first_cause(error)}") from error
            finally:
                self.stopped.set()
        return result.result()

    def _backend(self, federation: Federation) -> dict[str, Any]:
        """What Flower tells Ray: one core for each client, and to print nothing."""
        gpus = 1 / self.workers if federation.device.type == "cuda" else 0.0
        init = {"num_cpus": self.workers, "log_to_driver": False, "logging_level": logging.ERROR}
        return {"client_resources": {"num_cpus": 1, "num_gpus": gpus}, "init_args": init}


def _first_cause(error: BaseException) -> BaseException:
    """What raised the first of a chain of errors, each raised from the one before."""
    return error if error.__cause__ is None else _first_cause(error.__cause__)


@contextmanager
def _flower_quiet() -> Iterator[None]:
    """Within, Flower prints nothing: what ends the run is raised, and reported once."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
