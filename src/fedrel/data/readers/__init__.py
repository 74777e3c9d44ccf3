"""Readers by format: each turns a file or folder into a stream of sentences or documents.

A reader is a class with a `name` and a method `read`, in a module of this package, in an installed package that
declares it as an entry point of the group `fedrel.readers`, or in a file that is loaded as a plug-in. Nothing else
names it: `data.format = "its-name"` in a config finds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrel.config.plugins import Listed, Registry
from fedrel.data.problems import Problems
from fedrel.data.relations import NA, RelationMap


class Reader(Listed):
    """Reads the files of one format.

    `unit` says what `read` yields: an `Instance` for each sentence (`fedrel.data.sentences`) or, if it is
    `"documents"`, a `Document` for each document (`fedrel.data.annotations`). `relations` are those of the
    format, if it fixes them: then a class has the same number in every corpus, even where the training data
    have none of it. `none_label` is what the files call the relation of an unrelated pair, which is `NA` here.
    """

    name: str = ""
    unit: str = "sentences"
    relations: RelationMap | None = None
    none_label: str = NA
    version: int = 1  # raise it when the same files make other rows: it is part of the cache key

    def __init__(self) -> None:
        self.problems = Problems()

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Any]:
        """The rows of a file, one by one.

        What is wrong with a record is raised as a `UserError` with file and line, inside `with self.problems:`,
        which may leave out that record. `self.relation` checks a relation. Further keyword arguments are options:
        those that a config's data section has a key for (`source` for `source_field`, `pair_types`, ...) are
        passed to readers that take them. `fedrel.data.text_files.lines` reads plain and compressed text alike.
        """
        raise NotImplementedError

    def relation(self, name: str, known: RelationMap | None, file: Path, line: int | None) -> str:
        """The relation that the file calls `name`; a `UserError` for one that is not in the map."""
        relation = NA if name == self.none_label else name
        if known is not None:
            known.check(relation, file, line)
        return relation

    @classmethod
    def options(cls) -> frozenset[str]:
        """The names of the options that `read` takes."""
        parameters = inspect.signature(cls.read).parameters.values()
        names = {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
        return frozenset(names - {"relations"})


READERS = Registry(Reader, package="fedrel.data.readers", group="fedrel.readers", what="reader")


def reader(name: str, problems: Problems | None = None, none_label: str | None = None) -> Reader:
    """The reader of a format, by its name; `problems` collects what it cannot read."""
    chosen = READERS.find(name)()
    chosen.problems = problems or Problems()
    if none_label is not None:
        chosen.none_label = none_label
    return chosen
