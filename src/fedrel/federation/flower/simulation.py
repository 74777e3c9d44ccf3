"""Flower's simulation as an engine: virtual nodes on this machine, one for each site, served by Ray's processes."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING

from fedrel.errors import UserError
from fedrel.federation.flower.executables import QUIET, needs_simulation
from fedrel.federation.site_data import hand_over

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

    from fedrel.config.schema import Config
    from fedrel.federation.flower.host import Place
    from fedrel.federation.flower.transport import FlowerEngine
    from fedrel.runs.prepare import Preparation


POLL = 0.02  # seconds between two looks for a reply
AHEAD = 2  # questions under way for each of Ray's processes
BEGIN, END = 300.0, 60.0  # seconds that Ray may take to start and to stop


@contextmanager
def simulation(config: Config, ready: Preparation, states: Path, workers: int) -> Iterator[FlowerEngine]:
    """An engine over as many virtual nodes as there are sites, ended whatever happens."""
    os.environ.update(QUIET)  # before Flower is imported
    needs_simulation()
    from fedrel.federation.flower.transport import FlowerEngine, Post
    from fedrel.runs.engines import desk

    with tempfile.TemporaryDirectory(prefix="fedrel-") as name:
        folder = Path(name)
        hand_over(folder, config, ready.materials, states)
        with running(folder, ready.materials.partition.sites, workers) as (grid, nodes):
            yield FlowerEngine(
                Post(grid, every=POLL, window=AHEAD * workers),
                Virtual(nodes),
                desk(config, ready.materials, states),
                config,
                run=f"{config.digest()}-{secrets.token_hex(4)}",
                artefacts={},
                journal=True,
            )


class Virtual:
    """Virtual nodes: all of them can answer for any site, and each does for one."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes

    def node(self, site: int) -> int | None:
        """The site's own."""
        return self._nodes[site]

    def heard(self, site: int, round_: int) -> None:
        """Nobody asks when a virtual node was last seen."""


@contextmanager
def running(folder: Path, sites: int, workers: int) -> Iterator[tuple[Grid, Sequence[int]]]:
    """Flower's simulation in the background, and the grid that its ServerApp was given."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from fedrel.federation.flower.client import client_app

    handed: Queue[Grid] = Queue()
    over = threading.Event()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        handed.put(grid)
        over.wait()

    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": workers, "log_to_driver": False, "logging_level": logging.ERROR},
    }
    behind = threading.Thread(
        target=run_simulation,
        args=(server, client_app(partial(_simulated, folder)), sites),
        kwargs={"backend_config": backend},
        daemon=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Ray's tips
        behind.start()
    try:
        yield _connected(handed, behind, sites)
    finally:
        over.set()
        behind.join(END)


def _simulated(folder: Path, context: Context) -> Place:
    from fedrel.federation.flower.host import Simulated

    return Simulated(folder)


def _connected(handed: Queue[Grid], behind: threading.Thread, sites: int) -> tuple[Grid, Sequence[int]]:
    """The grid, once all nodes are registered with it."""
    end = time.monotonic() + BEGIN
    grid: Grid | None = None
    while behind.is_alive() and time.monotonic() < end:
        try:
            grid = grid or handed.get(timeout=POLL)
        except Empty:
            continue
        if len(nodes := sorted(grid.get_node_ids())) == sites:
            return grid, nodes
        time.sleep(POLL)
    raise UserError(
        "Flower's simulation did not start", hint="`fedrel run --engine local` needs nothing of it"
    )
