"""A place that is changed, and a column or key that is missing, are never read as if nothing had happened.

Each is an error, or is counted (in the notes of reading, or in what a document's reader had to handle), or makes no
difference to any row. Formats that give places without names (TACRED, SpERT, CoNLL04) cannot notice a changed
place, so theirs are not changed here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrel.data.annotations import Document
from fedrel.data.problems import Problems
from fedrel.data.readers import reader
from fedrel.errors import UserError
from tests.data import samples
from tests.data.conftest import DOCRED, PUBTATOR
from tests.data.readers.test_mutated_files import EOG, JSONL, MADE, place

PLACED_CSV = """\
text,head,tail,relation,source,head_id,head_type,head_start,head_end,tail_id,tail_type,tail_start,tail_end
Zorbine eases gloom.,Zorbine,gloom,treats,north,D1,Drug,0,7,D2,Ill,14,19
"""
PLACES = {
    "pubtator": (PUBTATOR, r"(?m)^\d+\t(\d+)\t(\d+)\t"),
    "bioc": (samples.BIOC_JSON, r'"offset": (\d+), "length": (\d+)'),
    "bioc-sentences": (samples.BIOC_XML, r'offset="(\d+)" length="(\d+)"'),
    "brat": (samples.BRAT_ANN, r"(?m)^T\d+\t\S+ (\d+) (\d+)"),
    "brat-documents": (samples.BRAT_ANN, r"(?m)^T\d+\t\S+ (\d+) (\d+)"),
    "ddi": (samples.DDI, r'charOffset="(\d+)-(\d+)"'),
    "docred": (DOCRED, r'"sent_id": (\d+), "pos": \[(\d+), (\d+)\]'),
    "jsonl": (JSONL, r'"pos": \[(\d+), (\d+)\]'),
    "csv": (PLACED_CSV, r",(\d+),(\d+)(?=[,\n])"),
    "gda": (samples.GDA["anns.txt"], r"(?m)^\d+\t(\d+)\t(\d+)\t"),
}
TABLES = {
    # Without the seventh column, the names of several entities in one mention: they might be ids.
    "pubtator": (PUBTATOR.replace("\tHot-head|blue ears", ""), "\t"),
    "nyt10": (MADE["nyt10"].decode(), "\t"),
    "gad": (MADE["gad"].decode(), "\t"),
    "conll04": (samples.CONLL04, "\t"),
    "brat": (samples.BRAT_ANN, "\t"),
    "eog": (EOG, "\t"),
    "csv": (PLACED_CSV, ","),
    "ppi": (samples.PPI, ","),
    "gda": (samples.GDA["anns.txt"], "\t"),
}
# Keys that a file need not have: without them, a row says less.
OPTIONAL = {
    "jsonl": {"id"},
    "tacred": {"id", "docid", "subj_type", "obj_type"}
    | {f"stanford_{name}" for name in ("pos", "ner", "head", "deprel")},
    "spert": {"orig_id"},
    "docred": {"title", "labels", "evidence"},
    "bioc": {"id", "type", "novel", "annotations", "relations", "nodes", "offset", "infons"},
}


def outcome(name: str, content: str, folder: Path) -> tuple[list[Any], Counter[str]] | None:
    """The rows and what was counted; None for an error."""
    problems = Problems()
    if name == "gda":
        path = folder / "gda"
        if not path.exists():
            samples.write_gda(path)
        (path / "anns.txt").write_text(content)
    else:
        path = place(folder, name, content.encode())
    try:
        found = list(reader(name, problems).read(path))
    except UserError:
        return None
    counts = Counter({what: note.count for what, note in problems.notes.items()})
    rows: list[Any] = []
    for row in found:
        if isinstance(row, Document):
            counts.update(row.handled)
            rows.append((row.id, row.text, row.entities, row.pairs.tolist(), row.facts))
        else:
            rows.append(row)
    return rows, counts


def unseen(name: str, content: str, changed: str, folder: Path) -> bool:
    before, after = outcome(name, content, folder), outcome(name, changed, folder)
    assert before is not None and before[0]
    return after is not None and after[0] != before[0] and after[1] == before[1]


@pytest.mark.parametrize("name", PLACES)
def test_a_changed_place_is_noticed(name: str, tmp_path: Path) -> None:
    content, pattern = PLACES[name]
    spots = [
        found.span(group)
        for found in re.finditer(pattern, content)
        for group in range(1, found.re.groups + 1)
    ]
    assert len(spots) >= 4
    for start, end in spots:
        number = int(content[start:end])
        for other in {0, 1, max(number - 1, 0), number + 1, number + 7, 10 * number + 3} - {number}:
            changed = f"{content[:start]}{other}{content[end:]}"
            assert not unseen(name, content, changed, tmp_path), changed[max(start - 40, 0) : end + 40]


@pytest.mark.parametrize("name", TABLES)
def test_a_missing_cell_is_noticed(name: str, tmp_path: Path) -> None:
    content, mark = TABLES[name]
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines):
        cells = line.rstrip("\n").split(mark)
        for cell in range(len(cells)) if len(cells) > 1 else []:
            short = mark.join(cells[:cell] + cells[cell + 1 :]) + "\n"
            changed = "".join([*lines[:number], short, *lines[number + 1 :]])
            assert not unseen(name, content, changed, tmp_path), (line, short)


def without(value: Any, optional: set[str]) -> Iterator[Any]:
    """The value without one of the keys somewhere in it, for each of them."""
    if isinstance(value, dict):
        for key in value:
            if key not in optional:
                yield {name: one for name, one in value.items() if name != key}
            for inner in without(value[key], optional):
                yield {**value, key: inner}
    if isinstance(value, list):
        for number, one in enumerate(value):
            for inner in without(one, optional):
                yield [*value[:number], inner, *value[number + 1 :]]


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_missing_key_is_noticed(name: str, tmp_path: Path) -> None:
    content = {**samples.ONE_FILE, "docred": DOCRED, "jsonl": JSONL.splitlines()[0]}[name]
    value = json.loads(content)
    changes = list(without(value, OPTIONAL[name]))
    assert len(changes) > 5
    for changed in changes:
        assert not unseen(name, json.dumps(value), json.dumps(changed), tmp_path), changed
