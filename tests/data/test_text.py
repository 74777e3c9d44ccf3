from __future__ import annotations

import re
import time
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.problems import reason
from fedrel.data.readers import brat
from fedrel.data.readers.chemprot import _parts
from fedrel.data.text import (
    _END,
    join_tokens,
    segment,
    sentences,
    tokenise,
    whitespace,
    with_whole_mentions,
)


def cut(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("  \n ", []),
        ("IL-6 binds @GENE$.", ["IL-6", "binds", "@GENE$", "."]),
        ("Einstein's and Einstein\u2019s isn't", ["Einstein", "'s", "and", "Einstein", "\u2019s", "isn't"]),
        ("new_york (3.5%)", ["new_york", "(", "3.5", "%", ")"]),
        ("U.S. O'Brien's", ["U.S", ".", "O'Brien", "'s"]),
        ("\u03b2-catenin na\u00efve", ["\u03b2-catenin", "na\u00efve"]),
        ("a--b 'so' -x-", ["a", "-", "-", "b", "'", "so", "'", "-", "x", "-"]),
        ("user@GENE$x $5 @", ["user", "@GENE$", "x", "$", "5", "@"]),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert cut(text, tokenise(text)) == tokens


def test_whitespace_keeps_what_stands_together() -> None:
    assert cut("mr. o'brien 's\t-lrb-", whitespace("mr. o'brien 's\t-lrb-")) == [
        "mr.",
        "o'brien",
        "'s",
        "-lrb-",
    ]


@given(st.text())
def test_tokens_cover_every_visible_character_once(text: str) -> None:
    spans = tokenise(text)
    assert "".join(cut(text, spans)) == "".join(text.split())
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith met J. R. Jones at 3.5 p.m. on Jan. 5. He left.",
         ["Dr. Smith met J. R. Jones at 3.5 p.m. on Jan. 5.", "He left."]),
        ('"He left." She said (see Fig. 2). So.', ['"He left."', "She said (see Fig. 2).", "So."]),
        ("He lives in the U.S. The U.S. Senate met.", ["He lives in the U.S.", "The U.S. Senate met."]),
        ("Kinases, e.g. mTOR, i.e. big ones. mTOR binds p53. p53 too.",
         ["Kinases, e.g. mTOR, i.e. big ones.", "mTOR binds p53.", "p53 too."]),
        ("We grew E. coli. See Smith et al. (2010).", ["We grew E. coli.", "See Smith et al. (2010)."]),
        ("A title\n\nText that is\nwrapped. Done", ["A title", "Text that is\nwrapped.", "Done"]),
        ("A title\r\n \r\nText.", ["A title", "Text."]),
        ("1. Methods follow. 2. So do results.", ["1. Methods follow.", "2. So do results."]),
        ("Wait... what? It was 5. Then 6.", ["Wait... what?", "It was 5.", "Then 6."]),
        (" \n\n ", []),
    ],
)  # fmt: skip
def test_sentences(text: str, expected: list[str]) -> None:
    assert cut(text, list(sentences(text))) == expected


@given(st.text(alphabet='aB .!?\n"(1\u2026'))
def test_sentences_lose_no_character(text: str) -> None:
    parts = cut(text, list(sentences(text)))
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(part and part == part.strip() for part in parts)


def segmented(text: str, *names: str) -> tuple[list[list[str]], Counter[str]]:
    handled: Counter[str] = Counter()
    mentions = [(text.index(name), text.index(name) + len(name)) for name in names]
    sentences = segment(text, [(0, len(text))], mentions, handled)
    return [[text[start:end] for start, end in sentence] for sentence in sentences], +handled


def test_a_token_is_cut_at_the_edges_of_a_mention() -> None:
    assert segmented("An antigloomy tea.", "gloomy") == (
        [["An", "anti", "gloomy", "tea", "."]],
        {"split_tokens": 1},
    )
    assert segmented("Ca2X", "a2")[0] == [["C", "a2", "X"]]
    assert segmented("Plain tea.", "tea")[1] == {}


def test_a_sentence_end_inside_a_mention_is_none() -> None:
    assert len(segmented("It is gloom. Type two. Over.")[0]) == 3
    sentences, handled = segmented("It is gloom. Type two. Over.", "gloom. Type two")
    assert [len(sentence) for sentence in sentences] == [7, 2]
    assert handled == {"merged_sentences": 1}


def test_white_space_around_a_mention_merges_nothing() -> None:
    assert segmented("  One. Two.", "  One", " Two")[1] == {}


def test_a_mention_over_three_sentences_merges_them_all() -> None:
    sentences, handled = segmented("One. Two. Three. Four.", "ne. Two. Thr")
    assert [sentence[0] for sentence in sentences] == ["O", "Four"]
    assert handled == {"merged_sentences": 2, "split_tokens": 2}


def test_a_title_without_a_full_stop_is_a_sentence() -> None:
    text = "No stop here And on it goes."
    parts = [(0, 12), (12, len(text))]
    assert [sentence[0] for sentence in segment(text, parts, [], Counter())] == [(0, 2), (13, 16)]


def test_tokens_that_came_as_tokens_keep_their_places() -> None:
    text, sentences = join_tokens([["Ada", "", "met"], [], ["Bo"]])
    assert text == "Ada  met Bo"
    assert sentences == [[(0, 3), (4, 4), (5, 8)], [], [(9, 11)]]


WORDS = st.lists(
    st.sampled_from(["Ada", "met", "x-2.5", "(B)", "e.g.", "end.", "Über", "—", "!?", "St."]), min_size=1
)


@given(WORDS, st.data())
def test_each_mention_is_whole_tokens_of_one_sentence(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    place = st.integers(0, len(text) - 1)
    mentions = [
        (start, end + 1)
        for start, end in map(sorted, data.draw(st.lists(st.tuples(place, place), max_size=4)))
        if text[start : end + 1].strip()
    ]
    handled: Counter[str] = Counter()
    plain = segment(text, [(0, len(text))], [], handled)
    sentences = segment(text, [(0, len(text))], mentions, handled)
    tokens = [token for sentence in sentences for token in sentence]
    assert "".join(text[start:end] for start, end in tokens) == "".join(text.split())
    assert len(plain) - len(sentences) == handled["merged_sentences"]
    for start, end in mentions:
        inside = [
            [token for token in sentence if start < token[1] and token[0] < end] for sentence in sentences
        ]
        (home,) = filter(None, inside)
        assert "".join(text[a:b] for a, b in home) == "".join(text[start:end].split())
    again: Counter[str] = Counter()
    assert with_whole_mentions(sentences, mentions, again) == sentences and not +again


@pytest.mark.parametrize("text", ["", "  "])
def test_no_text_has_no_sentences(text: str) -> None:
    assert segment(text, [(0, len(text))], [], Counter()) == []


HOSTILE = {
    "dots": "." * 20_000,
    "dots and letters": "a." * 10_000,
    "quotes": '."' * 10_000,
    "blank": "\n" + " " * 20_000 + "x",
    "at": "@" + "a" * 20_000,
    "hyphens": "a-" * 10_000,
    "numbers": "1.1," * 5_000 + "a",
    "colons": "R1\tx " + ":" * 20_000,
    "markers": "<< " * 7_000,
    "brackets": "<< a >> " + "[[ " * 7_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_makes_a_pattern_try_everything(name: str) -> None:
    """In processor time; a pattern that tries again from every character would take ten seconds and more."""
    text = HOSTILE[name]
    begun = time.process_time()
    list(sentences(text))
    tokenise(text)
    reason(text)
    _parts(text)
    brat._RELATION.fullmatch(text)
    assert time.process_time() - begun < 2


@given(st.text(".!?\u2026\"')] \na\u3002\u300d", max_size=40))
def test_sentence_ends_are_those_of_the_plain_pattern(text: str) -> None:
    """The pattern as it was written first, which tries again from every character."""
    plain = re.compile(
        r"(?P<stop>[.!?\u2026]+)[\"'\u2019\u201d\u00bb)\]]*(?=\s)|\n[^\S\n]*\n"
        r"|[\u3002\uff01\uff1f]+[\u2019\u201d\u300d\u300f\uff09]*"
    )
    assert [one.span() for one in _END.finditer(text)] == [one.span() for one in plain.finditer(text)]


@given(st.text("<>[] ab", max_size=30))
def test_markers_are_those_of_the_plain_pattern(text: str) -> None:
    plain = re.compile(r"(.*?)<< (.+?) >>(.*?)\[\[ (.+?) \]\](.*)", re.DOTALL).fullmatch(text)
    assert _parts(text) == (None if plain is None else list(plain.groups()))
