from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.data.readers.i2b2 import I2B2
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.data.store import TRAIN
from fedrel.errors import UserError

TEXT = """\
Discharge Summary :
 His cough and Fever improved with lozenges after a chest film .
Nothing more .
"""
CONCEPTS = """\
c="his cough" 2:1 2:2||t="problem"
c="fever" 2:4 2:4||t="problem"
c="lozenges" 2:7 2:7||t="treatment"
c="a chest film" 2:9 2:11||t="test"
c="lozenges" 2:7 2:7||t="treatment"
"""
RELATIONS = """\
c="lozenges" 2:7 2:7||r="TrIP"||c="fever" 2:4 2:4
c="a chest film" 2:9 2:11||r="TeRP"||c="his cough" 2:1 2:2
c="fever" 2:4 2:4||r="PIP"||c="his cough" 2:1 2:2

"""


def document(folder: Path, name: str = "note-1", *, shipped: bool = False, **contents: str | None) -> Path:
    """A note in one folder, or in the folders of the challenge; a keyword replaces a file, None leaves it out."""
    files = {"txt": TEXT, "con": CONCEPTS, "rel": RELATIONS} | contents
    places = {"txt": "txt", "con": "concept", "rel": "rel"} if shipped else dict.fromkeys(files, "")
    for suffix, content in files.items():
        if content is not None:
            path = folder / places[suffix] / f"{name}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return folder


def table(instances: list[Instance]) -> list[tuple[str, str, str]]:
    return [(one.head.name, one.relation, one.tail.name) for one in instances]


def test_all_pairs_of_a_line(tmp_path: Path) -> None:
    found = list(I2B2().read(document(tmp_path / "north"), relations=I2B2.relations))
    assert table(found) == [
        ("His cough", "PIP", "Fever"),  # in the order of the text, not of the .rel
        ("lozenges", NA, "His cough"),
        ("a chest film", "TeRP", "His cough"),
        ("lozenges", "TrIP", "Fever"),
        ("a chest film", NA, "Fever"),
    ]
    line = TEXT.splitlines()[1]
    assert {one.text for one in found} == {line}
    assert found[2].head == Mention("north/note-1 2:9 2:11", "a chest film", 50, 62, "test")
    assert found[2].tail == Mention("north/note-1 2:1 2:2", "His cough", 1, 10, "problem")
    assert found[2].tokens is not None
    assert [line[start:end] for start, end in found[2].tokens] == line.split()
    assert {one.source for one in found} == {"north"}


def test_two_relations_of_one_pair(tmp_path: Path) -> None:
    both = 'c="lozenges" 2:7 2:7||r="TrAP"||c="fever" 2:4 2:4\n'
    found = list(I2B2().read(document(tmp_path / "north", rel=RELATIONS + both + both)))
    assert [one.relation for one in found if one.head.name == "lozenges"] == [NA, "TrIP", "TrAP"]


def test_what_it_yields_can_be_built(tmp_path: Path) -> None:
    instances = I2B2().read(document(tmp_path / "north"))
    corpus = SentenceCorpus.build(((TRAIN, one) for one in instances), tmp_path / "corpus", I2B2.relations)
    assert corpus.head.tolist() == [0, 6, 8, 6, 8] and corpus.tail.tolist() == [3, 0, 0, 3, 3]
    assert [corpus.types[kind] for kind in corpus.head_type[:3]] == ["problem", "treatment", "test"]


@pytest.mark.parametrize("given", ["", "beth", "partners"])
def test_hospitals_as_the_challenge_ships_them(tmp_path: Path, given: str) -> None:
    for hospital in ("beth", "partners"):
        document(tmp_path / "data" / hospital, shipped=True)  # the same name at both
    found = list(I2B2().read(tmp_path / "data" / given))
    hospitals = [given] if given else ["beth", "partners"]
    assert [one.source for one in found] == [hospital for hospital in hospitals for _ in range(5)]
    assert len({(one.head.id, one.tail.id) for one in found}) == 5 * len(hospitals)
    assert [one.source for one in I2B2().read(tmp_path / "data" / "beth" / "..")][:1] == ["beth"]


def test_a_folder_inside_a_hospital_is_of_that_hospital(tmp_path: Path) -> None:
    assert {one.source for one in I2B2().read(document(tmp_path / "beth" / "2010"))} == {"beth"}


def test_text_without_concepts_and_concepts_without_relations(tmp_path: Path) -> None:
    folder = document(document(tmp_path, rel=None), "readme", con=None, rel=None)
    reader = I2B2()
    assert {one.relation for one in reader.read(folder)} == {NA}
    assert {what: note.count for what, note in reader.problems.notes.items()} == {
        ".txt files without a .con, left out": 1,
        "documents without a .rel, so that all their pairs are NA": 1,
    }


@pytest.mark.parametrize(
    ("suffix", "line", "problem"),
    [
        ("con", 'c="fever" 2:4||t="problem"', 'expected c="text" L:T L:T.*found'),
        ("con", 'c="fever" 2:4 2:4||t="person"', 't="problem|treatment|test"'),
        ("con", 'c="fever" 9:4 9:4||t="problem"', r"there is nothing at 9:4 9:4 in note-1\.txt"),
        ("con", 'c="fever" 0:4 0:4||t="problem"', "there is nothing at 0:4 0:4"),
        ("con", 'c="film ." 2:11 2:13||t="test"', "there is nothing at 2:11 2:13"),
        ("con", 'c="film" 2:11 2:10||t="test"', "there is nothing at 2:11 2:10"),
        ("con", 'c="rash" 2:4 2:4||t="problem"', "expected 'rash' in line 2 of note-1.txt, found 'Fever'"),
        ("con", 'c="" 2:0 2:0||t="problem"', "expected '' in line 2 of note-1.txt, found ''"),
        ("con", 'c="fever" 2:4 3:0||t="problem"', "from line 2 to line 3: expected one within a line"),
        ("rel", 'c="fever" 2:4 2:4||r="PIP"', 'expected c="text" L:T L:T.*found'),
        (
            "rel",
            'c="lozenges" 2:7 2:7||r="TrIPP"||c="fever" 2:4 2:4',
            "'TrIPP' is none of the relations of i2b2\nhint: did you mean 'TrIP'",
        ),
        (
            "rel",
            'c="lozenges" 2:7 2:7||r="TrIP"||c="nothing" 3:0 3:0',
            "TrIP needs a problem at 3:0 3:0; note-1.con has none",
        ),
        ("rel", 'c="fever" 2:4 2:4||r="TrIP"||c="fever" 2:4 2:4', "TrIP needs a treatment at 2:4 2:4"),
        ("rel", 'c="fever" 2:4 2:4||r="PIP"||c="fever" 2:4 2:4', "expected two concepts of one line"),
        ("rel", 'c="fever" 2:4 2:4||r="PIP"||c="summary" 1:1 1:1', "one line, found 2:4 2:4 and 1:1 1:1"),
        ("rel", 'c="lozenges" 2:7 2:7||r="TrAP"||c="fever" 2:4 2:4', "'TrAP' is not in the relation map"),
    ],
)
def test_says_which_line_is_wrong(tmp_path: Path, suffix: str, line: str, problem: str) -> None:
    concepts = CONCEPTS + 'c="summary" 1:1 1:1||t="problem"\n'
    content = {"con": concepts} | {suffix: (concepts if suffix == "con" else "") + line}
    number = 7 if suffix == "con" else 1
    known = RelationMap(name for name in I2B2.relations if name != "TrAP")
    with pytest.raises(UserError, match=rf"note-1\.{suffix}:{number}: .*{problem}"):
        list(I2B2().read(document(tmp_path, **content), relations=known))


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ({"con": None}, r"note-1\.rel: there is no note-1\.con for it"),
        ({"txt": None}, r"note-1\.con: there is no note-1\.txt for it"),
        ({"con": None, "rel": None}, "expected documents as .txt, .con and .rel files, found none"),
        (dict.fromkeys(("txt", "con", "rel")), "expected documents .* found none"),
    ],
)
def test_says_which_file_is_missing(tmp_path: Path, missing: dict[str, None], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        list(I2B2().read(document(tmp_path, **missing)))


def test_two_documents_of_one_name(tmp_path: Path) -> None:
    document(tmp_path / "train")
    document(tmp_path / "test")
    with pytest.raises(UserError, match=r"train/note-1\.con: a second document of that name, after .*test/"):
        list(I2B2().read(tmp_path))
