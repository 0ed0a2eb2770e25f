"""A method as a Flower app under SuperLink and SuperNodes: the server's half here, each client's half where its data is.

The app's pyproject.toml names `fdgpriv.flower:server_app` and `fdgpriv.flower:client_app`; its section [tool.flwr.app.config]
has the fields of `Deployment`, with - for _. A SuperNode's --node-config has ``name``, the client's name, and ``data``, a
folder of images CLASS/*.png (or jpg and so on) that no other node needs to have.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any, Self

import torch

from fdgpriv.cli.options import settings
from fdgpriv.config import AuditConfig
from fdgpriv.data.dataset import ClientData, Dataset, Domain
from fdgpriv.data.folder import read_domains
from fdgpriv.data.unread import Unread
from fdgpriv.defense import Defense, defended
from fdgpriv.federation.federation import Federation
from fdgpriv.federation.flower_clients import ClientWorld, nodes_of
from fdgpriv.federation.flower_clients import client_app as answering
from fdgpriv.federation.flower_engine import GridEngine
from fdgpriv.federation.participant import stream
from fdgpriv.federation.partition import client_data
from fdgpriv.federation.transcript import VIEWS, Transcript
from fdgpriv.federation.wire import Wire
from fdgpriv.method import Method
from fdgpriv.utils import flower_import as flower
from fdgpriv.utils import run_folder
from fdgpriv.utils.checksum import write_tensors
from fdgpriv.utils.file_names import expanded
from fdgpriv.utils.seed_values import seed_value

_LOG = logging.getLogger("flwr")  # what `flwr run --stream` shows


@dataclass(frozen=True)
class Deployment:
    """What server and clients know of a federation before it begins.

    Attributes:
        method, defense: As of `--method` and `--defense`.
        set: As of `--set`: FIELD=VALUE of the method, separated by spaces.
        clients: Number of SuperNodes to wait for.
        classes: The names of the K classes, separated by commas; a label is the place of the folder of that name.
        image_size: H = W, in pixels.
        backbone: As of `--backbone`.
        seed: Of the run.
        out: A new folder on the server's machine, for the transcript and the model.
    """

    method: str
    clients: int
    classes: str
    out: str
    defense: str = "none"
    set: str = ""
    image_size: int = 32
    backbone: str = "small_resnet"
    seed: int = 0

    @classmethod
    def of(cls, run_config: Mapping[str, Any]) -> Self:
        """The federation of Flower's run config; ValueError if a field is missing, unknown or of the wrong type."""
        given = {name.replace("-", "_"): value for name, value in run_config.items()}
        known = {field.name: field for field in fields(cls)}
        if unknown := [name for name in given if name not in known]:
            raise ValueError(f"run config: want {', '.join(known)}; got {unknown[0]}")
        for name in ("method", "clients", "classes", "out"):
            if name not in given:
                raise ValueError(f"run config: want {name}, got none")
        for name, value in given.items():
            if type(value) is not known[name].type:
                raise ValueError(f"run config: want {name} of type {known[name].type.__name__}, got {value!r}")  # type: ignore[union-attr]
        seed_value(given.get("seed", 0), "run config: seed")
        return cls(**given)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K names."""
        return tuple(name.strip() for name in self.classes.split(","))

    @property
    def facts(self) -> Dataset:
        """The classes and the size of the images, without images."""
        none = Domain("none", torch.empty(0, 3, self.image_size, self.image_size), torch.empty(0, dtype=torch.int64))
        return Dataset("folder", self.class_names, (none,), none.name, "", "", flip=True, translate=0.1)

    def parts(self, clients: tuple[str, ...]) -> tuple[Method, Defense, Federation]:
        """Method, defense and public facts of the federation of these clients."""
        config = AuditConfig(
            methods=(self.method,),
            dataset="folder",
            settings=settings(self.set.split()),
            clients=self.clients,
            image_size=self.image_size,
            backbone=self.backbone,
            device="cpu",
        )
        method, defense = defended(config.method(self.method), self.defense)
        return method, defense, config.federation(self.facts, clients, self.seed)

    def data(self, name: str, folder: Path) -> ClientData:
        """The data of the client on this node."""
        domains, classes, _ = read_domains({name: [folder]}, self.image_size, Unread(folder))
        if classes != self.class_names:
            raise ValueError(
                f"data: want the folders {', '.join(self.class_names)} in {folder}, got {', '.join(classes)}"
            )
        _, _, federation = self.parts((name,))
        rng = stream(self.seed, f"data of {name}")
        return client_data(name, list(domains), self.facts, federation.held_out, rng)[0]


@cache
def _data(deployment: Deployment, name: str, folder: Path) -> ClientData:
    return deployment.data(name, folder)


@cache
def _world(deployment: Deployment, name: str, folder: Path, clients: tuple[str, ...]) -> ClientWorld:
    """What this node's process knows: of data, that of its own client."""
    method, defense, federation = deployment.parts(clients or (name,))
    data = _data(deployment, name, folder)
    method.check_data(data)
    return ClientWorld(method, federation, {name: data}, defense)


def _locate(context: flower.Context, clients: tuple[str, ...]) -> tuple[ClientWorld, str]:
    for key in ("name", "data"):
        if not isinstance(context.node_config.get(key), str):
            raise ValueError(f"""--node-config: want {key}="...", got {dict(context.node_config)}""")
    name, folder = str(context.node_config["name"]), expanded(str(context.node_config["data"]))
    return _world(Deployment.of(context.run_config), name, folder, clients), name


client_app = answering(_locate, evaluated=False)


def _serve(grid: flower.Grid, context: flower.Context) -> None:
    """Trains the method on the nodes that connect, and stores transcript and model.

    Raises:
        ClientFailed: A node failed or is gone; nothing is stored.
    """
    deployment, ended = Deployment.of(context.run_config), Event()
    out = expanded(deployment.out)
    run_folder.check(out, resume=False)
    _LOG.info("fdgpriv: waits for %d clients", deployment.clients)
    nodes = nodes_of(grid, deployment.clients, ended)
    sizes = {name: nodes[name].samples for name in sorted(nodes)}
    method, defense, federation = deployment.parts(tuple(sizes))
    defense.check_sizes(sizes)
    wire = Wire(sizes, defense, Transcript(VIEWS))

    def on_round(round: int, models: Mapping[str, object]) -> None:
        _LOG.info("fdgpriv: round %d of %d", round, method.rounds)

    try:
        engine = GridEngine(1, on_round, grid=grid, stopped=ended, nodes=nodes)
        model = engine.run(method, federation, {}, wire)
    except Exception as error:
        _LOG.error("fdgpriv: %s", error)
        raise
    with run_folder.new(out):
        wire.transcript.save(out / "transcript")
        write_tensors(out / "model.safetensors", {name: t.cpu().contiguous() for name, t in model.state_dict().items()})
    _LOG.info("fdgpriv: trained; transcript and model are in %s", out)


server_app = flower.ServerApp()
server_app.main()(_serve)
