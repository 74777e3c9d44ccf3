"""PCNN: a convolution over word and position embeddings, pooled in three pieces around the two entities.

Zeng et al. 2015, *Distant Supervision for Relation Extraction via Piecewise Convolutional Neural Networks*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedrel.errors import UserError
from fedrel.extractors.base import Extractor, Fitted, empty_linear
from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import HEADS
from fedrel.extractors.objective import PLAIN, DPSteps, Objective
from fedrel.extractors.pcnn import NOISED_HEADS
from fedrel.extractors.pcnn.plain_pooling import convolve_and_pool, lay_out
from fedrel.extractors.row_tables import word_table
from fedrel.tensors import compiling
from fedrel.tensors.weights import Tensors

if TYPE_CHECKING:
    from fedrel.extractors.pcnn.kernels.sentence_vectors import ScoringTable


class PCNN(Extractor):
    """Sentences to vectors of `3 * filters` numbers, and those to relations.

    A token's input is its word's vector and one vector for its distance to the start of each entity, clipped to
    plus or minus `max_length`. The three pieces are: up to and including the start of the earlier entity, up to and
    including that of the later one, and the rest. A sentence's vector has all filters' maxima over the first piece,
    then over the second, then over the third. Sentences may have any length: nothing is cut off.

    `vectors` [vocabulary_size, word_dimension] are the words' initial vectors; where a row is zero, or no vectors
    are given, they are drawn. Without `train_words` they stay as they are. `bias` is the classifier's: without it,
    the classifier's rows are the class vectors themselves.

    Where numba is installed, our kernels compute all this in float32 on the CPU. Elsewhere, and for comparison,
    `plain_pooling` computes it in plain PyTorch.
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
        vectors: npt.NDArray[np.float32] | Tensor | None = None,
        train_words: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if window % 2 == 0:
            raise UserError(
                f"window is {window}, but must be odd", hint="a window is centred on its token: take 3 or 5"
            )
        self.max_length, self.window, self.dropout = max_length, window, dropout
        self.words = word_table(vocabulary_size, word_dimension, generator, vectors, train=train_words)
        distances = 2 * max_length + 1
        width = word_dimension + 2 * position_dimension
        self.head_positions = nn.Parameter(_xavier(distances, position_dimension, generator))
        self.tail_positions = nn.Parameter(_xavier(distances, position_dimension, generator))
        self.filters = nn.Parameter(_xavier(filters, window * width, generator))
        self.filters_bias = nn.Parameter(torch.zeros(filters))
        self.classifier = empty_linear(3 * filters, relations, bias=bias)
        with torch.no_grad():
            self.classifier.weight.copy_(_xavier(relations, 3 * filters, generator))
            if bias:
                self.classifier.bias.zero_()
        self._table: ScoringTable | None = None

    def encode(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """The vector of each sentence, [S, 3 * filters].

        Without gradients, words times filters are cached as long as the weights stay the same.
        """
        if not self.has_kernels:
            words, inverse = self.words.distinct(batch.words)
            entities = torch.stack([batch.head, batch.tail])
            layout = lay_out(inverse, batch.starts, entities, reach=self.max_length, window=self.window)
            tables = (words, self.head_positions, self.tail_positions)
            return convolve_and_pool(tables, self.filters, self.filters_bias, layout)
        if torch.is_grad_enabled():
            from fedrel.extractors.pcnn.kernels.sentence_vectors import encode

            return encode(self, batch)
        if self._table is None:
            from fedrel.extractors.pcnn.kernels.sentence_vectors import ScoringTable

            self._table = ScoringTable()
        return self._table.encode(self, batch, self._state())

    def can_fit(self, head: str) -> bool:
        """Whether `fit` can be used: kernels can run, nothing but words is frozen, and no correction has begun."""
        dense = (self.head_positions, self.tail_positions, self.filters, self.filters_bias)
        trained = all(weight.requires_grad for weight in (*dense, *self.classifier.parameters()))
        return head in HEADS and trained and not self.words.is_corrected and self.has_kernels

    def fit(
        self,
        batch: Batch,
        orders: Sequence[npt.NDArray[np.int64]],
        *,
        batch_size: int,
        lr: float,
        weight_decay: float,
        seed: int,
        objective: Objective = PLAIN,
    ) -> Fitted:
        """Train on an objective, as its head and `SGD` do, but many times as fast.

        `orders` are the orders of the bags, one for each epoch; a step takes `batch_size` of them, the last one of
        an epoch what is left. Its loss is the mean over what the head reads: sentences, those chosen, or bags.
        `seed` is that of the generator that `read` would be given: the same units are dropped.
        """
        from fedrel.extractors.pcnn.kernels.fitting import fit

        fitted = fit(self, batch, orders, batch_size, lr, weight_decay, seed, objective)
        torch.autograd.graph.increment_version(list(self._weights.values()))  # kernels write past autograd
        return fitted

    def can_fit_with_noise(self, head: str) -> bool:
        """For heads that train on single sentences: all of a bag, or its best."""
        return head in NOISED_HEADS and self.can_fit(head)

    def fit_with_noise(
        self,
        batch: Batch,
        steps: DPSteps,
        *,
        lr: float,
        weight_decay: float,
        seed: int,
        objective: Objective = PLAIN,
    ) -> Fitted:
        """`fit` with DP-SGD: an example is a sentence, each a bag of its own, or the best sentence of a bag."""
        from fedrel.extractors.pcnn.kernels.dp_training import fit_with_noise

        fitted, _ = fit_with_noise(self, batch, steps, lr, weight_decay, seed, objective)
        torch.autograd.graph.increment_version(list(self._weights.values()))
        return fitted

    @property
    def reads_separately(self) -> bool:
        """Kernels sum up each sentence by itself."""
        return self.has_kernels

    def fit_several(
        self,
        batch: Batch,
        orders: Sequence[Sequence[npt.NDArray[np.int64]]],
        *,
        batch_size: int,
        lr: float,
        weight_decay: float,
        seeds: Sequence[int],
        objective: Objective = PLAIN,
    ) -> list[tuple[Fitted, Tensors]]:
        """`fit` and `update` for several sites in one call of the kernels."""
        from fedrel.extractors.pcnn.kernels.fitting import fit_several

        assert self._base is not None, "`begin` comes first"
        trained = fit_several(self, self._base, batch, orders, batch_size, lr, weight_decay, seeds, objective)
        return [(fitted, {name: tensors[name] for name in self._weights}) for fitted, tensors in trained]

    @property
    def has_kernels(self) -> bool:
        """In float32 on the CPU, where numba is installed."""
        return self.filters.dtype is torch.float32 and self.filters.is_cpu and compiling.has_numba()

    def _state(self) -> object:
        """A value that changes whenever a weight of the encoder does; None if that cannot be told."""
        if self.words.is_corrected:
            return None
        weights = (
            self.words.weight,
            self.head_positions,
            self.tail_positions,
            self.filters,
            self.filters_bias,
        )
        return self.words.scale, *((weight.data_ptr(), weight._version) for weight in weights)


def _xavier(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator)
