"""MIRGENE (Li et al. 2017): OpenNRE's JSON lines with the relations `NA` and `R_MIRTAR`, and one difference.

`entity_pair` names the pair of miRNA and gene that a line is about: two ids or names, or one string for both.
`h` and `t` may then lack an id, or a position (their name is looked for in the text), or be absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrel.data.mentions import find_name
from fedrel.data.readers import Reader
from fedrel.data.readers.opennre import Record, records
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span, tokenise


class MIRGENE(Reader):
    """MIRGENE's JSON lines."""

    name = "mirgene"
    version = 2

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        source: str = "source",
        labelled: bool = True,
    ) -> Iterator[Instance]:
        """The instances of a file, with the options of OpenNRE's reader.

        A name without a position must be in the text, as whole tokens.
        """
        for record in records(path, self):
            with self.problems:
                text, tokens = record.sentence()
                head, tail = (
                    _mention(record, key, entity, text, tokens) for key, entity in _entities(record)
                )
                relation = record.relation(relations, labelled)
                yield Instance(text, head, tail, relation, record.source(source), record.expresses(), tokens)


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


def _mention(
    record: Record, key: str, entity: dict[str, Any], text: str, tokens: tuple[Span, ...] | None
) -> Mention:
    identity, name = record.identity(key, entity)
    if "pos" in entity:
        place = record.position(key, entity, text, tokens)
    else:
        found = find_name(name, text, tokens or tokenise(text))
        if found is None:
            raise record.error(f"the name {name!r} of `{key}` is not in the sentence")
        place = found
    return Mention(identity, name, *place, record.type_of(key, entity))
