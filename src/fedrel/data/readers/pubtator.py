"""PubTator: a title line, an abstract line, then mentions and relations, tab-separated (CDR, CHR, GDA, BioRED).

A mention has id, start, end, text, type and knowledge base id (`-1`: it has none); a relation has id, type and
two knowledge base ids, and in BioRED whether it is `Novel`, which is kept as the fact's attribute. Offsets count
the characters of the title, one separator and the abstract.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedrel.data.annotations import Directions, Document, Draft, Mention, PairTypes, agree
from fedrel.data.readers import Reader
from fedrel.data.readers.marked import split_ids
from fedrel.data.relations import RelationMap
from fedrel.data.text import Span, segment
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_TEXT = re.compile(r"([^|\t]+)\|([ta])\|(.*)")


class PubTator(Reader):
    """PubTator's lines."""

    name = "pubtator"
    unit = "documents"

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        pair_types: PairTypes | None = None,
        directions: Directions = "both",
        id_separator: str = "|",
        labelled: bool = True,
    ) -> Iterator[Document]:
        """The documents of a file; `pair_types` and `directions` choose the pairs (see `annotations.candidates`).

        `id_separator` joins the ids of several entities that one mention names (`|` in CDR and GDA, `,` in BioRED).
        If it is empty, ids are not split: CHR's `HMDB:1|CHEBI:2` are two names of one chemical. With
        `labelled=False`, for text to predict on, relations are not read.
        """
        options = _Options(self, path, relations, pair_types, directions, id_separator, labelled)
        current: _Article | None = None
        for number, line in lines(path):
            if not line.strip():
                continue
            opening = _TEXT.fullmatch(line)
            if opening and opening[2] == "t":
                if current:
                    with self.problems:
                        yield current.document()
                current = _Article(options, opening[1], number, opening[3])
                continue
            with self.problems:
                if opening:
                    if current is None or current.id != opening[1]:
                        hint = f"put the line {opening[1]}|t|... right above it"
                        problem = f"the abstract of {opening[1]} comes before its title"
                        raise options.error(problem, number, hint)
                    current.add_abstract(opening[3], number)
                else:
                    identity, *columns = line.split("\t")
                    if current is None or current.id != identity:
                        among = f", among those of {current.id}" if current else ""
                        problem = (
                            f"an annotation of document {identity!r} before its title and abstract{among}"
                        )
                        hint = f"put the lines {identity}|t|... and {identity}|a|... above it"
                        raise options.error(problem, number, hint)
                    current.add(columns, number)
        if current:
            with self.problems:
                yield current.document()

    def write(self, rows: Iterable[Document], path: Path) -> None:
        """Write a title and no abstract a document; line ends in the text become spaces."""
        with path.open("w", encoding="utf-8") as file:
            for row in rows:
                text = "".join(" " if character.isspace() else character for character in row.text)
                file.write(f"{row.id}|t|{text}\n")
                for entity in row.entities:
                    for one in entity.mentions:
                        name = text[one.start : one.end]
                        cells = [row.id, str(one.start), str(one.end), name, entity.type, entity.id]
                        file.write("\t".join(cells) + "\n")
                for fact in row.facts:
                    ends = [row.entities[fact.head].id, row.entities[fact.tail].id]
                    cells = [row.id, fact.relation, *ends, *([fact.attribute] if fact.attribute else [])]
                    file.write("\t".join(cells) + "\n")
                file.write("\n")


@dataclass(frozen=True, slots=True)
class _Options:
    reader: PubTator
    file: Path
    relations: RelationMap | None
    pair_types: PairTypes | None
    directions: Directions
    id_separator: str
    labelled: bool

    def error(self, problem: str, line: int, hint: str = "") -> UserError:
        return UserError(problem, file=self.file, line=line, hint=hint)


@dataclass(slots=True)
class _Article:
    """The lines of one document, until they are complete."""

    options: _Options
    id: str
    line: int
    title: str
    abstract: str | None = None
    draft: Draft = field(default_factory=Draft)
    mentions: list[tuple[int, Sequence[str]]] = field(default_factory=list)
    relations: list[tuple[int, Sequence[str]]] = field(default_factory=list)

    def add_abstract(self, text: str, line: int) -> None:
        if self.abstract is not None or self.mentions or self.relations:
            raise self.options.error(f"expected one abstract of {self.id}, right after its title", line)
        self.abstract = text

    def add(self, columns: Sequence[str], line: int) -> None:
        """A line of annotation, without the document's id."""
        if len(columns) >= 4 and columns[0].isdecimal() and columns[1].isdecimal():
            self.mentions.append((line, columns))
        elif len(columns) >= 3 and not columns[0].isdecimal():
            if self.options.labelled:
                self.relations.append((line, columns))
        else:
            problem = (
                "expected a mention (id, start, end, text, type, knowledge base id) or a relation "
                f"(id, type, two knowledge base ids), found {len(columns) + 1} columns"
            )
            raise self.options.error(problem, line, "separate the columns by tabs")

    def document(self) -> Document:
        """The document that the lines describe."""
        text = self.title if self.abstract is None else f"{self.title} {self.abstract}"
        if not text.strip():
            raise self.options.error(
                f"document {self.id} is empty", self.line, "remove it, or give it a text"
            )
        problems = self.options.reader.problems
        for line, columns in self.mentions:
            with problems:
                self._add_mention(text, columns, line)
        for line, columns in self.relations:
            with problems:
                self._add_relation(columns, line)
        parts: list[Span] = [(0, len(self.title)), (len(self.title), len(text))]
        sentences = segment(text, parts, self.draft.spans, self.draft.handled)
        return self.draft.document(
            self.id, text, sentences, pair_types=self.options.pair_types, directions=self.options.directions
        )

    def _add_mention(self, text: str, columns: Sequence[str], line: int) -> None:
        first, after, name, kind, *rest = columns
        start, end = int(first), int(after)
        if "|" in kind:  # ids are joined so, types never
            problem = f"expected a type after {name!r}, found {kind!r}"
            raise self.options.error(problem, line, "give id, start, end, text, type and knowledge base id")
        if not agree(name, text[start:end], self.draft.handled):
            raise self.options.error(*_misplaced(name, text, start, end, line))
        identities = split_ids(rest[0] if rest else "", self.options.id_separator)
        for identity in identities:
            self.draft.mention(identity, kind, Mention(name, start, end))
        self.draft.handled["unlinked_mentions"] += not identities

    def _add_relation(self, columns: Sequence[str], line: int) -> None:
        name, head, tail, *rest = (column.strip() for column in columns)
        options = self.options
        relation = options.reader.relation(name, options.relations, options.file, line)
        for identity in (head, tail):
            if not self.draft.knows(identity):
                problem = f"the relation {name} names {identity!r}, which document {self.id} never mentions"
                raise options.error(problem, line, self._hint(identity))
        self.draft.fact(head, relation, tail, attribute=rest[0] if rest else "")

    def _hint(self, identity: str) -> str:
        """What to do about an id that a relation names and no mention has."""
        separator = self.options.id_separator
        columns = [rest[0].strip() for _, (_, _, _, _, *rest) in self.mentions if rest]
        if identity in columns:
            return f"a mention has this id, which id_separator = {separator!r} splits: set id_separator to ''"
        for column in columns:
            for other in "|,;":
                if identity in (part.strip() for part in column.split(other)):
                    return f"it is part of the id {column!r}: set id_separator to {other!r}"
        return "give the entity a mention, or remove the relation"


def _misplaced(name: str, text: str, start: int, end: int, line: int) -> tuple[str, int, str]:
    """The error for a mention whose name is not at its offsets: what is there, and where the name is."""
    found = repr(text[start:end]) if start < len(text) else f"the end of a text of {len(text)} characters"
    around = {text.find(name, start), text.rfind(name, 0, start + len(name))} - {-1}
    if name.strip() and around:
        nearest = min(around, key=lambda place: abs(place - start))
        hint = f"it is at [{nearest}, {nearest + len(name)})"
    else:
        hint = "offsets count characters from 0, over the title, one separator and the abstract"
    return f"expected {name!r} at [{start}, {end}), found {found}", line, hint
