"""The coordinator under Flower: a ServerApp that does what `fedrel run` does, with real sites behind a grid."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedrel.config.schema import Config
from fedrel.data.store import Progress
from fedrel.deployment.flower_programs import pull_soon_again
from fedrel.deployment.folders import CoordinatorFolder
from fedrel.deployment.publishing import CoordinatorData, open_coordinator
from fedrel.deployment.sum_keys import CoordinatorKeys
from fedrel.deployment.superlink import DATABASE, purge
from fedrel.errors import UserError
from fedrel.federation.flower.members import Members, RemoteEngine, run_of
from fedrel.federation.flower.transport import Transport
from fedrel.files import read_sealed, write_text
from fedrel.methods.by_name import method
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import Preparation
from fedrel.runs.records import Round
from fedrel.runs.train import Watcher, run
from fedrel.studio.formatting import about_round
from fedrel.studio.report import write_run_report

POLL = 0.5  # seconds between two looks for a reply: each is a request over the network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run what the request file asks for; write how it ended to a file beside it."""
    request = Path(str(context.run_config["request"]))
    pull_soon_again("flwr.superlink.grid.http_grid")
    try:
        _run(grid, request)
    except UserError as error:  # `fedrel federation run` shows it; Flower would add a traceback
        write_text(outcome_file(request), json.dumps({"mistake": error.to_json()}))
        return
    except Exception as error:
        failed = UserError(f"the run failed: {type(error).__name__}: {error}")
        write_text(outcome_file(request), json.dumps({"mistake": failed.to_json()}))
        raise
    write_text(outcome_file(request), json.dumps({"mistake": None}))


def outcome_file(request: Path) -> Path:
    """The file that says how a request ended."""
    return request.with_suffix(".outcome.json")


class RemoteSites:
    """Real sites behind a grid, and what the coordinator's folder holds for a kind of extractor."""

    def __init__(self, grid: Grid, folder: Path, extractor: str) -> None:
        self._grid, self._folder = grid, folder
        self._coordinator = open_coordinator(folder / "preparation", extractor)

    @property
    def names(self) -> tuple[str, ...]:
        """The sites' names, by number."""
        return self._coordinator.ready.site_data.partition.names

    def prepare(self, config: Config, progress: Progress | None) -> Preparation:
        """What the coordinator itself holds, as it was published."""
        return self._coordinator.ready

    @contextmanager
    def engine(self, config: Config, ready: Preparation, out: Path, *, fresh: bool) -> Iterator[RemoteEngine]:
        """The engine of a run, once enough sites are there; sites have no state of a `fresh` run."""
        if reason := method(config.method, config.methods).simulation_only():
            problem = f"{config.method!r} is for simulations only: {reason}"
            raise UserError(problem, hint="choose another method")
        file, coordinator = out / "federation.json", self._coordinator
        by_node = self._sites_by_node()
        members = Members(self._grid, self.names, by_node, file)
        earlier = None if fresh else run_of(file)
        members.run = earlier or f"{config.digest()}-{secrets.token_hex(4)}"
        with RemoteEngine(
            Transport(self._grid, every=POLL, deadline=config.engine.deadline),
            members,
            new_runner(config, ready.site_data, out / "sites"),
            config,
            run=members.run,
            artefacts=coordinator.artefacts,
            journal=False,
            largest=_largest_answer(coordinator),
            triples=coordinator.triples,
            agreed=CoordinatorFolder(self._folder).federation.agreed,
            taking_part=None if by_node is None else by_node.values(),
            registered=CoordinatorKeys(self._folder, members.run),
        ) as engine:
            engine.wait_for_sites(config.engine.min_sites, within=config.engine.deadline)
            yield engine

    def _sites_by_node(self) -> dict[int, int] | None:
        """Which node is which site, as their keys say; None without authentication."""
        file = self._folder / "nodes.json"
        if not file.exists():
            return None
        nodes = read_sealed(file, "the list of sites' nodes", "submit the run again")
        return {int(node): int(site) for node, site in nodes.items()}


def _largest_answer(coordinator: CoordinatorData) -> int:
    """Most bytes that an answer can have beside tensors of the model: claims of all triples, or predictions.

    64 MB more are for what a method may add; an answer of gigabytes is refused before it is decoded.
    """
    held = coordinator.ready.site_data
    return (1 << 26) + 256 * coordinator.triples + 16 * len(held.validation) * len(held.text.relations)


def _run(grid: Grid, request: Path) -> None:
    asked = json.loads(request.read_text(encoding="utf-8"))
    config = Config.model_validate(asked["config"])
    sites = RemoteSites(grid, Path(asked["coordinator"]), config.extractor.kind)

    def print_round(done: Round) -> None:
        """A line for whoever follows the log."""
        left_out = "".join(f"; {sites.names[one.site]} {one.reason}" for one in done.refused)
        print(f"round {done.round}: {about_round(done, config.evaluation.measure)}{left_out}", flush=True)
        purge(CoordinatorFolder(Path(asked["coordinator"])).flower / DATABASE)

    run(
        config,
        Path(asked["out"]),
        resume=asked["resume"],
        from_round=asked.get("from_round"),
        watcher=Watcher(round_done=print_round),
        report=write_run_report,
        sites=sites,
    )
