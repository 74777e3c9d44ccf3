"""CoNLL04 (Roth and Yih 2004): a word or an entity a line, a blank line, then the relations, and a blank line.

A line has nine columns; the second is the entity's type or `O`, the third its number, the sixth its words, joined
by `/`. A relation is `head tail type`, with the numbers of two lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedrel.data.readers.marked import Marked, MarkedSentences, MarkedText, Relation
from fedrel.data.relations import RelationMap
from fedrel.data.text import join_tokens, unescaped
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_COLUMNS = 9
_OUTSIDE = "O"
_Block = list[tuple[int, list[str]]]


class CoNLL04(MarkedSentences):
    """CoNLL04's columns."""

    name = "conll04"
    version = 2

    def texts(self, path: Path, relations: RelationMap | None) -> Iterator[MarkedText]:
        """The sentences of a file."""
        for words, related in _sentences(path):
            with self.problems:
                yield self._marked(words, related, relations, path)

    def _marked(
        self, words: _Block, related: _Block, relations: RelationMap | None, path: Path
    ) -> MarkedText:
        first, _ = words[0]
        parts: list[list[str]] = []
        for line, columns in words:
            if not columns[5].strip("/"):
                raise UserError("a word is empty", file=path, line=line)
            words_of = [columns[5]] if columns[1] == _OUTSIDE else columns[5].split("/")
            parts.append(["," if word == "COMMA" else unescaped(word) for word in words_of if word])
        text, sentences = join_tokens([[word for part in parts for word in part]])
        [tokens] = sentences
        marked = MarkedText(words[0][1][0], text, path, sentences=sentences)
        done = 0
        for (line, columns), part in zip(words, parts, strict=True):
            start, end = tokens[done][0], tokens[done + len(part) - 1][1]
            done += len(part)
            if columns[1] != _OUTSIDE:
                with self.problems:
                    marked.mark(columns[2], Marked(text[start:end], columns[1], start, end), line)
        for line, columns in related:
            with self.problems:
                head, tail, name = columns
                name = self.relation(name, relations, path, line)
                marked.relate(Relation(name, head, tail), line)
        marked.id = f"{marked.id} (line {first})"
        return marked


def _sentences(path: Path) -> Iterator[tuple[_Block, _Block]]:
    """The lines of each sentence and those of its relations."""
    words: _Block = []
    related: _Block = []
    ended = False
    for number, line in lines(path):
        columns = line.split()
        if not columns:
            ended = bool(words)
        elif len(columns) == _COLUMNS:
            if ended:
                yield words, related
                words, related, ended = [], [], False
            words.append((number, columns))
        elif len(columns) == 3 and ended:
            related.append((number, columns))
        else:
            problem = f"expected {_COLUMNS} columns (a word) or, after a blank line, 3 (a relation)"
            raise UserError(f"{problem}, found {len(columns)}", file=path, line=number)
    if words:
        yield words, related
