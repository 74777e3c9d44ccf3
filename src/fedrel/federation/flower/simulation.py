"""Flower's simulation as an engine: virtual nodes on this machine, one for each site, served by Ray's processes."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING

from fedrel.errors import UserError
from fedrel.federation.flower import QUIET
from fedrel.federation.flower.host import Gate, OpenGate, Refusal, StoredMessages
from fedrel.federation.site_data import save_for_workers
from fedrel.files import ScratchFolder

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

    from fedrel.config.schema import Config
    from fedrel.federation.flower.host import Host
    from fedrel.federation.flower.transport import FlowerEngine
    from fedrel.federation.method import Method
    from fedrel.federation.runner import Runner


POLL = 0.02  # seconds between two looks for a reply
AHEAD = 2  # requests under way for each of Ray's processes
START_TIMEOUT, STOP_TIMEOUT = 300.0, 60.0  # seconds that Ray may take

OpenRunner = Callable[[Path], "Runner"]
"""Builds a runner in one of Ray's processes, over the folder that `save_for_workers` wrote."""


@contextmanager
def simulation(
    config: Config, runner: Runner, states: Path, workers: int, open_runner: OpenRunner
) -> Iterator[FlowerEngine]:
    """An engine with a virtual node for each site, stopped at the end; `runner` does the coordinator's own work."""
    os.environ.update(QUIET)  # before Flower is imported
    if find_spec("flwr") is None or find_spec("ray") is None:
        problem = "Flower or Ray, which its simulation runs on, is not installed"
        raise UserError(problem, hint="run `pip install fedrel[flower-simulation]`")
    from fedrel.federation.flower.transport import FlowerEngine, Transport

    site_data = runner.model.site_data
    with ScratchFolder() as name:
        folder = Path(name)
        save_for_workers(folder, config, site_data, states)
        with running(folder, site_data.partition.sites, workers, open_runner) as (grid, nodes):
            yield FlowerEngine(
                Transport(grid, every=POLL, window=AHEAD * workers),
                VirtualNodes(nodes),
                runner,
                config,
                run=f"{config.digest()}-{secrets.token_hex(4)}",
                artefacts={},
                journal=True,
            )


class VirtualNodes:
    """Virtual nodes: any of them could answer for any site; each does for one."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes

    def node(self, site: int) -> int | None:
        """The site's node."""
        return self._nodes[site]

    def note_answer(self, site: int, round_: int, chain: str = "") -> None:
        """Nothing: a virtual node is always connected."""


class SimulatedHost:
    """A process of a simulation, with what `save_for_workers` saved: it answers for any of the run's sites."""

    sends_journal = True

    def __init__(self, folder: Path, open_runner: OpenRunner) -> None:
        self._folder, self._open_runner = folder, open_runner
        self.gate: Gate = OpenGate()

    def refusal_for(self, site: int) -> Refusal | None:
        """None: all sites are here."""
        return None

    def method(self) -> Method:
        """The run's."""
        return self.runner("").method

    def sentences(self, site: int) -> int:
        """As the partition says."""
        return int(self.runner("").model.site_data.partition.sizes[site])

    def begin_run(self, run: str) -> None:
        """Nothing: there is one run only."""

    def stored_messages(self, run: str, site: int) -> StoredMessages:
        """Each site's own folder."""
        return StoredMessages(self._folder / "inbox" / f"{site:06}")

    def runner(self, run: str) -> Runner:
        """One for each process, as long as the simulation lasts."""
        return _resident_runner(self._folder, self._open_runner)


@cache
def _resident_runner(folder: Path, open_runner: OpenRunner) -> Runner:
    return open_runner(folder)


@contextmanager
def running(
    folder: Path, sites: int, workers: int, open_runner: OpenRunner
) -> Iterator[tuple[Grid, Sequence[int]]]:
    """Flower's simulation in the background, and the grid that its ServerApp was given."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from fedrel.federation.flower.client import client_app

    grids: Queue[Grid] = Queue()
    over = threading.Event()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        grids.put(grid)
        over.wait()

    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": workers, "log_to_driver": False, "logging_level": logging.ERROR},
    }
    background = threading.Thread(
        target=run_simulation,
        args=(server, client_app(partial(_simulated_host, folder, open_runner)), sites),
        kwargs={"backend_config": backend},
        daemon=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Ray's tips
        background.start()
    try:
        yield _wait_for_nodes(grids, background, sites)
    finally:
        over.set()
        background.join(STOP_TIMEOUT)


def _simulated_host(folder: Path, open_runner: OpenRunner, context: Context) -> Host:
    return SimulatedHost(folder, open_runner)


def _wait_for_nodes(
    grids: Queue[Grid], background: threading.Thread, sites: int
) -> tuple[Grid, Sequence[int]]:
    """The grid, once all nodes are registered with it."""
    end = time.monotonic() + START_TIMEOUT
    grid: Grid | None = None
    while background.is_alive() and time.monotonic() < end:
        try:
            grid = grid or grids.get(timeout=POLL)
        except Empty:
            continue
        if len(nodes := sorted(grid.get_node_ids())) == sites:
            return grid, nodes
        time.sleep(POLL)
    raise UserError(
        "Flower's simulation did not start", hint="use `fedrel run --engine local`, which does without it"
    )
