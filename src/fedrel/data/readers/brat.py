"""brat's standoff files: `.txt` with the text and `.ann` with what is marked in it, in one folder.

`T1 <tab> Drug 0 7 <tab> Aspirin` is a mention, `R1 <tab> Treats Arg1:T1 Arg2:T2` a relation,
`N1 <tab> Reference T1 MESH:D001241 <tab> aspirin` links a mention to a knowledge base, and `* <tab> Equiv T1 T3`
says that two are the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fedrel.data.annotations import Document
from fedrel.data.readers import Reader
from fedrel.data.readers.marked import (
    PARTED,
    Marked,
    MarkedDocuments,
    MarkedSentences,
    MarkedText,
    Relation,
    split_ids,
)
from fedrel.data.relations import RelationMap
from fedrel.data.text_files import files_in, lines, whole_text
from fedrel.errors import UserError

_PLACES = r"\d+ \d+(?:;\d+ \d+)*"
_MENTION = re.compile(rf"(T\S+)\t(\S+) ({_PLACES})\t(.*)")
_RELATION = re.compile(r"(R\S+)\t(\S+) [^\s:]+:(\S+) [^\s:]+:(\S+)\s*")
_LINK = re.compile(r"(N\S+)\t\S+ (\S+) (\S+)(?:\t.*)?")
_EQUAL = re.compile(r"\*\t\S+((?: \S+)+)\s*")
_UNTYPED = "Entity"  # what a mention is called whose type is not known: brat needs one
_UNUSED = {"E": "events", "A": "attributes", "M": "attributes", "#": "notes of annotators"}


class Brat(MarkedSentences):
    """brat's files as sentences: every pair of mentions in one sentence."""

    name = "brat"
    version = 2

    def texts(self, path: Path, relations: RelationMap | None) -> Iterator[MarkedText]:
        """The texts of a folder; ids are not split."""
        return _texts(path, self, relations, "")


class BratDocuments(MarkedDocuments):
    """brat's files as documents: mentions with one id, or said to be the same, are one entity."""

    name = "brat-documents"
    version = 2

    def texts(self, path: Path, relations: RelationMap | None, id_separator: str) -> Iterator[MarkedText]:
        """The texts of a folder."""
        return _texts(path, self, relations, id_separator)

    def write(self, rows: Iterable[Document], path: Path) -> None:
        """Write two files a document; facts are stated of each entity's first mention."""
        path.mkdir(parents=True)
        for row in rows:
            marks: list[str] = []
            first: dict[int, str] = {}
            for number, entity in enumerate(row.entities):
                first[number] = f"T{len(marks) // 2 + 1}"
                for mention in entity.mentions:
                    key = len(marks) // 2 + 1
                    name = " ".join(row.text[mention.start : mention.end].split())
                    marks.append(f"T{key}\t{entity.type or _UNTYPED} {mention.start} {mention.end}\t{name}")
                    marks.append(f"N{key}\tReference T{key} {entity.id}\t{name}")
            for number, fact in enumerate(row.facts, 1):
                marks.append(f"R{number}\t{fact.relation} Arg1:{first[fact.head]} Arg2:{first[fact.tail]}")
            stem = _file_name(path, row.id)
            stem.parent.mkdir(parents=True, exist_ok=True)
            Path(f"{stem}.txt").write_text(row.text, encoding="utf-8", newline="")
            Path(f"{stem}.ann").write_text("".join(f"{mark}\n" for mark in marks), encoding="utf-8")


def _file_name(folder: Path, identity: str) -> Path:
    """Where a document is written, without the ending; its id must lead to a new file below the folder."""
    stem = folder / identity
    plain = Path(os.path.normpath(stem)) == stem and stem.is_relative_to(folder) and stem != folder
    if not plain or "\0" in identity or stem.name.startswith(".") or Path(f"{stem}.txt").exists():
        problem = f"the document's id {identity!r} is no name for a file, or that of another document"
        raise UserError(problem, hint="choose another format, or give every document an id of its own")
    return stem


def _texts(
    folder: Path, reader: Reader, relations: RelationMap | None, separator: str
) -> Iterator[MarkedText]:
    files = [file for file in files_in(folder) if file.suffix == ".ann"]
    if not files:
        problem = "expected .ann files in it, each beside its .txt, found none"
        raise UserError(problem, file=folder, hint="check the path")
    for file in files:
        with reader.problems:
            name = file.relative_to(folder).as_posix().removesuffix(".ann")
            yield _marked(file, name, reader, relations, separator)


def _marked(
    file: Path, name: str, reader: Reader, relations: RelationMap | None, separator: str
) -> MarkedText:
    source = file.with_suffix(".txt")
    if not source.exists():
        raise UserError(f"there is no {source.name} for it", file=file, hint="put the text beside it")
    text = whole_text(source)  # as it is: brat counts both characters of a Windows line end
    if not text.strip():
        raise UserError("the text is empty", file=source)
    marked = MarkedText(name, text, file)
    later: list[tuple[int, str]] = []
    for number, line in lines(file):
        if line.startswith("T"):
            with reader.problems:
                _add_mention(marked, line, number, reader)
        elif line.strip():
            later.append((number, line))
    for number, line in later:
        with reader.problems:
            _add_rest(marked, line, number, reader, relations, separator)
    return marked


def _add_mention(marked: MarkedText, line: str, number: int, reader: Reader) -> None:
    match = _MENTION.fullmatch(line)
    if match is None:
        problem = f"expected a mention as T1, type and places, and words, found {line!r}"
        raise marked.error(problem, number, "tabs separate the three, as in T1<tab>Drug 0 7<tab>Aspirin")
    key, kind, places, words = match.groups()
    numbers = [int(one) for one in re.findall(r"\d+", places)]
    start, end = numbers[0], numbers[-1]
    if len(numbers) > 2:
        reader.problems.note(PARTED)
        words = marked.text[start:end]
    marked.mark(key, Marked(words, kind, start, end), number)


def _add_rest(
    marked: MarkedText,
    line: str,
    number: int,
    reader: Reader,
    relations: RelationMap | None,
    separator: str,
) -> None:
    if match := _RELATION.fullmatch(line):
        _, name, head, tail = match.groups()
        name = reader.relation(name, relations, marked.file, number)
        marked.relate(Relation(name, head, tail), number)
    elif match := _LINK.fullmatch(line):
        for identity in split_ids(match[3], separator):
            _link(marked, [match[2]], identity, number)
    elif match := _EQUAL.fullmatch(line):
        keys = match[1].split()
        known = [one for key in keys if key in marked.mentions for one in marked.mentions[key].ids]
        _link(marked, keys, known[0] if known else f"{marked.id}:{keys[0]}", number)
    elif line[0] in _UNUSED:
        reader.problems.note(f"{_UNUSED[line[0]]} of brat, which are not read", left_out=True)
    else:
        problem = f"expected a line of brat's (T, R, N, E, A, M, # or *), found {line!r}"
        raise marked.error(problem, number, "tabs separate the columns")


def _link(marked: MarkedText, keys: list[str], identity: str, number: int) -> None:
    for key in keys:
        if key not in marked.mentions:
            raise marked.error(f"{identity!r} is said of {key!r}, which is no mention", number)
        mention = marked.mentions[key]
        if identity not in mention.ids:
            marked.mentions[key] = replace(mention, ids=(*mention.ids, identity))
