"""Distant supervision: find the names of entities in text and label their pairs with a knowledge base.

A knowledge base has entities with their names, and the facts between them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, permutations, product
from pathlib import Path
from typing import NamedTuple

from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span, sentences, tokenise
from fedrel.data.text_files import lines, paragraphs, pieces, stem
from fedrel.errors import UserError
from fedrel.files import atomic_file
from fedrel.seeding import derive

LONGEST = 1000  # characters of a sentence; what is longer is no sentence, and would have too many pairs
PART = 300  # characters of the parts that it is cut into


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """Names and types by entity id, and relations by (head id, tail id), all in the order they were added."""

    names: dict[str, dict[str, None]] = field(default_factory=dict)  # an ordered set of names
    facts: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)  # an ordered set of relations
    types: dict[str, str] = field(default_factory=dict)  # of the entities whose type is known

    def add(self, head: str, head_names: list[str], relation: str, tail: str, tail_names: list[str]) -> None:
        """Add one triple. An entity that is there already gets the names it did not have."""
        for entity, names in ((head, head_names), (tail, tail_names)):
            self.names.setdefault(entity, {}).update(dict.fromkeys(names))
        self.facts.setdefault((head, tail), {})[relation] = None

    def name(self, entity: str) -> str:
        """An entity's first name."""
        return next(iter(self.names[entity]))

    def relations_between(self, head: str, tail: str) -> tuple[str, ...]:
        """The relations from head to tail; (NA,) if the knowledge base lists only that, () if it lists nothing."""
        relations = self.facts.get((head, tail), {})
        return tuple(relation for relation in relations if relation != NA) or tuple(relations)

    @property
    def triples(self) -> frozenset[tuple[str, str, str]]:
        """Every (head, relation, tail)."""
        return frozenset(
            (head, relation, tail) for (head, tail), relations in self.facts.items() for relation in relations
        )

    @property
    def relations(self) -> RelationMap:
        """The relations it uses, by name."""
        return RelationMap(sorted({relation for _, relation, _ in self.triples}))


def read_kb(path: Path) -> KnowledgeBase:
    """A TSV of head id, head names, relation, tail id, tail names; `|` separates names, `#` starts a comment.

    Two more columns may say the types of head and tail, as GENE and DISEASE: what blinding puts in their place. A
    line of one column has the names of an entity about which nothing is known; the first of them is its id.
    """
    kb = KnowledgeBase()
    for number, line in lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) == 1:
            names = _names(columns[0], path, number)
            kb.names.setdefault(names[0], {}).update(dict.fromkeys(names))
            continue
        if len(columns) not in (5, 7):
            expected = (
                "1 column (names), 5 (head id and names, relation, tail id and names), or 7 with both types"
            )
            problem = f"expected {expected}, found {len(columns)}"
            raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
        head, head_names, relation, tail, tail_names, *types = columns
        if not (head and relation and tail):
            raise UserError("an id or the relation is empty", file=path, line=number)
        kb.add(head, _names(head_names, path, number), relation, tail, _names(tail_names, path, number))
        kb.types.update((entity, type_) for entity, type_ in zip((head, tail), types, strict=False) if type_)
    return kb


class Match(NamedTuple):
    """Characters [start, end) of a text, and every entity of that name."""

    start: int
    end: int
    entities: tuple[str, ...]


class Matcher:
    """Finds all names at once by Aho-Corasick, in time that does not depend on how many there are.

    Names and text are compared as `plain` writes them, lower-cased token by token, and each token is put between
    two marks. So a name can only match whole tokens, any white space between them is the same, and characters that
    become two in lower case do not shift the offsets, which are counted in tokens first. In scripts without spaces
    a token is a character.
    """

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        """Take (name, entity) pairs; one name may stand for several entities."""
        from ahocorasick_rs import AhoCorasick, MatchKind

        entities: dict[str, dict[str, None]] = {}
        for name, entity in names:
            written, _ = plain(name)
            entities.setdefault("".join(_framed(written, tokenise(written))), {})[entity] = None
        entities.pop("", None)
        self._entities = [tuple(found) for found in entities.values()]
        self._automaton = AhoCorasick(list(entities), matchkind=MatchKind.LeftmostLongest)

    def find(self, text: str) -> list[Match]:
        """The names in a text, from left to right, none overlapping another; at each place the longest."""
        written, origin = plain(text)
        spans = tokenise(written)
        framed = _framed(written, spans)
        found = self._automaton.find_matches_as_indexes("".join(framed))
        if not found:
            return []
        starts = list(accumulate(map(len, framed), initial=0))
        matches = [
            Match(
                spans[bisect_left(starts, start)][0],
                spans[bisect_left(starts, end) - 1][1],
                self._entities[number],
            )
            for number, start, end in found
        ]
        if origin is None:
            return matches
        return [Match(origin[start], origin[end], entities) for start, end, entities in matches]


# How typographic characters are written on a keyboard; what is invisible is left out.
_WRITTEN = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2212\ufe63\uff0d", "-"),
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
    **{
        chr(0xFB00 + place): letters
        for place, letters in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))
    },
}


_MARKS = (
    r"\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff"  # that are written over the letter before them
)


_ODD = re.compile(rf"[{''.join(_WRITTEN)}]|\w[{_MARKS}]+")


def plain(text: str) -> tuple[str, list[int] | None]:
    """A text as names are compared in it, and where each of its characters is from; None if nothing was changed.

    Letters with marks are single characters (NFC); typographic quotes, hyphens and ligatures are a keyboard's.

    >>> plain("the ﬁrst")
    ('the first', [0, 1, 2, 3, 4, 4, 5, 6, 7, 8])
    """
    if text.isascii() or not _ODD.search(text):
        return text, None
    written: list[str] = []
    origin: list[int] = []
    done = 0
    for odd in _ODD.finditer(text):
        letters = _WRITTEN.get(odd[0])
        letters = unicodedata.normalize("NFC", odd[0]) if letters is None else letters
        written += [text[done : odd.start()], letters]
        origin += [*range(done, odd.start()), *([odd.start()] * len(letters))]
        done = odd.end()
    written.append(text[done:])
    origin += range(done, len(text) + 1)
    return "".join(written), origin


def _framed(text: str, spans: list[Span]) -> list[str]:
    return [f"\x02{text[start:end].lower()}\x03" for start, end in spans]


@dataclass(frozen=True, slots=True)
class Aligned(Instance):
    """An instance and its sentence's characters [start, end) in the file it is from."""

    span: tuple[int, int] = (0, 0)


def align(
    texts: Iterable[Path],
    kb: KnowledgeBase,
    *,
    na_rate: float,
    seed: int,
    counts: Counter[str] | None = None,
) -> Iterator[Aligned]:
    """Label the sentences of text files, one instance for each ordered pair and relation the knowledge base has.

    A pair that it lists as NA becomes NA. Of the pairs that it does not list, a share of `na_rate` become NA;
    which ones depends only on the seed, the pair and the sentence, not on the order of the files. Blank lines
    separate paragraphs; the source of an instance is the name of its file. Where two entities share a name,
    the mention counts as those that the knowledge base relates to the other entity or, if it relates none, as
    the first of them. What has no end within `LONGEST` characters is taken in parts. `counts` gets how many
    `sentences` there were, how many `names` were found, and in how many sentences there were several (`together`).
    """
    counts = Counter() if counts is None else counts
    matcher = Matcher((name, entity) for entity, names in kb.names.items() for name in names)
    for path in texts:
        source = stem(path)
        for offset, paragraph in paragraphs(path):
            for start, end in _sentences(paragraph):
                text = paragraph[start:end]
                matches = matcher.find(text)
                counts["sentences"] += 1
                counts["names"] += len(matches)
                counts["together"] += len({match.entities for match in matches}) > 1
                for head, tail, relation in _labels(text, matches, kb, na_rate, seed):
                    span = (offset + start, offset + end)
                    yield Aligned(text, head, tail, relation, source, span=span)


def why_nothing(kb: KnowledgeBase, counts: Mapping[str, int]) -> str:
    """The likely cause where no sentence was labelled."""
    if not counts["sentences"]:
        return "the text is empty"
    if not counts["names"]:
        example = next(iter(kb.names), None)
        named = f"{len(kb.names):,} entities" + (f", as {kb.name(example)!r}" if example is not None else "")
        return f"no name of the knowledge base ({named}) is in the text: is it of the same language and kind?"
    if not counts["together"]:
        return f"{counts['names']:,} names were found, but never two in one sentence"
    found = (
        f"{counts['together']:,} sentences have several names, but no pair that the knowledge base relates"
    )
    return f"{found}: raise --na-rate to keep more of the unrelated pairs"


def _sentences(paragraph: str) -> Iterator[Span]:
    for start, end in sentences(paragraph):
        if end - start <= LONGEST:
            yield start, end
            continue
        place = start
        for part in pieces(paragraph[start:end], PART):
            yield place, place + len(part)
            place += len(part)


def write_jsonl(instances: Iterable[Instance], path: Path) -> int:
    """Write instances in OpenNRE's form with our fields, whole or not at all; returns how many there were."""
    count = 0
    with atomic_file(path) as part, part.open("w", encoding="utf-8") as file:
        for instance in instances:
            file.write(json.dumps(_record(instance), ensure_ascii=False) + "\n")
            count += 1
    return count


def _names(column: str, path: Path, line: int) -> list[str]:
    names = [name.strip() for name in column.split("|") if name.strip()]
    if not names:
        hint = "give at least one, or several with | between them"
        raise UserError("an entity has no name", file=path, line=line, hint=hint)
    return names


def _labels(
    text: str, matches: list[Match], kb: KnowledgeBase, na_rate: float, seed: int
) -> Iterator[tuple[Mention, Mention, str]]:
    """The pairs of a sentence with their relations; of a name that occurs twice, the first place counts."""
    first = {match.entities: match for match in reversed(matches)}
    seen: set[tuple[str, str]] = set()
    for head, tail in permutations(sorted(first.values()), 2):
        pairs = [pair for pair in product(head.entities, tail.entities) if pair[0] != pair[1]]
        related = [pair for pair in pairs if pair in kb.facts]
        for pair in related or pairs[:1]:
            if pair in seen:
                continue
            seen.add(pair)
            relations = kb.relations_between(*pair)
            if not relations and _drawn(na_rate, seed, *pair, text):
                relations = (NA,)
            for relation in relations:
                yield _mention(head, pair[0], kb), _mention(tail, pair[1], kb), relation


def _drawn(rate: float, seed: int, head: str, tail: str, text: str) -> bool:
    return rate > 0 and derive(seed, "NA", head, tail, text) < rate * (1 << 63)


def _mention(match: Match, entity: str, kb: KnowledgeBase) -> Mention:
    return Mention(entity, kb.name(entity), match.start, match.end, kb.types.get(entity, ""))


def _record(instance: Instance) -> dict[str, object]:
    record: dict[str, object] = {"text": instance.text, "relation": instance.relation}
    for key, mention in (("h", instance.head), ("t", instance.tail)):
        entity = {"id": mention.id, "name": mention.name, "pos": [mention.start, mention.end]}
        record[key] = entity | ({"type": mention.type} if mention.type else {})
    record["source"] = instance.source
    if isinstance(instance, Aligned):
        record["span"] = instance.span
    if instance.expresses is not None:
        record["expresses"] = instance.expresses
    return record
