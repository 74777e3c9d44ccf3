from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.data.relations import RelationMap, read_relations
from fedrel.errors import UserError


def test_na_is_always_class_zero() -> None:
    assert RelationMap(["b", "NA", "a"]) == ("NA", "b", "a")
    assert RelationMap(["b", "a", "b"]) == ("NA", "b", "a")


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "relation2id.txt"
    path.write_text("3\n/a/b 1\nNA 2\n/a/c 0\n\n")
    assert read_relations(path) == ("NA", "/a/c", "/a/b")


def test_a_table_without_a_count(tmp_path: Path) -> None:
    path = tmp_path / "relation2id.txt"
    path.write_text("NA\t0\n/a/b c\t2\n7 1\n")
    assert read_relations(path) == ("NA", "7", "/a/b c")


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "rel2id.json"
    path.write_text('{"x y": 1,\n "NA": 0, "z": 2}')
    assert read_relations(path) == ("NA", "x y", "z")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "map: no relation in it\nhint: write `name class` lines"),
        ("0\n", "no relation in it"),
        ("NA 0\nx y\n", r"map:2: expected a new relation and its class, found 'x y'"),
        ("2\nNA 0\n", r"says 2 relations, found 1"),
        ("2\nNA 0\nx\n", r"map:3: expected a new relation and its class, found 'x'"),
        ("2\nNA 0\nNA 1\n", r"map:3: expected a new relation"),
        ("2\nNA 0\nx 2\n", r"expected the classes 0 to 1"),
        ('{"NA": 0', "broken JSON"),
        ('{"NA": "0"}', "expected a class number"),
    ],
)
def test_a_bad_map_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "map"
    path.write_text(content)
    with pytest.raises(UserError, match=problem):
        read_relations(path)


def test_real_maps(real_data: Path) -> None:
    table = read_relations(real_data / "nyt10" / "relation2id.txt.xz")
    whole = read_relations(real_data / "nyt10" / "nyt10_rel2id.json")
    assert (len(table), len(whole)) == (53, 58)
    assert table == whole[:53]
