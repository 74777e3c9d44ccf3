"""Corpora on disk: opened by their folder, and built once for the same files read in the same way."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fedrel.data.documents import DocumentCorpus
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus, Kind, Progress
from fedrel.data.text_files import UNREADABLE, files_in, stored, unreadable
from fedrel.errors import UserError
from fedrel.files import cache_folder

_log = logging.getLogger(__name__)

KINDS: dict[str, type[Corpus]] = {kind.unit: kind for kind in (SentenceCorpus, DocumentCorpus)}


def open_corpus(folder: Path) -> Corpus:
    """Open a corpus, whose index says of which kind it is; raise a `UserError` if it is none, or damaged."""
    for kind in KINDS.values():
        if kind.index_in(folder).exists():
            return kind.open(folder)
    names = " nor ".join(kind.index_in(folder).name for kind in KINDS.values())
    problem = f"not a corpus, or a damaged one: it has neither {names}"
    raise UserError(problem, file=folder, hint="remove the folder and build it again")


def cached(
    kind: type[Kind],
    key: Sequence[Any],
    relations: Sequence[str] | Callable[[], Sequence[str]],
    rows: Callable[[], Iterable[tuple[int, Any]]],
    progress: Progress | None = None,
    finish: Callable[[Path], None] = lambda _: None,
) -> Kind:
    """A corpus of (split, row) pairs, from the cache if one was built under the same key.

    The key says all that shapes the corpus, in values that JSON can hold: the contents of the files
    (`digest`), how they are read, and the relations if they are given. Where the relations follow from the
    files, `relations` may be a function; like `rows`, it is called only if the corpus must be built. So is
    `finish`, with the folder, at the end.
    """
    name = hashlib.sha256(json.dumps([kind.format, *key], sort_keys=True).encode()).hexdigest()
    folder = cache_folder() / f"{kind.prefix}-{name[:32]}"
    if folder.exists():
        try:
            return kind.open(folder)
        except UserError as error:
            _log.warning("%s", error)
            shutil.rmtree(folder, ignore_errors=True)
    known = relations() if callable(relations) else relations
    return kind.build(rows(), folder, known, progress, finish)


def digest(path: Path) -> str:
    """SHA-256 of a file; of a folder, over its files, their names and its own path.

    Some readers of folders take names as data: i2b2's takes the hospital from one.
    """
    if path.is_dir():
        files = [(file.relative_to(path).as_posix(), digest(file)) for file in files_in(path)]
        return hashlib.sha256(json.dumps([str(path.resolve()), files]).encode()).hexdigest()
    whole = hashlib.sha256()
    try:
        with stored(path) as content:
            while part := content.read(1 << 20):
                whole.update(part)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    return whole.hexdigest()
