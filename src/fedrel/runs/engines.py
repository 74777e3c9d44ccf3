"""One run: from a config to a run folder with metrics, a model and a report; stopped at any moment, it resumes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from fedrel.config.schema import (
    Config,
)
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.engines.local import LocalEngine
from fedrel.federation.runner import Desk
from fedrel.federation.site_data import Materials
from fedrel.federation.site_state import SiteStates
from fedrel.methods.registry import method
from fedrel.runs.prepare import Preparation

if TYPE_CHECKING:
    from fedrel.extractors.base import Extractor
    from fedrel.federation.engines.processes import WorkerEngine
    from fedrel.federation.engines.threads import ThreadEngine
    from fedrel.federation.flower.transport import FlowerEngine

AnyEngine: TypeAlias = "LocalEngine | ThreadEngine | WorkerEngine | FlowerEngine"


@contextmanager
def engine(config: Config, ready: Preparation, states: Path) -> Iterator[AnyEngine]:
    """The engine that the config asks for, ended whatever happens; sites keep what they remember in `states`."""
    active = max(int(config.training.fraction * ready.materials.partition.sites), 1)
    workers = min(config.engine.workers or os.cpu_count() or 1, max(active, 1))
    if config.engine.kind == "flower":
        raise UserError(
            "between real sites, a run is started from the coordinator's folder",
            hint="use `fedrel federation run`, or --engine flower-simulation for this machine",
        )
    if config.engine.kind == "flower-simulation":
        from fedrel.federation.flower.simulation import simulation

        with simulation(config, ready, states, workers) as simulated:
            yield simulated
    elif config.engine.kind == "local" or workers == 1:
        with LocalEngine(desk(config, ready.materials, states)) as local:
            yield local
    else:
        from fedrel.federation.engines.threads import side_by_side

        with side_by_side(config, ready.materials, states, workers) as spread:
            yield spread


def desk(config: Config, materials: Materials, states: Path, triple_key: bytes | None = None) -> Desk:
    """A place to work for a process of this run; its model's weights arrive with the first question.

    `states` is the folder where sites keep what they remember, `triple_key` what real sites share.
    """

    kind = extractor_kind(config.extractor.kind)

    def model() -> Extractor:
        relations = len(materials.text.relations)
        new = kind.build(config.extractor, materials.inputs, relations, config.seed)
        return new.to(config.training.device)

    return Desk(
        materials,
        model,
        method(config.method, config.methods),
        config.training,
        config.seed,
        SiteStates(states, config.digest()),
        triple_key,
    )
