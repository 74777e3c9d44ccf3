"""DDI-2013 (Herrero-Zazo et al. 2013): drugs and how they interact, as XML, one document a file.

A `<sentence>` has its `text`, an `<entity>` for each drug with `charOffset` (the last character is included) and a
`<pair>` for any two of them, with `ddi` and, if that is true, `type`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedrel.data.annotations import HANDLED, agree
from fedrel.data.readers import Reader
from fedrel.data.readers.marked import PARTED
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.structured_files import Node, read_xml
from fedrel.data.text_files import files_in
from fedrel.errors import UserError

_PLACE = re.compile(r"(\d+)-(\d+)")


class DDI(Reader):
    """A folder of DDI's XML files, or one of them."""

    name = "ddi"
    relations = RelationMap(["mechanism", "effect", "advise", "int"])

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """Every listed pair of a sentence: `e1` is the head, and the document is the source."""
        files = [path]
        if path.is_dir():
            files = [file for file in files_in(path) if ".xml" in file.suffixes]
            if not files:
                raise UserError("expected XML files in it, found none", file=path, hint="check the path")
        for file in files:
            document = read_xml(file, "document")
            for sentence in document.children("sentence"):
                with self.problems:
                    yield from self._instances(sentence, document.get("id", file.stem), relations)

    def _instances(self, sentence: Node, source: str, relations: RelationMap | None) -> Iterator[Instance]:
        text = sentence.required("text")
        drugs: dict[str, Mention] = {}
        for entity in sentence.children("entity"):
            with self.problems:
                drug = self._drug(entity, text)
                if drug.id in drugs:
                    raise entity.error(f"the entity {drug.id!r} is there twice")
                drugs[drug.id] = drug
        for pair in sentence.children("pair"):
            with self.problems:
                head, tail = (_named(pair, end, drugs) for end in ("e1", "e2"))
                relation = self.relation(_label(pair), relations, pair.file, pair.line)
                yield Instance(text, head, tail, relation, source)

    def _drug(self, entity: Node, text: str) -> Mention:
        name, place = entity.required("text"), entity.required("charOffset")
        parts = [_PLACE.fullmatch(part) for part in place.split(";")]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            raise entity.error(f"expected charOffset as 0-6 or 0-6;10-14, found {place!r}")
        start, end = int(found[0][1]), int(found[-1][2]) + 1
        handled: Counter[str] = Counter()
        if len(found) > 1:
            self.problems.note(PARTED)
        elif not agree(name, text[start:end], handled):
            problem = f"expected {name!r} at the characters {place}, found {text[start:end]!r}"
            raise entity.error(problem, "characters count from 0, and the last one is included")
        if not 0 <= start < end <= len(text):
            raise entity.error(f"{place!r} is outside the sentence of {len(text)} characters")
        self.problems.note(HANDLED["names_differ"], handled["names_differ"])
        return Mention(entity.required("id"), text[start:end], start, end, entity.get("type", ""))


def _named(pair: Node, end: str, drugs: dict[str, Mention]) -> Mention:
    key = pair.required(end)
    if key not in drugs:
        raise pair.error(f"the pair names {key!r}, which is no entity of the sentence")
    return drugs[key]


def _label(pair: Node) -> str:
    interact = pair.required("ddi").lower()
    if interact not in ("true", "false"):
        raise pair.error(f"expected ddi to be true or false, found {interact!r}")
    return NA if interact == "false" else pair.required("type")
