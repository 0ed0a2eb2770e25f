"""Argument parsing shared by the commands: one-line errors, repeatable list options, no repetition of others."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fdgpriv._version import __version__
from fdgpriv.utils.fields import words
from fdgpriv.utils.file_names import check_name
from fdgpriv.utils.streams import lenient
from fdgpriv.utils.suggestions import did_you_mean

USAGE, INTERRUPTED = 2, 3  # exit codes

_NO_VALUE = re.compile(r"argument (\S+): expected .*argument")  # argparse's message


class BadUsage(ValueError):
    """Invalid arguments; the message is one line."""


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations; the result contains only the options that were given.

    Repeated options with ``nargs="+"`` or ``"*"`` are concatenated; other options must not be repeated.

    Args:
        option_of: The option that a stray word may be a value of, or that an unknown option may stand for, for the error
            about it; None where there is none.
        settings: Of argparse.
    """

    def __init__(self, option_of: Callable[[str], str | None] = lambda word: None, **settings: Any) -> None:
        super().__init__(
            **settings,
            usage="%(prog)s [--help] [options]",
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.register("action", None, _Once)
        self._option_of = option_of
        self.add_argument(
            "--version", action="version", version=f"fdgpriv {__version__}", help="show the version and exit"
        )

    def options(self, argv: Sequence[str] | None = None) -> dict[str, Any]:
        """The given options by name; raises BadUsage for a word that is none, with the most similar option."""
        parsed, strays = self.parse_known_args(argv)
        if strays:
            self._refuse(*strays[:2])
        return vars(parsed)

    def error(self, message: str) -> NoReturn:
        match = _NO_VALUE.fullmatch(message)
        raise BadUsage(f"{match[1]}: want a value, got none" if match else message)

    def _refuse(self, stray: str, following: str = "") -> NoReturn:
        name, _, value = stray.partition("=")
        value = value or ("" if following.startswith("-") else following) or "VALUE"
        if name.startswith("-"):
            known = [option for action in self._actions for option in action.option_strings]
            setting = self._option_of(name)
            suggestion = did_you_mean(name, known)
            if setting:
                suggestion = f"; did you mean {setting.replace('VALUE', value)}?"
            raise BadUsage(f"want one of the options that --help lists, got {name}{suggestion}")
        example = self._option_of(stray)
        raise BadUsage(f"want an option before {stray!r}" + (f"; did you mean {example} {stray}?" if example else ""))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The value of the action's type; raises BadUsage, in the words of this package, if it is of another."""
        kind: Any = action.type
        if kind not in (int, float):
            return super()._get_value(action, arg_string)
        try:
            return kind(arg_string)
        except ValueError:
            raise BadUsage(f"{action.option_strings[0]}: want {words(kind)}, got {arg_string!r}") from None


class _Once(argparse.Action):
    """Stores an option's value or extends its list; raises BadUsage if a single value is repeated."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.nargs in ("+", "*"):
            values = [*getattr(namespace, self.dest, []), *values]
        elif hasattr(namespace, self.dest):
            raise BadUsage(f"{option_string}: want it once, got {getattr(namespace, self.dest)} and {values}")
        setattr(namespace, self.dest, values)


def say(command: str, text: str) -> None:
    """Prints one line on stderr, with non-printable characters escaped."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    sys.stderr.write(f"fdgpriv {command}: {line}\n")


def exit_code(command: str, run: Callable[[], int], interrupted: str) -> int:
    """What `run` returns; 2 for input that it refuses and 3 for Ctrl-C, each with one line; bugs raise."""
    with lenient():
        try:
            return run()
        except (ValueError, OSError) as error:
            say(command, str(error))
            return USAGE
        except KeyboardInterrupt:
            say(command, f"interrupted; {interrupted}")
            return INTERRUPTED


def check_out(out: Path) -> None:
    """Raises ValueError if --out has a bad name, or is or lies in a file."""
    check_name(str(out), "--out")
    existing = next((path for path in (out, *out.parents) if path.exists()), out)
    if existing.exists() and not existing.is_dir():
        raise BadUsage(f"--out: want a folder, got the file {existing}")


def once(option: str, values: Sequence[object], key: Callable[[str], str] = str) -> None:
    """Raises BadUsage if two values have the same `key`; the second would have no effect."""
    if len({key(str(value)) for value in values}) != len(values):
        raise BadUsage(f"{option}: want each value once, got {' '.join(map(str, values))}")
