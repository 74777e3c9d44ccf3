"""The relations that a document extractor finds, with the tokens that it looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from fedrel.data.bags import singles, slices
from fedrel.extractors.document.context import shared_attention
from fedrel.extractors.findings import Finding, FoundEntity, Token

if TYPE_CHECKING:
    from fedrel.data.documents import DocumentView
    from fedrel.extractors.document.document_transformer import DocumentTransformer, Read
    from fedrel.extractors.document.marked_pieces import DocumentInputs


Ints = npt.NDArray[np.int64]

EVIDENCE = 10  # tokens that are named


def find(
    extractor: DocumentTransformer,
    inputs: DocumentInputs,
    rows: Ints,
    relations: Sequence[str],
    threshold: float,
) -> Iterator[Finding]:
    """The relations that the extractor finds in some documents of a corpus, document by document."""
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


def _entity(view: DocumentView, number: int) -> FoundEntity:
    mentions = slice(*view.mentions[number : number + 2].tolist())
    return FoundEntity(
        view.entity_ids[number],
        view.mention_names[mentions.start],
        view.entity_types[number],
        tuple((start, end) for start, end in view.mention_chars[mentions].tolist()),
    )


def _evidence(
    inputs: DocumentInputs, view: DocumentView, read: Read, head: int, tail: int
) -> tuple[Token, ...]:
    """The tokens with the largest shares in the pair's context (Eq. 4); markers and frame are no tokens."""
    with torch.inference_mode():
        shares = shared_attention(read.attention, torch.tensor([head]), torch.tensor([tail]))[0].numpy()
    words = inputs.words[inputs.starts[view.row] : inputs.starts[view.row + 1]]
    text, spans = view.text, view.tokens
    by_token = np.bincount(words[words >= 0], shares[words >= 0], len(spans))
    most = np.argsort(-by_token, kind="stable")[:EVIDENCE]
    return tuple(
        Token(text[start:end], start, end, float(by_token[token]))
        for token, (start, end) in zip(most.tolist(), spans[most].tolist(), strict=True)
    )
