"""Corpora as columns on disk: a file of numbers for each column, tables of strings, and an index that checks them.

`Corpus` is what every kind of corpus has in common: how its columns are written, opened and copied, and the
questions that all kinds answer. A kind (`SentenceCorpus`, `DocumentCorpus`) declares its columns as fields,
one line each, and has a `Writer` that knows how a row of its text becomes numbers.
"""

from __future__ import annotations

import gc
import shutil
from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, get_args, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

from fedrel.data.bags import Bags
from fedrel.data.column_files import column_path, fingerprint, mapped, verify, write_index
from fedrel.data.relations import NA, RelationMap
from fedrel.errors import UserError
from fedrel.files import atomic_folder, read_sealed

_REBUILD = "remove the folder and build it again"

TRAIN, DEV, TEST = 0, 1, 2  # the values of a corpus's column `split`

Ints = NDArray[np.int64]
Progress = Callable[[int], None]
"""Is told now and then how many rows are done."""
Kind = TypeVar("Kind", bound="Corpus")


class Column(NamedTuple):
    """How a column's numbers are stored.

    `code` is their type, in the letters that `array` and numpy share; `width` is how many of them make a row.
    A column of `starts` tells where the lists in another column begin: it has a 0 first and then the end of
    each list.
    """

    code: str
    width: int = 1
    starts: bool = False


# The types of a corpus's fields: what they are in memory, and how they are stored.
Bytes = Annotated[NDArray[np.uint8], Column("B")]
Int8s = Annotated[NDArray[np.int8], Column("b")]
Int32s = Annotated[NDArray[np.int32], Column("i")]
Int32Pairs = Annotated[NDArray[np.int32], Column("i", 2)]
Int64s = Annotated[NDArray[np.int64], Column("q")]
Starts = Annotated[NDArray[np.int64], Column("q", starts=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Strings(Sequence[str]):
    """A table of strings. String `i` is the UTF-8 bytes `blob[starts[i]:starts[i + 1]]`, decoded when asked for."""

    blob: NDArray[np.uint8]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self.blob[self.starts[index] : self.starts[index + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        blob, starts = self.blob.tobytes(), self.starts.tolist()
        return (blob[start:end].decode() for start, end in pairwise(starts))


class Corpus(ABC):
    """Rows of text (sentences or documents) as columns on disk, read only.

    A subclass is a frozen dataclass: `folder`, `fingerprint`, then its columns and tables. Their order and their
    types are the format of the folder, so `format` must be raised when they change.
    """

    __slots__ = ()
    prefix: ClassVar[str]  # of the names of the index file and the cache folders
    format: ClassVar[int]  # part of every cache key
    first_format: ClassVar[int]  # the one since which only the columns `later` were added
    later: ClassVar[frozenset[str]]
    unit: ClassVar[str]  # what a row is, in the plural, as errors and tables call it

    folder: Path
    fingerprint: str  # SHA-256 of all columns and tables
    split: Int8s  # TRAIN, DEV or TEST of each row
    source: Int32s  # of each row, into `sources`
    sources: Strings  # where text is from; "" where that is not known
    relations: Strings  # NA first, if it is one of them

    @classmethod
    def build(
        cls,
        rows: Iterable[tuple[int, Any]],
        folder: Path,
        relations: Sequence[str],
        progress: Progress | None = None,
        finish: Callable[[Path], None] = lambda _: None,
    ) -> Self:
        """Write (split, row) pairs to `folder` in one pass and with little memory, and open it.

        The folder appears whole or not at all. `finish` is called with it when the columns are written.
        """
        if not relations or NA in relations[1:]:
            raise UserError(
                f"expected relations, {NA!r} the first of them if at all, found {list(relations)}"
            )
        with atomic_folder(folder) as part, _collector_paused():
            writer = cls.writer(part, relations)
            for count, (split, row) in enumerate(rows, 1):
                writer.add(split, row)
                if count % writer.flush_every == 0:
                    writer.flush()
                    gc.collect(1)
                    if progress:
                        progress(count)
            writer.finish()
            finish(part)
            if progress:
                progress(writer.rows)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Map the columns of a folder into memory; raise a `UserError` if it is no such corpus, or damaged."""
        layout = layout_of(cls)
        try:
            index = read_sealed(cls.index_in(folder), "a corpus", _REBUILD)
            if index["format"] != cls.format:
                raise ValueError(f"its format is {index['format']}, expected {cls.format}")
            parts: dict[str, Any] = {
                name: mapped(column_path(folder, name), column.code, column.width, index["bytes"][name])
                for name, column in layout.columns.items()
            }
            named = str(index["fingerprint"])
            verify(folder, layout.columns, index, lambda: cls._whole(folder))
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"not a corpus, or a damaged one: {error}"
            raise UserError(problem, file=folder, hint=_REBUILD) from error
        for name in layout.tables:
            parts[name] = Strings(parts.pop(f"{name}_text"), parts.pop(f"{name}_starts"))
        make: Any = cls
        opened: Self = make(folder, named, **parts)
        return opened

    @classmethod
    def relations_of(cls, rows: Iterable[Any]) -> RelationMap:
        """The relations that rows state before they are written, by name: for files without a relation map."""
        return RelationMap(sorted({relation for row in rows for relation in cls.relations_in(row)}))

    @classmethod
    def index_in(cls, folder: Path) -> Path:
        """The file that holds the sizes of a folder's columns and their fingerprint."""
        return folder / f"{cls.prefix}.json"

    @classmethod
    def write_index(cls, folder: Path) -> None:
        """Write the index of a folder whose columns are complete."""
        about = {"format": cls.format, "fingerprint": cls._whole(folder)}
        write_index(cls.index_in(folder), list(layout_of(cls).columns), about)

    @classmethod
    def _whole(cls, folder: Path) -> str:
        """The fingerprint of a folder's columns."""
        start = f"fedrel {cls.prefix} {cls.first_format}"
        return fingerprint(folder, layout_of(cls).columns, start, cls.later)

    def copy(self, folder: Path, changes: Mapping[str, NDArray[Any] | Sequence[str]]) -> Self:
        """Copy the corpus to another folder, with new numbers in some columns or new strings in some tables."""
        layout = layout_of(type(self))
        changed: dict[str, Any] = dict(changes)
        for name in layout.tables & changed.keys():
            changed[f"{name}_text"], changed[f"{name}_starts"] = _encoded(changed.pop(name))
        with atomic_folder(folder) as part:
            for name, column in layout.columns.items():
                if name in changed:
                    np.asarray(changed[name], column.code).tofile(column_path(part, name))
                else:
                    shutil.copyfile(column_path(self.folder, name), column_path(part, name))
            self.write_index(part)
        return self.open(folder)

    def __len__(self) -> int:
        return len(self.split)

    def rows(self, split: int) -> Ints:
        """The rows of one split, in order."""
        return np.flatnonzero(self.split == split)

    @property
    def has_na(self) -> bool:
        """Whether class 0 is `NA`, no relation; if not, all classes are relations."""
        return self.relations[0] == NA

    def fact_count(self, rows: Ints) -> int:
        """How many sentences, or pairs in documents, have a relation; `NA` is none."""
        return int(self.label_counts(rows)[int(self.has_na) :].sum())

    def require(self, kind: type[Kind]) -> Kind:
        """This corpus, if it is of the kind that the caller can work with; otherwise a `UserError`."""
        if not isinstance(self, kind):
            raise UserError(f"this needs {kind.unit}, but the data are {self.unit}")
        return self

    @classmethod
    @abstractmethod
    def writer(cls, folder: Path, relations: Sequence[str]) -> Writer:
        """What writes rows of this kind to a folder."""

    @classmethod
    @abstractmethod
    def relations_in(cls, row: Any) -> Iterable[str]:
        """The relations that one row states before it is written."""

    @abstractmethod
    def bags(self, rows: Ints) -> Bags:
        """The rows as sites train on them: a bag for each triple, or each document by itself."""

    @abstractmethod
    def label_counts(self, rows: Ints) -> Ints:
        """How many sentences, or pairs in documents, have each relation, [relations]."""

    @abstractmethod
    def label_of(self, rows: Ints) -> Ints | None:
        """The relation of each row; None where a row can have several."""

    @abstractmethod
    def without_duplicates(self, rows: Ints) -> Ints:
        """The rows without those that say the same as an earlier one."""

    @abstractmethod
    def text_numbers(self) -> Ints:
        """A number for each row, the same for the same text."""

    def corrections(self) -> Mapping[str, int]:
        """What readers had to correct or leave out within rows, and how often."""
        return {}

    @abstractmethod
    def groups(self, rows: Ints) -> Ints:
        """A number for each row; rows of one number must go to the same part of a split."""

    @property
    @abstractmethod
    def triple_count(self) -> int:
        """How many distinct triples (head, relation, tail) there are; 0 where triples are not numbered."""

    @abstractmethod
    def truth_known(self, rows: Ints) -> bool:
        """Whether it is known of some of these rows if their text states their relation (the built-in world)."""


class Writer(ABC):
    """Collects rows in buffers, a buffer for each column, and moves them to disk now and then.

    Only distinct strings are kept in memory until the end.
    """

    flush_every: ClassVar[int]  # rows

    def __init__(self, folder: Path, kind: type[Corpus], relations: Sequence[str]) -> None:
        self.rows = 0
        self.columns = {name: array(column.code) for name, column in layout_of(kind).columns.items()}
        self.relations = {name: number for number, name in enumerate(relations)}
        self._folder, self._kind = folder, kind
        self._ends = {name: 0 for name, column in layout_of(kind).columns.items() if column.starts}
        for name in self._ends:
            self.columns[name].append(0)

    @abstractmethod
    def add(self, split: int, row: Any) -> None:
        """Take the next row. Readers have checked it and know its line; what they missed is an error here."""

    @abstractmethod
    def tables(self) -> Mapping[str, Iterable[str]]:
        """The strings of each table, in the order of their numbers."""

    def end(self, starts: str, size: int) -> None:
        """Note in a column of starts that the list just written has `size` items."""
        self._ends[starts] += size
        self.columns[starts].append(self._ends[starts])

    def end_many(self, starts: str, sizes: Ints) -> None:
        """Note the same of several lists."""
        self.columns[starts].frombytes((self._ends[starts] + sizes.cumsum()).tobytes())
        self._ends[starts] += int(sizes.sum())

    def relation(self, name: str, where: str) -> int:
        """The number of a relation, which must be in the map."""
        number = self.relations.get(name)
        if number is None:
            raise UserError(f"{where}: the relation {name!r} is not in the map")
        return number

    def flush(self) -> None:
        """Move the buffers to disk."""
        for name, values in self.columns.items():
            with column_path(self._folder, name).open("ab") as file:
                file.write(values)
            del values[:]

    def finish(self) -> None:
        """Write the tables, the rest of the columns and the index."""
        for name, strings in self.tables().items():
            text, starts = _encoded(strings)
            self.columns[f"{name}_text"].frombytes(text.tobytes())
            self.columns[f"{name}_starts"].frombytes(starts.tobytes())
        self.flush()
        self._kind.write_index(self._folder)


def numbering() -> defaultdict[Any, int]:
    """A dictionary that gives each new key the next number."""
    numbers: defaultdict[Any, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


class Layout(NamedTuple):
    """The columns of a kind of corpus by name, with two for each of its tables of strings."""

    columns: dict[str, Column]
    tables: frozenset[str]


@cache
def layout_of(kind: type[Corpus]) -> Layout:
    """The layout that the fields of a corpus class declare."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # every kind is a dataclass
    columns = {name: note for name in names for note in get_args(hints[name]) if type(note) is Column}
    tables = [name for name in names if hints[name] is Strings]
    for name in tables:
        columns |= {f"{name}_text": Column("B"), f"{name}_starts": Column("q")}
    return Layout(columns, frozenset(tables))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Python's collector of cycles would look again and again at rows that wait: many, and without a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _encoded(strings: Iterable[str]) -> tuple[NDArray[np.uint8], Ints]:
    encoded = [string.encode() for string in strings]
    starts = np.fromiter(accumulate(map(len, encoded), initial=0), np.int64, len(encoded) + 1)
    return np.frombuffer(b"".join(encoded), np.uint8), starts
