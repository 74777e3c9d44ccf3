"""A corpus of documents as memory-mapped columns: built once, then opened in milliseconds.

Documents have any number of sentences, these any number of tokens, and so on: each such list is one long column
for the whole corpus, and `..._starts` says where each one's part of it begins. Numbers of sentences, tokens and
entities count within their document; numbers of pairs and facts count through the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.data.bags import ragged
from fedrel.data.documents.document import Document
from fedrel.data.documents.layout import DOCUMENTS, TABLES
from fedrel.data.documents.view import DocumentView
from fedrel.data.documents.writing import Writer
from fedrel.data.instances import NA
from fedrel.data.layout import map_columns
from fedrel.data.strings import Strings
from fedrel.errors import UserError
from fedrel.files import atomic_folder

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentCorpus:
    """`D` documents of `S` sentences and `T` tokens, `E` entities, `M` mentions, `P` pairs, `F` facts."""

    folder: Path
    fingerprint: str  # SHA-256 of everything below

    split: NDArray[np.int8]  # [D] TRAIN, DEV or TEST
    text: NDArray[np.uint8]  # UTF-8
    text_starts: Ints  # [D + 1]
    sentence_starts: Ints  # [D + 1] sentences of each document
    token_starts: Ints  # [S + 1] tokens of each sentence
    tokens: NDArray[np.int32]  # [T, 2] characters [start, end) in the document's text
    entity_starts: Ints  # [D + 1] entities of each document
    entity_id: NDArray[np.int32]  # [E] into `entities`
    entity_type: NDArray[np.int32]  # [E] into `types`
    mention_starts: Ints  # [E + 1] mentions of each entity, from left to right
    mention_chars: NDArray[np.int32]  # [M, 2] characters [start, end) in the document's text
    mention_tokens: NDArray[np.int32]  # [M, 2] tokens [first, after) of the document
    mention_sentence: NDArray[np.int32]  # [M] the sentence of the document that it stands in
    mention_name: NDArray[np.int32]  # [M] into `names`
    pair_starts: Ints  # [D + 1] pairs of each document
    pairs: NDArray[np.int32]  # [P, 2] head and tail: entities of the document; ascending within each
    left_out: NDArray[np.int8]  # [P] 1: neither for training nor for evaluation
    intra: NDArray[np.int8]  # [P] 1: some sentence mentions both
    fact_starts: Ints  # [P + 1] facts of each pair; one without is a negative
    fact_relation: NDArray[np.int32]  # [F] into `relations`, never NA
    evidence_starts: Ints  # [F + 1] evidence of each fact
    evidence: NDArray[np.int32]  # sentences of the document
    handled_counts: Ints  # what was met and dealt with, by the names in `handled`

    ids: Strings  # [D] of the documents
    entities: Strings  # ids in the knowledge base
    types: Strings
    names: Strings  # of mentions
    relations: Strings  # NA first
    handled: Strings

    def __len__(self) -> int:
        return len(self.split)

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process is sent the folder, not the contents."""
        return open_documents, (self.folder,)

    def rows(self, split: int) -> Ints:
        """The documents of one split, in order."""
        return np.flatnonzero(self.split == split)

    def view(self, row: int) -> DocumentView:
        """One document by itself."""
        return DocumentView(self, row)

    def pairs_of(self, rows: Ints) -> Ints:
        """The numbers of these documents' pairs, without those that are left out, in the order of `rows`."""
        sizes = self.pair_starts[rows + 1] - self.pair_starts[rows]
        pairs = ragged(self.pair_starts[rows], sizes)
        kept: Ints = pairs[self.left_out[pairs] == 0]
        return kept

    def labels(self, pairs: Ints) -> NDArray[np.bool_]:
        """Which relations each pair has, [pairs, relations]; a pair without any has NA."""
        labels = np.zeros((len(pairs), len(self.relations)), np.bool_)
        sizes = self.fact_starts[pairs + 1] - self.fact_starts[pairs]
        facts = ragged(self.fact_starts[pairs], sizes)
        labels[np.repeat(np.arange(len(pairs)), sizes), self.fact_relation[facts]] = True
        labels[:, 0] = sizes == 0
        return labels

    def counts(self) -> dict[str, int]:
        """What readers met and dealt with, by name; `HANDLED` says what the names mean."""
        return dict(zip(self.handled, self.handled_counts.tolist(), strict=True))


def build(
    documents: Iterable[tuple[int, Document]],
    folder: Path,
    relations: Sequence[str],
    progress: Callable[[int], None] | None = None,
) -> DocumentCorpus:
    """Write (split, document) pairs to `folder` as columns, in one pass; it appears whole or not at all.

    `progress` is told now and then how many documents are in.
    """
    if not relations or relations[0] != NA:
        raise UserError(f"the first relation must be {NA!r}, found {list(relations[:1])}")
    with atomic_folder(folder) as part:
        writer = Writer(part, relations)
        for count, (split, document) in enumerate(documents, 1):
            writer.add(split, document)
            if count % 256 == 0:
                writer.flush()
                if progress:
                    progress(count)
        writer.finish()
        if progress:
            progress(writer.rows)
    return open_documents(folder)


def open_documents(folder: Path) -> DocumentCorpus:
    """Map a folder that `build` wrote; one that is not such a corpus, or is damaged, is refused."""
    fingerprint, columns = map_columns(folder, DOCUMENTS)
    parts: dict[str, Any] = dict(columns)
    for name in TABLES:
        parts[name] = Strings(parts.pop(f"{name}_text"), parts.pop(f"{name}_starts"))
    return DocumentCorpus(folder, fingerprint, **parts)
