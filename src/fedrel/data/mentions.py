"""Where two entities stand in a sentence: by their names, as whole tokens, or by tags around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span
from fedrel.errors import UserError

LATE_ENDS = "names that end after their place does: is its end the last character, not the one after it?"
OFF_BY_ONE = "names that are one character off their place: do characters count from 0?"
OTHER_PLACES = "names that are not what the text has at their place"
_TAG = re.compile(r"<(/?)e([12])(?::([^<>]*))?>")
_HINT = "mark head and tail, as in '<e1>Aspirin</e1> relieves <e2>headache</e2>'"


def find_name(name: str, text: str, tokens: Sequence[Span], after: int = 0) -> Span | None:
    """The first place at or after a character where the name is whole tokens of the text, or None.

    A place where it is spelt alike comes first; otherwise case does not count, and `_` is a space: the name
    `los_angeles_dodgers` is found in "los_angeles dodgers", where another name was joined first.

    >>> find_name("vancouver", "From Vancouver, with love", [(0, 4), (5, 14), (14, 15), (16, 20), (21, 25)])
    (5, 14)
    """
    name = name.strip()
    starts, ends = {start for start, _ in tokens}, {end for _, end in tokens}
    for spelling in (str, _plain):
        sought, within = spelling(name), spelling(text)
        if len(within) != len(
            text
        ):  # a few characters, as İ, grow in lower case: their places would be wrong
            continue
        for start in _occurrences(sought, within, after):
            end = start + len(sought)
            if start in starts and end in ends:
                return start, end
    return None


def find_pair(head: str, tail: str, text: str, tokens: Sequence[Span]) -> tuple[Span | None, Span | None]:
    """The places of two names. Where both entities have one name, the tail is its next place, if there is one."""
    first = find_name(head, text, tokens)
    if first is None or _plain(head) != _plain(tail):
        return first, find_name(tail, text, tokens)
    return first, find_name(tail, text, tokens, first[1]) or first


def misplaced(name: str, text: str, start: int, end: int) -> str:
    """What is wrong with a place at which the text does not have the name; empty if only case or joining differ.

    >>> misplaced("Bo", "Ada left Bo.", 9, 10)
    'names that end after their place does: is its end the last character, not the one after it?'
    """
    found = text[start:end]
    if _plain(found) == _plain(name):
        return ""
    if text[start : start + len(name)] == name:
        return LATE_ENDS if len(found) < len(name) else OTHER_PLACES
    if name in (text[max(start - 1, 0) : start - 1 + len(name)], text[start + 1 : start + 1 + len(name)]):
        return OFF_BY_ONE
    return OTHER_PLACES


def unmarked(text: str) -> Instance:
    """The sentence without its tags, which mark head and tail; it has no relation yet, and names serve as ids.

    >>> found = unmarked("<e1:DRUG>Aspirin</e1> relieves <e2>headache</e2>")
    >>> found.text, found.head, found.tail.start
    ('Aspirin relieves headache', Mention(id='Aspirin', name='Aspirin', start=0, end=7, type='DRUG'), 17)
    """
    plain, done = "", 0
    places: dict[str, int] = {}  # of each tag, in the text without tags
    types: dict[str, str] = {}
    for tag in _TAG.finditer(text):
        plain += text[done : tag.start()]
        name = f"{tag[1]}e{tag[2]}"
        if name in places:
            raise UserError(f"<{name}> is there twice, in {text!r}", hint=_HINT)
        places[name], done = len(plain), tag.end()
        if not tag[1]:
            types[name] = tag[3] or ""
    plain += text[done:]
    head, tail = (_tagged(name, plain, places, types) for name in ("e1", "e2"))
    return Instance(plain, head, tail, NA)


def _tagged(name: str, text: str, places: dict[str, int], types: dict[str, str]) -> Mention:
    start, end = places.get(name), places.get(f"/{name}")
    if start is None or end is None or not text[start:end].strip():
        raise UserError(f"no entity <{name}>...</{name}> in {text!r}", hint=_HINT)
    return Mention(text[start:end], text[start:end], start, end, types[name])


def _plain(text: str) -> str:
    return text.replace("_", " ").lower()


def _occurrences(sought: str, within: str, start: int) -> Iterator[int]:
    place = within.find(sought, start) if sought else -1
    while place >= 0:
        yield place
        place = within.find(sought, place + 1)
