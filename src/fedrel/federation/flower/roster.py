"""Who is who among the nodes, who is there, and what each site holds."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.serverapp import Grid

from fedrel.files import write_text

FRESH = 1.0  # seconds that a look at who is connected stays good


class Roster:
    """The sites of a federation, by number, and the nodes they answer from.

    Where nodes are authenticated, the coordinator knows from their keys which site each is. Without that, which is
    for tests on one machine only, they are taken at their word (`introduce`).
    """

    def __init__(self, grid: Grid, names: Sequence[str], known: Mapping[int, int] | None, file: Path) -> None:
        self.names, self._grid, self._file = tuple(names), grid, file
        self.authenticated = known is not None
        self._site_of = dict(known or {})  # by node
        self._here: list[int] = []
        self._looked = -np.inf
        self._notes: list[dict[str, Any]] = [
            {
                "number": number,
                "name": name,
                "node": None,
                "sentences": None,
                "last_answer": None,
                "round": None,
            }
            for number, name in enumerate(names)
        ]
        self.run = ""

    def node(self, site: int) -> int | None:
        """The site's node, or None while it is not connected."""
        return next((node for node in reversed(self.connected()) if self._site_of.get(node) == site), None)

    def connected(self) -> list[int]:
        """All nodes that are there now, those of unknown sites too; the last to come, last."""
        if time.monotonic() - self._looked > FRESH:
            now = set(self._grid.get_node_ids())
            self._here = [node for node in self._here if node in now]
            self._here += sorted(now.difference(self._here))
            self._looked = time.monotonic()
        return self._here

    def strangers(self) -> list[int]:
        """Connected nodes that have not been asked yet who they are; none where keys tell."""
        return [] if self.authenticated else [node for node in self.connected() if node not in self._site_of]

    def introduce(self, node: int, site: int) -> None:
        """Take a node at its word."""
        self._site_of[node] = site if 0 <= site < len(self.names) else -1

    def sizes(self) -> npt.NDArray[np.int64]:
        """How many sentences each site holds, none where it has not said."""
        return np.array([note["sentences"] or 0 for note in self._notes], np.int64)

    def holds(self, site: int, sentences: int) -> None:
        """Take note of what a site has said."""
        self._notes[site]["sentences"] = sentences
        self.heard(site, 0)

    def heard(self, site: int, round_: int) -> None:
        """Take note that the site has answered; whoever watches may read the file at any time."""
        self._notes[site] |= {"node": str(self.node(site)), "last_answer": time.time(), "round": round_}
        about = {"run": self.run, "round": round_, "updated": time.time(), "sites": self._notes}
        write_text(self._file, json.dumps(about, indent=1))


def run_of(file: Path) -> str | None:
    """The name of the run that a roster was written for, if there is one."""
    if not file.exists():
        return None
    name: str = json.loads(file.read_text(encoding="utf-8"))["run"]
    return name
