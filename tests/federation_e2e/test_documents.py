"""FedLCC between real processes, by the tutorial's steps: the same weights as in one process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

pytest.importorskip("flwr", reason="needs the extra `flower`")

from fedrel.config.schema import Config
from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.experiment import load_experiment
from fedrel.deployment.folders import init_federation
from fedrel.deployment.publishing import open_coordinator, publish_experiment
from fedrel.deployment.site_preparation import prepare_site
from fedrel.deployment.submit import config_for_sites
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.runner import Runner
from fedrel.federation.site_data import SiteData
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import Preparation
from fedrel.runs.train import run
from tests.deployment.joint import joint
from tests.documents import documents, write_documents
from tests.extractors.conftest import write_encoder
from tests.federation_e2e.testbed import NAMES, PATIENCE, Testbed, free_port, same

pytestmark = pytest.mark.slow


class Together:
    """The yardstick: the coordinator's folder, and all sites' documents beside it at one runner."""

    def __init__(self, coordinator: Path, whole: SiteData) -> None:
        self._own, self._whole = open_coordinator(coordinator, "document").ready, whole
        untold = replace(whole.partition, order=np.zeros(0, np.int64))
        self._ready = replace(self._own, site_data=replace(self._own.site_data, partition=untold))

    def prepare(self, config: Config, progress: object) -> Preparation:
        return self._ready

    @contextmanager
    def engine(self, config: Config, ready: Preparation, out: Path, *, fresh: bool) -> Iterator[LocalEngine]:
        at_sites, own = (
            new_runner(config, held, out / "sites") for held in (self._whole, self._own.site_data)
        )
        yield TwoRunners(at_sites, own)


class TwoRunners(LocalEngine):
    """One runner answers for the sites, another evaluates for the coordinator."""

    def __init__(self, at_sites: Runner, own: Runner) -> None:
        super().__init__(at_sites)
        self.score = LocalEngine(own).score  # type: ignore[method-assign]


def write_experiment(folder: Path, encoder: Path) -> Path:
    tree: dict[str, Any] = {
        "method": "fedlcc",
        "methods": {"fedlcc": {"mu": 2.0}},
        "extractor": {"kind": "document", "encoder": str(encoder), "block_size": 8, "frozen_layers": 1},
        "training": {"rounds": 2, "fraction": 1.0, "epochs": 1, "batch_size": 3},
        "engine": {"deadline": PATIENCE},
        "shared": {
            "format": "docred",
            "relations": "relations.json",
            "dev": ["dev.json"],
            "test": ["test.json"],
        },
    }
    (folder / "relations.json").write_text(json.dumps({"NA": 0, "r0": 1, "r1": 2}))
    for number, name in enumerate(("dev.json", "test.json")):
        write_documents(folder / name, documents(6, seed=number))
    (folder / "fedlcc.toml").write_text(tomli_w.dumps(tree))
    return folder / "fedlcc.toml"


def prepare_folders(bed: Testbed, file: Path) -> None:
    """By the steps of the tutorial: init, publish, carry the artefacts, prepare."""
    init_federation(bed.folder, NAMES, "127.0.0.1", free_port())
    publish_experiment(bed.coordinator, load_experiment(file))
    for number, name in enumerate(NAMES):
        site = bed.site(name)
        shutil.copytree(bed.coordinator.artefacts, site.artefacts)
        write_documents(site.path / "own.json", documents(8, seed=10 + number))
        bed.write_policy(name)
        prepare_site(site)


def test_fedlcc_between_real_processes(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "hub" / "tiny-bert")
    bed = Testbed(tmp_path / "federation")
    bed.data = {"files": ["own.json"], "format": "docred", "encoder": str(encoder)}
    file = write_experiment(tmp_path, encoder)
    prepare_folders(bed, file)
    config = config_for_sites(load_experiment(file), list(NAMES))
    own = {name: [bed.site(name).path / "own.json"] for name in NAMES}
    whole = joint(
        Artefacts(bed.coordinator.artefacts), bed.site("north").published, own, tmp_path / "joint", "docred"
    )
    run(config, tmp_path / "local", sites=Together(bed.coordinator.preparation, whole))
    with bed:
        bed.start()
        bed.fedrel("federation", "run", str(file), "--folder", str(bed.coordinator.path))
    same(tmp_path / "local", bed.coordinator.runs / "fedlcc")
