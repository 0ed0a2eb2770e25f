"""A whole training of FedAvg on the digits, by one of three ways, in so many rounds: prints its seconds from the start of
the imports.

``local`` is the local engine, ``ours`` the same over Flower's simulation, ``flower`` Flower's own FedAvg with the same clients.
"""

import logging
import sys
from functools import cache
from time import perf_counter
from typing import Any

START = perf_counter()
CLIENTS, WORKERS = 10, 2

from pathlib import Path  # noqa: E402
from tempfile import TemporaryDirectory  # noqa: E402

from fdgpriv.config import AuditConfig  # noqa: E402
from fdgpriv.data.dataset import Dataset  # noqa: E402
from fdgpriv.training import Cell, PreparedCell, train  # noqa: E402
from fdgpriv.utils.console import ProgressLog  # noqa: E402
from fdgpriv.utils.seeds import generator  # noqa: E402


def loaded(rounds: int = 1, engine: str = "local") -> tuple[Dataset, AuditConfig, Cell]:
    config = AuditConfig(
        methods=("fedavg",),
        preset="quick",
        images=400,
        clients=CLIENTS,
        settings={"rounds": str(rounds), "local_epochs": "2"},
        attacks=("none",),
        engine=engine,
    ).checked()
    dataset, config = config.load()
    return dataset, config, Cell("fedavg", dataset.default_target, 0, "none")


@cache
def prepared() -> PreparedCell:
    dataset, config, cell = loaded()
    return PreparedCell.of(config, dataset, cell)


def by_flower(rounds: int) -> None:
    """Flower's ServerApp and ClientApp as in its PyTorch quickstart, with our network, data and local SGD."""
    from flwr.app import ArrayRecord, MetricRecord
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    import fdgpriv.utils.flower_import as flower

    app, server = flower.ClientApp(), flower.ServerApp()

    @app.train()
    def fit(message: flower.Message, context: flower.Context) -> flower.Message:
        import torch

        torch.set_num_threads(1)
        world: Any = prepared()
        model = world.method.model(world.federation, generator(0))
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        name = world.federation.clients[int(context.node_config["partition-id"])]
        data = world.population.clients[name]
        world.method.train_plainly(model, data, 0, generator(0))
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(data)})}
        return flower.Message(content=flower.RecordDict(content), reply_to=message)

    @server.main()
    def main(grid: flower.Grid, context: flower.Context) -> None:
        world: Any = prepared()
        initial = ArrayRecord(world.method.model(world.federation, generator(0)).state_dict())
        FedAvg(fraction_train=1.0, fraction_evaluate=0.0).start(grid, initial, num_rounds=rounds)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    init = {"num_cpus": WORKERS, "log_to_driver": False, "logging_level": logging.ERROR}
    run_simulation(
        server, app, CLIENTS, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": init}
    )


if __name__ == "__main__":
    way, rounds = sys.argv[1], int(sys.argv[2])
    if way == "flower":
        from _whole_run import by_flower as run  # processes of Ray find its functions by this module's name

        run(rounds)
    else:
        dataset, config, cell = loaded(rounds, {"ours": "flower"}.get(way, "local"))
        with TemporaryDirectory() as folder:
            trained, _ = train(config, dataset, cell, Path(folder), ProgressLog(True), WORKERS)
        assert trained.failed is None, trained.failed
    print(f"{perf_counter() - START:.2f}")
