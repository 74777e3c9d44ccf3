"""A run's metrics.jsonl: a line a round, flushed as it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedrel.files import append_line, write_text


class MetricsFile:
    """The lines, and those of them that a checkpoint vouches for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, line: dict[str, Any]) -> None:
        """Add a round."""
        append_line(self._path, json.dumps(line))

    def keep(self, rounds: int) -> None:
        """Drop what a killed run wrote after its last checkpoint."""
        write_text(
            self._path, "".join(json.dumps(line) + "\n" for line in self.lines() if line["round"] <= rounds)
        )

    def lines(self) -> list[dict[str, Any]]:
        """All rounds; a line that a kill cut short is left out."""
        if not self._path.exists():
            return []
        whole = self._path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in whole]
