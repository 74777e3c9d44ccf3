"""The data that a run's processes work with, and how one process saves it for the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, by_triple, singles
from fedrel.data.documents import DocumentCorpus, open_documents
from fedrel.data.partition import Partition
from fedrel.data.sentences import Corpus, open_corpus
from fedrel.extractors.inputs import Inputs
from fedrel.extractors.registry import open_inputs
from fedrel.federation.messages import RefusedError

if TYPE_CHECKING:
    from fedrel.config.schema import Config


Ints = npt.NDArray[np.int64]
_INDEX = "materials.json"  # prepared sites have files of this name: it stays


@dataclass(frozen=True)
class SiteData:
    """Text as columns and as the model reads it, and which site holds which rows.

    In a simulation all sites' rows are here, at a real site its own only, at a coordinator none.
    """

    text: Corpus | DocumentCorpus
    inputs: Inputs
    vocabulary_size: int  # PCNN's; a transformer brings its own
    partition: Partition
    validation: Ints  # labelled rows that the coordinator holds and every site has too (FedED's D_v)
    watched: Ints  # rows that journals follow for the case study
    truth_known: bool
    words: npt.NDArray[np.float32] | None = None
    """PCNN's word table, where it is not trained and so never sent."""

    @property
    def corpus(self) -> Corpus:
        """The text as sentences; `RefusedError` for documents, which the method cannot read then."""
        if not isinstance(self.text, Corpus):
            raise RefusedError("this method reads sentences, but the data are documents")
        return self.text

    def bags(self, rows: Ints) -> Bags:
        """What sites train on: a bag for each triple of the rows, or one for each document."""
        if isinstance(self.text, Corpus):
            return by_triple(self.text, rows)
        return singles(rows, np.zeros_like(rows), rows)

    def save(self, folder: Path) -> None:
        """Save it for other processes of this machine, which map what they need.

        A corpus inside the folder is named by its relative path: the folder may be moved.
        """
        corpus = self.text.folder.resolve()
        if corpus.is_relative_to(folder.resolve()):
            corpus = corpus.relative_to(folder.resolve())
        self.inputs.save(folder)
        arrays: dict[str, npt.NDArray[Any]] = {"validation": self.validation, "watched": self.watched}
        arrays |= {"order": self.partition.order, "bounds": self.partition.bounds}
        if self.words is not None:
            arrays["words"] = self.words
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        rest = {
            "corpus": str(corpus),
            "documents": isinstance(self.text, DocumentCorpus),
            "vocabulary_size": self.vocabulary_size,
            "truth_known": self.truth_known,
            "names": self.partition.names,
        }
        (folder / _INDEX).write_text(json.dumps(rest))

    @classmethod
    def load(cls, folder: Path) -> SiteData:
        """Open what `save` wrote."""
        rest = json.loads((folder / _INDEX).read_text())
        validation, watched, order, bounds = (
            np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))  # faster to index than a memmap
            for name in ("validation", "watched", "order", "bounds")
        )
        text = (open_documents if rest["documents"] else open_corpus)(folder / rest["corpus"])
        return cls(
            text=text,
            inputs=open_inputs(folder, text),
            vocabulary_size=rest["vocabulary_size"],
            partition=Partition(order, bounds, tuple(rest["names"])),
            validation=validation,
            watched=watched,
            truth_known=rest["truth_known"],
            words=np.load(words, mmap_mode="r") if (words := folder / "words.npy").exists() else None,
        )


def save_for_workers(folder: Path, config: Config, site_data: SiteData, states: Path) -> None:
    """Save what a worker process needs: the data, the config, and the path of the sites' states."""
    site_data.save(folder)
    (folder / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    (folder / "states.txt").write_text(str(states.absolute()), encoding="utf-8")
