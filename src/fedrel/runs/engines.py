"""Where a run's sites are, and the engine that reaches them: simulated here, or real ones behind Flower."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedrel.config.plugins import load_files, only_in_this_process
from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.coordinator import Engine
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.resident import ResidentModel
from fedrel.federation.runner import Runner
from fedrel.federation.site_data import SiteData
from fedrel.federation.site_memory import SiteStates
from fedrel.methods.by_name import method
from fedrel.runs.prepare import Preparation, prepare
from fedrel.tensors import compiling
from fedrel.tensors.machine import FLOAT32, available, resolve

if TYPE_CHECKING:
    from fedrel.data.store import Progress
    from fedrel.extractors.base import Extractor
    from fedrel.privacy.site_rules import SiteRules

WORKER = "fedrel.runs.engines"  # the module that a worker process runs: this one


class Sites(Protocol):
    """Where a run's data and engine come from: `SimulatedSites`, or `deployment`'s `RemoteSites`."""

    def prepare(self, config: Config, progress: Progress | None) -> Preparation:
        """The data that this process holds; of real sites, the coordinator's own only."""

    def engine(
        self, config: Config, ready: Preparation, out: Path, *, fresh: bool
    ) -> AbstractContextManager[Engine]:
        """The engine of the run in folder `out`; in a `fresh` run, sites have no state from earlier rounds."""


class SimulatedSites:
    """All sites on this machine, as the config's partition divides the data."""

    def prepare(self, config: Config, progress: Progress | None) -> Preparation:
        """Read the data and divide it among the sites."""
        return prepare(config, progress)

    def engine(
        self, config: Config, ready: Preparation, out: Path, *, fresh: bool
    ) -> AbstractContextManager[Engine]:
        """The engine that the config names; sites keep their state in the run folder."""
        return engine(config, ready, out / "sites")


@contextmanager
def engine(config: Config, ready: Preparation, states: Path) -> Iterator[Engine]:
    """The engine that the config names, stopped at the end; sites keep their state in `states`.

    The precision of matrix products is chosen here, so that all processes of a run have the same.
    """
    training = config.training.model_copy(update={"precision": precision_of(config)})
    config = config.model_copy(update={"training": training})
    active = max(int(config.training.fraction * ready.site_data.partition.sites), 1)
    workers = min(config.engine.workers or available(), max(active, 1))
    if config.engine.kind == "flower":
        raise UserError(
            "between real sites, a run is started from the coordinator's folder",
            hint="use `fedrel federation run`, or --engine flower-simulation for this machine",
        )
    if config.privacy.vouched:
        problem = (
            "privacy.vouched is for real sites: a simulation has no coordinator that could make up weights"
        )
        raise UserError(problem, hint="leave it out; the weights are the same without it")
    if config.engine.kind == "flower-simulation":
        from fedrel.federation.flower.simulation import simulation

        _check_other_processes_can_import(config)
        own = new_runner(config, ready.site_data, states)
        with simulation(config, own, states, workers, open_runner) as simulated:
            yield simulated
    elif config.engine.kind == "local" or workers == 1:
        with LocalEngine(new_runner(config, ready.site_data, states), config.engine.workers) as local:
            yield local
    else:
        with parallel_engine(config, ready.site_data, states, workers) as parallel:
            yield parallel


def parallel_engine(config: Config, site_data: SiteData, states: Path, workers: int) -> Engine:
    """An engine that trains several sites at once: on threads where kernels do most of it, else in processes."""
    if extractor_kind(config.extractor.kind).has_kernels and compiling.has_numba():
        from fedrel.federation.engines.in_process import ThreadEngine

        first = new_runner(config, site_data, states)
        if first.runs_kernels():
            return ThreadEngine([first, *(new_runner(config, site_data, states) for _ in range(1, workers))])
    from fedrel.federation.engines.processes import WorkerEngine

    _check_other_processes_can_import(config)
    return WorkerEngine(config, site_data, states, workers, module=WORKER)


def new_runner(config: Config, site_data: SiteData, states: Path, rules: SiteRules | None = None) -> Runner:
    """A runner for this process. Its model gets the weights with the first request.

    `states` is the folder where sites keep their state; `rules` are a real site's own.
    """

    kind = extractor_kind(config.extractor.kind)

    def model() -> Extractor:
        relations = len(site_data.text.relations)
        new = kind.build(config.extractor, site_data.inputs, relations, config.seed)
        new.compute_in(precision_of(config))
        return new.to(config.training.device)

    resident = ResidentModel(
        site_data,
        model,
        config.training,
        config.seed,
        SiteStates(states, config.digest()),
        rules,
        privacy=config.privacy,
    )
    return Runner(method(config.method, config.methods), resident)


def precision_of(config: Config) -> str:
    """The precision of matrix products: what the config asks for or, if that is `auto`, what suits this machine."""
    if not extractor_kind(config.extractor.kind).has_precision:
        return FLOAT32
    return resolve(config.training.precision, config.training.device)


def open_runner(folder: Path) -> Runner:
    """In another process of this machine: a runner over what `save_for_workers` saved.

    It uses one thread: more would change the order of sums. The run's plug-in files are loaded first, so that its
    method is found here too. Where that process looks for modules, this one looks last: what it has imported
    and what is installed here comes first.
    """
    import torch

    torch.set_num_threads(1)
    tree = json.loads((folder / "config.json").read_bytes())
    path = json.loads((folder / "path.json").read_bytes())
    sys.path += [place for place in path if place not in sys.path]
    load_files([Path(file) for file in tree.get("plugins", ())])
    states = Path((folder / "states.txt").read_text(encoding="utf-8"))
    config = Config.model_validate(tree)
    return new_runner(config, SiteData.load(folder, config.extractor.kind), states)


def serve_as_worker(folder: Path) -> None:
    """In a worker process: answer for sites over what the run saved in the folder, until standard input ends."""
    from fedrel.federation.engines.processes import serve
    from fedrel.federation.wire import encode, write_block

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    with suppress(EOFError, BrokenPipeError):
        try:
            serve(open_runner(folder), sys.stdin.buffer, answers)
        except UserError as mistake:  # to be raised again in the process that started the run
            write_block(answers, {"mistake": mistake.to_json()}, encode({}))


def _check_other_processes_can_import(config: Config) -> None:
    """Fail fast if method or extractor are classes of a notebook or script: workers could not find them."""
    chosen = (method(config.method, config.methods), extractor_kind(config.extractor.kind))
    for part in (part for one in chosen for part in type(one).__mro__):
        if part.__module__ != "builtins" and only_in_this_process(part):
            raise UserError(
                f"the class {part.__qualname__} is defined in this process only: "
                "worker processes and Flower's simulation cannot import it",
                hint='set engine.kind = "local", or move the class to a file and load that as a plug-in',
            )


if __name__ == "__main__":
    serve_as_worker(Path(sys.argv[1]))
