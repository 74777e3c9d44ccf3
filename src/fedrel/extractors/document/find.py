"""A trained document extractor, and the relations it finds in documents, with the tokens it looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import singles, slices
from fedrel.evaluation.document_metrics import THRESHOLD

if TYPE_CHECKING:
    from fedrel.data.documents import DocumentView
    from fedrel.extractors.document.marked_pieces import DocumentInputs
    from fedrel.extractors.document.network import DocumentTransformer, Read


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

    from fedrel.extractors.document.context import shared_attention

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
