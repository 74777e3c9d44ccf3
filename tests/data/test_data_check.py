"""What may be wrong with data that can be read: each thing is counted, and said in a warning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrel.config.check import check
from fedrel.config.config_sections import DocumentData, FileData
from fedrel.data.data_check import DataCheck, check_data
from fedrel.data.load import dataset
from fedrel.data.mentions import LATE_ENDS, OFF_BY_ONE, OTHER_PLACES
from fedrel.data.partition import Partition
from fedrel.data.vectors import Vocabulary, unknown_share
from tests.data.conftest import PUBTATOR

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDREL_CACHE", str(tmp_path / "cache"))


def line(head: str, relation: str = "left", pos: tuple[int, int] | None = None) -> str:
    start, end = pos or (0, len(head))
    record = {
        "text": f"{head} left Bo.",
        "h": {"id": head, "name": head, "pos": [start, end]},
        "t": {"id": "B", "name": "Bo", "pos": [len(head) + 6, len(head) + 8]},
        "relation": relation,
    }
    return json.dumps(record) + "\n"


def checked(write: Write, tmp_path: Path, sizes: list[int] | None = None, **parts: str) -> DataCheck:
    for name, content in parts.items():
        write(content, f"{name}.jsonl")
    files: dict[str, Any] = {name: [f"{name}.jsonl"] for name in parts}
    data = dataset(check(FileData, {"root": tmp_path, **files}, "test"))
    bounds = np.concatenate(([0], np.cumsum(sizes or [len(data.train)])))
    sites = tuple(f"site {number}" for number in range(len(bounds) - 1))
    return check_data(data, Partition(np.arange(len(data.train)), bounds, sites), 0.05)


def test_nothing_odd(write: Write, tmp_path: Path) -> None:
    found = checked(write, tmp_path, train=line("Ada"), dev=line("Eve"), test=line("Cy"))
    assert found.warnings == []
    assert found.sizes == {"train": 1, "dev": 1, "test": 1}
    assert found.relations["train"] == {"NA": 0, "left": 1}


def test_rows_that_repeat_another_are_counted(write: Write, tmp_path: Path) -> None:
    found = checked(write, tmp_path, train=line("Ada") * 3 + line("Eve"), dev=line("Cy"), test=line("Dee"))
    [(what, note)] = found.notes.items()
    assert what.startswith("rows that repeat another one") and note["count"] == 2
    assert found.sizes["train"] == 2


def test_relations_that_are_spelt_alike(write: Write, tmp_path: Path) -> None:
    train = line("Ada") + line("Eve", "Left") + line("Cy", "met")
    found = checked(
        write, tmp_path, train=train, dev=line("Dee", "Left"), test=line("Flo") + line("Gus", "met")
    )
    assert found.warnings == ["these relations are spelt alike: Left, left; are they one?"]


def test_a_none_label_that_no_sentence_has(write: Write, tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        write(line(f"{part}y"), f"{part}.jsonl")
    files: dict[str, Any] = {part: [f"{part}.jsonl"] for part in ("train", "dev", "test")}
    data = dataset(check(FileData, {"root": tmp_path, "none_label": "nope", **files}, "test"))
    found = check_data(data, Partition(np.arange(1), np.array([0, 1]), ("a",)), none_label="nope")
    assert found.warnings == ["no sentence has the relation 'nope', which data.none_label names"]


def test_directions_that_give_labels_away(write: Write, tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        write(line(f"{part}y"), f"{part}.jsonl")
    files: dict[str, Any] = {part: [f"{part}.jsonl"] for part in ("train", "dev", "test")}
    data = dataset(check(FileData, {"root": tmp_path, **files}, "test"))
    parts = Partition(np.arange(1), np.array([0, 1]), ("a",))
    (said,) = check_data(data, parts, directions="annotated").warnings
    assert said.startswith('data.directions = "annotated" gives labels away')
    assert check_data(data, parts, directions="once").warnings == []


def test_text_that_is_on_both_sides(write: Write, tmp_path: Path) -> None:
    train, test = line("Ada") + line("Eve"), line("Ada", "left") + line("Cy")
    found = checked(write, tmp_path, train=train, dev=line("Dee"), test=test)
    assert found.repeated == {"dev": 0, "test": 1}
    assert found.warnings == ["1 of 2 test sentences are also among the training sentences"]


def test_documents_that_are_on_both_sides(write: Write, tmp_path: Path) -> None:
    write(PUBTATOR, "a.txt")
    files = {part: ["a.txt"] for part in ("train", "dev", "test")}
    section = check(DocumentData, {"root": tmp_path, "corpus": "documents", **files}, "test")
    data = dataset(section)
    found = check_data(data, Partition(data.train, np.array([0, len(data.train)]), ("one",)))
    assert found.repeated == {"dev": 2, "test": 2}
    assert found.notes["mentions without a knowledge base id, left out"]["count"] == 3


def test_relations_of_one_part_only(write: Write, tmp_path: Path) -> None:
    write('{"NA": 0, "left": 1, "met": 2, "saw": 3}', "map.json")
    parts = {"train": line("Ada") + line("Flo", "saw"), "dev": line("Eve"), "test": line("Cy", "met")}
    for name, content in parts.items():
        write(content, f"{name}.jsonl")
    section = {"root": tmp_path, "relations": "map.json", **{name: [f"{name}.jsonl"] for name in parts}}
    data = dataset(check(FileData, section, "test"))
    found = check_data(data, Partition(data.train, np.array([0, 2, 2]), ("a", "b")))
    assert found.warnings == [
        "test has relations that training lacks: met",
        "only training has these relations: saw",
        "1 of 2 sites have no data and are never drawn: b",
    ]


def test_a_converters_mistakes(write: Write, tmp_path: Path) -> None:
    """Inclusive ends, places off by one, and places that are elsewhere: counted, the first five shown."""
    train = "".join(line(f"Ada{n}", pos=(0, 3)) for n in range(7))
    train += (
        line("Eve", pos=(1, 4))
        + line("Flo", pos=(4, 8))
        + line("GUS").replace('"name": "GUS"', '"name": "gus"')
    )
    found = checked(write, tmp_path, train=train, dev=line("Hal"), test=line("Ida"))
    assert {what: note["count"] for what, note in found.notes.items()} == {
        LATE_ENDS: 7,
        OFF_BY_ONE: 1,
        OTHER_PLACES: 1,
    }
    examples = found.notes[LATE_ENDS]["examples"]
    assert len(examples) == 5
    assert examples[0] == "train.jsonl:1: 'Ada0' at [0, 3), where the text has 'Ada'"
    assert any(LATE_ENDS in warning for warning in found.warnings)


def test_unknown_tokens(
    write: Write, tmp_path: Path, make_corpus: Callable[..., Any], make_instance: Any
) -> None:
    corpus = make_corpus(
        [make_instance("Ada left the Bo", "Ada", "Bo"), make_instance("Eve saw Bo", "Eve", "Bo")]
    )
    lookup = Vocabulary(("left", "bo")).lookup(corpus.words)
    rows = np.arange(2)
    assert unknown_share(corpus, rows, lookup, but_names=False) == 4 / 7  # ada, the, eve, saw
    assert unknown_share(corpus, rows, lookup, but_names=True) == 2 / 3  # of left, the, saw
    assert unknown_share(corpus, rows[:1], lookup, but_names=False) == 2 / 4
    found = checked(write, tmp_path, train=line("Ada"), dev=line("Eve"), test=line("Cy"))
    assert found.unknown_tokens == 0.05 and not found.warnings
