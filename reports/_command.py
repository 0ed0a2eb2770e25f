"""The command line of the audit with other values of an option, to paste."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fdgpriv.results.finding import Results

_AUDIT = ("python", "-m", "fdgpriv.audit")


@dataclass(frozen=True)
class AuditCommand:
    """The words of the command that reproduces the audit; none if it is not known."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, results: Results) -> "AuditCommand":
        """The command of this audit."""
        try:
            words = tuple(shlex.split(results.command or ""))
        except ValueError:  # a quotation mark without its fellow
            words = ()
        return cls(words if words[: len(_AUDIT)] == _AUDIT else ())

    def replacing(self, option: str, values: Sequence[str], keep: bool = False) -> "AuditCommand":
        """The command with these values of an option instead of its own, or after them if it is to `keep` these."""
        if not self.words:
            return self
        other_words, present, skip = list[str](), list[str](), False
        for word in self.words:
            if word.startswith("--"):
                skip = word.partition("=")[0] == option
                present += [word.partition("=")[2]] if skip and "=" in word else []
            elif skip:
                present.append(word)
            if not skip:
                other_words.append(word)
        return AuditCommand((*other_words, option, *(present if keep else ()), *values))

    def with_values(self, option: str, values: Sequence[str]) -> str:
        """The command line with these values of an option instead of its own; empty if the command is not known."""
        return shlex.join(self.replacing(option, values).words)
