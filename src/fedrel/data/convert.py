"""Data from one format into another. What was written is read again, so that nothing is lost unseen.

A reader with a method `write` can be written to. Whether a format can hold what another says need not be declared:
rows are compared with what comes back. Spacing, and where sentences and tokens end, may change; words, entities,
types, relations and all else that is said of them may not. What a reader leaves out by the rules of its format is
lost, too.

Sentences become documents, and documents sentences. A document says what is true of entities; a sentence has one
mention of each of two of them. A document's pairs that share a sentence become instances, and a sentence becomes a
short document, whose entities are those of all its instances.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fedrel.data.annotations import HANDLED, LOST, Document, Draft
from fedrel.data.annotations import Mention as Place
from fedrel.data.readers import READERS, Reader, reader
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import tokenise, with_whole_mentions
from fedrel.data.text_files import stem
from fedrel.errors import UserError, nearest
from fedrel.files import ScratchFolder

_HINT = "choose another format, or --lossy to do without"
Key = tuple[str, int, int, str, int, int, str]


@dataclass(frozen=True)
class Converted:
    """How much was written, and how often what was lost."""

    rows: int
    unit: str
    lost: Mapping[str, int]


def writers() -> list[str]:
    """The formats that can be written, by name."""
    return [name for name, one in READERS.all().items() if hasattr(one, "write")]


def convert(
    source: Path,
    format: str,
    target: Path,
    to: str,
    *,
    options: Mapping[str, Any] | None = None,
    none_label: str | None = None,
    lossy: bool = False,
) -> Converted:
    """Read `source` and write `target`, which must not exist; a `UserError` if that loses anything.

    `options` are those of the reader. With `lossy`, what cannot be held, or what the reader leaves out by the rules
    of its format, is counted instead. `as_sentences` and `as_documents` say what becomes of the other unit.
    """
    written = reader(to)
    write = getattr(written, "write", None)
    if write is None:
        problem = f"the format {to!r} cannot be written"
        raise UserError(problem, hint=f"choose {', '.join(writers())}")
    if target.exists():
        raise UserError("is there already", file=target, hint="choose another name")
    rows = _Rows(source, reader(format, none_label=none_label), dict(options or {}), written, lossy)
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    with ScratchFolder(target.absolute().parent) as scratch:
        part = Path(scratch) / target.name
        write(rows.all(), part)
        lost = Counter(rows.lost)
        count = _compare(rows, written, part, lost)
        shutil.move(part, target)
    return Converted(count, written.unit, dict(+lost))


class _Rows:
    """The rows of a file as the unit of the format that is written, and what of the file is in none of them."""

    def __init__(
        self, path: Path, chosen: Reader, options: dict[str, Any], written: Reader, lossy: bool
    ) -> None:
        self.path, self.lossy, self._written = path, lossy, written
        self._reader = chosen
        self._options = {**_everything(chosen), **checked(chosen, options)}
        self.lost: Counter[str] = Counter()

    def all(self) -> Iterator[Any]:
        """The rows, read anew; the first thing that is lost is an error, unless losses are allowed."""
        self.lost.clear()
        self._reader.problems.left_out = self.lost
        read = self._counted(self._reader.read(self.path, **self._options))
        if self._reader.unit == self._written.unit:
            rows: Iterator[Any] = read
        elif self._written.unit == "sentences":
            rows = as_sentences(read, self.lost)
        else:
            rows = as_documents(read, stem(self.path), self.lost)
        for row in rows:
            self._check()
            yield row
        self._check()

    def _counted(self, rows: Iterator[Any]) -> Iterator[Any]:
        """The rows as they are read; annotations that a document does not use are lost."""
        for row in rows:
            if isinstance(row, Document):
                self.lost.update({HANDLED[key]: row.handled.get(key, 0) for key in LOST})
            yield row

    def _check(self) -> None:
        lost = [f"{count:,} {what}" for what, count in self.lost.items() if count]
        if lost and not self.lossy:
            problem = f"{self._written.name!r} cannot hold all of it, as {'; '.join(lost)}"
            raise UserError(problem, file=self.path, hint=_HINT)


def checked(chosen: Reader, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the reader takes them; a `UserError` for one that it does not have, or a wrong value."""
    kinds = get_type_hints(chosen.read)
    values = {}
    for name, value in options.items():
        if name not in chosen.options():
            problem = f"the format {chosen.name!r} has no option {name!r}"
            raise UserError(problem, hint=nearest(name, chosen.options()))
        try:
            values[name] = TypeAdapter(kinds[name]).validate_python(value)
        except ValidationError as error:
            problem = f"option {name}: {error.errors()[0]['msg']}, found {value!r}"
            raise UserError(problem, hint="write it as in [data] of a config") from error
        if name == "pair_types" and any(len(pair) != 2 for pair in value):
            problem = f"option pair_types: expected pairs of types, found {value!r}"
            raise UserError(problem, hint='as [["Chemical", "Disease"]]')
    return values


def sentences_of(document: Document) -> Iterator[Instance]:
    """A document's sentences that mention both entities of a pair, once for each such pair and relation, or NA.

    Of several places, the first counts at which the two mentions do not overlap.
    """
    return (instance for _, instance in _placed(document))


def document_of(instances: Sequence[Instance], identity: str) -> Document:
    """One sentence as a document: the entities and facts of all instances of it."""
    text = instances[0].text
    draft = Draft()
    for one in instances:
        for mention in (one.head, one.tail):
            draft.mention(mention.id, mention.type, Place(mention.name, mention.start, mention.end))
        draft.fact(one.head.id, one.relation, one.tail.id)
    tokens = list(instances[0].tokens or tokenise(text))
    return draft.document(identity, text, with_whole_mentions([tokens], draft.spans, draft.handled))


def as_sentences(documents: Iterable[Document], lost: Counter[str]) -> Iterator[Instance]:
    """The sentences of documents, one after another; what they leave out is counted."""
    for document in documents:
        placed = list(_placed(document))
        found = [instance for _, instance in placed]
        ids = [entity.id for entity in document.entities]
        facts = {(ids[fact.head], fact.relation, ids[fact.tail]) for fact in document.facts}
        told = {(one.head.id, one.relation, one.tail.id) for one in found}
        used = {(end.id, start + end.start) for start, one in placed for end in (one.head, one.tail)}
        mentions = sum(len(entity.mentions) for entity in document.entities)
        lost["relations of entities that no sentence mentions together"] += len(facts - told)
        lost["relations' attributes or evidence"] += sum(
            bool(fact.attribute or fact.evidence) for fact in document.facts
        )
        lost["mentions that are in no pair"] += mentions - len(used)
        lost["sentences that mention no pair"] += len(document.sentences) - len(
            {start for start, _ in placed}
        )
        yield from found


def as_documents(instances: Iterable[Instance], name: str, lost: Counter[str]) -> Iterator[Document]:
    """Each sentence as a document; neighbouring instances of one sentence share it.

    Its id is the sentence's source, or `name`, with a number where that is taken.
    """
    taken: Counter[str] = Counter()
    for (_, source, document), group in groupby(
        instances, key=lambda one: (one.text, one.source, one.document)
    ):
        rows = list(group)
        made = document_of(rows, _new_id(document or source or name, taken))
        back = {_key(one) for one in sentences_of(made)}
        lost["pairs of single mentions, which a document does not tell from their entities"] += sum(
            _key(one) not in back for one in rows
        )
        lost["types of mentions other than their entity's first"] += made.handled.get("type_conflicts", 0)
        lost["names that are neither in the text nor ids"] += sum(
            mention.name not in (mention.id, one.text[mention.start : mention.end])
            for one in rows
            for mention in (one.head, one.tail)
        )
        lost["whether sentences state their relation"] += sum(one.expresses is not None for one in rows)
        yield made


def _everything(chosen: Reader) -> dict[str, Any]:
    """Options with which a reader tells all that a file says: ids as they are, and every pair both ways."""
    return {"id_separator": ""} if "id_separator" in chosen.options() else {}


def _compare(rows: _Rows, written: Reader, part: Path, lost: Counter[str]) -> int:
    """How many rows there are; what of them is not in what was written is counted, or an error."""
    count = 0
    pairs = zip_longest(rows.all(), _again(written, part))
    for count, (there, here) in enumerate(pairs, 1):
        if there is None or here is None:
            problem = f"{written.name!r} has row {count} of it as another one, or not at all"
            raise UserError(problem, file=rows.path, hint="choose another format")
        missing = _missing(there, here)
        if missing and not rows.lossy:
            problem = f"{written.name!r} cannot hold {', '.join(missing)} of row {count}"
            raise UserError(problem, file=rows.path, hint=_HINT)
        lost.update(missing)
    return count


def _again(written: Reader, part: Path) -> Iterator[Any]:
    """The rows that were written, read again."""
    try:
        yield from written.read(part, **_everything(written))
    except UserError as error:
        problem = f"{written.name!r} cannot hold the content: read again, it gives: {error.problem}"
        raise UserError(problem, hint="choose another format") from error


def _missing(there: Any, here: Any) -> list[str]:
    """The names of what two rows differ in."""
    one, other = ((_said if isinstance(row, Document) else _stated)(row) for row in (there, here))
    return [what for what in one if one[what] != other[what]]


def _stated(row: Instance) -> dict[str, Any]:
    """What an instance says; places count visible characters."""

    def place(mention: Mention) -> tuple[int, int]:
        return _visible(row.text, mention.start), _visible(row.text, mention.end)

    return {
        "the words": "".join(row.text.split()),
        "the entities' places": (place(row.head), place(row.tail)),
        "the entities' ids": (row.head.id, row.tail.id),
        "the entities' names": (row.head.name, row.tail.name),
        "the entities' types": (row.head.type, row.tail.type),
        "the relation": row.relation,
        "the source": row.source,
        "whether it states the relation": row.expresses,
    }


def _said(row: Document) -> dict[str, Any]:
    """What a document says, whatever the order of its entities."""
    ids = [entity.id for entity in row.entities]
    places = {
        (entity.id, _visible(row.text, mention.start), _visible(row.text, mention.end))
        for entity in row.entities
        for mention in entity.mentions
    }
    return {
        "the id": row.id,
        "the words": "".join(row.text.split()),
        "the entities' ids": sorted(ids),
        "the entities' types": sorted((entity.id, entity.type) for entity in row.entities),
        "the entities' places": places,
        "the relations": {(ids[fact.head], fact.relation, ids[fact.tail]) for fact in row.facts},
        "the facts' attributes": {
            (ids[fact.head], fact.relation, ids[fact.tail], fact.attribute) for fact in row.facts
        },
        "the facts' evidence": {
            (ids[fact.head], fact.relation, ids[fact.tail], bool(fact.evidence)) for fact in row.facts
        },
    }


def _visible(text: str, place: int) -> int:
    return len("".join(text[:place].split()))


def _placed(document: Document) -> Iterator[tuple[int, Instance]]:
    """The same, each with the place of its sentence in the document."""
    related: dict[tuple[int, int], list[str]] = {}
    for fact in document.facts:
        related.setdefault((fact.head, fact.tail), []).append(fact.relation)
    for tokens in document.sentences:
        if not tokens:
            continue
        start, end = tokens[0][0], tokens[-1][1]
        own = [
            [one for one in entity.mentions if start <= one.start and one.end <= end]
            for entity in document.entities
        ]
        for head, tail in document.pairs.tolist():
            places = ((h, t) for h in own[head] for t in own[tail] if h.end <= t.start or t.end <= h.start)
            for ends in list(places)[:1]:
                entities = (document.entities[head], document.entities[tail])
                first, second = (
                    Mention(entity.id, one.name, one.start - start, one.end - start, entity.type)
                    for entity, one in zip(entities, ends, strict=True)
                )
                text = document.text[start:end]
                for relation in related.get((head, tail), [NA]):
                    yield start, Instance(text, first, second, relation, document.id, document=document.id)


def _new_id(wanted: str, taken: Counter[str]) -> str:
    identity = wanted
    while identity in taken:
        taken[wanted] += 1
        identity = f"{wanted}:{taken[wanted]}"
    taken[identity] = 1
    return identity


def _key(one: Instance) -> Key:
    head, tail = one.head, one.tail
    return head.id, head.start, head.end, tail.id, tail.start, tail.end, one.relation
