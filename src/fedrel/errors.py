"""What a user did that we cannot go on with, said in the user's words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """A mistake in the input: names the place, says what was expected and what to do; exit code 2.

    >>> str(UserError("expected 6 columns, found 3", file=Path("train.txt"), line=7))
    'train.txt:7: expected 6 columns, found 3'
    """

    def __init__(
        self, problem: str, *, file: Path | str | None = None, line: int | None = None, remedy: str = ""
    ) -> None:
        self.problem, self.file, self.line, self.remedy = problem, file, line, remedy
        place = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(f"{place}{problem}{f'. {remedy}' if remedy else ''}")


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion to end an error with: `did you mean 'rounds'?`, or the known names if none is near."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
