"""Notes and tags that people give to runs: the one thing that the studio writes, into one JSON file."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from fedrel.errors import UserError
from fedrel.evaluation.outcome import Record
from fedrel.files import write_text
from fedrel.runs.folder import read_json

FILE = "studio.json"
LONGEST_NOTE = 4000  # characters
LONGEST_TAG, MOST_TAGS = 40, 12


class Remark(Record):
    """What was said of a run."""

    note: str = ""
    tags: list[str] = []


class Remarks:
    """The remarks of a folder, by the run's path from it. Another studio may write to the same file."""

    def __init__(self, root: Path) -> None:
        self._file, self._lock = root / FILE, threading.Lock()
        self._seen: tuple[int, dict[str, Remark]] | None = None

    def all(self) -> dict[str, Remark]:
        """All of them; none if the file is not one of ours."""
        try:
            changed = self._file.stat().st_mtime_ns
        except OSError:
            return {}
        if self._seen is None or self._seen[0] != changed:
            try:
                found = read_json(dict[str, Remark], self._file)
            except UserError:
                return {}
            self._seen = (changed, found)
        return self._seen[1]

    def of(self, identity: str) -> Remark:
        """What was said of one run."""
        return self.all().get(identity) or Remark()

    def keep(self, identity: str, note: str, tags: list[str]) -> Remark:
        """Replace what was said of a run."""
        remark = Remark(note=note.strip(), tags=_tags(tags))
        if len(remark.note) > LONGEST_NOTE:
            raise UserError(f"a note has at most {LONGEST_NOTE:,} characters", hint="shorten it")
        with self._lock:
            known: dict[str, Any] = {}
            if self._file.exists():  # a broken file is an error here: it must not be overwritten
                known = {
                    name: one.model_dump() for name, one in read_json(dict[str, Remark], self._file).items()
                }
            known.pop(identity, None)
            if remark != Remark():
                known[identity] = remark.model_dump()
            write_text(self._file, json.dumps(known, ensure_ascii=False, indent=1, sort_keys=True))
        return remark


def _tags(given: list[str]) -> list[str]:
    tags = list(dict.fromkeys(" ".join(tag.split()) for tag in given))
    tags = [tag for tag in tags if tag]
    if len(tags) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in tags):
        problem = f"a run has at most {MOST_TAGS} tags of {LONGEST_TAG} characters"
        raise UserError(problem, hint="separate tags by commas")
    return tags
