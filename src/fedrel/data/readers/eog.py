"""EoG's format, which ATLOP reads: a line a document, with its sentences and 17 columns for each pair.

A line is the document's id, its sentences joined by `|` with tokens joined by spaces, and for each pair its label
(`1:CID:2`, `1:NR:2` for none, or `not_include`), direction, CROSS or NON-CROSS, the places of the two nearest
mentions, then for either entity its id, names, type, first tokens, tokens after it, and sentences. Tokens count
through the document; `|` separates names and `:` places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrel.data.annotations import Document, Draft, Mention, agree
from fedrel.data.readers import Reader
from fedrel.data.relations import RelationMap
from fedrel.data.text import Sentences, Span, join_tokens, with_whole_mentions
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_COLUMNS = 17
_LABEL = re.compile(r"([12]):([^:]+):([12])")
_NONE = "NR"
_LEFT_OUT = "not_include"
_COUNTING = "tokens count from 0 through the whole document, as spaces and | separate them"


class EoG(Reader):
    """EoG's lines."""

    name = "eog"
    unit = "documents"

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Document]:
        """The documents of a file, asked about the pairs that it lists; head is the first of a `1:CID:2`."""
        for number, line in lines(path):
            if line.strip():
                with self.problems:
                    yield self._document(_row(path, number, line), relations)

    def _document(self, row: Row, relations: RelationMap | None) -> Document:
        draft = Draft()
        text, sentences = join_tokens([sentence.split(" ") for sentence in row.text.split("|")])
        for entity in dict.fromkeys(entity for pair in row.pairs for entity in (pair.head, pair.tail)):
            _add_entity(row, entity, text, sentences, draft)
        asked: dict[tuple[str, str], bool] = {}
        for pair in row.pairs:
            head, relation, tail = _labelled(row, pair)
            if relation is not None:
                draft.fact(head, self.relation(relation, relations, row.file, row.line), tail)
            if head != tail:
                asked[head, tail] = asked.get((head, tail), True) and pair.label == _LEFT_OUT
        entities = draft.entities()
        number = {entity.id: number for number, entity in enumerate(entities)}
        order = sorted((number[head], number[tail], out) for (head, tail), out in asked.items())
        table = np.array(order, np.int32).reshape(-1, 3)
        return Document(
            row.id,
            text,
            with_whole_mentions(sentences, draft.spans, draft.handled),
            entities,
            table[:, :2],
            table[:, 2].astype(np.bool_),
            draft.facts(entities),
            +draft.handled,
        )


class Listed(NamedTuple):
    """A pair as the file lists it: its label, its head's six columns and its tail's."""

    label: str
    head: tuple[str, ...]
    tail: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One line."""

    file: Path
    line: int
    id: str
    text: str
    pairs: list[Listed]

    def error(self, problem: str, hint: str = "") -> UserError:
        """What is wrong with this line."""
        return UserError(problem, file=self.file, line=self.line, hint=hint)


def rows(path: Path) -> Iterator[Row]:
    """The lines of a file, cut into columns."""
    for number, line in lines(path):
        if line.strip():
            yield _row(path, number, line)


def left_out(path: Path) -> Iterator[tuple[str, str, str]]:
    """The pairs that a file labels `not_include`, as ids of document, head and tail."""
    for row in rows(path):
        for pair in row.pairs:
            if pair.label == _LEFT_OUT:
                yield row.id, pair.head[0], pair.tail[0]


def _row(path: Path, number: int, line: str) -> Row:
    identity, _, rest = line.partition("\t")
    text, *columns = rest.split("\t")
    if not text.strip("| "):
        hint = "remove the line, or give it a text"
        raise UserError(f"document {identity} is empty", file=path, line=number, hint=hint)
    if len(columns) % _COLUMNS:
        problem = f"expected {_COLUMNS} columns a pair after id and text, found {len(columns)}"
        raise UserError(problem, file=path, line=number, hint="separate all columns by tabs")
    listed = [columns[place : place + _COLUMNS] for place in range(0, len(columns), _COLUMNS)]
    pairs = [Listed(pair[0], tuple(pair[5:11]), tuple(pair[11:17])) for pair in listed]
    return Row(path, number, identity, text, pairs)


def _labelled(row: Row, pair: Listed) -> tuple[str, str | None, str]:
    head, tail = pair.head[0], pair.tail[0]
    if pair.label == _LEFT_OUT:
        return head, None, tail
    label = _LABEL.fullmatch(pair.label)
    if label is None or label[1] == label[3]:
        raise row.error(f"expected a label as 1:CID:2, 1:{_NONE}:2 or {_LEFT_OUT}, found {pair.label!r}")
    if label[1] == "2":
        head, tail = tail, head
    return head, None if label[2] == _NONE else label[2], tail


def _add_entity(row: Row, entity: tuple[str, ...], text: str, sentences: Sentences, draft: Draft) -> None:
    identity, names, kind, firsts, afters, _ = entity
    tokens = [token for sentence in sentences for token in sentence]
    if not names:
        problem = f"a pair names the entity {identity!r}, which has no mention"
        raise row.error(problem, "give the entity a mention, or remove the pair")
    places = list(zip(firsts.split(":"), afters.split(":"), strict=False))
    given = names.split("|")
    if len(given) != len(places) or firsts.count(":") != afters.count(":"):
        problem = f"the entity {identity!r} has {len(given)} names at {firsts!r} to {afters!r}"
        raise row.error(problem, "give each mention a name, a first token and the token after it")
    for name, (first, after) in zip(given, places, strict=True):
        place = f"{name!r} of {identity} at tokens [{first}, {after})"
        if not (first.isdecimal() and after.isdecimal() and int(first) < int(after) <= len(tokens)):
            raise row.error(f"expected {place}, found {len(tokens)} tokens in all", _COUNTING)
        whole = (tokens[int(first)][0], tokens[int(after) - 1][1])
        start, end = _narrowed(name, text, whole)
        if not agree(name, text[start:end], draft.handled):
            raise row.error(f"expected {place}, found {text[slice(*whole)]!r}", _COUNTING)
        draft.mention(identity, kind, Mention(name, start, end))


def _narrowed(name: str, text: str, span: Span) -> Span:
    """The part of a span that is the name, where the name is only part of its tokens, as `Ca` of `Ca2`."""
    start = text.find(name, *span)
    return span if start < 0 else (start, start + len(name))
