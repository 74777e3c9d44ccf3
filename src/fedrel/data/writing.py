"""A stream of instances to columns on disk, in one pass and with little memory."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from fedrel.data.sentences import NA, Corpus, Instance, Mention, open_corpus
from fedrel.data.store import COLUMNS, column_path, write_index
from fedrel.data.text import Span, tokenise
from fedrel.errors import UserError
from fedrel.files import atomic_folder


class Writer:
    """Takes instances one at a time; keeps only the distinct words, entities, pairs, triples, sources and types."""

    def __init__(self, folder: Path, relations: Sequence[str]) -> None:
        self.rows = 0
        self._folder = folder
        self._column = {name: array(column.code) for name, column in COLUMNS.items()}
        self._column["starts"].append(0)
        self._column["text_starts"].append(0)
        self._token_total = self._text_total = 0
        self._words: defaultdict[str, int] = _numbering()
        self._entities: defaultdict[str, int] = _numbering()
        self._names: list[str] = []
        self._relations = {name: index for index, name in enumerate(relations)}
        self._sources: defaultdict[str, int] = _numbering()
        self._types: defaultdict[str, int] = _numbering()
        self._types[""] = 0
        # Keyed by two numbers in one (first << 32 | second): hundreds of thousands of tuples would be heavy.
        self._pairs: defaultdict[int, int] = _numbering()
        self._triples: defaultdict[int, int] = _numbering()

    def add(self, split: int, instance: Instance) -> None:
        """The next row. Readers check it, with file and line at hand; what slipped by is refused here."""
        column, text = self._column, instance.text
        spans = tokenise(text) if instance.tokens is None else instance.tokens
        ends = [end for _, end in spans]
        for name, mention in (("head", instance.head), ("tail", instance.tail)):
            column[name].append(self._first_token(mention, text, ends))
            column[f"{name}_span"].extend((mention.start, mention.end))
            column[f"{name}_type"].append(self._types[mention.type])
        relation = self._relations.get(instance.relation)
        if relation is None:
            raise UserError(f"instance {self.rows + 1}: the relation {instance.relation!r} is not in the map")

        column["tokens"].extend(map(self._words.__getitem__, _lower_words(text, spans)))
        self._token_total += len(spans)
        column["starts"].append(self._token_total)
        encoded = text.encode()
        column["text"].frombytes(encoded)
        self._text_total += len(encoded)
        column["text_starts"].append(self._text_total)
        digest = hashlib.blake2b(encoded, digest_size=8).digest()
        column["sentence"].append(int.from_bytes(digest, "little", signed=True))

        pair = self._pairs[self._entity(instance.head) << 32 | self._entity(instance.tail)]
        column["pair"].append(pair)
        column["relation"].append(relation)
        column["triple"].append(self._triples[pair << 32 | relation])
        column["source"].append(self._sources[instance.source])
        column["split"].append(split)
        column["expresses"].append(-1 if instance.expresses is None else instance.expresses)
        self.rows += 1

    def flush(self) -> None:
        """Move what is buffered to disk."""
        for name, values in self._column.items():
            with column_path(self._folder, name).open("ab") as file:
                file.write(values)
            del values[:]

    def finish(self) -> None:
        """Write the tables and seal the folder."""
        for name, keys in (("pairs", self._pairs), ("triples", self._triples)):
            self._column[name].extend(chain.from_iterable(divmod(key, 1 << 32) for key in keys))
        self._table("words", self._words)
        self._table("entities", self._entities)
        self._table("names", self._names)
        self._table("relations", self._relations)
        self._table("sources", self._sources)
        self._table("types", self._types)
        self.flush()
        write_index(self._folder)

    def _table(self, name: str, strings: Iterable[str]) -> None:
        encoded = [string.encode() for string in strings]
        self._column[f"{name}_text"].frombytes(b"".join(encoded))
        self._column[f"{name}_starts"].extend(accumulate(map(len, encoded), initial=0))

    def _entity(self, mention: Mention) -> int:
        index = self._entities[mention.id]
        if index == len(self._names):
            self._names.append(mention.name)
        return index

    def _first_token(self, mention: Mention, text: str, ends: list[int]) -> int:
        """The token that holds the mention's first character: the first one that ends after it."""
        if 0 <= mention.start < mention.end <= len(text):
            token = bisect_right(ends, mention.start)
            if token < len(ends):
                return token
        place = f"[{mention.start}, {mention.end}) of a sentence of {len(text)} characters"
        raise UserError(f"instance {self.rows + 1}: no token of {mention.name!r} at {place}")


def _numbering() -> defaultdict[Any, int]:
    """A dictionary that gives each new key the next number."""
    numbers: defaultdict[Any, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


def _lower_words(text: str, spans: Sequence[Span]) -> list[str]:
    lowered = text.lower()
    if len(lowered) == len(text):
        return [lowered[start:end] for start, end in spans]
    return [text[start:end].lower() for start, end in spans]  # a few characters, as İ, grow in lower case


def build(
    instances: Iterable[tuple[int, Instance]],
    folder: Path,
    relations: Sequence[str],
    progress: Callable[[int], None] | None = None,
) -> Corpus:
    """Write (split, instance) pairs to `folder` as columns, in one pass; it appears whole or not at all.

    `progress` is told now and then how many instances are in.
    """
    if not relations or relations[0] != NA:
        raise UserError(f"the first relation must be {NA!r}, found {list(relations[:1])}")
    with atomic_folder(folder) as part:
        writer = Writer(part, relations)
        for count, (split, instance) in enumerate(instances, 1):
            writer.add(split, instance)
            if count % 4096 == 0:
                writer.flush()
                if progress:
                    progress(count)
        writer.finish()
        if progress:
            progress(writer.rows)
    return open_corpus(folder)
