from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fedrel.data.readers import READERS, Reader, reader
from fedrel.data.readers.nyt10 import NYT10
from fedrel.data.readers.opennre import MIRGENE, OpenNRE
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.data.text import tokenise
from fedrel.errors import UserError


def ours() -> dict[str, type[Reader]]:
    """Readers of the package, without those that other tests have loaded as plug-ins."""
    return {name: one for name, one in READERS.all().items() if one.__module__.startswith("fedrel.")}


def test_readers_are_found_by_name() -> None:
    own = {
        "gad",
        "i2b2",
        "pgr",
        "chemprot",
        "chemprot-scibert",
        "ddi",
        "ppi",
        "gda",
    }  # which fix their relations
    documents = {"pubtator", "eog", "docred", "bioc", "brat-documents", "gda"}
    sentences = {"nyt10", "opennre", "jsonl", "mirgene", "semeval", "tacred", "spert", "conll04", "brat"}
    tables = {"csv", "parquet", "datasets"}
    sentences |= {"judged-tokens", "judged-lines", "judged-snippets"}
    found = ours()
    assert set(found) == sentences | {"bioc-sentences"} | tables | own | documents
    assert {name for name, one in found.items() if one.unit == "documents"} == documents
    assert found["jsonl"].read is found["opennre"].read
    relations = {name: one.relations for name, one in found.items() if one.relations is not None}
    assert set(relations) == own and all(names[0] == NA for names in relations.values())
    with pytest.raises(UserError, match="did you mean 'nyt10'"):
        reader("nyt-10")
    with pytest.raises(UserError, match="did you mean 'pubtator'"):
        reader("pubtater")


def test_readers_say_which_options_they_take() -> None:
    options = {name: set(one.options()) for name, one in ours().items() if one.options()}
    pairs = {"pair_types", "directions"}
    assert options == {
        **{name: {"source", "labelled"} for name in ("opennre", "jsonl", "mirgene")},
        **dict.fromkeys(("spert", "conll04", "brat", "bioc-sentences"), pairs),
        "pubtator": pairs | {"id_separator", "labelled"},
        **{name: pairs | {"id_separator"} for name in ("bioc", "brat-documents")},
        **{name: {"columns"} for name in ("csv", "parquet", "datasets")},
        "docred": {"pair_types", "rel_info"},
    }


# --- NYT10 ------------------------------------------------------------------------------------------------


def nyt(tmp_path: Path, *rows: tuple[str, ...]) -> Path:
    path = tmp_path / "train.txt"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def spoken(mention: Mention, one: Instance) -> str:
    return one.text[mention.start : mention.end]


@pytest.mark.parametrize("end", [(" ###END###",), ("", "###END###")])
def test_nyt10_in_both_of_its_forms(tmp_path: Path, end: tuple[str, ...]) -> None:
    sentence = "in new_york , ada_king met bo ."
    row = ("m.1", "m.2", "ada_king", "new_york", "/people/place_lived", sentence + end[0], *end[1:])
    [one] = NYT10().read(nyt(tmp_path, row))
    assert one == Instance(
        sentence,
        Mention("m.1", "ada king", 14, 22),
        Mention("m.2", "new york", 3, 11),
        "/people/place_lived",
        tokens=((0, 2), (3, 11), (12, 13), (14, 22), (23, 26), (27, 29), (30, 31)),
    )


def test_nyt10_takes_whole_tokens_and_the_first(tmp_path: Path) -> None:
    [one] = NYT10().read(
        nyt(tmp_path, ("1", "2", "york", "ada", "NA", "adam in new_york saw york and york ada . ###END###"))
    )
    assert (one.head.start, one.tail.start) == (21, 35)


def test_nyt10_two_entities_of_one_name(tmp_path: Path) -> None:
    twice = ("1", "2", "paris", "paris", "NA", "paris , the paris of texas ###END###")
    once = ("1", "2", "paris", "paris", "NA", "in paris ###END###")
    first, second = NYT10().read(nyt(tmp_path, twice, once))
    assert (first.head.start, first.tail.start) == (0, 12)
    assert (second.head.start, second.tail.start) == (3, 3)


def test_nyt10_a_name_joined_otherwise_is_found(tmp_path: Path) -> None:
    row = ("1", "2", "los_angeles", "los_angeles_dodgers", "NA", "the los_angeles dodgers won ###END###")
    [one] = NYT10().read(nyt(tmp_path, row))
    assert spoken(one.head, one) == "los_angeles"
    assert spoken(one.tail, one) == "los_angeles dodgers"


def test_nyt10_is_tokenised_as_all_text_is(tmp_path: Path) -> None:
    """`Vancouver,` is two tokens, and a name is found whatever its case."""
    row = ("1", "2", "vancouver", "Ada", "NA", "From Vancouver, Ada's letters (1901). ###END###")
    [one] = NYT10().read(nyt(tmp_path, row))
    assert (spoken(one.head, one), spoken(one.tail, one)) == ("Vancouver", "Ada")
    assert one.tokens == tuple(tokenise(one.text))
    words = ["From", "Vancouver", ",", "Ada", "'s", "letters", "(", "1901", ")", "."]
    assert [one.text[a:b] for a, b in one.tokens] == words


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("1", "2", "a", "b", "NA"), "expected 6 columns .* found 5"),
        (("1", "2", "a", "b", "NA", " ###END###"), "the sentence is empty"),
        (("1", "2", "a", "b", "eats", "a b ###END###"), "the relation 'eats' is not in the relation map"),
        (
            ("1", "2", "a", "nobody", "NA", "a b ###END###"),
            "the name 'nobody' is not in the sentence\nhint: ",
        ),
        (("1", "2", "a", "b", "NA", "a bb ab ###END###"), "the name 'b' is not in the sentence"),
    ],
)
def test_nyt10_says_which_line_is_wrong(tmp_path: Path, row: tuple[str, ...], problem: str) -> None:
    path = nyt(tmp_path, ("1", "2", "a", "b", "NA", "a b ###END###"), (), row)
    with pytest.raises(UserError, match=rf"train\.txt:3: {problem}"):
        list(NYT10().read(path, relations=RelationMap(["NA"])))


def test_nyt10_real_files(real_data: Path, caplog: pytest.LogCaptureFixture) -> None:
    counts = {}
    for name in ("train", "test", "test_positive"):
        counts[name] = 0
        for one in NYT10().read(real_data / "nyt10" / f"{name}.txt.xz"):
            counts[name] += 1
            for mention in (one.head, one.tail):
                assert spoken(mention, one).replace("_", " ") == mention.name
            assert not one.text.endswith("###END###")
    assert counts == {"train": 10_230, "test": 9_703, "test_positive": 6_944}
    assert not caplog.records  # every name is found


# --- JSON lines -------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "text": "Ada left Bo.",
    "h": {"id": "e1", "name": "Ada", "pos": [0, 3]},
    "t": {"id": "e2", "name": "Bo", "pos": [9, 11]},
    "relation": "left",
}


def jsonl(tmp_path: Path, *records: dict[str, Any] | str) -> Path:
    path = tmp_path / "data.jsonl"
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_opennre_text(tmp_path: Path) -> None:
    [one] = OpenNRE().read(jsonl(tmp_path, GOOD))
    assert one == Instance("Ada left Bo.", Mention("e1", "Ada", 0, 3), Mention("e2", "Bo", 9, 11), "left")


def test_opennre_tokens_have_token_positions(tmp_path: Path) -> None:
    record = GOOD | {
        "token": ["Ada", "King", "left", "New", "York", "."],
        "h": {"id": "e1", "name": "Ada King", "pos": [0, 2]},
        "t": {"id": "e2", "name": "New York", "pos": [3, 5]},
    }
    del record["text"]
    [one] = OpenNRE().read(jsonl(tmp_path, record))
    assert one.text == "Ada King left New York ."
    assert (spoken(one.head, one), spoken(one.tail, one)) == ("Ada King", "New York")
    assert one.tokens == ((0, 3), (4, 8), (9, 13), (14, 17), (18, 22), (23, 24))


def test_users_own_fields(tmp_path: Path) -> None:
    ada = {"name": "Ada", "pos": [0, 3], "type": "PERSON"}
    record = GOOD | {"hospital": "north", "expresses": True, "h": ada}
    path = jsonl(tmp_path, record, "", GOOD | {"hospital": 3, "expresses": None})
    first, second = OpenNRE().read(path, source="hospital")
    assert (first.source, first.expresses, first.head.id) == ("north", True, "Ada")
    assert (first.head.type, first.tail.type) == ("PERSON", "")
    assert (second.source, second.expresses) == ("3", None)


def test_text_to_predict_on_needs_no_relation(tmp_path: Path) -> None:
    record = {key: value for key, value in GOOD.items() if key != "relation"}
    [one] = OpenNRE().read(jsonl(tmp_path, record), labelled=False)
    assert one.relation == NA
    with pytest.raises(UserError, match="expected a string `relation`"):
        list(OpenNRE().read(jsonl(tmp_path, record)))


def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    assert len(list(OpenNRE().read(path))) == 1


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ('{"text": "Ada', "broken JSON"),
        ('{"text": "\\ud800 left Bo"}', "broken JSON"),
        ("[1]", "expected a JSON object, found a list"),
        ("{}", "expected `text` .* found an empty object"),
        (GOOD | {"text": 5}, r"expected `text` .* found `text` \(a number\)"),
        (GOOD | {"text": "  "}, "expected `text`"),
        (GOOD | {"text": None, "token": []}, "expected `text`"),
        (GOOD | {"h": None}, r"expected an object `h` .*`h` \(null\)"),
        (GOOD | {"t": {"pos": [0, 3]}}, "expected an `id` or `name` in `t`, found `pos`"),
        (GOOD | {"t": {"id": "x"}}, r"expected `pos` of `t` to be \[start, end\), found null"),
        (GOOD | {"t": {"id": "x", "pos": [1, "2"]}}, r"found \[1, \"2\"\]"),
        (GOOD | {"t": {"id": "x", "pos": [True, 2]}}, r"found \[true, 2\]"),
        (
            GOOD | {"t": {"id": "x", "pos": [9, 13]}},
            r"\[9, 13\) of `t` is outside the sentence of 12 characters",
        ),
        (GOOD | {"t": {"id": "x", "pos": [-1, 3]}}, "outside the sentence"),
        (GOOD | {"t": {"id": "x", "pos": [3, 3]}}, "outside the sentence"),
        (GOOD | {"t": {"id": "x", "pos": [3, 4]}}, "nothing but white space"),
        (GOOD | {"text": None, "token": ["a", "b"]}, "outside the sentence of 2 tokens"),
        (GOOD | {"relation": "lft"}, "'lft' is not in the relation map\nhint: did you mean 'left'"),
        (GOOD | {"relation": 3}, "expected a string `relation`"),
        (GOOD | {"h": GOOD["h"] | {"type": 7}}, "expected `type` of `h` to be a string, found a number"),
        (GOOD | {"source": ["x"]}, "expected `source` to be a string, found a list"),
        (GOOD | {"expresses": 1}, "expected `expresses` to be true or false, found a number"),
    ],
)
def test_opennre_says_which_line_is_wrong(tmp_path: Path, record: dict[str, Any] | str, problem: str) -> None:
    path = jsonl(tmp_path, GOOD, record)
    with pytest.raises(UserError, match=rf"data\.jsonl:2: .*{problem}"):
        list(OpenNRE().read(path, relations=RelationMap(["left"])))


# --- MIRGENE ----------------------------------------------------------------------------------------------

MIR: dict[str, Any] = {"text": "MicroRNA-223 regulates FOXO1 expression", "relation": "R_MIRTAR"}
BOTH = (Mention("MIR:223", "microRNA-223", 0, 12), Mention("GENE:2308", "FOXO1", 23, 28, "GENE"))


def test_mirgene_with_positions_and_a_string_for_the_pair(tmp_path: Path) -> None:
    record = MIR | {
        "entity_pair": "MIR:223_GENE:2308",
        "h": {"name": "microRNA-223", "pos": [0, 12]},
        "t": {"name": "FOXO1", "pos": [23, 28]},
    }
    [one] = MIRGENE().read(jsonl(tmp_path, record))
    assert (one.head.id, one.tail.id) == ("MIR:223_GENE:2308 (head)", "MIR:223_GENE:2308 (tail)")
    assert (one.head.start, one.tail.start, one.relation) == (0, 23, "R_MIRTAR")


def test_mirgene_ids_of_the_pair_and_names_to_look_for(tmp_path: Path) -> None:
    names = {"h": {"name": "microRNA-223"}, "t": {"name": "FOXO1", "type": "GENE"}}
    [one] = MIRGENE().read(jsonl(tmp_path, MIR | names | {"entity_pair": ["MIR:223", "GENE:2308"]}))
    assert (one.head, one.tail) == BOTH


def test_mirgene_names_only_in_the_pair(tmp_path: Path) -> None:
    [one] = MIRGENE().read(jsonl(tmp_path, MIR | {"entity_pair": ["microRNA-223", "FOXO1"]}))
    assert (one.head.id, one.head.start, one.tail.id, one.tail.start) == ("microRNA-223", 0, "FOXO1", 23)


def test_mirgene_in_opennre_form(tmp_path: Path) -> None:
    assert list(MIRGENE().read(jsonl(tmp_path, GOOD))) == list(OpenNRE().read(jsonl(tmp_path, GOOD)))


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (MIR, "expected an object `h`"),
        (MIR | {"entity_pair": "only a string"}, "expected an object `h`"),
        (MIR | {"entity_pair": ["one"]}, "expected `entity_pair` to be a string or two"),
        (MIR | {"entity_pair": ["microRNA-223", "FOXO1"], "relation": "x"}, "'x' is not in the relation map"),
        (MIR | {"entity_pair": ["microRNA-223", "FOXO"]}, "the name 'FOXO' of `t` is not in the sentence"),
    ],
)
def test_mirgene_says_which_line_is_wrong(tmp_path: Path, record: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=rf"data\.jsonl:1: .*{problem}"):
        list(MIRGENE().read(jsonl(tmp_path, record), relations=RelationMap(["R_MIRTAR"])))


@pytest.mark.parametrize("name", ["nyt10", "jsonl", "mirgene"])
def test_what_a_reader_yields_can_be_built(tmp_path: Path, name: str) -> None:
    path = (
        nyt(tmp_path, ("1", "2", "a", "b", "NA", "a b ###END###"))
        if name == "nyt10"
        else jsonl(tmp_path, GOOD)
    )
    corpus = SentenceCorpus.build(
        ((0, one) for one in reader(name).read(path)), tmp_path / "corpus", ["NA", "left"]
    )
    assert len(corpus) == 1
