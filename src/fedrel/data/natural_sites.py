"""Natural sites: where a path of `[data]` has `{site}`, each file or folder that fits it belongs to a site.

`train = ["{site}/train.jsonl"]` finds a site in every folder that holds a `train.jsonl`, and names it after that
folder. Its dev and test files are then its own, too: they are found by the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedrel.config.config_sections import SITE, DocumentData, FileData
from fedrel.data.store import DEV, TEST, TRAIN
from fedrel.errors import UserError


class TextFile(NamedTuple):
    """A file or folder of a corpus: its split, and the site that it belongs to, if it is one's own."""

    split: int
    path: Path
    site: str = ""


def text_files(section: FileData | DocumentData) -> list[TextFile]:
    """All files of a section, split by split and in each site by site."""
    splits = {TRAIN: [*section.pool, *section.train], DEV: section.dev, TEST: section.test}
    sites = section.sites or sites_in(section.root, splits[TRAIN])
    return [
        file
        for split, paths in splits.items()
        for path in paths
        for file in _files(section, split, path, sites)
    ]


def sites_in(root: Path, paths: Sequence[Path]) -> list[str]:
    """The names that stand for `{site}` in training paths, of all files that there are, in alphabetical order."""
    found: set[str] = set()
    for path in paths:
        if SITE not in str(path):
            continue
        pattern = re.escape(path.as_posix()).replace(re.escape(SITE), r"([^/.][^/]*)", 1)
        named = re.compile(pattern.replace(re.escape(SITE), r"\1"))
        for file in root.glob(path.as_posix().replace(SITE, "*")):
            if match := named.fullmatch(file.relative_to(root).as_posix()):
                found.add(match[1])
        if not found:
            problem = f"no file is called {path}, with the name of a site in place of {SITE}"
            raise UserError(problem, file=root, hint="check data.root and the path; FEDREL_DATA may be unset")
    return sorted(found)


def _files(
    section: FileData | DocumentData, split: int, path: Path, sites: Sequence[str]
) -> Iterator[TextFile]:
    if SITE not in str(path):
        yield TextFile(split, section.root / path)
        return
    for site in sites:
        file = section.root / str(path).replace(SITE, site)
        if not file.exists():
            hint = "add the file, or leave the site out: data.sites lists those that take part"
            raise UserError(f"the site {site!r} has no such file", file=file, hint=hint)
        yield TextFile(split, file, site)
