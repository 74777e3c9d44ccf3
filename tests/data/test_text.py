from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.data.text import sentences, tokenise, whitespace


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
@settings(deadline=None)
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
@settings(deadline=None)
def test_sentences_lose_no_character(text: str) -> None:
    parts = cut(text, list(sentences(text)))
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(part and part == part.strip() for part in parts)
