"""Presets for small images and few rounds, alike in all methods whose server keeps a hypernetwork."""

from collections.abc import Mapping
from typing import Any

_LOCAL: Mapping[str, Any] = {"local_epochs": 1, "batch_size": 16, "lr": 0.05}
QUICK: Mapping[str, Any] = {**_LOCAL, "rounds": 2, "server_lr": 2e-3, "server_schedule": "cosine"}
DEFAULT: Mapping[str, Any] = {**_LOCAL, "rounds": 48, "server_lr": 1e-3, "server_schedule": "cosine"}
