"""Corpora built once: the same files, read the same way, are opened instead of being read again."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from fedrel.data.sentences import Corpus, Instance, open_corpus
from fedrel.data.store import FORMAT
from fedrel.data.text_files import UNREADABLE, files_in, stored, unreadable
from fedrel.data.writing import build
from fedrel.errors import UserError
from fedrel.files import cache_folder

_log = logging.getLogger(__name__)


def cached(
    files: Sequence[Path],
    options: Mapping[str, object],
    relations: Sequence[str] | Callable[[], Sequence[str]],
    make: Callable[[], Iterable[tuple[int, Instance]]],
    progress: Callable[[int], None] | None = None,
) -> Corpus:
    """The corpus that `make` yields as (split, instance) pairs, from the cache if it is there.

    It is known by the contents of `files`, whatever they are called (some may be folders, or paths through an
    archive), by the `options` they are read with (the reader's name among them; anything that JSON can hold)
    and by the relations. Where those follow from the files, `relations` may be a function, which is asked
    only when the corpus must be built.
    """
    given = None if callable(relations) else list(relations)
    key = [FORMAT, options, [_digest(file) for file in files], given]
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    folder = cache_folder() / f"corpus-{name[:32]}"
    if folder.exists():
        try:
            return open_corpus(folder)
        except UserError as error:
            _log.warning("%s", error)
            shutil.rmtree(folder, ignore_errors=True)
    return build(make(), folder, relations() if callable(relations) else relations, progress)


def _digest(path: Path) -> str:
    """SHA-256 of a file; of a folder, over the files below it and over what they and the folder are called.

    A reader of a folder may take the names for what they say, as i2b2's does a hospital's.
    """
    if path.is_dir():
        files = [(file.relative_to(path).as_posix(), _digest(file)) for file in files_in(path)]
        return hashlib.sha256(json.dumps([str(path.resolve()), files]).encode()).hexdigest()
    digest = hashlib.sha256()
    try:
        with stored(path) as content:
            while part := content.read(1 << 20):
                digest.update(part)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    return digest.hexdigest()
