"""DocRED's and Re-DocRED's JSON: a list of documents, or one document a line.

A document has `title`, `sents` (lists of tokens), `vertexSet` (an entity is a list of coreferent mentions with
`name`, `sent_id`, `pos` = tokens [first, after) of the sentence, and `type`) and, unless it is to be predicted,
`labels` with `h`, `t`, `r` and `evidence`. Entities have no ids, so their number in `vertexSet` is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrel.data.annotations import Document, Draft, Mention, PairTypes
from fedrel.data.readers import Reader
from fedrel.data.relations import RelationMap
from fedrel.data.structured_files import json_text, objects
from fedrel.data.text import Sentences, join_tokens
from fedrel.errors import UserError

_COUNTING = "`sent_id` counts sentences from 0, `pos` the tokens of that sentence from 0"


class DocRED(Reader):
    """DocRED's JSON."""

    name = "docred"
    unit = "documents"

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        pair_types: PairTypes | None = None,
        rel_info: Path | None = None,
    ) -> Iterator[Document]:
        """The documents of a file; with `rel_info` (`rel_info.json`), relations have names instead of `P17`."""
        titles = read_rel_info(Path(rel_info)) if rel_info else None
        for found in objects(path, "document"):
            record = _Record(found.fields, found.file, found.line, found.number)
            with self.problems:
                yield self._document(record, relations, pair_types, titles)

    def _document(
        self,
        record: _Record,
        relations: RelationMap | None,
        pair_types: PairTypes | None,
        titles: dict[str, str] | None,
    ) -> Document:
        draft = Draft()
        text, sentences = record.sentences()
        for number, vertex in enumerate(record.items("vertexSet")):
            for mention in vertex if isinstance(vertex, list) else [None]:
                with self.problems:
                    record.add_mention(draft, str(number), mention, text, sentences)
        for label in record.items("labels") if "labels" in record.fields else []:
            with self.problems:
                head, relation, tail, evidence = record.label(label, draft, len(sentences), titles)
                relation = self.relation(relation, relations, record.file, record.line)
                draft.fact(head, relation, tail, evidence)
        return draft.document(record.title, text, sentences, pair_types=pair_types, by_place=False)

    def write(self, rows: Iterable[Document], path: Path) -> None:
        """Write a list of documents; entities are numbered, so their ids are kept only if they are numbers."""
        with path.open("w", encoding="utf-8") as file:
            file.write("[")
            for number, row in enumerate(rows):
                file.write((",\n" if number else "\n") + json.dumps(_json(row), ensure_ascii=False))
            file.write("\n]\n")


def read_rel_info(path: Path) -> dict[str, str]:
    """What `rel_info.json` calls each relation."""
    try:
        names = json.loads(json_text(path))
    except ValueError as error:
        raise UserError(f"broken JSON: {error}", file=path) from error
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise UserError("expected a JSON object with a name for each relation", file=path)
    if len(set(names.values())) < len(names):
        raise UserError("two relations have one name", file=path)
    return names


@dataclass(frozen=True, slots=True)
class _Record:
    fields: dict[str, Any]
    file: Path
    line: int
    number: int

    @property
    def title(self) -> str:
        return str(self.fields.get("title", self.number))

    def error(self, problem: str, hint: str = "") -> UserError:
        problem = f"document {self.number} ({self.title!r}): {problem}"
        return UserError(problem, file=self.file, line=self.line, hint=hint)

    def items(self, key: str) -> list[Any]:
        found = self.fields.get(key)
        if not isinstance(found, list):
            raise self.error(f"expected a list `{key}`")
        return found

    def sentences(self) -> tuple[str, Sentences]:
        sentences = self.items("sents")
        for sentence in sentences:
            if not isinstance(sentence, list) or not all(isinstance(token, str) for token in sentence):
                raise self.error("expected every sentence in `sents` to be a list of strings")
        text, spans = join_tokens(sentences)
        if not text.strip():
            raise self.error("is empty: its `sents` have no word", "remove it, or give it a text")
        return text, spans

    def add_mention(
        self, draft: Draft, identity: str, mention: object, text: str, sentences: Sentences
    ) -> None:
        match mention:
            case {
                "name": str(name),
                "sent_id": int(sentence),
                "pos": [int(first), int(after)],
                "type": str(kind),
            }:
                pass
            case _:
                raise self.error(
                    f"entity {identity}: expected mentions with `name`, `sent_id`, `pos` and `type`"
                )
        place = f"{name!r} at tokens [{first}, {after}) of sentence {sentence}"
        if not 0 <= sentence < len(sentences):
            raise self.error(f"expected {place}, found {len(sentences)} sentences", _COUNTING)
        if not 0 <= first < after <= len(sentences[sentence]):
            raise self.error(f"expected {place}, found {len(sentences[sentence])} tokens in it", _COUNTING)
        start, end = sentences[sentence][first][0], sentences[sentence][after - 1][1]
        if not _alike(name, text[start:end]):
            raise self.error(f"expected {place}, found {text[start:end]!r}", _COUNTING)
        draft.handled["names_differ"] += name != text[start:end]
        draft.mention(identity, kind, Mention(name, start, end))

    def label(
        self, label: object, draft: Draft, sentences: int, titles: dict[str, str] | None
    ) -> tuple[str, str, str, Sequence[int]]:
        """Head, relation, tail and evidence of a fact."""
        match label:
            case {"h": int(head), "t": int(tail), "r": str(relation), **rest}:
                evidence = rest.get("evidence", [])
            case _:
                raise self.error(f"expected labels with `h`, `t` and `r`, found {label!r}")
        if titles is not None:
            if relation not in titles:
                raise self.error(f"the relation {relation!r} is not in rel_info.json")
            relation = titles[relation]
        for entity in (head, tail):
            if not draft.knows(str(entity)):
                raise self.error(
                    f"the relation {relation} names entity {entity}, which has no mention",
                    "give the entity a mention in `vertexSet`, or remove the label",
                )
        if not isinstance(evidence, list) or not all(
            isinstance(number, int) and 0 <= number < sentences for number in evidence
        ):
            raise self.error(
                f"expected evidence to be numbers of the {sentences} sentences, found {evidence!r}"
            )
        return str(head), relation, str(tail), evidence


def _json(row: Document) -> dict[str, Any]:
    numbered = sorted(entity.id for entity in row.entities) == sorted(map(str, range(len(row.entities))))
    number_of = [int(one.id) if numbered else place for place, one in enumerate(row.entities)]
    vertices: list[list[dict[str, Any]]] = [[] for _ in row.entities]
    for vertex, entity in zip(number_of, row.entities, strict=True):
        mentions = []
        for mention in entity.mentions:
            number, tokens = next(
                (place, one) for place, one in enumerate(row.sentences) if mention.start < one[-1][1]
            )
            first = sum(end <= mention.start for _, end in tokens)
            after = sum(start < mention.end for start, _ in tokens)
            name = row.text[mention.start : mention.end]
            mentions.append({"name": name, "sent_id": number, "pos": [first, after], "type": entity.type})
        vertices[vertex] = mentions
    labels = [
        {
            "h": number_of[fact.head],
            "t": number_of[fact.tail],
            "r": fact.relation,
            "evidence": list(fact.evidence),
        }
        for fact in row.facts
    ]
    sentences = [[row.text[start:end] for start, end in one] for one in row.sentences]
    return {"title": row.id, "sents": sentences, "vertexSet": vertices, "labels": labels}


def _alike(name: str, found: str) -> bool:
    """Names in DocRED differ from the tokens in spacing, quotes and stray numbers; the positions are right."""
    stated, plain = ("".join(filter(str.isalnum, each)).casefold() for each in (name, found))
    return name == found or bool(found.strip() and (stated in plain or plain in stated))
