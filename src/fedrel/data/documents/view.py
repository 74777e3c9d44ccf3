"""One document of a corpus: the parts of the columns that are its own, with nothing copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedrel.data.documents.columns import DocumentCorpus

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentView:
    """Document `row` of a corpus, all its numbers counted from its own beginning."""

    corpus: DocumentCorpus
    row: int

    @property
    def id(self) -> str:
        """What the corpus's makers call it."""
        return self.corpus.ids[self.row]

    @property
    def text(self) -> str:
        """All that characters are counted in."""
        return self.corpus.text[self._part(self.corpus.text_starts)].tobytes().decode()

    @property
    def sentences(self) -> Ints:
        """[sentences + 1], sentence s has the tokens sentences[s] to sentences[s + 1]."""
        return self._starts(self.corpus.token_starts, self.corpus.sentence_starts)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """[tokens, 2], the characters of each."""
        starts = self.corpus.token_starts
        part = self._part(self.corpus.sentence_starts)
        return self.corpus.tokens[starts[part.start] : starts[part.stop]]

    @property
    def words(self) -> list[str]:
        """The tokens as strings."""
        text = self.text
        return [text[start:end] for start, end in self.tokens.tolist()]

    @property
    def entity_ids(self) -> list[str]:
        """The entities' ids in the knowledge base."""
        return [self.corpus.entities[number] for number in self.corpus.entity_id[self._entities].tolist()]

    @property
    def entity_types(self) -> list[str]:
        """What kind of thing each entity is."""
        return [self.corpus.types[number] for number in self.corpus.entity_type[self._entities].tolist()]

    @property
    def mentions(self) -> Ints:
        """[entities + 1], entity e has the mentions mentions[e] to mentions[e + 1]."""
        return self._starts(self.corpus.mention_starts, self.corpus.entity_starts)

    @property
    def mention_entity(self) -> Ints:
        """[mentions], whose mention each is."""
        sizes = np.diff(self.mentions)
        return np.repeat(np.arange(len(sizes)), sizes)

    @property
    def mention_tokens(self) -> NDArray[np.int32]:
        """[mentions, 2], tokens [first, after); two entities may share a place (`A|B` in PubTator files)."""
        return self.corpus.mention_tokens[self._mentions]

    @property
    def mention_chars(self) -> NDArray[np.int32]:
        """[mentions, 2], characters [start, end)."""
        return self.corpus.mention_chars[self._mentions]

    @property
    def mention_names(self) -> list[str]:
        """What the annotators call each mention."""
        return [self.corpus.names[number] for number in self.corpus.mention_name[self._mentions].tolist()]

    @property
    def mention_sentence(self) -> NDArray[np.int32]:
        """[mentions], the sentence each stands in."""
        return self.corpus.mention_sentence[self._mentions]

    @property
    def pairs(self) -> NDArray[np.int32]:
        """[pairs, 2], head and tail, also of those that are left out."""
        return self.corpus.pairs[self._part(self.corpus.pair_starts)]

    @property
    def pair_numbers(self) -> Ints:
        """[pairs], the numbers that the corpus has them under."""
        part = self._part(self.corpus.pair_starts)
        return np.arange(part.start, part.stop)

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """[pairs], those neither trained on nor evaluated."""
        return self.corpus.left_out[self._part(self.corpus.pair_starts)].astype(np.bool_)

    @property
    def labels(self) -> NDArray[np.bool_]:
        """[pairs, relations], which relations each pair has; one without any has NA."""
        return self.corpus.labels(self.pair_numbers)

    @property
    def _entities(self) -> slice:
        return self._part(self.corpus.entity_starts)

    @property
    def _mentions(self) -> slice:
        starts = self.corpus.mention_starts
        return slice(int(starts[self._entities.start]), int(starts[self._entities.stop]))

    def _part(self, starts: Ints) -> slice:
        return slice(int(starts[self.row]), int(starts[self.row + 1]))

    def _starts(self, inner: Ints, outer: Ints) -> Ints:
        part = self._part(outer)
        starts: Ints = inner[part.start : part.stop + 1] - inner[part.start]
        return starts
