"""An extractor outside the package: the mean of a sentence's word vectors, beside those of its two entities."""

from __future__ import annotations

import torch
from pydantic import Field

from fedrel.extractors.base import Extractor, linear
from fedrel.extractors.row_tables import word_table
from fedrel.extractors.words import WordKind, WordSection


class BagOfWordsSection(WordSection):
    """The keys of `[extractor]`: those about words, which every extractor that reads words has, and our own."""

    kind: str = "bag-of-words"
    dropout: float = Field(0.5, ge=0, lt=1)


class BagOfWords(Extractor):
    """A sentence's vector is the mean of its words' vectors, then that of the head, then that of the tail."""

    def __init__(self, section, vocabulary_size, relations, generator, vectors):
        super().__init__()
        size, self.dropout = section.word_dimension, section.dropout
        self.words = word_table(vocabulary_size, size, generator, vectors, train=section.train_words)
        self.classifier = linear(3 * size, relations, bias=True, generator=generator)

    def encode(self, batch, generator=None):
        """Sentences lie end to end: sentence s is words[starts[s]:starts[s + 1]]."""
        values, place = self.words.distinct(batch.words)  # only the rows in use are read, trained and sent
        lengths = batch.starts.diff()
        sentence = torch.repeat_interleave(lengths)
        sums = values.new_zeros(len(lengths), values.shape[1]).index_add(0, sentence, values[place])
        first = batch.starts[:-1]
        entities = [values[place[first + entity]] for entity in (batch.head, batch.tail)]
        return torch.cat([sums / lengths[:, None], *entities], 1)


class BagOfWordsKind(WordKind[BagOfWordsSection]):
    """What makes it known by name; reading, saving and publishing come from `WordKind`."""

    name = "bag-of-words"
    section = BagOfWordsSection

    def network(self, section, vocabulary_size, relations, generator, vectors=None):
        """A new network, whose initial weights the generator draws."""
        return BagOfWords(section, vocabulary_size, relations, generator, vectors)
