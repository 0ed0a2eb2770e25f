"""Reads the audits to compare, and lists differences in their set-up."""

from collections.abc import Iterable, Mapping, Sequence
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
CLIENT_SETTINGS = ("clients", "partition", "image_size")  # with dataset, target, seed and preset they fix the clients
AUDIT_SETTINGS = ("preset", "images", "auxiliary", "settings", "attacks", "threats", "device")


@dataclass(frozen=True)
class Audit:
    """An audit: its name on the command line, its folder, and its results."""

    name: str
    folder: Path
    results: Results

    @cached_property
    def scores(self) -> dict[str, AttackScores]:
        """The scores in its folder by evaluation; empty without score tables."""
        if not (self.folder / "scores.parquet").exists():
            return {}
        try:
            return from_tables(ScoreTables.load(self.folder))
        except ValueError as error:
            raise ValueError(f"want the scores of {self.name} as its audit wrote them, got others: {error}") from None

    def setup(self, run: Run) -> Mapping[str, JsonValue]:
        """Clients, partition, image size and network of this run; empty if not recorded."""
        setups = self.results.config.get("setup")
        setup = setups.get(run.method) if isinstance(setups, Mapping) else None
        return setup if isinstance(setup, Mapping) else {}


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


def audit_differences(before: Audit, after: Audit) -> tuple[str, ...]:
    """Differences of two audits in version, preset, attacks, data and the like."""
    old, new = before.results, after.results
    differences = [] if old.fdgpriv == new.fdgpriv else [f"fdgpriv: {old.fdgpriv} → {new.fdgpriv}"]
    differences += _setting_differences(old.config, new.config, AUDIT_SETTINGS)
    if data := other_data(old, new):
        differences.append(data)
    return (*differences, *(f"{audit.name} was interrupted" for audit in (before, after) if audit.results.interrupted))


def other_data(old: Results, new: Results) -> str | None:
    """A sentence if two datasets of one name differ in images or labels; None if they do not, or it is unknown."""
    old_digest, new_digest = old.dataset.sha256, new.dataset.sha256
    if old_digest is None or new_digest is None or old_digest == new_digest or old.dataset.name != new.dataset.name:
        return None
    return f"images or labels of {new.dataset.name}: SHA-256 {old_digest[:8]}… → {new_digest[:8]}…"


def run_differences(before: Audit, old_run: Run, after: Audit, new_run: Run) -> tuple[str, ...]:
    """Differences of two matched runs in method, seed, defense and set-up."""
    names = ("method", "seed", "defense")
    fields = [(name, getattr(old_run, name), getattr(new_run, name)) for name in names]
    was, now = _learned(old_run), _learned(new_run)
    if was is not None and now is not None:
        fields.append(("learned", was, now))
    differences = [f"{name}: {old} → {new}" for name, old, new in fields if old != new]
    old_setup, new_setup = before.setup(old_run), after.setup(new_run)
    return (*differences, *_setting_differences(old_setup, new_setup, {**old_setup, **new_setup}))


def _learned(run: Run) -> str | None:
    """Whether the run's model has learned; None if that is not known."""
    if run.utility is None or run.utility.source_probe is None:
        return None
    return "no" if run.utility.not_learned else "yes"


def not_comparable(before: Audit, after: Audit, pairs: Iterable[tuple[Run, Run]]) -> tuple[str, ...]:
    """What makes all figures of matched runs differ: another preset, other clients or other images, with both values.

    Other seeds draw other clients from the same images, which intervals allow for; their numbers of images are not compared.
    """
    old, new = before.results, after.results
    differences = _known_differences(old.config, new.config, ("preset", "images"))
    if data := other_data(old, new):
        differences.append(data)
    for old_run, new_run in pairs:
        differences += _known_differences(before.setup(old_run), after.setup(new_run), CLIENT_SETTINGS)
        sizes = [(run.images.train, run.images.held_out) for run in (old_run, new_run) if run.images is not None]
        if old_run.seed == new_run.seed and len(set(sizes)) > 1:
            in_words = (f"{train:,} train, {held_out:,} held out" for train, held_out in sizes)
            differences.append(f"images of clients: {' → '.join(in_words)}")
    return tuple(dict.fromkeys(differences))


def _known_differences(old: Mapping[str, JsonValue], new: Mapping[str, JsonValue], names: Iterable[str]) -> list[str]:
    """Differences of the settings that both audits recorded."""
    return _setting_differences(old, new, [name for name in names if name in old and name in new])


def _setting_differences(old: Mapping[str, JsonValue], new: Mapping[str, JsonValue], names: Iterable[str]) -> list[str]:
    return [
        f"{name}: {_in_words(old.get(name))} → {_in_words(new.get(name))}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def other_clients(before: Audit, old_run: Run, after: Audit, new_run: Run) -> str | None:
    """Why two runs were not attacked on the same clients and images; None if they were."""
    old, new = before.setup(old_run), after.setup(new_run)
    if old_run.seed != new_run.seed:
        return "the seeds differ"
    if old_run.images is None or old_run.images != new_run.images:
        return "the clients or their images differ"
    if any(old.get(name) != new.get(name) for name in CLIENT_SETTINGS):
        return "the clients or their images differ"
    if other_data(before.results, after.results):
        return "the images or labels of the dataset differ"
    if before.results.config.get("preset") != after.results.config.get("preset"):
        return "the presets differ"
    return None


def _in_words(value: JsonValue) -> str:
    """A value of the configuration in words."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_in_words(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(_in_words, value)) or "all"
    return "not known" if value is None else str(value)
