from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.data.segmentation import respecting, segment, spans_of


def cut(text: str, *names: str) -> tuple[list[list[str]], Counter[str]]:
    handled: Counter[str] = Counter()
    mentions = [(text.index(name), text.index(name) + len(name)) for name in names]
    sentences = segment(text, [(0, len(text))], mentions, handled)
    return [[text[start:end] for start, end in sentence] for sentence in sentences], +handled


def test_a_token_is_cut_at_the_edges_of_a_mention() -> None:
    assert cut("An antigloomy tea.", "gloomy") == (
        [["An", "anti", "gloomy", "tea", "."]],
        {"split_tokens": 1},
    )
    assert cut("Ca2X", "a2")[0] == [["C", "a2", "X"]]
    assert cut("Plain tea.", "tea")[1] == {}


def test_a_sentence_end_inside_a_mention_is_none() -> None:
    assert len(cut("It is gloom. Type two. Over.")[0]) == 3
    sentences, handled = cut("It is gloom. Type two. Over.", "gloom. Type two")
    assert [len(sentence) for sentence in sentences] == [7, 2]
    assert handled == {"merged_sentences": 1}


def test_white_space_around_a_mention_merges_nothing() -> None:
    assert cut("  One. Two.", "  One", " Two")[1] == {}


def test_a_mention_over_three_sentences_merges_them_all() -> None:
    sentences, handled = cut("One. Two. Three. Four.", "ne. Two. Thr")
    assert [sentence[0] for sentence in sentences] == ["O", "Four"]
    assert handled == {"merged_sentences": 2, "split_tokens": 2}


def test_a_title_without_a_full_stop_is_a_sentence() -> None:
    text = "No stop here And on it goes."
    parts = [(0, 12), (12, len(text))]
    assert [sentence[0] for sentence in segment(text, parts, [], Counter())] == [(0, 2), (13, 16)]


def test_tokens_that_came_as_tokens_keep_their_places() -> None:
    text, sentences = spans_of([["Ada", "", "met"], [], ["Bo"]])
    assert text == "Ada  met Bo"
    assert sentences == [[(0, 3), (4, 4), (5, 8)], [], [(9, 11)]]


WORDS = st.lists(
    st.sampled_from(["Ada", "met", "x-2.5", "(B)", "e.g.", "end.", "Über", "—", "!?", "St."]), min_size=1
)


@settings(deadline=None)
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
    assert respecting(sentences, mentions, again) == sentences and not +again


@pytest.mark.parametrize("text", ["", "  "])
def test_no_text_has_no_sentences(text: str) -> None:
    assert segment(text, [(0, len(text))], [], Counter()) == []
