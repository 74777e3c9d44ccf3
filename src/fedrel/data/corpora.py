"""Published corpora: where each comes from, under which terms, and which of its files are at hand.

`corpora.toml` beside this module lists them. A file counts by its name without compression, and by the SHA-256 of
its content, so that it may be kept as `train.txt`, `train.txt.gz` or `train.txt.xz`.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedrel.data.text_files import content, uncompressed
from fedrel.errors import UserError

_SUFFIXES = ("", ".xz", ".gz", ".bz2", ".zip")


@dataclass(frozen=True)
class PublishedCorpus:
    """A corpus, and its files below the data folder with the SHA-256 of each, empty where that is not known."""

    name: str
    title: str
    format: str
    source: str
    licence: str
    folder: str
    files: Mapping[str, str]

    def path(self, name: str, data: Path) -> Path | None:
        """Where one of its files is, however it is compressed; None if it is not there."""
        places = (data / self.folder / f"{name}{suffix}" for suffix in _SUFFIXES)
        return next((place for place in places if place.exists()), None)

    def problems(self, data: Path) -> list[str]:
        """What is missing or is another file than the one that was published."""
        found = []
        for name, digest in self.files.items():
            path = self.path(name, data)
            if path is None:
                found.append(f"missing: {self.folder}/{name}")
            elif digest and path.is_file() and _digest(path) != digest:
                found.append(f"differs from what was published: {path}")
        return found

    def described(self, data: Path) -> dict[str, Any]:
        """The corpus as `data list` shows it."""
        problems = self.problems(data)
        missing = sum(problem.startswith("missing") for problem in problems)
        state = "present" if not missing else "missing" if missing == len(self.files) else "in part"
        about = {
            key: getattr(self, key) for key in ("name", "title", "format", "source", "licence", "folder")
        }
        return {**about, "files": dict(self.files), "state": state, "problems": problems}


@cache
def corpora() -> dict[str, PublishedCorpus]:
    """Every published corpus that fedrel knows of, by name."""
    listed = tomllib.loads(Path(__file__).with_name("corpora.toml").read_text(encoding="utf-8"))
    return {name: PublishedCorpus(name, **about) for name, about in listed.items()}


def data_folder() -> Path:
    """Where published corpora are looked for: FEDREL_DATA or, without it, the current folder."""
    return Path(os.environ.get("FEDREL_DATA") or Path.cwd()).absolute()


def no_such_file(path: Path) -> UserError:
    """The error for a data file that is not there: what to set, and where a published one can be got."""
    known = corpus_of(path)
    if os.environ.get("FEDREL_DATA"):
        hint = "paths of data start from FEDREL_DATA, which is set"
    elif known is None:
        hint = "paths of data start from the config's folder, as FEDREL_DATA is not set"
    else:
        hint = "set FEDREL_DATA to the folder of your corpora: paths of data start from there"
    if known is not None:
        hint += f"; {known.title} is at {known.source}; docs/data.md has a row for each corpus"
    return UserError("no such file", file=path, hint=hint)


def corpus_of(path: Path) -> PublishedCorpus | None:
    """The published corpus that a file is of, or one in its archive, by folder and name; None if it is of none."""
    plain = uncompressed(path).as_posix()
    return next(
        (
            one
            for one in corpora().values()
            if any(f"/{one.folder}/{name}/" in f"/{plain}/" for name in one.files)
        ),
        None,
    )


def _digest(path: Path) -> str:
    if path.suffix == ".zip":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    whole = hashlib.sha256()
    with content(path) as file:
        while part := file.read(1 << 20):
            whole.update(part)
    return whole.hexdigest()
