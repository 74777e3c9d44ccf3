"""What a run's processes work with, and how one leaves it on disk for the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedrel.data.columns import Corpus, open_corpus
from fedrel.data.partition import Partition

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Materials:
    """What a run's processes work with: text as columns, who holds which rows, the model's vocabulary."""

    corpus: Corpus
    lookup: Ints  # [words of the corpus], their ids in the model's vocabulary
    vocabulary_size: int
    partition: Partition
    watched: Ints  # rows that journals follow for the case study
    truth_known: bool

    def save(self, folder: Path) -> None:
        """Leave it for other processes of this machine, which map what they need."""
        arrays = {"lookup": self.lookup, "watched": self.watched}
        arrays |= {"order": self.partition.order, "bounds": self.partition.bounds}
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        rest = {
            "corpus": str(self.corpus.folder),
            "vocabulary_size": self.vocabulary_size,
            "truth_known": self.truth_known,
            "names": self.partition.names,
        }
        (folder / "materials.json").write_text(json.dumps(rest))

    @classmethod
    def load(cls, folder: Path) -> Materials:
        """Open what `save` left."""
        rest = json.loads((folder / "materials.json").read_text())
        lookup, watched, order, bounds = (
            np.load(folder / f"{name}.npy", mmap_mode="r")
            for name in ("lookup", "watched", "order", "bounds")
        )
        return cls(
            corpus=open_corpus(Path(rest["corpus"])),
            lookup=lookup,
            vocabulary_size=rest["vocabulary_size"],
            partition=Partition(order, bounds, tuple(rest["names"])),
            watched=watched,
            truth_known=rest["truth_known"],
        )
