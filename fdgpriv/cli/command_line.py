"""How the commands read their words: one line for an error, lists that a repeated option extends, other options once."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


class BadUsage(ValueError):
    """What the user asked for cannot be: one line says what was wanted and what came."""


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose result holds only the options that were given.

    An option with ``nargs="+"`` that is repeated extends what was given before; any other is refused the second time.
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
    """Stores an option's value, or extends its list; a ValueError where a single value is given again."""

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
    """One line on stderr; what file names may hold besides letters is written as an escape."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    sys.stderr.write(f"fdgpriv {command}: {line}\n")


def once(option: str, values: Sequence[object], key: Callable[[str], str] = str) -> None:
    """Raise ValueError where a value is given twice, or two have the same `key`: the second would have no effect."""
    if len({key(str(value)) for value in values}) != len(values):
        raise BadUsage(f"{option}: want each value once, got {' '.join(map(str, values))}")
