from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from fedrel.data.readers.chemprot import ChemProt, ChemProtSciBERT
from fedrel.data.readers.marked import FAR
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.errors import UserError

# --- as SciBERT has it ------------------------------------------------------------------------------------


def scibert(tmp_path: Path, *records: object) -> Path:
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def labelled(text: str, label: str = "INHIBITOR") -> dict[str, object]:
    return {"text": text, "label": label, "metadata": []}


def test_scibert_loses_its_markers_and_nothing_else(tmp_path: Path) -> None:
    path = scibert(tmp_path, labelled("Here << kinA >>-bound [[ moxal ]] >> [ low ]"))
    [one] = ChemProtSciBERT().read(path, relations=ChemProt.relations)
    assert one.text == "Here kinA-bound moxal >> [ low ]"
    assert (one.head.name, one.head.start, one.head.end) == ("kinA", 5, 9)
    assert (one.tail.name, one.tail.start, one.tail.end) == ("moxal", 16, 21)
    assert (one.relation, one.head.type, one.tail.type) == ("CPR:4", "", "")


def test_scibert_every_line_is_a_pair_of_its_own(tmp_path: Path) -> None:
    twice = labelled("<< a >> and [[ b ]]")
    first, second = ChemProtSciBERT().read(scibert(tmp_path, twice, twice | {"label": "ANTAGONIST"}))
    assert (first.relation, second.relation) == ("CPR:4", "CPR:6")
    assert len({first.head.id, first.tail.id, second.head.id, second.tail.id}) == 4


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (labelled("<< a >> alone"), r"expected `text` to have << one entity >> and then \[\[ the other \]\]"),
        (labelled("[[ b ]] and << a >>"), "expected `text` to have"),
        (labelled("<< a >> [[ b ]]", "INHIBITS"), "found 'INHIBITS'; did you mean 'INHIBITOR'"),
        ({"text": "<< a >> [[ b ]]"}, "expected one of ChemProt's 13 labels, found None"),
        ({"label": "INHIBITOR"}, "expected `text`"),
        (labelled("<< a >> [[ b ]]"), "'CPR:4' is not in the relation map"),
        ([1], "expected a JSON object, found a list"),
    ],
)
def test_scibert_says_which_line_is_wrong(tmp_path: Path, record: object, problem: str) -> None:
    path = scibert(tmp_path, labelled("<< a >> [[ b ]]", "SUBSTRATE"), record)
    with pytest.raises(UserError, match=rf"train\.txt:2: .*{problem}"):
        list(ChemProtSciBERT().read(path, relations=RelationMap(["CPR:9"])))


@pytest.mark.parametrize(
    ("part", "counts"),
    [
        ("train", {"CPR:3": 777, "CPR:4": 2260, "CPR:5": 170, "CPR:6": 235, "CPR:9": 727}),
        ("dev", {"CPR:3": 552, "CPR:4": 1103, "CPR:5": 116, "CPR:6": 199, "CPR:9": 457}),
        ("test", {"CPR:3": 667, "CPR:4": 1667, "CPR:5": 198, "CPR:6": 293, "CPR:9": 644}),
    ],
)
def test_scibert_real_files(real_data: Path, part: str, counts: dict[str, int]) -> None:
    instances = list(ChemProtSciBERT().read(real_data / "chemprot" / "scibert" / f"{part}.txt.xz"))
    assert Counter(one.relation for one in instances) == counts
    for one in instances:
        assert one.text[one.head.start : one.head.end] == one.head.name
        assert one.text[one.tail.start : one.tail.end] == one.tail.name
        assert one.head.end <= one.tail.start and "<< " not in one.text and " ]]" not in one.text


# --- as BioCreative VI ships it ---------------------------------------------------------------------------

TITLE = "Moxal blocks kinA."
ABSTRACT = "Moxal and belin bind kinA in No. 5 cells. Neither binds subunit B. It stays."
TEXT = f"{TITLE}\t{ABSTRACT}"


def entity(key: str, kind: str, name: str, occurrence: int = 0) -> str:
    start = -1
    for _ in range(occurrence + 1):
        start = TEXT.index(name, start + 1)
    return f"1\t{key}\t{kind}\t{start}\t{start + len(name)}\t{name}"


ENTITIES = (
    entity("T1", "CHEMICAL", "Moxal"),
    entity("T2", "GENE-Y", "kinA"),
    entity("T3", "CHEMICAL", "Moxal", 1),
    entity("T4", "CHEMICAL", "belin"),
    entity("T5", "GENE-N", "kinA", 1),
    entity("T6", "GENE-Y", "subunit B. It"),  # a full stop that ends no sentence
)
GOLD = (
    "1\tCPR:4\tArg1:T1\tArg2:T2",
    "1\tCPR:3\tArg1:T3\tArg2:T5",
    "1\tCPR:9\tArg1:T5\tArg2:T3",  # a second relation, arguments the other way round
    "1\tCPR:2\tArg1:T4\tArg2:T5",  # not among those that are evaluated
    "1\tCPR:5\tArg1:T1\tArg2:T5",  # from the title into the abstract
)


def corpus(
    folder: Path, *, gold: bool = True, part: str = "training", ending: str = "", **tables: str
) -> Path:
    """A folder of one abstract; a keyword replaces the rows of a table."""
    content = {
        "abstracts": f"1\t{TITLE}\t{ABSTRACT}",
        "entities": "\n".join(ENTITIES),
        "gold_standard" if gold else "relations": "\n".join(GOLD),
    } | tables
    folder.mkdir(exist_ok=True)
    for name, rows in content.items():
        (folder / f"chemprot_{part}_{name}{ending}.tsv").write_text(rows + "\n\n")
    return folder


def test_pairs_of_a_sentence_with_their_relation_or_na(tmp_path: Path) -> None:
    reader = ChemProt()
    found = list(reader.read(corpus(tmp_path / "c"), relations=ChemProt.relations))
    assert [(one.head.id, one.tail.id, one.relation) for one in found] == [
        ("1:T1", "1:T2", "CPR:4"),
        ("1:T3", "1:T5", "CPR:3"),
        ("1:T3", "1:T5", "CPR:9"),
        ("1:T4", "1:T5", NA),
    ]
    title, *_, last = found
    head, tail = Mention("1:T1", "Moxal", 0, 5, "CHEMICAL"), Mention("1:T2", "kinA", 13, 17, "GENE")
    assert title == Instance(TITLE, head, tail, "CPR:4", "1", document="1")
    assert last.text == "Moxal and belin bind kinA in No. 5 cells."
    assert (last.head.start, last.tail.start) == (10, 21)
    assert reader.problems.notes[FAR].count == 1


def test_a_full_stop_inside_an_entity_ends_no_sentence(tmp_path: Path) -> None:
    more = (*ENTITIES, entity("T7", "CHEMICAL", "stays"))
    *_, one = ChemProt().read(corpus(tmp_path / "c", entities="\n".join(more)))
    assert (one.text, one.relation) == ("Neither binds subunit B. It stays.", NA)
    assert one.text[one.tail.start : one.tail.end] == "subunit B. It"


def test_the_relations_serve_where_there_is_no_gold_standard(tmp_path: Path) -> None:
    rows = "\n".join(line.replace("\tArg1", "\tY \tSOME-LABEL\tArg1") for line in GOLD)
    plain = list(ChemProt().read(corpus(tmp_path / "gold")))
    detailed = corpus(tmp_path / "all", gold=False, part="test", ending="_gs", relations=rows)
    assert list(ChemProt().read(detailed)) == plain
    (detailed / "chemprot_sample_predictions.tsv").write_text("not read")
    both = corpus(tmp_path / "both", relations="not read")
    assert list(ChemProt().read(both)) == plain


@pytest.mark.parametrize(
    ("table", "rows", "line", "problem"),
    [
        ("abstracts", "1\ttitle", 1, r"expected 3 columns \(pmid, title, abstract\), found 2"),
        ("abstracts", "1\tone\ttwo\n1\tthree\tfour", 2, "the abstract 1 is there twice"),
        ("entities", "1\tT1\tCHEMICAL\t0\t5", 1, "expected 6 columns .*, found 5"),
        ("entities", "2\tT1\tCHEMICAL\t0\t5\tMoxal", 1, "there is no abstract '2'"),
        ("entities", "1\tT1\tDRUG\t0\t5\tMoxal", 1, "expected the type CHEMICAL, .* found 'DRUG'"),
        ("entities", f"{ENTITIES[0]}\n{ENTITIES[0]}", 2, "the entity T1 of 1 is there twice"),
        (
            "entities",
            "1\tT1\tCHEMICAL\t1\t6\tMoxal",
            1,
            "expected 'Moxal' at the characters 1 to 6 of 1, found",
        ),
        ("entities", "1\tT1\tCHEMICAL\tx\t5\tMoxal", 1, "expected 'Moxal' at the characters x to 5"),
        ("entities", "1\tT1\tCHEMICAL\t900\t905\tMoxal", 1, "found ''"),
        ("gold_standard", "1\tCPR:4\tArg1:T1", 1, "expected 4 columns .*, found 3"),
        ("gold_standard", "2\tCPR:4\tArg1:T1\tArg2:T2", 1, "there is no abstract '2'"),
        ("gold_standard", "1\tCPR:44\tArg1:T1\tArg2:T2", 1, "expected a group from CPR:0 to CPR:10"),
        ("gold_standard", "1\tCPR:4\tArg1:T1\tArg2:T99", 1, "with an entity of 1, found 'Arg2:T99'"),
        ("gold_standard", "1\tCPR:4\tArg1:T1\tT2", 1, "expected an argument as Arg1:T1"),
        ("gold_standard", "1\tCPR:4\tArg1:T1\tArg2:T3", 1, "expected a chemical and a gene as arguments"),
        ("gold_standard", "1\tCPR:6\tArg1:T1\tArg2:T2", 1, "'CPR:6' is not in the relation map"),
    ],
)
def test_says_which_line_is_wrong(tmp_path: Path, table: str, rows: str, line: int, problem: str) -> None:
    folder = corpus(tmp_path / "c", **{table: rows})
    with pytest.raises(UserError, match=rf"chemprot_training_{table}\.tsv:{line}: .*{problem}"):
        list(ChemProt().read(folder, relations=RelationMap(["CPR:4"])))


def test_says_which_table_is_missing_or_there_twice(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "c")
    (folder / "chemprot_training_gold_standard.tsv").unlink()
    with pytest.raises(UserError, match=r"expected one table of relations .*, found none"):
        list(ChemProt().read(folder))
    corpus(folder, part="development")
    with pytest.raises(
        UserError, match=r"abstracts .*, found chemprot_dev.*, chemprot_training_abs(?s:.*) one part"
    ):
        list(ChemProt().read(folder))
    with pytest.raises(UserError, match="expected a folder"):
        list(ChemProt().read(tmp_path / "none"))
