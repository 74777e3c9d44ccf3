"""What readers of texts with marked mentions share: they find the texts, and these classes make rows of them.

A subclass has a name and `texts`. Which pairs are asked about, and how ids are split, are options that all of
them have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedrel.data.annotations import Directions, Document, PairTypes
from fedrel.data.pairing import MarkedText, document, instances
from fedrel.data.readers import Reader
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance


class MarkedSentences(Reader):
    """A reader whose rows are the pairs of mentions in one sentence."""

    def texts(self, path: Path, relations: RelationMap | None) -> Iterator[MarkedText]:
        """The texts of a file or folder, with what is marked in them."""
        raise NotImplementedError

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        pair_types: PairTypes | None = None,
        directions: Directions = "both",
    ) -> Iterator[Instance]:
        """Every pair of mentions in one sentence, with its relation or NA; the source is the text's id.

        `pair_types` and `directions` choose the pairs (see `annotations.candidates`).
        """
        for marked in self.texts(path, relations):
            with self.problems:
                yield from instances(marked, self.problems, pair_types, directions)


class MarkedDocuments(Reader):
    """A reader whose rows are whole texts: mentions with one id are one entity."""

    unit = "documents"

    def texts(self, path: Path, relations: RelationMap | None, id_separator: str) -> Iterator[MarkedText]:
        """The texts of a file or folder; `id_separator` joins the ids of a mention that names several entities."""
        raise NotImplementedError

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        pair_types: PairTypes | None = None,
        directions: Directions = "both",
        id_separator: str = "|",
    ) -> Iterator[Document]:
        """The documents of a file or folder; the options are PubTator's."""
        for marked in self.texts(path, relations, id_separator):
            with self.problems:
                yield document(marked, self.problems, pair_types, directions)


def split_ids(column: str, separator: str) -> tuple[str, ...]:
    """The knowledge base's ids that a format writes into one place; none for what says that there is none."""
    parts = column.split(separator) if separator else [column]
    return tuple(part.strip() for part in parts if part.strip() not in _NO_ID)


_NO_ID = ("-1", "-", "")
