"""Reads the options of an audit from a TOML file, or from the config.json of a run, as words of the command line.

Keys are options without ``--``; ``[set]`` is a table of a method's settings, where a list is a sweep::

    method = ["fedavg", "stablefdg"]
    preset = "quick"
    seed = [0, 1]

    [set]
    lr = [0.1, 0.05]
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fdgpriv.cli.command_line import BadUsage
from fdgpriv.cli.options import FLAGS, OPTIONS
from fdgpriv.registry import names_in
from fdgpriv.threat import THREATS
from fdgpriv.utils.suggestions import did_you_mean, same_name

_SET = "settings"
_COMMON_SETUP = ("clients", "partition", "held_out", "backbone", "image_size")  # what a run records by method
_OF_RECORDING = ("attacks", "threats", "preset", "seeds", "units_per_domain")
_DERIVED = ("setup", "dataset_sha256", "basis")  # facts of a run, which no option gives


def words(file: Path) -> list[str]:
    """The file's options, as ``--option=value``; an option with several values stands once for each.

    Raises:
        ValueError: The file cannot be read, or one of its keys or values is that of no option.
        OSError: The file cannot be opened.
    """
    keys = {option.removeprefix("--"): name for name, option in OPTIONS.items() if name not in FLAGS}
    option_words = []
    for key, value in _document(file).items():
        name = keys.get(same_name(key, keys) or "") or same_name(key, keys.values())
        if name is None:
            hint = ", which is for the command line" if same_name(key, FLAGS) else did_you_mean(key, keys)
            raise BadUsage(f"--config: want keys of {', '.join(keys)}; got {key!r} in {file}{hint}")
        items = _settings(value, file) if name == _SET else _texts(value, key, file)
        option_words += [f"{OPTIONS[name]}={item}" for item in items]
    return option_words


def is_of_recording(file: Path) -> bool:
    """Whether this is the config.json of an audit of a recording."""
    try:
        return "recording" in json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError, TypeError, OSError):  # which reading its options reports
        return False


def _document(file: Path) -> Mapping[str, Any]:
    """The keys and values of the file; of a run's config.json, those of the options that give the run again."""
    try:
        if file.suffix.lower() != ".json":
            return tomllib.loads(file.read_text(encoding="utf-8-sig"))
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError, TOMLDecodeError and JSONDecodeError among them
        kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
        raise BadUsage(f"--config: want {kind} in {file}, got {' '.join(str(error).split())}") from None
    except FileNotFoundError:
        raise BadUsage(f"--config: want a file, got {file}, which does not exist") from None
    except IsADirectoryError:
        raise BadUsage(
            f"--config: want a file, got the folder {file}; its run's options are {file / 'config.json'}"
        ) from None
    if not isinstance(document, dict):
        raise BadUsage(f"--config: want a JSON object of options in {file}, got {type(document).__name__}")
    return _options_of_run(document) if "setup" in document else document


def _options_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that give a run again, from its config.json; values that were not asked for are left out."""
    if "recording" in config:  # its method and data are the user's
        config = {key: value for key, value in config.items() if key in (*_OF_RECORDING, "setup")} | {"setup": {}}
    given = {key: value for key, value in config.items() if key not in _DERIVED and value not in (None, [], {})}
    if set(config.get("attacks", ())) == set(names_in("attacks")):
        del given["attacks"]
    elif not config.get("attacks"):
        given["attacks"] = ["none"]
    if given.get("attacks") == ["none"] or set(config.get("threats", ())) == set(THREATS):
        given.pop("threats", None)
    setups = [setup for setup in dict(config["setup"]).values() if isinstance(setup, dict)]
    for name in _COMMON_SETUP:
        values = {setup.get(name) for setup in setups}
        if name == "backbone":
            values = {value for value in values if value is not None and " " not in value}  # "the method's own" is none
        if name == "image_size" and given.get("dataset") == "digits":
            continue
        if len(values) == 1:  # where methods differ, the preset gives each its own
            given[name] = values.pop()
    return given


def _texts(value: Any, key: str, file: Path) -> list[str]:
    """The values of one key as text."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(item, str | int | float) for item in values):
        raise BadUsage(f"--config: want text, a number or a list of these for {key} in {file}, got {value!r}")
    return [_text(item) for item in values]


def _text(value: str | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _settings(value: Any, file: Path) -> Iterator[str]:
    """``FIELD=VALUE`` for each setting of a table; a list is a sweep."""
    if not isinstance(value, Mapping):
        raise BadUsage(f"--config: want a table [set] of fields and values in {file}, got {value!r}")
    for field, setting in value.items():
        yield f"{field}={','.join(_texts(setting, field, file))}"
