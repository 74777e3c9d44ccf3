"""Whatever text a user has, as what a model reads: files, folders, patterns, standard input, in any known form.

A file's first line tells its form: JSON lines with `h` and `t`, sentences with marked entities, PubTator, DocRED's
JSON, or raw text. A model of sentences reads documents sentence by sentence, wherever one mentions both entities of
a pair. A model of documents reads a sentence as a short document. In raw text, a knowledge base says which names to
look for.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from glob import has_magic, iglob
from pathlib import Path
from shutil import copyfileobj
from typing import Any

import numpy as np

from fedrel.data.align import KnowledgeBase, Matcher, align
from fedrel.data.annotations import Document, Draft
from fedrel.data.annotations import Mention as DocumentMention
from fedrel.data.convert import document_of, sentences_of
from fedrel.data.readers.docred import DocRED
from fedrel.data.readers.opennre import JSONLines
from fedrel.data.readers.pubtator import PubTator
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance
from fedrel.data.text import Span, segment
from fedrel.data.text_files import files_in, lines, paragraphs, stem
from fedrel.errors import UserError
from fedrel.files import ScratchFolder
from fedrel.inference.model import parse

STDIN = "-"
_DOCUMENT = 20_000  # characters; a longer file of raw text is read as several documents, cut at blank lines
_PUBTATOR = re.compile(r"\S*\|[ta]\|")
_NO_NAMES = (
    "give --kb, a table of the names to look for, or mark the entities (<e1>, <e2>; JSON lines; PubTator)"
)


@contextmanager
def opened(named: Sequence[str | Path]) -> Iterator[list[Path]]:
    """The files that are meant: those of folders and of patterns, too; `-` is standard input."""
    with ScratchFolder() as scratch:
        yield [file for one in map(str, named) for file in _files(one, Path(scratch))]


def _files(named: str, scratch: Path) -> list[Path]:
    path = Path(named)
    if named == STDIN:
        with (scratch / "standard input").open("wb") as file:
            copyfileobj(sys.stdin.buffer, file)
        return [scratch / "standard input"]
    found = files_in(path) if path.is_dir() else [path]
    if not path.exists() and has_magic(named):
        found = [Path(one) for one in sorted(iglob(named, recursive=True)) if Path(one).is_file()]  # noqa: PTH207
    if not found:
        kind = "the folder holds no file" if path.is_dir() else "no file has such a name"
        raise UserError(kind, file=named, hint="check the path")
    return found


def form_of(path: Path) -> str:
    """What a file holds: `sentences`, `marked`, `pubtator`, `docred` or `text`."""
    first = next((line.strip() for _, line in lines(path) if line.strip()), "")
    if first.startswith("["):
        return "docred"
    if first.startswith("{"):
        try:
            return "docred" if "vertexSet" in json.loads(first) else "sentences"
        except ValueError:
            return "sentences"  # its reader says what is wrong with it
    if _PUBTATOR.match(first):
        return "pubtator"
    return "marked" if "<e1" in first and "<e2" in first else "text"


def sentences_in(files: Sequence[Path], kb: KnowledgeBase | None) -> Iterator[Instance]:
    """The sentences of files, each with a pair of entities, for a model of sentences."""
    for path in files:
        match form_of(path):
            case "sentences":
                yield from JSONLines().read(path, labelled=False)
            case "marked":
                yield from _marked(path)
            case "text":
                yield from align([path], _needed(kb, path), na_rate=1.0, seed=0)
            case form:
                read = DocRED().read(path) if form == "docred" else PubTator().read(path, labelled=False)
                for document in read:
                    yield from sentences_of(replace(document, facts=()))


def documents_in(
    files: Sequence[Path], kb: KnowledgeBase | None, pairs: Mapping[str, Any]
) -> Iterator[Document]:
    """The documents of files, for a model of documents; `pairs` says which pairs it asks about."""
    matcher: Matcher | None = None
    for path in files:
        match form_of(path):
            case "docred":
                yield from DocRED().read(path, pair_types=pairs["pair_types"])
            case "pubtator":
                yield from PubTator().read(path, **pairs, labelled=False)
            case "text":
                base = _needed(kb, path)
                matcher = matcher or Matcher(
                    (n, entity) for entity, names in base.names.items() for n in names
                )
                yield from _with_names(path, base, matcher, pairs)
            case form:
                read = JSONLines().read(path, labelled=False) if form == "sentences" else _marked(path)
                for number, sentence in enumerate(read, 1):
                    yield of_sentence(sentence, f"{stem(path)}:{number}")


def with_marks(text: str, marks: Iterable[tuple[int, int, str]], pairs: Mapping[str, Any]) -> Document:
    """A text as a document with the entities that were marked in it: characters [start, end), and a type or "".

    Marks of one wording are one entity.
    """
    draft = Draft()
    for start, end, kind in marks:
        name = text[start:end]
        if not 0 <= start < end <= len(text) or not name.strip():
            raise UserError(f"the mark from {start} to {end} is not in the text", hint="Mark it again.")
        draft.mention(" ".join(name.split()), kind, DocumentMention(name, start, end))
    return _document(draft, "text", text, pairs)


def of_sentence(sentence: Instance, identity: str) -> Document:
    """A sentence as a document that is asked about its one pair."""
    document = document_of([replace(sentence, relation=NA)], identity)
    order = [entity.id for entity in document.entities]
    pair = [[order.index(sentence.head.id), order.index(sentence.tail.id)]]
    pairs = np.array(pair if len(order) == 2 else [], np.int32).reshape(-1, 2)
    return replace(document, pairs=pairs, left_out=np.zeros(len(pairs), np.bool_))


def _with_names(
    path: Path, kb: KnowledgeBase, matcher: Matcher, pairs: Mapping[str, Any]
) -> Iterator[Document]:
    """A file of raw text as a document, a long one as several, with the names that the knowledge base has."""
    parts = list(_parts(path))
    for number, text in enumerate(parts, 1):
        draft = Draft()
        for match in matcher.find(text):
            for entity in match.entities:
                mention = DocumentMention(text[match.start : match.end], match.start, match.end)
                draft.mention(entity, kb.types.get(entity, ""), mention)
        yield _document(draft, stem(path) if len(parts) == 1 else f"{stem(path)}:{number}", text, pairs)


def _parts(path: Path) -> Iterator[str]:
    held = ""
    for _, paragraph in paragraphs(path):
        if held.strip() and len(held) + len(paragraph) > _DOCUMENT:
            yield held
            held = ""
        held += paragraph
    if held.strip():
        yield held


def _document(draft: Draft, identity: str, text: str, pairs: Mapping[str, Any]) -> Document:
    whole: list[Span] = [(0, len(text))]
    chosen = {key: pairs[key] for key in ("pair_types", "directions") if key in pairs}
    return draft.document(identity, text, segment(text, whole, draft.spans, draft.handled), **chosen)


def _marked(path: Path) -> Iterator[Instance]:
    for number, line in lines(path):
        if line.strip():
            try:
                yield parse(line, number)
            except UserError as error:
                raise UserError(error.problem, file=path, line=number, hint=error.hint) from error


def _needed(kb: KnowledgeBase | None, path: Path) -> KnowledgeBase:
    if kb is None:
        problem = "is raw text, and it is not known which entities to look for"
        raise UserError(problem, file=path, hint=_NO_NAMES)
    return kb
