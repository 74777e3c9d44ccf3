"""From files to a corpus of documents, built once: the same files, read the same way, are opened again."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedrel.data.document_writing import build_documents as build
from fedrel.data.documents import FORMAT, HANDLED, LOST, Document, DocumentCorpus, open_documents
from fedrel.data.hypernyms import Rule, as_listed, by_tree, filtered, read_tree
from fedrel.data.readers.documents import reader
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import TRAIN
from fedrel.data.text_files import UNREADABLE, stored, unreadable
from fedrel.errors import UserError
from fedrel.files import cache_folder

_log = logging.getLogger(__name__)


def load(
    files: Sequence[tuple[int, Path]],
    format: str,
    *,
    options: Mapping[str, Any] | None = None,
    relations: RelationMap | None = None,
    not_include: Sequence[Path] = (),
    mesh: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> DocumentCorpus:
    """The corpus of (split, file) pairs in one format, from the cache if it is there.

    `options` are the reader's own. Without `relations` the training files' are taken, in alphabetical order
    (all files', where none is for training). Hypernym pairs are left out that EoG files list (`not_include`),
    or that a MeSH tree tells (`mesh`). What readers had to deal with is logged when the corpus is built.
    """
    options = dict(options or {})
    read = partial(reader(format), **options)
    more = [value for value in options.values() if isinstance(value, Path)]
    key = [
        FORMAT,
        format,
        {name: None if isinstance(value, Path) else value for name, value in sorted(options.items())},
        [(split, _digest(file)) for split, file in files],
        [_digest(file) for file in more],
        [_digest(file) for file in not_include],
        _digest(mesh) if mesh else None,
        relations and list(relations),
    ]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    folder = cache_folder() / f"documents-{name[:32]}"
    if folder.exists():
        try:
            return open_documents(folder)
        except UserError as error:
            _log.warning("%s", error)
            shutil.rmtree(folder, ignore_errors=True)
    if relations is None:
        training = [file for split, file in files if split == TRAIN] or [file for _, file in files]
        relations = relations_of(document for file in training for document in read(file))
    rules: list[Rule] = [as_listed(not_include)] if not_include else []
    rules += [by_tree(read_tree(mesh))] if mesh else []
    corpus = build(_documents(files, partial(read, relations=relations), rules), folder, relations, progress)
    for name, count in corpus.counts().items():
        if count:
            _log.log(logging.WARNING if name in LOST else logging.INFO, "%d %s", count, HANDLED[name])
    return corpus


def relations_of(documents: Iterable[Document]) -> RelationMap:
    """The relations that occur, by name: for a corpus that comes without a map."""
    return RelationMap(sorted({fact.relation for document in documents for fact in document.facts}))


def _documents(
    files: Iterable[tuple[int, Path]], read: Callable[[Path], Iterator[Document]], rules: Iterable[Rule]
) -> Iterator[tuple[int, Document]]:
    for split, file in files:
        documents = read(file)
        for rule in rules:
            documents = filtered(documents, rule)
        for document in documents:
            yield split, document


def _digest(path: Path) -> str:
    try:
        with stored(path) as content:
            return hashlib.sha256(content.read()).hexdigest()
    except UNREADABLE as error:
        raise unreadable(path, error) from error
