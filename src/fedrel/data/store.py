"""How a corpus lies on disk: a file of numbers for each column, and an index to check them by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fedrel.errors import UserError

FORMAT = 2  # of the folder; part of every cache key
TABLES = ("words", "entities", "names", "relations", "sources", "types")


class Column(NamedTuple):
    """The type of a column's numbers, by the code `array` and numpy share, and how many make a row."""

    code: str
    width: int = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a kind of corpus; among them two for each of its tables of strings."""

    kind: str  # names the index
    format: int
    columns: Mapping[str, Column]


COLUMNS = {
    "tokens": Column("i"),
    "starts": Column("q"),
    "head": Column("i"),
    "tail": Column("i"),
    "head_span": Column("i", 2),
    "tail_span": Column("i", 2),
    "head_type": Column("i"),
    "tail_type": Column("i"),
    "pair": Column("i"),
    "pairs": Column("i", 2),
    "relation": Column("i"),
    "triple": Column("i"),
    "triples": Column("i", 2),
    "source": Column("i"),
    "split": Column("b"),
    "expresses": Column("b"),
    "sentence": Column("q"),
    "text": Column("B"),
    "text_starts": Column("q"),
}
for _table in TABLES:
    COLUMNS |= {f"{_table}_text": Column("B"), f"{_table}_starts": Column("q")}

SENTENCES = Layout("corpus", FORMAT, COLUMNS)


def column_path(folder: Path, name: str) -> Path:
    """Where a column's numbers are."""
    return folder / f"{name}.bin"


def write_index(folder: Path, layout: Layout = SENTENCES) -> None:
    """Seal a folder whose columns are all written: their sizes, and the SHA-256 over all of them."""
    whole = hashlib.sha256(f"fedrel {layout.kind} {layout.format}".encode())
    sizes = {}
    for name in layout.columns:
        with column_path(folder, name).open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
            sizes[name] = file.tell()
    index = {"format": layout.format, "fingerprint": whole.hexdigest(), "bytes": sizes}
    _index(folder, layout).write_text(json.dumps(index, indent=1), encoding="utf-8")


def map_columns(folder: Path, layout: Layout = SENTENCES) -> tuple[str, dict[str, NDArray[Any]]]:
    """The fingerprint and the columns of a sealed folder; one that is foreign or damaged is refused."""
    try:
        index = json.loads(_index(folder, layout).read_text(encoding="utf-8"))
        if index["format"] != layout.format:
            raise ValueError(f"its format is {index['format']}, expected {layout.format}")
        columns = {
            name: _map(column_path(folder, name), column, index["bytes"][name])
            for name, column in layout.columns.items()
        }
        return str(index["fingerprint"]), columns
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"not a corpus, or a damaged one: {error}"
        raise UserError(problem, file=folder, hint="remove the folder and build it again") from error


def _index(folder: Path, layout: Layout) -> Path:
    return folder / f"{layout.kind}.json"


def _map(path: Path, column: Column, size: int) -> NDArray[Any]:
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, expected {size}")
    # A file of no bytes cannot be mapped. A plain array is a faster view of the same memory than a memmap.
    flat = np.asarray(np.memmap(path, column.code, mode="r")) if size else np.empty(0, column.code)
    return flat if column.width == 1 else flat.reshape(-1, column.width)


@dataclass(frozen=True, slots=True, eq=False)
class Strings(Sequence[str]):
    """String `i` is the UTF-8 bytes `blob[starts[i]:starts[i + 1]]`, decoded when asked for."""

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
