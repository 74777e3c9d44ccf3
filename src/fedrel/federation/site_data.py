"""The data that a run's processes work with, and how one process saves it for the others."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags
from fedrel.data.column_files import check_sums, write_sums
from fedrel.data.load import open_corpus
from fedrel.data.partition import Partition
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus
from fedrel.errors import UserError
from fedrel.extractors.batches import Inputs
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.messages import RefusedError
from fedrel.files import read_sealed

if TYPE_CHECKING:
    from fedrel.config.schema import Config


Ints = npt.NDArray[np.int64]
_AGAIN = "prepare the data again"
_INDEX = "materials.json"  # prepared sites have files of this name: it stays


@dataclass(frozen=True)
class SiteData:
    """Text as columns and as the model reads it, and which site holds which rows.

    In a simulation all sites' rows are here, at a real site its own only, at a coordinator none.
    """

    text: Corpus
    inputs: Inputs
    partition: Partition
    validation: Ints  # labelled rows that the coordinator holds and every site has too (FedED's D_v)
    watched: Ints  # rows that journals follow for the case study
    truth_known: bool

    @property
    def corpus(self) -> SentenceCorpus:
        """The text as sentences; a method that asks for it cannot work with documents."""
        try:
            return self.text.require(SentenceCorpus)
        except UserError as error:
            raise RefusedError(error.problem) from error

    def bags(self, rows: Ints) -> Bags:
        """What sites train on: a bag for each triple of the rows, or each document by itself."""
        return self.text.bags(rows)

    def save(self, folder: Path) -> None:
        """Save it for other processes of this machine, which map what they need.

        A corpus inside the folder is named by its relative path: the folder may be moved.
        """
        corpus = self.text.folder.resolve()
        if corpus.is_relative_to(folder.resolve()):
            corpus = corpus.relative_to(folder.resolve())
        about = self.inputs.save(folder)
        arrays: dict[str, npt.NDArray[Any]] = {"validation": self.validation, "watched": self.watched}
        arrays |= {"order": self.partition.order, "bounds": self.partition.bounds}
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        rest = {
            "corpus": str(corpus),
            **about,
            "truth_known": self.truth_known,
            "names": self.partition.names,
        }
        (folder / _INDEX).write_text(json.dumps(rest))
        write_sums(folder)

    @classmethod
    def load(cls, folder: Path, extractor: str) -> SiteData:
        """Open what `save` wrote; `extractor` is the kind of extractor that reads it."""
        check_sums(folder, _AGAIN)
        rest = read_sealed(folder / _INDEX, "prepared data", _AGAIN)
        validation, watched, order, bounds = (
            np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))  # faster to index than a memmap
            for name in ("validation", "watched", "order", "bounds")
        )
        text = open_corpus(folder / rest["corpus"])
        return cls(
            text=text,
            inputs=extractor_kind(extractor).open_inputs(folder, text, rest),
            partition=Partition(order, bounds, tuple(rest["names"])),
            validation=validation,
            watched=watched,
            truth_known=rest["truth_known"],
        )


def save_for_workers(folder: Path, config: Config, site_data: SiteData, states: Path) -> None:
    """Save what a worker process needs: the data, the config, the path of the sites' states, and where this
    process looks for modules, for those that the config names as `module:Class`.
    """
    site_data.save(folder)
    (folder / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    (folder / "states.txt").write_text(str(states.absolute()), encoding="utf-8")
    path = [str(Path(place).absolute()) for place in sys.path]
    (folder / "path.json").write_text(json.dumps(path), encoding="utf-8")
