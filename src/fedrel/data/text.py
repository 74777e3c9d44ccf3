"""Where the tokens and sentences of a text are, as character spans into it.

Regular expressions instead of a language pipeline: the extractors need exact offsets and speed, not tags, and
every site must cut the same text the same way without downloading anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

# In this order: a blinded entity (`@GENE$`); a word, with . ' - inside it but without its possessive, so that
# a name is found in "Einstein's" too; that possessive; any other visible character by itself.
_TOKEN = re.compile(r"@\w+\$|\w++(?:(?:[.-]|['\u2019](?!s\b))\w++)*+|['\u2019]s\b|\S")
_WORD = re.compile(r"\S+")

# Where a sentence may end: after . ! ? … and closing quotes or brackets, before white space; or a blank line.
_END = re.compile(r"(?P<stop>[.!?\u2026]+)[\"'\u2019\u201d\u00bb)\]]*(?=\s)|\n[^\S\n]*\n")
_OPENING = "([\"'\u2018\u201c\u00ab"
_NEXT_WORD = re.compile(rf"[\s{re.escape(_OPENING)}]*([\w-]*)")

# After these a full stop never ends a sentence; after initials it does before a word that starts many.
_ABBREVIATION = re.compile(
    r"dr|mr|mrs|ms|prof|rev|hon|st|mt|ft|gen|gov|sen|rep|col|lt|sgt|capt|messrs|vs|cf|e\.g|i\.e|viz|al|figs?|eqs?"
    r"|refs?|tab|sec|ch|vol|nos?|pp|eds?|approx|ca|dept|univ|spp?|subsp|var"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec",
    re.IGNORECASE,
)
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # J, U.S, a.m
_STARTER = re.compile(
    r"the|an?|this|that|these|those|it|he|she|they|we|i|in|on|at|for|from|with|by|as|when|while|after|before|if"
    r"|but|and|however|although|because|there|here|our|his|her|their|its|both|all|no",
    re.IGNORECASE,
)


def tokenise(text: str) -> list[Span]:
    """The tokens of running text.

    >>> [("IL-6 isn't Smith's @GENE$.")[a:b] for a, b in tokenise("IL-6 isn't Smith's @GENE$.")]
    ['IL-6', "isn't", 'Smith', "'s", '@GENE$', '.']
    """
    return [match.span() for match in _TOKEN.finditer(text)]


def whitespace(text: str) -> list[Span]:
    """The tokens of a text that came tokenised: whatever stands between white space."""
    return [match.span() for match in _WORD.finditer(text)]


def sentences(text: str) -> Iterator[Span]:
    """The sentences of running text, without the white space around them; a blank line ends one too."""
    start = 0
    for end in _END.finditer(text):
        if end["stop"] is None or _ends_sentence(text, start, end):
            yield from _trimmed(text, start, end.end())
            start = end.end()
    yield from _trimmed(text, start, len(text))


def _ends_sentence(text: str, start: int, end: re.Match[str]) -> bool:
    following = _NEXT_WORD.match(text, end.end())
    word = following[1] if following else ""
    if (
        word.islower() and word.isalpha()
    ):  # mTOR, p53 and miR-21 may start a sentence, an ordinary word may not
        return False
    if end["stop"] != ".":
        return True
    *earlier, last = text[start : end.start()].rsplit(maxsplit=1) or [""]
    last = last.lstrip(_OPENING)
    if _ABBREVIATION.fullmatch(last) or (last.isdecimal() and not earlier):  # "No. 5" and "1. Methods"
        return False
    return not _INITIALS.fullmatch(last) or bool(_STARTER.fullmatch(word))


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    sentence = text[start:end]
    start += len(sentence) - len(sentence.lstrip())
    end -= len(sentence) - len(sentence.rstrip())
    if start < end:
        yield start, end
