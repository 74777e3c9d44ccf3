"""`UserError`: a mistake that the user can mend, with what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


class UserError(Exception):
    """A mistake of the user: the file and line, what was expected, and a hint. A command ends with exit code 2.

    >>> str(UserError("expected 6 columns, found 3", file=Path("train.txt"), line=7))
    'train.txt:7: expected 6 columns, found 3'
    >>> print(UserError("unknown key 'round'", hint="did you mean 'rounds'?"))
    unknown key 'round'
    hint: did you mean 'rounds'?
    """

    def __init__(
        self, problem: str, *, file: Path | str | None = None, line: int | None = None, hint: str = ""
    ) -> None:
        self.problem, self.file, self.line, self.hint = problem, file, line, hint
        place = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(f"{place}{problem}" + (f"\nhint: {hint}" if hint else ""))

    def to_json(self) -> dict[str, Any]:
        """The error as JSON, to be raised again by another process."""
        file = None if self.file is None else str(self.file)
        return {"problem": self.problem, "file": file, "line": self.line, "hint": self.hint}

    @classmethod
    def from_json(cls, parts: Mapping[str, Any]) -> UserError:
        """The error that another process wrote with `to_json`."""
        return cls(parts["problem"], file=parts["file"], line=parts["line"], hint=parts["hint"])


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a name that does not exist: `did you mean 'rounds'?`, or all known names if none is similar."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def some_of(names: Sequence[str], most: int) -> str:
    """Names in a message, the first `most` of them.

    >>> some_of(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
