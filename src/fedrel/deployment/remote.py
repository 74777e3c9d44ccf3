"""What a coordinator and a site have on disk before a run: their own sentences only, numbered as all agreed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.data.load import Dataset
from fedrel.data.partition import Partition
from fedrel.errors import UserError
from fedrel.federation.site_data import SiteData
from fedrel.methods.registry import method
from fedrel.runs.prepare import Preparation

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedrel.config.schema import Config
    from fedrel.data.store import Progress
    from fedrel.federation.flower.members import RemoteEngine


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Coordinator:
    """What a coordinator begins with: its own sentences, and what it published."""

    ready: Preparation  # the partition names the sites; what they hold is theirs to tell
    triples: int  # how many facts have a number that all agreed on
    artefacts: Mapping[str, str]  # fingerprints by name


def alone(rows: Ints, number: int, names: Sequence[str]) -> Partition:
    """One site's view of who holds what: its own rows, and nothing of the others."""
    bounds = np.zeros(len(names) + 1, np.int64)
    bounds[number + 1 :] = len(rows)
    return Partition(np.asarray(rows, np.int64), bounds, tuple(names))


def unseen(names: Sequence[str]) -> Partition:
    """The coordinator's view: it holds none of the sites' rows."""
    return Partition(np.zeros(0, np.int64), np.zeros(len(names) + 1, np.int64), tuple(names))


def save_coordinator(folder: Path, coordinator: Coordinator) -> None:
    """Leave it for the process that the coordinator's half runs in."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = coordinator.ready
    ready.site_data.save(folder)
    np.save(folder / "dev.npy", ready.dataset.dev)
    np.save(folder / "test.npy", ready.dataset.test)
    rest = {"triples": coordinator.triples, "artefacts": dict(coordinator.artefacts)}
    (folder / "coordinator.json").write_text(json.dumps(rest, ensure_ascii=False), encoding="utf-8")


def open_coordinator(folder: Path, extractor: str) -> Coordinator:
    """What `save_coordinator` left, for a kind of extractor."""
    rest = json.loads((folder / "coordinator.json").read_text(encoding="utf-8"))
    if "words" in rest:
        problem = "was written by an earlier version of fedrel"
        hint = "run `fedrel coordinator publish` again; what the sites prepared stays valid"
        raise UserError(problem, file=folder, hint=hint)
    site_data = SiteData.load(folder, extractor)
    dev, test = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("dev", "test"))
    nothing = np.zeros(0, np.int64)
    ready = Preparation(Dataset(site_data.text, nothing, dev, test), site_data)
    return Coordinator(ready, rest["triples"], rest["artefacts"])


POLL = 0.5  # seconds between two looks for a reply: each is a request over the network


class RemoteSites:
    """A coordinator's folder with a grid to the sites."""

    def __init__(self, grid: Grid, folder: Path, extractor: str) -> None:
        self._grid, self._folder = grid, folder
        self._coordinator = open_coordinator(folder / "preparation", extractor)

    @property
    def names(self) -> tuple[str, ...]:
        """The sites' names, in order of their numbers."""
        return self._coordinator.ready.site_data.partition.names

    def prepare(self, config: Config, progress: Progress | None) -> Preparation:
        """What the coordinator itself holds, as it was published."""
        return self._coordinator.ready

    @contextmanager
    def engine(self, config: Config, ready: Preparation, out: Path, *, fresh: bool) -> Iterator[RemoteEngine]:
        """The engine of a run, once enough sites are there; sites have no state of a `fresh` run."""
        from fedrel.federation.flower.members import Members, RemoteEngine, run_of
        from fedrel.federation.flower.transport import Transport
        from fedrel.runs.engines import new_runner

        if reason := method(config.method, config.methods).simulation_only():
            raise UserError(
                f"{config.method!r} is for simulations only: {reason}", hint="choose another method"
            )
        file, coordinator = out / "federation.json", self._coordinator
        members = Members(self._grid, ready.site_data.partition.names, self._nodes(), file)
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
            triples=coordinator.triples,
        ) as engine:
            engine.wait_for_sites(config.engine.min_sites, within=config.engine.deadline)
            yield engine

    def _nodes(self) -> dict[int, int] | None:
        """Which node is which site, where keys tell."""
        file = self._folder / "nodes.json"
        if not file.exists():
            return None
        return {int(node): int(site) for node, site in json.loads(file.read_text(encoding="utf-8")).items()}
