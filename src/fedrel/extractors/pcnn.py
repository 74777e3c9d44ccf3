"""PCNN: a convolution over word and position embeddings, pooled in three pieces around the two entities.

Zeng et al. 2015, *Distant Supervision for Relation Extraction via Piecewise Convolutional Neural Networks*.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedrel.errors import UserError
from fedrel.extractors.base import Extractor
from fedrel.extractors.batch import Batch
from fedrel.extractors.piecewise import convolve_and_pool, lay_out
from fedrel.extractors.rows import RowEmbedding


class PCNN(Extractor):
    """Sentences to vectors of `3 * filters` numbers, and those to relations.

    A token's input is its word's vector and one vector for its distance to the start of each entity, told
    apart up to `max_length` either way. The pieces are: up to and including the earlier entity's start, up to
    and including the later one's, the rest. A sentence's vector holds all filters' maxima over the first
    piece, then over the second, then over the third. Sentences may have any length: nothing is cut off.

    `vectors` [vocabulary_size, word_dimension] are the words' first vectors; those of a row of zeros, as of
    every word where no vectors are given, are drawn. `bias` is the classifier's: without it, its rows
    are the class vectors themselves.
    """

    def __init__(
        self,
        vocabulary_size: int,
        relations: int,
        *,
        generator: torch.Generator,
        word_dimension: int = 50,
        position_dimension: int = 5,
        filters: int = 230,
        window: int = 3,
        max_length: int = 120,
        dropout: float = 0.5,
        vectors: Tensor | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if window % 2 == 0:
            raise UserError(
                f"window is {window}, but must be odd", remedy="a window is centred on its token: take 3 or 5"
            )
        self.max_length, self.window, self.dropout = max_length, window, dropout
        self.words = RowEmbedding(_word_vectors(vocabulary_size, word_dimension, vectors, generator))
        distances = 2 * max_length + 1
        width = word_dimension + 2 * position_dimension
        self.head_positions = nn.Parameter(_xavier(distances, position_dimension, generator))
        self.tail_positions = nn.Parameter(_xavier(distances, position_dimension, generator))
        self.filters = nn.Parameter(_xavier(filters, window * width, generator))
        self.filters_bias = nn.Parameter(torch.zeros(filters))
        # nn.Linear's own initialisation would draw from torch's global generator.
        self.classifier = nn.Linear(3 * filters, relations, bias=bias, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            self.classifier.weight.copy_(_xavier(relations, 3 * filters, generator))
            if bias:
                self.classifier.bias.zero_()

    def encode(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """The vector of each sentence, [S, 3 * filters]."""
        words, inverse = self.words.distinct(batch.words)
        entities = torch.stack([batch.head, batch.tail])
        layout = lay_out(inverse, batch.starts, entities, reach=self.max_length, window=self.window)
        tables = (words, self.head_positions, self.tail_positions)
        return convolve_and_pool(tables, self.filters, self.filters_bias, layout)


def _word_vectors(size: int, dimension: int, given: Tensor | None, generator: torch.Generator) -> Tensor:
    drawn = torch.randn((size, dimension), generator=generator) / math.sqrt(dimension)
    if given is None:
        return drawn
    if given.shape != drawn.shape:
        raise UserError(
            f"the word vectors are {given.shape[1]} numbers of {given.shape[0]} words, "
            f"expected {dimension} numbers of {size} words",
            remedy="set word_dimension to the size of the vectors in the file, or choose another file",
        )
    return torch.where(given.any(dim=1, keepdim=True), given.to(drawn), drawn)


def _xavier(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator)
