from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.data.align import align
from fedrel.data.kb import read_kb
from fedrel.errors import UserError


def written(tmp_path: Path, *rows: tuple[str, ...]) -> Path:
    path = tmp_path / "kb.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_what_a_knowledge_base_holds(tmp_path: Path) -> None:
    kb = read_kb(
        written(
            tmp_path,
            ("# head", "names", "relation", "tail", "names"),
            ("e1", "Ada|Ada King", "born_in", "e2", "London"),
            (),
            ("e1", "Countess| Ada ", "lived_in", "e2", "London | "),
            ("e1", "Ada", "NA", "e2", "London"),
            ("e2", "London", "NA", "e1", "Ada"),
        )
    )
    assert {entity: list(names) for entity, names in kb.names.items()} == {
        "e1": ["Ada", "Ada King", "Countess"],
        "e2": ["London"],
    }
    assert kb.name("e1") == "Ada"
    assert kb.relations_between("e1", "e2") == ("born_in", "lived_in")  # a fact outweighs NA
    assert kb.relations_between("e2", "e1") == ("NA",)
    assert kb.relations_between("e2", "e2") == ()
    assert ("e1", "lived_in", "e2") in kb.triples and len(kb.triples) == 4
    assert kb.relations == ("NA", "born_in", "lived_in")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("e1", "Ada", "r", "e2"), "expected 1 column .* found 4"),
        (("e1", " | ", "r", "e2", "Bo"), "an entity has no name"),
        (("e1", "Ada", "", "e2", "Bo"), "an id or the relation is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: tuple[str, ...], problem: str) -> None:
    path = written(tmp_path, ("e1", "Ada", "r", "e2", "Bo"), row)
    with pytest.raises(UserError, match=rf"kb\.tsv:2: {problem}"):
        read_kb(path)


def test_types_may_stand_in_two_more_columns(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ("g1", "BRCA1", "r", "d1", "cancer", "GENE", "DISEASE"),
        ("g1", "BRCA1", "r", "x", "X", "", ""),
    )
    kb = read_kb(path)
    assert kb.types == {"g1": "GENE", "d1": "DISEASE"}
    text = tmp_path / "text.txt"
    text.write_text("They say BRCA1 raises the risk of cancer.", encoding="utf-8")
    (found, *_) = align([text], kb, na_rate=0, seed=0)
    assert (found.head.type, found.tail.type) == ("GENE", "DISEASE")


def test_names_only(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("# drugs\nzorbine|zorb\ncalvex\nzorbine|ZB-1\n")
    kb = read_kb(path)
    assert {entity: list(names) for entity, names in kb.names.items()} == {
        "zorbine": ["zorbine", "zorb", "ZB-1"],
        "calvex": ["calvex"],
    }
    assert kb.facts == {}
