"""OpenNRE's JSON lines, which are also the format for a user's own text; and MIRGENE's, which have one difference.

A line has `text` (or `token`, a list), `h` and `t` with `id`, `name` and `pos`, and `relation`. A position is
[start, end), in characters of `text` or in tokens of `token`. We add fields that may be left out: one that
names the source of the sentence, `expresses` (whether the sentence states the relation), and a `type` in `h`
and `t`, as `GENE`.

MIRGENE (Li et al. 2017) has the relations `NA` and `R_MIRTAR`. Its `entity_pair` names the pair of miRNA and gene
that a line is about: two ids or names, or one string for both. `h` and `t` may then lack an id, or a position
(their name is looked for in the text), or be absent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from fedrel.data.mentions import find_name, misplaced
from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span, tokenise
from fedrel.data.text_files import byte_lines, decoded, lines
from fedrel.errors import UserError


class OpenNRE(Reader):
    """OpenNRE's JSON lines."""

    name = "opennre"

    def read(
        self,
        path: Path,
        *,
        relations: RelationMap | None = None,
        source: str = "source",
        labelled: bool = True,
    ) -> Iterator[Instance]:
        """The instances of a file; `source` names the field that says where a sentence is from.

        With `labelled=False`, for text to predict on, `relation` may be absent and is then NA.
        """
        known = None if relations is None else frozenset(relations)
        usual = self.none_label == NA
        for number, line in byte_lines(path):
            instance = _usual(line, known, source) if usual else None
            if instance is not None:
                self.problems.seen += 1
                self._check_names(instance, path, number)
                yield instance
            elif (text := decoded(line, number, path)).strip():
                with self.problems:
                    record = _record(text, path, number, self.none_label)
                    instance = record.instance(relations, source, labelled)
                    self._check_names(instance, path, number)
                    yield instance

    def write(self, rows: Iterable[Instance], path: Path) -> None:
        """Write a line a sentence."""
        from fedrel.data.align import write_jsonl

        write_jsonl(rows, path)

    def _check_names(self, instance: Instance, path: Path, number: int) -> None:
        """Count names that are not what the text has at their places, which is how a converter's mistakes show."""
        text = instance.text
        for mention in (instance.head, instance.tail):
            if text[mention.start : mention.end] != mention.name:
                what = misplaced(mention.name, text, mention.start, mention.end)
                found = text[mention.start : mention.end]
                example = f"{path.name}:{number}: {mention.name!r} at [{mention.start}, {mention.end}), where"
                self.problems.note(what, bool(what), f"{example} the text has {found!r}")


class JSONLines(OpenNRE):
    """A user's own text, which takes the same form."""

    name = "jsonl"


def records(path: Path, reader: Reader) -> Iterator[Record]:
    """The JSON objects of a file; lines that are none are the reader's problems."""
    for number, line in lines(path):
        if line.strip():
            try:
                record = _record(line, path, number, reader.none_label)
            except UserError as error:
                with reader.problems:
                    raise error
                continue
            yield record


def _record(line: str, path: Path, number: int, none_label: str) -> Record:
    try:
        fields = json.loads(line)
        if "\\ud" in line.lower():
            json.dumps(
                fields, ensure_ascii=False
            ).encode()  # raises for half a surrogate pair, which is no character
    except (ValueError, RecursionError) as error:
        raise UserError(f"broken JSON: {error}", file=path, line=number) from error
    if not isinstance(fields, dict):
        problem = f"expected a JSON object, found {_kind(fields)}"
        raise UserError(problem, file=path, line=number, hint="write one object a line")
    return Record(fields, path, number, none_label)


def _usual(line: bytes, relations: Collection[str] | None, source: str) -> Instance | None:
    """The instance of a line as nearly all are: with `text`, and nothing in it to look at twice.

    None for all others, right or wrong, which `Record` reads; so this need not tell what is wrong with them.
    """
    try:
        fields = orjson.loads(line)
        text, relation = fields["text"], fields["relation"]
        head, tail = _usual_mention(fields["h"], text), _usual_mention(fields["t"], text)
        origin, expresses = fields.get(source, ""), fields.get("expresses")
        if (
            head is None
            or tail is None
            or type(relation) is not str
            or not (relations is None or relation in relations)
            or type(origin) is not str
            or not (expresses is None or type(expresses) is bool)
        ):
            return None
        return Instance(text, head, tail, relation, origin, expresses)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _usual_mention(entity: dict[str, Any], text: str) -> Mention | None:
    identity, name, (start, end), kind = entity["id"], entity["name"], entity["pos"], entity.get("type", "")
    if (
        type(identity) is type(name) is type(kind) is type(text) is str
        and type(start) is type(end) is int
        and 0 <= start < end <= len(text)
        and not text[start:end].isspace()
    ):
        return Mention(identity, name, start, end, kind)
    return None


@dataclass(frozen=True, slots=True)
class Record:
    """One line, read field by field; what does not fit is an error with the line's number."""

    fields: dict[str, Any]
    file: Path
    line: int
    none_label: str = NA

    def instance(
        self, relations: RelationMap | None = None, source: str = "source", labelled: bool = True
    ) -> Instance:
        """The sentence with its two entities; `OpenNRE.read` says what the arguments mean."""
        text, tokens = self.sentence()
        return Instance(
            text,
            self.mention("h", text, tokens),
            self.mention("t", text, tokens),
            self.relation(relations, labelled),
            self.source(source),
            self.expresses(),
            tokens,
        )

    def sentence(self) -> tuple[str, tuple[Span, ...] | None]:
        """The text, and its tokens if it came as tokens (then joined by spaces)."""
        text = self.fields.get("text")
        if isinstance(text, str) and text.strip():
            return text, None
        tokens = self.fields.get("token")
        if isinstance(tokens, list) and tokens and all(isinstance(token, str) for token in tokens):
            ends = [end - 1 for end in accumulate(len(token) + 1 for token in tokens)]
            spans = ((end - len(token), end) for end, token in zip(ends, tokens, strict=True))
            return " ".join(tokens), tuple(spans)
        raise self.error(f"expected `text` or a list of strings `token`, found {_keys(self.fields)}")

    def mention(self, key: str, text: str, tokens: tuple[Span, ...] | None) -> Mention:
        """The entity under `h` or `t`; if it has no `id`, its `name` is used, and the other way round."""
        entity = self.entity(key)
        place = self.position(key, entity, text, tokens)
        return Mention(*self.identity(key, entity), *place, self.type_of(key, entity))

    def entity(self, key: str) -> dict[str, Any]:
        """The object under `h` or `t`."""
        entity = self.fields.get(key)
        if not isinstance(entity, dict):
            raise self.error(f"expected an object `{key}` with id, name and pos, found {_keys(self.fields)}")
        return entity

    def identity(self, key: str, entity: dict[str, Any]) -> tuple[str, str]:
        """An entity's id and name."""
        identity, name = entity.get("id"), entity.get("name")
        if identity is None and name is None:
            raise self.error(f"expected an `id` or `name` in `{key}`, found {_keys(entity)}")
        return str(name if identity is None else identity), str(identity if name is None else name)

    def position(
        self, key: str, entity: dict[str, Any], text: str, tokens: tuple[Span, ...] | None
    ) -> tuple[int, int]:
        """An entity's characters [start, end)."""
        position = entity.get("pos")
        if not isinstance(position, list) or [type(place) for place in position] != [int, int]:
            raise self.error(f"expected `pos` of `{key}` to be [start, end), found {json.dumps(position)}")
        start, end = position
        size, unit = (len(text), "characters") if tokens is None else (len(tokens), "tokens")
        if not 0 <= start < end <= size:
            raise self.error(
                f"the position [{start}, {end}) of `{key}` is outside the sentence of {size} {unit}"
            )
        if tokens is not None:
            start, end = tokens[start][0], tokens[end - 1][1]
        if not text[start:end].strip():
            raise self.error(f"the position of `{key}` holds nothing but white space")
        return start, end

    def type_of(self, key: str, entity: dict[str, Any]) -> str:
        """An entity's type, if the line has it."""
        kind = entity.get("type", "")
        if not isinstance(kind, str):
            raise self.error(f"expected `type` of `{key}` to be a string, found {_kind(kind)}")
        return kind

    def relation(self, relations: RelationMap | None, labelled: bool = True) -> str:
        """The relation, which the map, if there is one, must have."""
        relation = self.fields.get("relation", None if labelled else NA)
        if not isinstance(relation, str):
            raise self.error(f"expected a string `relation`, found {_keys(self.fields)}")
        relation = NA if relation == self.none_label else relation
        if relations is not None:
            relations.check(relation, self.file, self.line)
        return relation

    def source(self, field: str) -> str:
        """The source of the sentence, if the line has it."""
        source = self.fields.get(field)
        if not isinstance(source, str | int | None):
            raise self.error(f"expected `{field}` to be a string, found {_kind(source)}")
        return "" if source is None else str(source)

    def expresses(self) -> bool | None:
        """Whether the sentence states the relation, if the line has it."""
        expresses = self.fields.get("expresses")
        if not isinstance(expresses, bool | None):
            raise self.error(f"expected `expresses` to be true or false, found {_kind(expresses)}")
        return expresses

    def error(self, problem: str) -> UserError:
        """What is wrong with this line."""
        return UserError(problem, file=self.file, line=self.line)


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


def _keys(fields: dict[str, Any]) -> str:
    return ", ".join(f"`{key}` ({_kind(value)})" for key, value in fields.items()) or "an empty object"


def _kind(value: object) -> str:
    names = {str: "a string", dict: "an object", list: "a list", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


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
