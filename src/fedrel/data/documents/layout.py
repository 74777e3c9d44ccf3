"""How a corpus of documents lies on disk: a file of numbers for each column, and an index to check them by."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrel.data.layout import Column, column_path
from fedrel.errors import UserError

FORMAT = 1  # of the folder; part of every cache key
TABLES = ("ids", "entities", "types", "names", "relations", "handled")

_INDEX = "documents.json"

COLUMNS = {
    "split": Column("b"),
    "text": Column("B"),
    "text_starts": Column("q"),
    "sentence_starts": Column("q"),
    "token_starts": Column("q"),
    "tokens": Column("i", 2),
    "entity_starts": Column("q"),
    "entity_id": Column("i"),
    "entity_type": Column("i"),
    "mention_starts": Column("q"),
    "mention_chars": Column("i", 2),
    "mention_tokens": Column("i", 2),
    "mention_sentence": Column("i"),
    "mention_name": Column("i"),
    "pair_starts": Column("q"),
    "pairs": Column("i", 2),
    "left_out": Column("b"),
    "intra": Column("b"),
    "fact_starts": Column("q"),
    "fact_relation": Column("i"),
    "evidence_starts": Column("q"),
    "evidence": Column("i"),
    "handled_counts": Column("q"),
}
for _table in TABLES:
    COLUMNS |= {f"{_table}_text": Column("B"), f"{_table}_starts": Column("q")}


def write_index(folder: Path) -> None:
    """Seal a folder whose columns are all written: their sizes, and the SHA-256 over all of them."""
    whole = hashlib.sha256(f"fedrel documents {FORMAT}".encode())
    sizes = {}
    for name in COLUMNS:
        with column_path(folder, name).open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
            sizes[name] = file.tell()
    index = {"format": FORMAT, "fingerprint": whole.hexdigest(), "bytes": sizes}
    (folder / _INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def map_columns(folder: Path) -> tuple[str, dict[str, NDArray[Any]]]:
    """The fingerprint and the columns of a sealed folder; one that is foreign or damaged is refused."""
    try:
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        if index["format"] != FORMAT:
            raise ValueError(f"its format is {index['format']}, expected {FORMAT}")
        columns = {name: _map(folder, name, index["bytes"][name]) for name in COLUMNS}
        return str(index["fingerprint"]), columns
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"not a corpus of documents, or a damaged one: {error}"
        raise UserError(problem, file=folder, remedy="remove the folder and build it again") from error


def _map(folder: Path, name: str, size: int) -> NDArray[Any]:
    path, column = column_path(folder, name), COLUMNS[name]
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, expected {size}")
    # A file of no bytes cannot be mapped. A plain array is a faster view of the same memory than a memmap.
    flat = np.asarray(np.memmap(path, column.code, mode="r")) if size else np.empty(0, column.code)
    return flat if column.width == 1 else flat.reshape(-1, column.width)
