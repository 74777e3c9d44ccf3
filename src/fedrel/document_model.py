"""A trained document extractor, and the relations it finds in documents, with the tokens it looked at."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import singles, slices
from fedrel.data.columns import TEST
from fedrel.data.documents.columns import build
from fedrel.data.documents.document import Document
from fedrel.data.documents.readers import reader
from fedrel.data.opening import lines
from fedrel.evaluation.findings import THRESHOLD

if TYPE_CHECKING:
    from fedrel.data.documents.columns import DocumentCorpus
    from fedrel.data.documents.view import DocumentView
    from fedrel.document_config import DocumentData, DocumentSection
    from fedrel.extractors.document import DocumentTransformer, Read
    from fedrel.extractors.document_pieces import DocumentInputs

Ints = npt.NDArray[np.int64]

SHOWN = 10  # tokens that are named as evidence


@dataclass(frozen=True, slots=True)
class Token:
    """A token that both entities attend to: the characters [start, end) of its document, and its share."""

    text: str
    start: int
    end: int
    share: float


@dataclass(frozen=True, slots=True)
class Found:
    """An entity of a finding."""

    id: str
    name: str  # of its first mention
    type: str
    mentions: tuple[tuple[int, int], ...]  # characters


@dataclass(frozen=True, slots=True)
class Finding:
    """A relation that the model reads out of a document, with the most attended tokens, the first most."""

    row: int  # of the document in its corpus
    document: str
    text: str  # of the document, as characters are counted in
    head: Found
    relation: str
    tail: Found
    probability: float
    evidence: tuple[Token, ...]


class DocumentModel:
    """A trained extractor, its relations, and which pairs to ask it about."""

    def __init__(
        self,
        extractor: DocumentTransformer,
        section: DocumentSection,
        relations: Sequence[str],
        pairs: Mapping[str, Any],
    ) -> None:
        self.extractor, self.relations = extractor, relations
        self._section, self._pairs = section, pairs

    def read(self, path: Path) -> Iterator[Document]:
        """The documents of a PubTator or DocRED file, with the pairs that this model is for."""
        first = next((line.strip() for _, line in lines(path) if line.strip()), "")
        if first[:1] in ("[", "{"):
            return reader("docred")(path, pair_types=self._pairs["pair_types"])
        return reader("pubtator")(path, **self._pairs)

    def predict(self, documents: Iterable[Document], *, threshold: float = THRESHOLD) -> list[Finding]:
        """The relations with a probability of at least `threshold`, surest first.

        The documents' own relations are not looked at.
        """
        from fedrel.extractors.document_pieces import tokenise

        with tempfile.TemporaryDirectory(prefix="fedrel-") as scratch:
            # Columns on disk: the input may be larger than memory.
            asked = ((TEST, replace(one, facts=())) for one in documents)
            corpus = build(asked, Path(scratch) / "input", ["NA"])
            if not len(corpus):
                return []
            inputs = tokenise(corpus, self._section, folder=Path(scratch) / "pieces")
            found = list(find(self.extractor, inputs, corpus.rows(TEST), self.relations, threshold))
        return sorted(found, key=lambda one: -one.probability)


def pair_options(section: DocumentData, corpus: DocumentCorpus) -> dict[str, Any]:
    """How pairs are to be chosen in new documents: as they were in those the model was trained on."""
    types = section.pair_types
    if section.format == "eog":  # whose files list their pairs one by one
        first = np.repeat(corpus.entity_starts[:-1], np.diff(corpus.pair_starts))
        ends = corpus.entity_type[corpus.pairs + first[:, None]]
        types = [(corpus.types[head], corpus.types[tail]) for head, tail in np.unique(ends, axis=0).tolist()]
    return {"pair_types": types, "directions": section.directions, "id_separator": section.id_separator}


def find(
    extractor: DocumentTransformer,
    inputs: DocumentInputs,
    rows: Ints,
    relations: Sequence[str],
    threshold: float = THRESHOLD,
) -> Iterator[Finding]:
    """What the extractor finds in some documents of a corpus, document by document."""
    import torch

    for part in slices(singles(rows, np.zeros_like(rows), rows), inputs.at_once):
        with torch.inference_mode():
            batch = inputs.batch(part)
            documents = extractor.documents(batch)
            likely = extractor.logits(*extractor.fuse(extractor.pairs(batch, documents))).sigmoid().numpy()
        bounds = batch.bags.tolist()
        for read in documents:
            view = inputs.corpus.view(int(part.rows[read.number]))
            asked, text = view.pairs[~view.left_out].tolist(), view.text
            own = likely[bounds[read.number] : bounds[read.number + 1]]
            for pair, relation in np.argwhere(own >= threshold).tolist():
                head, tail = asked[pair]
                yield Finding(
                    row=view.row,
                    document=view.id,
                    text=text,
                    head=_entity(view, head),
                    relation=relations[relation + 1],
                    tail=_entity(view, tail),
                    probability=float(own[pair, relation]),
                    evidence=_evidence(inputs, view, read, head, tail),
                )


def _entity(view: DocumentView, number: int) -> Found:
    mentions = slice(*view.mentions[number : number + 2].tolist())
    return Found(
        view.entity_ids[number],
        view.mention_names[mentions.start],
        view.entity_types[number],
        tuple((start, end) for start, end in view.mention_chars[mentions].tolist()),
    )


def _evidence(
    inputs: DocumentInputs, view: DocumentView, read: Read, head: int, tail: int
) -> tuple[Token, ...]:
    """The tokens that the pair's context is made of most (Eq. 4); what falls on markers and frame is no token's."""
    import torch

    from fedrel.extractors.localized import shared_attention

    with torch.inference_mode():
        shares = shared_attention(read.attention, torch.tensor([head]), torch.tensor([tail]))[0].numpy()
    words = inputs.words[inputs.starts[view.row] : inputs.starts[view.row + 1]]
    text, spans = view.text, view.tokens
    by_token = np.bincount(words[words >= 0], shares[words >= 0], len(spans))
    most = np.argsort(-by_token, kind="stable")[:SHOWN]
    return tuple(
        Token(text[start:end], start, end, float(by_token[token]))
        for token, (start, end) in zip(most.tolist(), spans[most].tolist(), strict=True)
    )
