"""Reads the audits that are compared, and says how two of them were made differently."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue

from fdgpriv.results.finding import Results
from fdgpriv.results.run import Run
from fdgpriv.results.score_tables import ScoreTables
from fdgpriv.utils.file_names import check_name
from fdgpriv.verdicts.attack_scores import AttackScores, from_tables

RESULTS = "results.json"
SAME_CLIENTS = ("clients", "partition", "image_size")  # what, with dataset, target, seed and preset, fixes the clients
MADE = ("preset", "images", "auxiliary", "settings", "attacks", "threats", "device")


@dataclass(frozen=True)
class Audit:
    """An audit: its name on the command line, its folder, and its results."""

    name: str
    folder: Path
    results: Results

    @cached_property
    def scores(self) -> dict[str, AttackScores]:
        """The scores in its folder by evaluation; nothing where only its results were kept."""
        if not (self.folder / "scores.parquet").exists():
            return {}
        try:
            return from_tables(ScoreTables.load(self.folder))
        except ValueError as error:
            raise ValueError(f"want the scores of {self.name} as its audit wrote them, got others: {error}") from None

    def setup(self, run: Run) -> Mapping[str, JsonValue]:
        """Clients, partition, image size and network of this run; empty where the results do not say."""
        setups = self.results.config.get("setup")
        found = setups.get(run.method) if isinstance(setups, Mapping) else None
        return found if isinstance(found, Mapping) else {}


def read(paths: Sequence[Path]) -> list[Audit]:
    """The audits in these folders, or of these results.json.

    Raises:
        ValueError: There are fewer than two, one is given twice, or one cannot be read.
    """
    if len(paths) < 2:
        raise ValueError(f"want at least two runs, the baseline first, got {len(paths)}")
    files = [path if path.name == RESULTS else path / RESULTS for path in paths]
    for path, file in zip(paths, files, strict=True):
        check_name(str(path), "RUN")
        if not path.exists():
            raise ValueError(f"want an audit's folder or its {RESULTS}, got {path}, which does not exist")
        if path.is_file() and path.name != RESULTS:
            raise ValueError(f"want an audit's folder or its {RESULTS}, got the file {path}")
        if sum(other.resolve() == file.resolve() for other in files) > 1:
            raise ValueError(f"want each run once, got {path} twice")
    audits = [Audit(str(path), file.parent, Results.load(file)) for path, file in zip(paths, files, strict=True)]
    for audit in audits:
        if not audit.results.runs:
            raise ValueError(f"want an audit with at least one run, got {audit.name}, which has none")
    return audits


def made_differently(before: Audit, after: Audit) -> tuple[str, ...]:
    """What differs in version, preset, attacks and the like."""
    old, new = before.results, after.results
    found = [] if old.fdgpriv == new.fdgpriv else [f"fdgpriv: {old.fdgpriv} → {new.fdgpriv}"]
    for name in MADE:
        was, now = old.config.get(name), new.config.get(name)
        if was != now:
            found.append(f"{name}: {_said(was)} → {_said(now)}")
    if data := other_data(old, new):
        found.append(data)
    return (*found, *(f"{audit.name} was interrupted" for audit in (before, after) if audit.results.interrupted))


def other_data(old: Results, new: Results) -> str | None:
    """That two audits of datasets with one name had other images or labels; None where they had not, or it is not known."""
    was, now = old.dataset.sha256, new.dataset.sha256
    if was is None or now is None or was == now or old.dataset.name != new.dataset.name:
        return None
    return f"images or labels of {new.dataset.name}: SHA-256 {was[:8]}… → {now[:8]}…"


def asked_differently(before: Audit, was: Run, after: Audit, now: Run) -> tuple[str, ...]:
    """What differs in method, seed, defense and set-up of two matched runs."""
    names = ("method", "seed", "defense")
    found = [f"{n}: {getattr(was, n)} → {getattr(now, n)}" for n in names if getattr(was, n) != getattr(now, n)]
    old, new = before.setup(was), after.setup(now)
    found += [f"{n}: {_said(old.get(n))} → {_said(new.get(n))}" for n in {**old, **new} if old.get(n) != new.get(n)]
    return tuple(found)


def other_clients(before: Audit, was: Run, after: Audit, now: Run) -> str | None:
    """Why two runs were not attacked on the same clients and images; None where they were."""
    old, new = before.setup(was), after.setup(now)
    if was.seed != now.seed:
        return "the seeds differ"
    if was.images is None or was.images != now.images or any(old.get(n) != new.get(n) for n in SAME_CLIENTS):
        return "the clients or their images differ"
    if other_data(before.results, after.results):
        return "the images or labels of the dataset differ"
    if before.results.config.get("preset") != after.results.config.get("preset"):
        return "the presets differ"
    return None


def _said(value: JsonValue) -> str:
    """A value of the configuration in words."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_said(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(_said, value)) or "all"
    return "not known" if value is None else str(value)
