"""NYT10 (Riedel et al. 2010) in the tab form of Lin et al. 2016.

A line is `mid1 mid2 name1 name2 relation sentence`, and the sentence ends with `###END###`, after a space or
as a seventh column. It is lower-cased and tokenised, and in it an entity's words are joined by `_`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span, whitespace
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_END = "###END###"
_log = logging.getLogger(__name__)


class NYT10(Reader):
    """NYT10's tab-separated lines."""

    name = "nyt10"

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file.

        A name that is not in the sentence is put at its start, as in the published code; how often that happened is
        logged.
        """
        missing = 0
        for number, line in lines(path):
            if not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) < 6:
                problem = f"expected 6 columns (2 ids, 2 names, relation, sentence), found {len(columns)}"
                raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
            head_id, tail_id, head_name, tail_name, relation, sentence = columns[:6]
            text = sentence.strip().removesuffix(_END).rstrip()
            spans = whitespace(text)
            if not spans:
                raise UserError("the sentence is empty", file=path, line=number)
            if relations is not None:
                relations.check(relation, path, number)

            head = _find(head_name, text, spans)
            # A pair of two entities with one name: the tail is the name's next occurrence.
            tail = _find(tail_name, text, spans, after=head if tail_name == head_name else None)
            missing += (head is None) + (tail is None)
            yield Instance(
                text,
                Mention(head_id, head_name.replace("_", " "), *(head or spans[0])),
                Mention(tail_id, tail_name.replace("_", " "), *(tail or spans[0])),
                relation,
                tokens=tuple(spans),
            )
        if missing:
            _log.warning("%s: %d mentions are not in their sentence and were put at its start", path, missing)


def _find(name: str, text: str, spans: list[Span], after: Span | None = None) -> Span | None:
    """The first token that is the name, or the first tokens that are its words when joined.

    The second is needed where the other entity's name is part of this one's and was joined first: "los_angeles
    dodgers" for `los_angeles_dodgers`. With `after`, the next occurrence is found, if there is one.
    """
    start = after[1] if after else 0
    padded, wanted = f" {text} ", f" {name} "
    place = padded.find(wanted, start)
    if place < 0:
        place = padded.replace("_", " ").find(wanted.replace("_", " "), start)
    if place < 0:
        return after
    return place, place + len(name)
