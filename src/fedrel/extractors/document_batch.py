"""Documents as the document extractor reads them: windows of pieces, mentions, entities, and pairs to ask about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedrel.extractors.batch import Batch
from fedrel.extractors.windows import Window


@dataclass(frozen=True, slots=True)
class DocumentBatch(Batch):
    """`D` documents in `W` windows, with `M` mentions of `E` entities and `P` pairs.

    What is a sentence in other batches is here a window (`words`, `starts`) or a pair (`head`, `tail`): entities
    by their numbers in the batch. Bag d is the pairs of document d. `labels` are [P, R - 1] floats, 1 for the
    relations that a pair has: `NA` says that it has none, and has no column. `rows` are the documents'.
    """

    windows: tuple[tuple[Window, ...], ...]  # of each document
    lengths: tuple[int, ...]  # [D], pieces of each document
    entities: tuple[int, ...]  # [D + 1], document d has the entities entities[d]:entities[d + 1]
    mentions: tuple[int, ...]  # [D + 1], likewise its mentions, by entity
    entity: torch.Tensor  # [M] int64, whose mention each is
    place: torch.Tensor  # [M] int64, where its opening marker is in its document
    pairs: np.ndarray  # [P] int64, the numbers that the corpus has the pairs under
