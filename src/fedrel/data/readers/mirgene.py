"""MIRGENE (Li et al. 2017): OpenNRE's JSON lines with the relations `NA` and `R_MIRTAR`, and one difference.

`entity_pair` names the pair of miRNA and gene that a line is about: two ids or names, or one string for both.
`h` and `t` may then lack an id, or a position (their name is looked for in the text), or be absent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrel.data.readers import Reader
from fedrel.data.readers.opennre import Record, records
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span

_log = logging.getLogger(__name__)


class MIRGENE(Reader):
    """MIRGENE's JSON lines."""

    name = "mirgene"

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        source: str = "source",
        labelled: bool = True,
    ) -> Iterator[Instance]:
        """The instances of a file, with the options of OpenNRE's reader.

        A name that is not in the text is put at its start; how often that happened is logged.
        """
        missing = 0
        for record in records(path):
            text, tokens = record.sentence()
            mentions = []
            for key, entity in _entities(record):
                identity, name = record.identity(key, entity)
                place = record.position(key, entity, text, tokens) if "pos" in entity else _find(name, text)
                missing += place is None
                mentions.append(
                    Mention(identity, name, *(place or _first_word(text)), record.type_of(key, entity))
                )
            head, tail = mentions
            relation = record.relation(relations, labelled)
            yield Instance(text, head, tail, relation, record.source(source), record.expresses(), tokens)
        if missing:
            _log.warning("%s: %d mentions are not in their sentence and were put at its start", path, missing)


def _entities(record: Record) -> Iterator[tuple[str, dict[str, Any]]]:
    """`h` and `t`, with the ids that `entity_pair` gives them where they have none."""
    match record.fields.get("entity_pair"):
        case [str() | int() as head, str() | int() as tail]:
            for key, identity in (("h", head), ("t", tail)):
                yield key, {"id": identity} | (record.entity(key) if key in record.fields else {})
        case str() as pair:
            yield "h", {"id": f"{pair} (head)"} | record.entity("h")
            yield "t", {"id": f"{pair} (tail)"} | record.entity("t")
        case None:
            yield "h", record.entity("h")
            yield "t", record.entity("t")
        case other:
            raise record.error(f"expected `entity_pair` to be a string or two of them, found {other!r}")


def _find(name: str, text: str) -> Span | None:
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)
    return found.span() if found else None


def _first_word(text: str) -> Span:
    start = len(text) - len(text.lstrip())
    return start, start + 1
