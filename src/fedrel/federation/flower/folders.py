"""What a coordinator and a site have on disk before a run: their own sentences only, numbered as all agreed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedrel.data.partition import Partition
from fedrel.data.vectors import Vectors, Vocabulary
from fedrel.federation.materials import Materials
from fedrel.prepare import Dataset, Preparation

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
    ready.materials.save(folder)
    np.save(folder / "dev.npy", ready.dataset.dev)
    np.save(folder / "test.npy", ready.dataset.test)
    if ready.vectors is not None:
        np.save(folder / "vectors.npy", ready.vectors.matrix)
    words = None if ready.vocabulary is None else ready.vocabulary.words
    rest = {"triples": coordinator.triples, "artefacts": dict(coordinator.artefacts), "words": words}
    (folder / "coordinator.json").write_text(json.dumps(rest, ensure_ascii=False), encoding="utf-8")


def open_coordinator(folder: Path) -> Coordinator:
    """What `save_coordinator` left."""
    rest = json.loads((folder / "coordinator.json").read_text(encoding="utf-8"))
    materials = Materials.load(folder)
    dev, test = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("dev", "test"))
    vocabulary = None if rest["words"] is None else Vocabulary(tuple(rest["words"]))
    vectors = None
    if (folder / "vectors.npy").exists():
        vectors = Vectors(rest["words"], np.load(folder / "vectors.npy", mmap_mode="r"))
    nothing = np.zeros(0, np.int64)
    ready = Preparation(Dataset(materials.text, nothing, dev, test), materials, vocabulary, vectors)
    return Coordinator(ready, rest["triples"], rest["artefacts"])
