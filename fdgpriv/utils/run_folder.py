"""Creates, checks and locks the output folder of a run."""

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from platform import node
from typing import Any
from warnings import warn

from fdgpriv.utils.files import DISK_FULL, write_text

FREE = "free"  # the content of the lock file when no process holds it
Basis = Mapping[str, Mapping[str, str]]
"""What results rest on besides settings and images: by name, ``versions`` and digests of ``parts``."""

CONFIG, LOCK = "config.json", ".lock"
_DATA, BASIS = "dataset_sha256", "basis"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)
_DIGEST = re.compile("[0-9a-f]{16}(?: of )?")
_ABSENT = "absent"  # a setting that another version of fdgpriv does not have


def free(name: str) -> Path:
    """A path in runs/ that does not exist yet: `name`, or `name` with a number appended."""
    number = 1
    while (path := Path("runs") / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path


def check(out: Path, resume: bool) -> None:
    """Raises ValueError if a run cannot start in this folder, or with `resume` cannot continue in it."""
    if resume:
        _check_begun(out)
    else:
        _check_empty(out)


def settings(asked: Mapping[str, Any], dataset_sha256: str | None, basis: Basis) -> str:
    """The text of config.json: what was asked, the SHA-256 of the images and labels, and the versions and code used."""
    return json.dumps({**asked, _DATA: dataset_sha256, BASIS: basis}, indent=1, sort_keys=True) + "\n"


@contextmanager
def new(out: Path, config: str | None = None) -> Iterator[None]:
    """Creates the folder with this text as its config.json, and locks it.

    Raises:
        ValueError: The folder is not empty, or another process is using it.
    """
    _check_empty(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise ValueError(f"--out: want a folder that can be made, got {out}: {error.strerror}") from None
    with _locked(out):
        _check_empty(out)  # another process may have started and finished in between
        if config is not None:
            write_text(out / CONFIG, config)
        yield


@contextmanager
def resumed(out: Path, config: str) -> Iterator[None]:
    """Locks the folder of an earlier run, whose config.json must equal this text.

    Raises:
        ValueError: The folder belongs to no run or to another one, or another process is using it.
    """
    _check_begun(out)
    earlier = (out / CONFIG).read_bytes()
    if earlier != config.encode() and (condition := _difference(out, earlier, config)) is not None:
        raise ValueError(f"--resume: want {condition}")
    with _locked(out):
        yield


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Holds the lock of this folder; the operating system releases it when the process ends.

    Where the file system has no locks, the process in the lock file holds it as long as it lives, on this machine only.
    """
    with (out / LOCK).open("a+", encoding="utf-8") as file:
        file.seek(0)
        holder = file.read(300).strip() or "unknown"
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(out, holder) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if _is_alive(holder):
                raise _in_use(out, holder) from None
            warn(
                f"the file system of {out} has no locks ({error.strerror}): a run on another machine that uses the same folder "
                "is not noticed",
                stacklevel=2,
            )
        file.truncate(0)
        file.write(f"{os.getpid()} {node()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            file.write(f"{FREE}\n")


def _in_use(out: Path, holder: str) -> ValueError:
    return ValueError(
        f"--out: want a folder that no other run is using, got {out}, held by process {holder.replace(' ', ' on ')}"
    )


def _is_alive(holder: str) -> bool:
    """Whether the process in a lock file runs on this machine, and is not this one."""
    number, _, machine = holder.partition(" ")
    if not number.isdecimal() or machine != node() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _check_begun(out: Path) -> None:
    if not (out / CONFIG).is_file():
        raise ValueError(f"--resume: want a folder of an earlier run, got {out}, which has no {CONFIG}")


def _check_empty(out: Path) -> None:
    if out.is_dir():
        if any(path.name != LOCK for path in out.iterdir()):
            raise ValueError(f"--out: want a new or empty folder, got {out}; continue with --resume, or name another")
        nearest = out
    else:
        nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise ValueError(f"--out: want a new or empty folder, got {out}: {nearest} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"--out: want a folder that can be written, got {out}: {nearest} is read-only for this user")


def _difference(out: Path, old: bytes, new: str) -> str | None:
    """The condition for continuing a run in `out`: the versions, parts, data or settings in which two config.json differ.

    None if they differ only in parts that one of them does not name.
    """
    names = differences(old, new)
    if BASIS in names:
        reason = _other_basis(out, *names.pop(BASIS))
        if reason is not None or not names:
            return reason
    if list(names) == [_DATA] and _ABSENT not in names[_DATA]:
        old_digest, new_digest = (f"SHA-256 {value}" for value in names[_DATA])
        return f"the images and labels that {out} was started with, {old_digest}; got others, {new_digest}"
    if not (changes := changes_text(names)):
        return f"the settings that {out} was started with; its {CONFIG} is damaged"
    return f"the settings that {out} was started with, as --resume without other options takes them; {changes}"


def _other_basis(out: Path, was: Any, now: Any) -> str | None:
    """The condition for continuing a run in `out` if versions differ, or parts that both have; None if none do."""
    remedy = "what another version or other code computed is not mixed: audit into a new --out"
    old_versions, old_parts = (was.get(name, {}) if isinstance(was, dict) else {} for name in ("versions", "parts"))
    versions, parts = now["versions"], now["parts"]
    if not old_versions:
        return f"a run of this version of fdgpriv, got {out}, whose {CONFIG} names none; {remedy}"
    if changed := [name for name in {**old_versions, **versions} if old_versions.get(name) != versions.get(name)]:
        before, after = (
            " and ".join(f"{name} {of.get(name, _ABSENT)}" for name in changed) for of in (old_versions, versions)
        )
        return f"{before}, with which {out} was started; got {after}; {remedy}, or continue with those versions"
    if different := [name for name in parts if name in old_parts and old_parts[name] != parts[name]]:
        names = " and ".join(f"{name}{_by(parts[name])}" for name in different)
        return f"what {out} was started with, got a changed {names}; {remedy}"
    return None


def _by(described: str) -> str:
    """What the digests in this description are of, for an error."""
    computed_from = _DIGEST.sub("", described)
    return f" (by {computed_from})" if computed_from not in ("", "none") else ""


def changes_text(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences of two config.json as text; of tables that both have, the values that differ, as ``setup.fedavg.clients``."""
    values = [value for name, change in changes.items() for value in _values(name, *change)]
    return "; ".join(f"{name}: was {was}, now {now}" for name, was, now in values)


def _values(name: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """The values that differ, by dotted name; a table of a method that one of both lacks is left out."""
    if not (isinstance(was, Mapping) and isinstance(now, Mapping)):
        yield name, was, now
        return
    for key in {**was, **now}:
        old, new = was.get(key, _ABSENT), now.get(key, _ABSENT)
        if old != new and not (_ABSENT in (old, new) and (isinstance(old, Mapping) or isinstance(new, Mapping))):
            yield from _values(f"{name}.{key}", old, new)


def differences(old: bytes, new: str) -> dict[str, tuple[Any, Any]]:
    """By setting, the values in two config.json that differ; empty if they are equal, or one cannot be read."""
    try:
        old_settings, new_settings = json.loads(old), json.loads(new)
        pairs = {
            name: (old_settings.get(name, _ABSENT), new_settings.get(name, _ABSENT))
            for name in {**new_settings, **old_settings}
        }
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}
    return {name: (was, now) for name, (was, now) in pairs.items() if was != now}
