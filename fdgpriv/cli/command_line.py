"""Argument parsing shared by the commands: one-line errors, repeatable list options, no repetition of others."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


class BadUsage(ValueError):
    """Invalid arguments; the message is one line."""


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations; the result contains only the options that were given.

    Repeated options with ``nargs="+"`` are concatenated; other options must not be repeated.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            **settings,
            usage="%(prog)s [--help] [options]",
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.register("action", None, _Once)

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message)


class _Once(argparse.Action):
    """Stores an option's value or extends its list; raises BadUsage if a single value is repeated."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.nargs == "+":
            values = [*getattr(namespace, self.dest, []), *values]
        elif hasattr(namespace, self.dest):
            raise BadUsage(f"{option_string}: want it once, got {getattr(namespace, self.dest)} and {values}")
        setattr(namespace, self.dest, values)


def say(command: str, text: str) -> None:
    """Prints one line on stderr, with non-printable characters escaped."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    sys.stderr.write(f"fdgpriv {command}: {line}\n")


def once(option: str, values: Sequence[object], key: Callable[[str], str] = str) -> None:
    """Raises BadUsage if two values have the same `key`; the second would have no effect."""
    if len({key(str(value)) for value in values}) != len(values):
        raise BadUsage(f"{option}: want each value once, got {' '.join(map(str, values))}")
