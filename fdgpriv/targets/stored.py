"""Keeps large artifacts, whole models above all, in files instead of in memory."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.models.checkpoints import read_tensors
from fdgpriv.targets.deferred import Deferred, Sent
from fdgpriv.utils.cache import Cache
from fdgpriv.utils.checksum import save_tensors
from fdgpriv.utils.file_memory import LARGE


@dataclass(frozen=True, eq=False)
class Stored(Deferred):
    """An artifact in a file.

    Attributes:
        file: Of its tensors.
        empty: The artifact without the values of its tensors.
    """

    file: Path
    empty: Artifact

    def artifact(self) -> Artifact:
        tensors = read_tensors(self.file)  # in another order
        return type(self.empty).build({name: tensors[name] for name in self.empty.tensors()}, self.empty.facts())

    @property
    def level(self) -> str:
        return self.empty.level

    @property
    def identity(self) -> Hashable:
        return self.file


@dataclass(frozen=True, eq=False)
class Store:
    """A temporary folder of artifacts, which is removed with this object or when Python ends.

    Attributes:
        least: Bytes from which an artifact is kept there; smaller ones stay in memory.
    """

    least: int = LARGE
    _number: "count[int]" = field(default_factory=count, init=False)
    _folder: "Cache[TemporaryDirectory[str]]" = field(default_factory=Cache, init=False)

    def keep(self, artifact: Artifact) -> Sent:
        """The artifact, or what stands for it.

        Raises:
            OSError: The folder for temporary files (TMPDIR) is full.
        """
        if artifact.nbytes < self.least:
            return artifact
        folder = self._folder.get("", lambda: TemporaryDirectory(prefix="fdgpriv-"))
        file = Path(folder.name) / f"{next(self._number)}.safetensors"
        save_tensors(file, {name: tensor.cpu().contiguous() for name, tensor in artifact.tensors().items()})
        return Stored(file, artifact.map(lambda tensor: tensor.new_empty(0)))
