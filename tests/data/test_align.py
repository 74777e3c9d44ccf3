"""A knowledge base, and text that is labelled with it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedrel.data.align import (
    PART,
    Aligned,
    KnowledgeBase,
    Match,
    Matcher,
    align,
    plain,
    read_kb,
    why_nothing,
    write_jsonl,
)
from fedrel.data.readers import reader
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import sentences, tokenise
from fedrel.errors import UserError
from fedrel.seeding import derive


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


# --- finding names ----------------------------------------------------------------------------------------


def found(names: list[tuple[str, str]], text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(text[one.start : one.end], one.entities) for one in Matcher(names).find(text)]


def test_names_are_whole_tokens_in_any_case_and_the_longest_wins() -> None:
    names = [("new york", "ny"), ("York", "y"), ("New York City", "nyc"), ("IL-6", "il6"), ("IL", "il")]
    text = "NEW\n  YORK's yorkers; new york cityscape, New York City. IL-6-like IL-6"
    assert found(names, text) == [
        ("NEW\n  YORK", ("ny",)),
        ("new york", ("ny",)),  # a longer name that is no whole token does not hide it
        ("New York City", ("nyc",)),
        ("IL-6", ("il6",)),
    ]


def test_offsets_hold_where_lower_case_is_longer() -> None:
    assert found([("\u0130zmir", "i"), ("Ada", "a")], "\u0130\u0130 \U0001d4b3 \u0130ZMIR ada") == [
        ("\u0130ZMIR", ("i",)),
        ("ada", ("a",)),
    ]


def test_a_name_of_two_entities_stands_for_both() -> None:
    assert found([("mercury", "planet"), ("Mercury", "metal"), (" ", "nothing")], "Mercury") == [
        ("Mercury", ("planet", "metal"))
    ]


def naive_matches(names: list[tuple[str, str]], text: str) -> list[Match]:
    """At each token try every name, longest first, token by token."""

    def words(of: str) -> list[str]:
        return [of[start:end].lower() for start, end in tokenise(of)]

    spans, tokens, matches, place = tokenise(text), words(text), [], 0
    while place < len(tokens):
        fitting = [
            words(name) for name, _ in names if tokens[place : place + len(words(name))] == words(name)
        ]
        longest = max(filter(None, fitting), key=len, default=None)
        if longest is None:
            place += 1
            continue
        entities = dict.fromkeys(entity for name, entity in names if words(name) == longest)
        matches.append(Match(spans[place][0], spans[place + len(longest) - 1][1], tuple(entities)))
        place += len(longest)
    return matches


words = st.text(alphabet="aB\u0130\u03c3-.' ", min_size=1, max_size=5)


@given(
    st.lists(st.tuples(words, st.sampled_from("xyz")), max_size=6), st.lists(words, max_size=12).map(" ".join)
)
@example([("\u0130a", "x"), ("a a", "y")], "\u0130A a a-a a\na")
def test_the_automaton_agrees_with_trying_every_name(names: list[tuple[str, str]], text: str) -> None:
    assert Matcher(names).find(text) == naive_matches(names, text)


# --- labelling --------------------------------------------------------------------------------------------


@pytest.fixture
def kb() -> KnowledgeBase:
    kb = KnowledgeBase()
    kb.add("ada", ["Ada King", "Ada"], "born_in", "london", ["London"])
    kb.add("ada", ["Ada"], "lived_in", "london", ["London"])
    kb.add("ada", ["Ada"], "NA", "bo", ["Bo"])
    kb.add("planet", ["Mercury"], "part_of", "space", ["space"])
    kb.add("metal", ["Mercury"], "found_in", "mine", ["mine"])
    return kb


def labelled(tmp_path: Path, kb: KnowledgeBase, text: str, na_rate: float = 0) -> list[tuple[str, str, str]]:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    return [(one.head.id, one.relation, one.tail.id) for one in align([path], kb, na_rate=na_rate, seed=1)]


def test_one_instance_for_each_relation(tmp_path: Path, kb: KnowledgeBase) -> None:
    path = tmp_path / "notes.txt.gz"
    text = "Nothing here. Of London, \u0130t is\nsaid, Ada King knew London.\r\n\r\nAda slept. London slept."
    path.write_bytes(gzip.compress(text.encode()))
    first, second = align([path], kb, na_rate=0, seed=1)
    sentence = "Of London, \u0130t is\nsaid, Ada King knew London."
    assert first == Aligned(
        sentence,
        Mention("ada", "Ada King", 23, 31),
        Mention("london", "London", 3, 9),
        "born_in",
        "notes",
        span=(14, 14 + len(sentence)),
    )
    assert second.relation == "lived_in"
    assert text[slice(*second.span)] == sentence


def test_what_becomes_na(tmp_path: Path, kb: KnowledgeBase) -> None:
    assert labelled(tmp_path, kb, "Ada met Bo.") == [("ada", "NA", "bo")]  # as listed
    assert labelled(tmp_path, kb, "Ada met Bo.", na_rate=1) == [("ada", "NA", "bo"), ("bo", "NA", "ada")]


def test_a_shared_name_stands_for_whom_the_facts_relate(tmp_path: Path, kb: KnowledgeBase) -> None:
    assert labelled(tmp_path, kb, "Mercury is in space.") == [("planet", "part_of", "space")]
    assert labelled(tmp_path, kb, "Mercury is in a mine.") == [("metal", "found_in", "mine")]
    assert labelled(tmp_path, kb, "Bo and Mercury. Mercury, Mercury.", na_rate=1) == [
        ("bo", "NA", "planet"),
        ("planet", "NA", "bo"),
    ]


def test_a_share_of_the_unrelated_pairs_whatever_the_order(tmp_path: Path, kb: KnowledgeBase) -> None:
    paths = []
    for part in range(2):
        path = tmp_path / f"part{part}.txt"
        path.write_text("\n\n".join(f"Bo saw London {day}." for day in range(part, 1000, 2)))
        paths.append(path)
    forward = list(align(paths, kb, na_rate=0.25, seed=1))
    assert 400 < len(forward) < 600  # of 2,000 ordered pairs
    assert {one.relation for one in forward} == {"NA"}
    assert {one.source for one in forward} == {"part0", "part1"}
    backward = list(align(reversed(paths), kb, na_rate=0.25, seed=1))
    assert sorted(forward, key=repr) == sorted(backward, key=repr)
    assert forward != list(align(paths, kb, na_rate=0.25, seed=2))


def naive_alignment(text: str, kb: KnowledgeBase, rate: float) -> set[tuple[str, str, str, int, int]]:
    names = [(name, entity) for entity, names in kb.names.items() for name in names]
    expected = set()
    for start, end in sentences(text):
        sentence = text[start:end]
        first: dict[tuple[str, ...], Match] = {}
        for match in naive_matches(names, sentence):
            first.setdefault(match.entities, match)
        for head, tail in product(first.values(), repeat=2):
            if head is tail:
                continue
            pairs = [(h, t) for h in head.entities for t in tail.entities if h != t]
            facts = [(h, r, t) for h, t in pairs for r in kb.facts.get((h, t), ())]
            if not facts and pairs:
                h, t = pairs[0]
                if derive(1, "NA", h, t, sentence) / 2**63 < rate:
                    facts = [(h, "NA", t)]
            expected |= {(h, r, t, start, end) for h, r, t in facts}
    return expected


entities = st.sampled_from(["1", "2", "3"])


name_lists = st.lists(st.sampled_from(["a", "b", "a b", "c", "\u0130"]), min_size=1, max_size=2)


facts = st.lists(
    st.tuples(entities, name_lists, st.sampled_from(["r", "s"]), entities, name_lists), max_size=4
)


@given(
    facts, st.lists(st.sampled_from(["a", "A", "b", "c", "\u0130", "x", ". X", "\n", "\n\n"]), max_size=20)
)
def test_alignment_agrees_with_trying_everything(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, list[str], str, str, list[str]]],
    pieces: list[str],
) -> None:
    kb, text = KnowledgeBase(), " ".join(pieces)
    for row in rows:
        kb.add(*row)
    path = tmp_path_factory.mktemp("a") / "text.txt"
    path.write_bytes(text.encode())
    result = list(align([path], kb, na_rate=0.5, seed=1))
    assert {(one.head.id, one.relation, one.tail.id, *one.span) for one in result} == naive_alignment(
        text, kb, 0.5
    )
    for one in result:
        assert text[slice(*one.span)] == one.text
        for mention in (one.head, one.tail):
            spoken = " ".join(one.text[mention.start : mention.end].lower().split())
            assert spoken in {name.lower() for name in kb.names[mention.id]}


# --- writing ----------------------------------------------------------------------------------------------


def test_what_is_written_reads_back(tmp_path: Path, kb: KnowledgeBase) -> None:
    (tmp_path / "notes.txt").write_text("Ada knew London.")
    aligned = list(align([tmp_path / "notes.txt"], kb, na_rate=1, seed=1))
    out = tmp_path / "out.jsonl"
    assert write_jsonl(aligned, out) == len(aligned) == 3
    read = list(reader("jsonl").read(out))
    assert [(one.text, one.head, one.tail, one.relation, one.source) for one in read] == [
        (one.text, one.head, one.tail, one.relation, one.source) for one in aligned
    ]
    assert json.loads(out.read_text().splitlines()[0])["span"] == [0, 16]


def test_truth_and_types_are_written_where_they_are_known(tmp_path: Path) -> None:
    one = Instance("a b", Mention("1", "a", 0, 1, "X"), Mention("2", "b", 2, 3), "r", "s", expresses=False)
    write_jsonl([one], tmp_path / "out.jsonl")
    assert list(reader("jsonl").read(tmp_path / "out.jsonl")) == [one]


def test_a_missing_text_leaves_no_output(tmp_path: Path, kb: KnowledgeBase) -> None:
    with pytest.raises(UserError, match=r"gone\.txt: no such file"):
        write_jsonl(align([tmp_path / "gone.txt"], kb, na_rate=0, seed=1), tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("Sjögren's syndrome", "In Sjo\u0308gren\u2019s syndrome,", "Sjo\u0308gren\u2019s syndrome"),
        ("Sjo\u0308gren", "by Sjögren.", "Sjögren"),
        ("IL-6", "IL\u20116 rose", "IL\u20116"),
        ("fibrosis", "of \ufb01brosis.", "\ufb01brosis"),
        ("coffee", "co\u00adffee", "co\u00adffee"),
        ("阿司匹林", "患者服用阿司匹林后头痛。", "阿司匹林"),
        ("アスピリン", "彼はアスピリンを飲む", "アスピリン"),
        ("ada", "pre-Ada \u201cAda\u201d", "Ada"),
    ],
)
def test_names_are_found_however_they_are_written(name: str, text: str, found: str) -> None:
    [match] = Matcher([(name, "e")]).find(text)
    assert text[match.start : match.end] == found


@given(st.text(alphabet="aé\u0301\u2019'\ufb01-\u2011 \u00ad字b", max_size=20))
def test_plain_text_knows_where_it_is_from(text: str) -> None:
    written, origin = plain(text)
    places = list(range(len(text) + 1)) if origin is None else origin
    assert len(places) == len(written) + 1
    assert places == sorted(places) and places[-1] == len(text)
    assert all(text[places[n]] == letter for n, letter in enumerate(written) if letter in "b字 ")
    assert plain(written)[0] == written or origin is not None


def test_a_script_without_spaces(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("患者服用阿司匹林后头痛消失。他没有再服布洛芬。", encoding="utf-8")
    kb = KnowledgeBase()
    kb.add("D1", ["阿司匹林"], "treats", "I1", ["头痛"])
    [one] = align([path], kb, na_rate=0, seed=0)
    assert one.text == "患者服用阿司匹林后头痛消失。"
    assert (one.text[one.head.start : one.head.end], one.text[one.tail.start : one.tail.end]) == (
        "阿司匹林",
        "头痛",
    )


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "the text is empty"),
        ("Nothing here.", "no name of the knowledge base (3 entities, as 'Ada') is in the text"),
        ("Ada left. Bo stayed.", "2 names were found, but never two in one sentence"),
        ("Ada saw Cy.", "1 sentences have several names, but no pair that the knowledge base relates"),
    ],
)
def test_why_nothing_was_found(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text(text)
    kb, counts = KnowledgeBase(), Counter[str]()
    kb.add("A", ["Ada"], "left", "B", ["Bo"])
    kb.names["C"] = {"Cy": None}
    assert not list(align([path], kb, na_rate=0, seed=0, counts=counts))
    assert why_nothing(kb, counts).startswith(cause)


def test_text_without_a_full_stop_is_taken_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("Ada met Bo and " * 20_000)  # one line of 300,000 characters
    kb = KnowledgeBase()
    kb.add("A", ["Ada"], "met", "B", ["Bo"])
    found = list(align([path], kb, na_rate=0, seed=0))
    whole = path.read_text()
    assert all(len(one.text) <= PART and one.text.strip() in whole for one in found)
    assert all(whole[slice(*one.span)] == one.text for one in found)
    assert sum(one.text.count("Ada") for one in found) >= 19_000


@pytest.mark.slow
def test_fifty_megabytes_without_a_full_stop_fit_in_memory(tmp_path: Path) -> None:
    """In a process of its own, whose largest size is its own."""
    script = """
import resource, sys
from pathlib import Path
from fedrel.data.align import align
from fedrel.data.align import KnowledgeBase

kb = KnowledgeBase()
kb.add("A", ["Ada"], "met", "B", ["Bo"])
path = Path(sys.argv[1])
with path.open("w") as file:
    for number in range(1 << 20):
        file.write(f"word{number} and Ada then other words that met Bo again ")
print(sum(1 for _ in align([path], kb, na_rate=0, seed=0)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "long.txt")]
    found, megabytes = map(
        int, subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    )
    assert (tmp_path / "long.txt").stat().st_size > 50 << 20
    assert found > 100_000 and megabytes < 500
