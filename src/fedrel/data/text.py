"""Where the tokens and sentences of a text are, as character spans into it.

Two regular expressions instead of a language pipeline: the extractors need stable offsets and speed, not
tags, and every site must cut the same text the same way without downloading anything.
"""

from __future__ import annotations

import re

Span = tuple[int, int]

# In this order: a blinded entity (`@GENE$`); a word, with . ' - inside it but without its possessive, so that
# a name is found in "Einstein's" too; that possessive; any other visible character by itself.
_TOKEN = re.compile(r"@\w+\$|\w++(?:(?:[.-]|['\u2019](?!s\b))\w++)*+|['\u2019]s\b|\S")
_WORD = re.compile(r"\S+")


def tokenise(text: str) -> list[Span]:
    """The tokens of running text.

    >>> [("IL-6 isn't Smith's @GENE$.")[a:b] for a, b in tokenise("IL-6 isn't Smith's @GENE$.")]
    ['IL-6', "isn't", 'Smith', "'s", '@GENE$', '.']
    """
    return [match.span() for match in _TOKEN.finditer(text)]


def whitespace(text: str) -> list[Span]:
    """The tokens of a text that came tokenised: whatever stands between white space."""
    return [match.span() for match in _WORD.finditer(text)]
