"""What reading leaves out or finds odd: counted by reason, listed with file and line, and limited.

A reader puts the reading of each record (a line, a mention, a document) into `with self.problems:`. What is wrong
with the record is raised there as a `UserError`, which ends the reading or, if asked to, leaves out that record and
goes on. So no reader has to know which of the two a user wants.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from fedrel.errors import UserError
from fedrel.files import read_sealed, sealed, write_text

_log = logging.getLogger(__name__)

SKIPPED, NOTES = "skipped.jsonl", "reading.json"
ADVICE = 'set data.on_error = "skip" to leave out such records and list them'
LISTED = 10_000  # problems that are kept with file and line; all are counted
EXAMPLES = 5  # of each note
_COMPARED = 300  # characters of a problem by which like ones are found; some quote a whole line

_VARYING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?<![\w:])-?\d+(?:[.,]\d+)*(?!\w)""")


class Problems:
    """Collects the problems of reading one corpus.

    `skip` leaves out a record that cannot be read; without it the error goes on, with `advice` added to its hint.
    """

    def __init__(self, *, skip: bool = False, advice: str = "") -> None:
        self.skip, self.advice = skip, advice
        self.seen = 0
        self.skipped: list[UserError] = []  # the first `LISTED`
        self.reasons: Counter[str] = Counter()
        self.notes: dict[str, Note] = {}
        self.left_out: Counter[str] = Counter()  # those of the notes that say what is not in any row

    def __enter__(self) -> None:
        self.seen += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, UserError):
            return False
        if self.skip:
            self.reasons[reason(error.problem)] += 1
            if len(self.skipped) < LISTED:
                self.skipped.append(error)
            return True
        if self.advice and self.advice not in error.hint:
            hint = f"{error.hint}; or {self.advice}" if error.hint else self.advice
            raise UserError(error.problem, file=error.file, line=error.line, hint=hint) from error
        return False

    def note(self, what: str, count: int = 1, example: str = "", *, left_out: bool = False) -> None:
        """Count something odd that was accepted, corrected or, by a rule of the format, `left_out`."""
        if count:
            if left_out:
                self.left_out[what] += count
            note = self.notes.setdefault(what, Note())
            note.count += count
            if example and len(note.examples) < EXAMPLES:
                note.examples.append(example)

    def log(self) -> None:
        """Say what was left out and noted."""
        for what, count in self.reasons.most_common():
            _log.warning("left out %d records: %s", count, what)
        for what, note in self.notes.items():
            _log.warning("%d %s%s", note.count, what, f", first {note.examples[0]}" if note.examples else "")

    def save(self, folder: Path) -> None:
        """Write the list of what was left out, and the counts, beside a corpus."""
        if self.skipped:
            lines = (json.dumps(_listed(error), ensure_ascii=False) for error in self.skipped)
            (folder / SKIPPED).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        notes = {what: asdict(note) for what, note in self.notes.items()}
        about = {"seen": self.seen, "skipped": dict(self.reasons.most_common()), "notes": notes}
        write_text(folder / NOTES, json.dumps(sealed(about), ensure_ascii=False, indent=1))


@dataclass(slots=True)
class Note:
    """How often something was found while reading, and the first few places."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a corpus came to: the records tried, those left out by reason, and what was noted."""

    seen: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, Note] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Reading:
        """As `Problems.save` wrote it; of a corpus from before there were such files, nothing is known."""
        if not (folder / NOTES).exists():
            return cls()
        about = read_sealed(folder / NOTES, "an account of reading a corpus", "remove the corpus's folder")
        notes = {what: Note(**note) for what, note in about["notes"].items()}
        return cls(about["seen"], about["skipped"], notes)

    @property
    def left_out(self) -> int:
        """How many records could not be read."""
        return sum(self.skipped.values())

    def check(self, limit: float) -> None:
        """Fail if a larger share of the records was left out than is allowed."""
        if self.left_out > limit * self.seen:
            commonest, count = next(iter(self.skipped.items()))
            problem = (
                f"{self.left_out:,} of {self.seen:,} records ({self.left_out / self.seen:.1%}) cannot be read, "
                f"more than data.max_skipped allows ({limit:.1%}); {count:,} times: {commonest}"
            )
            raise UserError(problem, hint='see the first one with data.on_error = "stop"')


def reason(problem: str) -> str:
    """A problem without what differs from record to record, so that like ones can be counted together.

    >>> reason("expected 'Vancouver' at [3, 12), found 'ancouver '")
    'expected … at […, …), found …'
    """
    return _VARYING.sub("…", problem[:_COMPARED])


def _listed(error: UserError) -> dict[str, Any]:
    return {
        "file": None if error.file is None else str(error.file),
        "line": error.line,
        "reason": reason(error.problem),
        "problem": error.problem,
    }
