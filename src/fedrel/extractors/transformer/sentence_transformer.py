"""The sentence transformer: an encoder of word pieces, a vector from each entity's states, a linear classifier.

Three published poolings of the last layer's states: FedED's `cls_sum`, [CLS] and the sums over the pieces of
each entity (Eq. 1); FedCMC's `sum`, the same without [CLS] (Eq. 1); and `max`, the largest over the pieces of
each entity in every dimension (Lazy MIL, appendix A).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from fedrel.extractors.base import empty_linear
from fedrel.extractors.batches import Batch, PieceBatch
from fedrel.extractors.transformer import TransformerSection
from fedrel.extractors.transformer.encoder import encoder
from fedrel.extractors.transformer.encoder_loading import (
    add_markers,
    load_encoder,
    load_tokeniser,
    marker_ids,
)
from fedrel.extractors.transformer.pretrained import (
    FrozenWords,
    Pretrained,
    TrainedWords,
    add_lora,
    seed_of,
    with_markers,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


def sentence_transformer(
    section: TransformerSection, relations: int, generator: torch.Generator
) -> SentenceTransformer:
    """A new extractor over the encoder that a section names; weights that the encoder does not have are drawn."""
    tokeniser = load_tokeniser(section.encoder)
    fresh = add_markers(tokeniser) if section.marks else []
    model = load_encoder(section.encoder, section.encoder_dropout)
    return SentenceTransformer(model, tokeniser, fresh, section, relations, generator)


class SentenceTransformer(Pretrained):
    """Sentences to vectors of two or three times the encoder's width, and those to relations.

    All of it is trained; with `frozen_layers`, only the layers above them; with `lora_rank`, only low-rank updates
    of the layers above, and the markers if no layer is frozen. `fresh` are the ids of markers that the encoder has
    no vectors for.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokeniser: PreTrainedTokenizerFast,
        fresh: Sequence[int],
        section: TransformerSection,
        relations: int,
        generator: torch.Generator,
    ) -> None:
        own = cast(nn.Embedding, model.get_input_embeddings()).weight.detach()
        table = with_markers(own, fresh, generator)
        words: TrainedWords | FrozenWords
        if section.frozen_layers or section.lora_rank:
            markers = marker_ids(tokeniser) if section.marks else []
            words = FrozenWords(table, markers, train_markers=not section.frozen_layers)
        else:
            words = TrainedWords(table)
        super().__init__(
            tokeniser,
            words,
            encoder(model, section.frozen_layers),
            keeps=section.frozen_layers > 0,
            adapted=section.lora_rank > 0,
        )
        self.dropout, self.pooling = section.dropout, section.pooling
        if section.lora_rank:
            add_lora(model, section.lora_rank, section.frozen_layers, generator)
        self._runs = 3 if section.pooling == "cls_sum" else 2
        self.classifier = empty_linear(self._runs * self.encoder.width, relations, bias=section.biased)
        with torch.no_grad():
            nn.init.xavier_uniform_(self.classifier.weight, generator=generator)
            if section.biased:
                self.classifier.bias.zero_()
        self.eval()

    def encode(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """The vector of each sentence, [S, 2 d] or [S, 3 d]; with a generator, under the encoder's dropout."""
        starts, seed = batch.starts.tolist(), seed_of(generator)
        states = self._enter(batch.words, starts, seed)
        asked, run = cast(PieceBatch, batch).runs(first=self.pooling == "cls_sum")
        read = self.encoder.read(states, starts, asked, seed)
        pooled = read.new_zeros((self._runs * len(batch.head), read.shape[1]))
        if self.pooling == "max":
            index = run[:, None].expand_as(read)
            pooled = pooled.scatter_reduce(0, index, read, "amax", include_self=False)
        else:
            pooled = pooled.index_add(0, run, read)
        return pooled.view(len(batch.head), -1)
