"""Where a run between real sites takes place: the coordinator's folder, Flower's grid, and the sites behind it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedrel.errors import UserError
from fedrel.federation.flower.folders import open_coordinator
from fedrel.methods.base import method

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedrel.config import Config
    from fedrel.federation.flower.engine import FlowerEngine
    from fedrel.prepare import Preparation

POLL = 0.5  # seconds between two looks for a reply: each is a request over the network


class Venue:
    """A coordinator's folder with a grid to the sites."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        self._grid, self._folder = grid, folder
        self._coordinator = open_coordinator(folder / "preparation")

    @property
    def ready(self) -> Preparation:
        """What the coordinator itself holds."""
        return self._coordinator.ready

    @contextmanager
    def engine(self, config: Config, out: Path, *, fresh: bool) -> Iterator[FlowerEngine]:
        """The engine of a run, once its sites are there; a `fresh` run has no memories at the sites."""
        from fedrel.federation.flower.post import Post
        from fedrel.federation.flower.roster import Roster, run_of
        from fedrel.federation.flower.survey import SurveyingEngine
        from fedrel.prepare import desk

        if reason := method(config.method, config.methods).simulation_only():
            raise UserError(
                f"{config.method!r} is for simulations only: {reason}", remedy="choose another method"
            )
        file, coordinator = out / "federation.json", self._coordinator
        roster = Roster(self._grid, self.ready.materials.partition.names, self._nodes(), file)
        earlier = None if fresh else run_of(file)
        roster.run = earlier or f"{config.digest()}-{secrets.token_hex(4)}"
        with SurveyingEngine(
            Post(self._grid, every=POLL, deadline=config.engine.deadline),
            roster,
            desk(config, self.ready.materials, out / "sites"),
            config,
            run=roster.run,
            artefacts=coordinator.artefacts,
            journal=False,
            triples=coordinator.triples,
        ) as engine:
            engine.gather(config.engine.min_sites, within=config.engine.deadline)
            yield engine

    def _nodes(self) -> dict[int, int] | None:
        """Which node is which site, where keys tell."""
        file = self._folder / "nodes.json"
        if not file.exists():
            return None
        return {int(node): int(site) for node, site in json.loads(file.read_text(encoding="utf-8")).items()}
