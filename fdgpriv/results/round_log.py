"""Logs the figures of rounds to TensorBoard or MLflow, whose libraries write and show them."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fdgpriv.utils.defaults import MLFLOW, TENSORBOARD
from fdgpriv.utils.extras import optional

EXPERIMENT = "fdgpriv"  # of MLflow


class RoundLog(ABC):
    """Receives the figures of one training."""

    @abstractmethod
    def write(self, round: int, figures: Mapping[str, float]) -> None:
        """Adds figures, by name, of the model after so many rounds."""

    @abstractmethod
    def close(self) -> None:
        """Writes all that is not written yet."""


class NoLog(RoundLog):
    """Keeps nothing."""

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        return

    def close(self) -> None:
        return


class TensorBoardLog(RoundLog):
    """Writes event files into ``tensorboard/RUN`` of the folder."""

    def __init__(self, folder: Path, run: str) -> None:
        optional(TENSORBOARD, TENSORBOARD, f"--log {TENSORBOARD}")
        writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer = writer(os.fspath(folder / "tensorboard" / run))

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        for name, figure in figures.items():
            self._writer.add_scalar(name, figure, round)

    def close(self) -> None:
        self._writer.close()


class MlflowLog(RoundLog):
    """Writes a run of the experiment ``fdgpriv`` to MLFLOW_TRACKING_URI; if that is not set, to a database in the folder."""

    def __init__(self, folder: Path, run: str) -> None:
        mlflow = optional(MLFLOW, MLFLOW, f"--log {MLFLOW}")
        uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{(folder / 'mlflow.db').absolute()}")
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        number = self._client.create_experiment(EXPERIMENT) if experiment is None else experiment.experiment_id
        self._run = self._client.create_run(number, run_name=run).info.run_id

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        for name, figure in figures.items():
            self._client.log_metric(self._run, name, figure, step=round)

    def close(self) -> None:
        self._client.set_terminated(self._run)


def round_log(name: str | None, folder: Path, run: str) -> RoundLog:
    """The log called `name` of a training called `run`, for a run in this folder; one that keeps nothing for None."""
    if name is None:
        return NoLog()
    return (TensorBoardLog if name == TENSORBOARD else MlflowLog)(folder, run)
