"""A small federation on one disk: a published experiment and three sites with raw text, without any key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedrel.data.align import align, read_kb, write_jsonl
from fedrel.data.text import tokenise
from fedrel.data.world import World, WorldConfig
from fedrel.deployment.experiment import load_experiment
from fedrel.deployment.folders import CoordinatorFolder, SiteFolder
from fedrel.deployment.publishing import publish_experiment
from fedrel.deployment.site_preparation import prepare_site
from tests.conftest import REAL, python_is

SITES = ["north", "south", "west"]
ALLOW: dict[str, Any] = {
    "methods": ["lazy-mil", "fedavg", "feded"],
    "may_leave": ["Holdings", "KeyedClaims", "Claims", "Update", "Predictions"],
    "rounds": 10,
    "epochs": 3,
}
EXPERIMENT: dict[str, Any] = {
    "seed": 3,
    "method": "lazy-mil",
    "extractor": {"vectors": "vectors.txt", "word_dimension": 8, "filters": 6, "dropout": 0.3},
    "training": {"rounds": 2, "fraction": 1.0, "epochs": 2, "batch_size": 8},
    "shared": {
        "knowledge_base": "kb.tsv",
        "dev": ["dev.jsonl"],
        "test": ["test.jsonl"],
        "validation": ["dev.jsonl"],
        "na_rate": 0.5,
    },
}


@pytest.fixture(scope="package", autouse=True)
def _real_python() -> Iterator[None]:
    """Processes are real ones here, as at an institution: some are killed, and their environment is looked at."""
    with python_is(REAL, str(Path(REAL).parent)):
        yield


@dataclass(frozen=True)
class SmallFederation:
    """Everything in one folder, with the experiment's file."""

    folder: Path
    names: Sequence[str] = tuple(SITES)

    @property
    def coordinator(self) -> CoordinatorFolder:
        return CoordinatorFolder(self.folder / "coordinator")

    def site(self, name: str) -> SiteFolder:
        return SiteFolder(self.folder / "sites" / name)

    def write(self, **changes: Any) -> Path:
        """The experiment with other values, by dotted key with `__` for the dot."""
        tree = json.loads(json.dumps(EXPERIMENT))
        for key, value in changes.items():
            *path, last = key.split("__")
            table = tree
            for part in path:
                table = table.setdefault(part, {})
            if value is None:
                table.pop(last, None)
            else:
                table[last] = value
        path = self.folder / "experiment.toml"
        path.write_text(tomli_w.dumps(tree), encoding="utf-8")
        return path

    def publish_only(self, **changes: Any) -> None:
        """Publish, and give the artefacts to no site."""
        publish_experiment(self.coordinator, load_experiment(self.write(**changes)))

    def publish(self, **changes: Any) -> None:
        """Publish, and copy the artefacts to every site."""
        self.publish_only(**changes)
        for name in self.names:
            shutil.rmtree(self.site(name).artefacts, ignore_errors=True)
            shutil.copytree(self.coordinator.artefacts, self.site(name).artefacts)

    def policy(self, name: str, **allow: Any) -> None:
        """Write a site's policy: the usual one, with a test's changes."""
        tree = {
            "coordinator": "localhost:9092",
            "data": {"files": ["text/*.txt"]},
            "allow": {**ALLOW, **allow},
        }
        (self.site(name).path / "site.toml").write_text(tomli_w.dumps(tree), encoding="utf-8")


@pytest.fixture(scope="session")
def first_federation(tmp_path_factory: pytest.TempPathFactory) -> SmallFederation:
    folder = tmp_path_factory.mktemp("federation")
    federation = SmallFederation(folder)
    world = World(WorldConfig(sentences=1_000, relations=4, noise=0.3, mean_length=14, styles=3))
    world.documents(folder / "text", files=1)
    world.documents(folder / "fresh", split="test", files=1)
    world.kb(folder / "kb.tsv")
    for name, part in (("dev", "train"), ("test", "test")):
        texts = sorted((folder / ("text" if part == "train" else "fresh")).glob("*.txt"))
        kb = read_kb(folder / "kb.tsv")
        write_jsonl(list(align(texts, kb, na_rate=0.3, seed=1))[::7], folder / f"{name}.jsonl")
    _write_vectors(folder)
    federation.coordinator.path.mkdir()
    table = {"host": "localhost", "port": 9092, "sites": SITES}
    (federation.coordinator.path / "federation.toml").write_text(tomli_w.dumps(table))
    for number, (name, text) in enumerate(zip(SITES, sorted((folder / "text").glob("*.txt")), strict=True)):
        path = federation.site(name).path
        (path / "text").mkdir(parents=True)
        shutil.copy(text, path / "text")
        (path / "place.json").write_text(json.dumps({"number": number, "name": name, "sites": SITES}))
        federation.policy(name)
    federation.publish()
    for name in SITES:
        prepare_site(federation.site(name))
    return federation


@pytest.fixture
def federation(first_federation: SmallFederation, tmp_path: Path) -> SmallFederation:
    """A copy that a test may change. Prepared sites still read the columns of the first."""
    shutil.copytree(first_federation.folder, tmp_path / "federation")
    return SmallFederation(tmp_path / "federation")


def _write_vectors(folder: Path) -> None:
    """Vectors for two words in three of the text, as public ones would have."""
    texts = [path.read_text(encoding="utf-8").lower() for path in sorted((folder / "text").glob("*.txt"))]
    words = sorted({text[start:end] for text in texts for start, end in tokenise(text)})
    generator = np.random.default_rng(0)
    known = [word for number, word in enumerate(words) if number % 3]
    rows = (f"{word} {' '.join(f'{x:.4f}' for x in generator.normal(size=8))}\n" for word in known)
    (folder / "vectors.txt").write_text("".join(rows), encoding="utf-8")
