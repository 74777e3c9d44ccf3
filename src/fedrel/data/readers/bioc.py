"""BioC (Comeau et al. 2013), as XML or JSON: documents of passages, with annotations and relations.

An annotation has its place in the document, its text, and infons for its type and its id in a knowledge base. A
relation names two annotations (nodes with `refid`) or, as in BioRED, PubTator 3 and CDR, two ids in its infons.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrel.data.annotations import Document
from fedrel.data.readers import Reader
from fedrel.data.readers.marked import (
    PARTED,
    Marked,
    MarkedDocuments,
    MarkedSentences,
    MarkedText,
    Relation,
    split_ids,
)
from fedrel.data.relations import RelationMap
from fedrel.data.structured_files import JSONObject, Node, objects, read_xml, shown
from fedrel.data.text import Span
from fedrel.data.text_files import lines

_TYPES = ("type", "relation")
_IDS = ("identifier", "Identifier", "MESH", "NCBI Gene", "concept_id", "database_id", "id")
_ENDS = (("entity1", "entity2"), ("role1", "role2"))  # of BioRED, and of PubTator 3
_ABOUT = {"type", "relation", "novel", "note", "score"}


class BioC(MarkedDocuments):
    """BioC's documents: annotations with the same id are one entity."""

    name = "bioc"
    version = 2

    def texts(self, path: Path, relations: RelationMap | None, id_separator: str) -> Iterator[MarkedText]:
        """The documents of a file."""
        return _texts(path, self, relations, id_separator)

    def write(self, rows: Iterable[Document], path: Path) -> None:
        """Write JSON, a passage a document."""
        with path.open("w", encoding="utf-8") as file:
            file.write('{"source": "fedrel", "documents": [')
            for number, row in enumerate(rows):
                file.write((",\n" if number else "\n") + json.dumps(_json(row), ensure_ascii=False))
            file.write("\n]}\n")


class BioCSentences(MarkedSentences):
    """BioC's sentences: every pair of annotations in one sentence."""

    name = "bioc-sentences"
    version = 2

    def texts(self, path: Path, relations: RelationMap | None) -> Iterator[MarkedText]:
        """The documents of a file; ids are not split."""
        return _texts(path, self, relations, "")


@dataclass(slots=True)
class _Item:
    """A document, passage, annotation or relation of either form."""

    at: JSONObject | Node
    number: int
    id: str = ""
    text: str = ""
    offset: int = 0
    infons: Mapping[str, Any] = field(default_factory=dict)
    places: list[tuple[int, int]] = field(default_factory=list)  # offset and length
    nodes: list[str] = field(default_factory=list)  # ids of annotations
    passages: list[_Item] = field(default_factory=list)
    annotations: list[_Item] = field(default_factory=list)
    relations: list[_Item] = field(default_factory=list)


def _texts(path: Path, reader: Reader, relations: RelationMap | None, separator: str) -> Iterator[MarkedText]:
    first = next((line for _, line in lines(path) if line.strip()), "")
    found = _from_json(path) if first.lstrip().startswith(("{", "[")) else _from_xml(path)
    for item in found:
        with reader.problems:
            yield _marked(item, path, reader, relations, separator)


def _marked(
    item: _Item, path: Path, reader: Reader, relations: RelationMap | None, separator: str
) -> MarkedText:
    text, parts = "", list[Span]()
    for passage in item.passages:
        if passage.offset < len(text):
            problem = f"{item.id}: a passage at {passage.offset} is before the end of the last, {len(text)}"
            raise item.at.error(problem, "offsets count the document's characters")
        text += " " * (passage.offset - len(text)) + passage.text
        parts.append((passage.offset, len(text)))
    if not text.strip():
        raise item.at.error(f"document {item.id} is empty", "remove it, or give it a text")
    marked = MarkedText(item.id, text, path, parts)
    everything = [item, *item.passages]
    for one in (annotation for part in everything for annotation in part.annotations):
        with reader.problems:
            kind = _infon(one.infons, ("type",))
            ids = split_ids(_infon(one.infons, _IDS), separator)
            if not one.places:
                raise one.at.error(f"{item.id}: the annotation {one.id!r} has no location")
            start, end = one.places[0][0], one.places[-1][0] + one.places[-1][1]
            name = one.text
            if len(one.places) > 1:
                reader.problems.note(PARTED)
                name = text[start:end]
            marked.mark(one.id, Marked(name, kind, start, end, ids), one.at.line)
    known = {identity for mention in marked.mentions.values() for identity in mention.ids}
    for one in (relation for part in everything for relation in part.relations):
        with reader.problems:
            name = reader.relation(_infon(one.infons, _TYPES), relations, path, one.at.line)
            novel = str(one.infons.get("novel", ""))
            if len(one.nodes) == 2 and not _named_ends(one.infons):
                marked.relate(Relation(name, one.nodes[0], one.nodes[1], novel), one.at.line)
            else:
                marked.relations.append(Relation(name, *_ends(one, item, known), novel))
    return marked


def _named_ends(infons: Mapping[str, Any]) -> list[Any]:
    """The two ids that infons name outright; their nodes then count entities, not annotations."""
    return next(([infons[key] for key in keys] for keys in _ENDS if all(key in infons for key in keys)), [])


def _ends(relation: _Item, item: _Item, known: set[str]) -> tuple[str, str]:
    """The ids that a relation's infons name.

    In BioRED these are `entity1` and `entity2`; in PubTator 3 `role1` and `role2`, as `Chemical|MESH:D001` or as an
    object with `identifier`; in CDR the types, as `Chemical` and `Disease`.
    """
    named = _named_ends(relation.infons)
    if not named and not relation.nodes:
        named = [value for key, value in relation.infons.items() if key not in _ABOUT]
    if len(named) != 2:
        problem = f"{item.id}: expected a relation with two nodes, or two ids in its infons"
        raise relation.at.error(f"{problem}, found {shown(dict(relation.infons))}")
    head, tail = (_identity(one, known) for one in named)
    for identity in (head, tail):
        if identity not in known:
            problem = f"{item.id}: a relation names {identity!r}, which no annotation has as its id"
            raise relation.at.error(problem, "give the entity an annotation, or set id_separator")
    return head, tail


def _identity(named: Any, known: set[str]) -> str:
    whole = str(named.get("identifier", "")) if isinstance(named, dict) else str(named)
    kind, bar, rest = whole.partition("|")
    return rest if bar and kind and whole not in known else whole


def _infon(infons: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((str(infons[name]) for name in names if infons.get(name) is not None), "")


def _from_xml(path: Path) -> Iterator[_Item]:
    for number, node in enumerate(read_xml(path, "collection").children("document"), 1):
        yield _xml_item(node, number)


def _xml_item(node: Node, number: int) -> _Item:
    def whole(text: str) -> int:
        if not text.strip().isdecimal():
            raise node.error(f"expected a whole number in <{node.tag}>, found {text!r}")
        return int(text)

    item = _Item(node, number, node.get("id") or node.words("id") or str(number), node.words("text"))
    item.offset = whole(node.words("offset") or "0")
    item.infons = {infon.get("key", ""): infon.text or "" for infon in node.children("infon")}
    for place in node.children("location"):
        item.places.append((whole(place.required("offset")), whole(place.required("length"))))
    item.nodes = [one.required("refid") for one in node.children("node")]
    for tag in ("passage", "sentence"):
        item.passages += [_xml_item(one, place) for place, one in enumerate(node.children(tag), 1)]
    item.annotations = [_xml_item(one, place) for place, one in enumerate(node.children("annotation"), 1)]
    item.relations = [_xml_item(one, place) for place, one in enumerate(node.children("relation"), 1)]
    return _flat(item)


def _from_json(path: Path) -> Iterator[_Item]:
    for record in objects(path, "collection"):
        documents = record.fields.get("documents", [record.fields])
        if not isinstance(documents, list):
            raise record.error("expected `documents` to be a list")
        for number, one in enumerate(documents, 1):
            yield _json_item(one, record, number)


def _json_item(fields: Any, record: JSONObject, number: int) -> _Item:
    if not isinstance(fields, dict):
        raise record.error(f"expected an object, found {shown(fields)}")
    within = JSONObject(fields, record.file, record.line, record.number)
    item = _Item(within, number, str(fields.get("id") or number), within.get("text", str, default="") or "")
    item.offset = within.get("offset", int, default=0)
    item.infons = within.get("infons", dict, default={})
    for place in within.get("locations", list, default=[]):
        match place:
            case {"offset": int(offset), "length": int(length)} if offset >= 0:
                item.places.append((offset, length))
            case _:
                raise record.error(f"expected locations with offset and length, found {shown(place)}")
    for one in within.get("nodes", list, default=[]):
        match one:
            case {"refid": str() | int() as refid}:
                item.nodes.append(str(refid))
            case _:
                raise record.error(f"expected nodes with `refid`, found {shown(one)}")
    for name, kept in (
        ("passages", item.passages),
        ("sentences", item.passages),
        ("annotations", item.annotations),
        ("relations", item.relations),
    ):
        inside = within.get(name, list, default=[])
        kept += [_json_item(one, record, place) for place, one in enumerate(inside, 1)]
    return _flat(item)


def _flat(item: _Item) -> _Item:
    """A passage that comes in sentences, as those sentences."""
    item.passages = [
        inner for one in item.passages for inner in (one.passages if one.passages and not one.text else [one])
    ]
    return item


def _json(row: Document) -> dict[str, Any]:
    annotations = [
        {
            "id": f"{number}.{place}",
            "infons": {"type": entity.type, "identifier": entity.id},
            "text": row.text[mention.start : mention.end],
            "locations": [{"offset": mention.start, "length": mention.end - mention.start}],
        }
        for number, entity in enumerate(row.entities)
        for place, mention in enumerate(entity.mentions)
    ]
    relations = []
    for number, fact in enumerate(row.facts):
        ends = {"entity1": row.entities[fact.head].id, "entity2": row.entities[fact.tail].id}
        novel = {"novel": fact.attribute} if fact.attribute else {}
        relations.append(
            {"id": f"R{number}", "infons": {"type": fact.relation, **ends, **novel}, "nodes": []}
        )
    passage = {"offset": 0, "text": row.text, "annotations": annotations, "relations": []}
    return {"id": row.id, "infons": {}, "passages": [passage], "relations": relations}
