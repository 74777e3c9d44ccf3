"""2010 i2b2/VA (Uzuner et al. 2011): problems, treatments and tests in clinical notes, and how they relate.

A document is three files of one name, all in one folder or, as the challenge ships them, in folders of their own:
`.txt` with a tokenised sentence a line, `.con` with a concept a line,

    c="chest pain" 3:4 3:5||t="problem"

and `.rel` with two concepts a line and `r="TrAP"` between them. `3:4` is token 4 of line 3. Lines count from 1,
tokens from 0, the last token is included, and a line that begins with a space has an empty token 0.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span, whitespace
from fedrel.data.text_files import files_in, lines
from fedrel.errors import UserError, nearest

# A relation by what it relates to a problem.
_FIRST = {
    "TrIP": "treatment",
    "TrWP": "treatment",
    "TrCP": "treatment",
    "TrAP": "treatment",
    "TrNAP": "treatment",
    "TeRP": "test",
    "TeCP": "test",
    "PIP": "problem",
}
_HOSPITALS = ("beth", "partners")
_KINDS = ("problem", "treatment", "test")
_WHERE = r'c="(.*)" (\d+):(\d+) (\d+):(\d+)'
_CONCEPT = re.compile(_WHERE + r'\|\|t="([^"]*)"')
_RELATION = re.compile(_WHERE + r'\|\|r="([^"]*)"\|\|' + _WHERE)


class I2B2(Reader):
    """A folder of i2b2's `.txt`, `.con` and `.rel` files."""

    name = "i2b2"
    relations = RelationMap(_FIRST)

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of all documents below a folder; their source is the hospital.

        That is `beth` or `partners` if a folder on the document's path is called so, else the name of the folder
        given. A treatment or test (head) and a problem (tail) on one line, and two problems, the earlier of which
        is the head, are related as the `.rel` says, or NA. The order of two problems is the text's for NA and PIP
        alike: the order in the `.rel` would give the label away.
        """
        for document in _documents(path, self):
            with self.problems:
                yield from document.instances(relations)


@dataclass(frozen=True, slots=True, order=True)
class _Concept:
    line: int
    first: int  # token
    last: int  # token, included
    kind: str

    @property
    def at(self) -> str:
        return f"{self.line}:{self.first} {self.line}:{self.last}"


@dataclass(frozen=True, slots=True)
class _Document:
    reader: I2B2
    hospital: str
    name: str
    text: Path
    concepts: Path
    relations: Path | None

    def instances(self, known: RelationMap | None) -> Iterator[Instance]:
        sentences = [text for _, text in lines(self.text)]
        concepts = self._read_concepts(sentences)
        labels = self._read_relations(concepts, known)
        for number, together in groupby(sorted(concepts), key=lambda one: one.line):
            text = sentences[number - 1]
            for pair in combinations(together, 2):
                head, tail = pair if pair[1].kind == "problem" else reversed(pair)
                if tail.kind != "problem":
                    continue
                for relation in labels.get(frozenset(pair), {NA}):
                    yield Instance(
                        text,
                        self._mention(head, text),
                        self._mention(tail, text),
                        relation,
                        self.hospital,
                        tokens=tuple(whitespace(text)),
                    )

    def _read_concepts(self, sentences: list[str]) -> set[_Concept]:
        concepts = set()
        for number, line in lines(self.concepts):
            if line.strip():
                with self.reader.problems:
                    concepts.add(self._concept(line, sentences, number))
        return concepts

    def _concept(self, line: str, sentences: list[str], number: int) -> _Concept:
        match = _CONCEPT.fullmatch(line.strip())
        if match is None or match[6] not in _KINDS:
            problem = f'expected c="text" L:T L:T||t="{"|".join(_KINDS)}", found {line!r}'
            raise UserError(problem, file=self.concepts, line=number)
        words, *place, kind = match.groups()
        concept = _Concept(*_place(place, self.concepts, number), kind)
        self._check(concept, words, sentences, number)
        return concept

    def _check(self, concept: _Concept, words: str, sentences: list[str], number: int) -> None:
        """Raise a `UserError` if the concept is not at its place."""
        found = None
        if 1 <= concept.line <= len(sentences):
            text = sentences[concept.line - 1]
            spans = _tokens(text)
            if concept.first <= concept.last < len(spans):
                found = text[spans[concept.first][0] : spans[concept.last][1]]
        if found is None:
            problem = f"there is nothing at {concept.at} in {self.text.name}"
        elif not found or found.lower().split() != words.lower().split():
            problem = f"expected {words!r} in line {concept.line} of {self.text.name}, found {found!r}"
        else:
            return
        raise UserError(
            problem, file=self.concepts, line=number, hint="check that the three files belong together"
        )

    def _read_relations(
        self, concepts: set[_Concept], known: RelationMap | None
    ) -> dict[frozenset[_Concept], dict[str, None]]:
        """An ordered set of relations for each pair that has one."""
        labels: defaultdict[frozenset[_Concept], dict[str, None]] = defaultdict(dict)
        if (file := self.relations) is None:
            return labels
        for number, line in lines(file):
            if line.strip():
                with self.reader.problems:
                    pair, relation = self._related(line, concepts, file, number)
                    labels[pair][self.reader.relation(relation, known, file, number)] = None
        return labels

    def _related(
        self, line: str, concepts: set[_Concept], file: Path, number: int
    ) -> tuple[frozenset[_Concept], str]:
        match = _RELATION.fullmatch(line.strip())
        if match is None:
            problem = f'expected c="text" L:T L:T||r="TrAP"||c="text" L:T L:T, found {line!r}'
            raise UserError(problem, file=file, line=number)
        first, relation, second = match.groups()[1:5], match[6], match.groups()[7:]
        if relation not in _FIRST:
            problem, hint = f"{relation!r} is none of the relations of i2b2", nearest(relation, _FIRST)
            raise UserError(problem, file=file, line=number, hint=hint)
        one = _Concept(*_place(first, file, number), _FIRST[relation])
        two = _Concept(*_place(second, file, number), "problem")
        for concept in (one, two):
            if concept not in concepts:
                problem = f"{relation} needs a {concept.kind} at {concept.at}"
                raise UserError(f"{problem}; {self.concepts.name} has none", file=file, line=number)
        if one.line != two.line or one == two:
            problem = f"expected two concepts of one line, found {one.at} and {two.at}"
            raise UserError(problem, file=file, line=number)
        return frozenset((one, two)), relation

    def _mention(self, concept: _Concept, text: str) -> Mention:
        spans = _tokens(text)
        start, end = spans[concept.first][0], spans[concept.last][1]
        identity = f"{self.hospital}/{self.name} {concept.at}"
        return Mention(identity, text[start:end], start, end, concept.kind)


def _documents(folder: Path, reader: I2B2) -> Iterator[_Document]:
    """The documents below a folder, by hospital and name; files without concepts are left out and counted."""
    found: defaultdict[tuple[str, str], dict[str, Path]] = defaultdict(dict)
    for file in files_in(folder):
        if file.suffix in (".txt", ".con", ".rel"):
            parts = found[_hospital(file, folder), file.stem]
            if file.suffix in parts:
                problem = f"a second document of that name, after {parts[file.suffix]}"
                raise UserError(problem, file=file, hint="name one part of the corpus")
            parts[file.suffix] = file
    bare = unrelated = 0
    for (hospital, name), parts in sorted(found.items()):
        if ".con" not in parts:
            if ".rel" in parts:
                raise UserError(f"there is no {name}.con for it", file=parts[".rel"])
            bare += 1
        elif ".txt" not in parts:
            raise UserError(f"there is no {name}.txt for it", file=parts[".con"])
        else:
            unrelated += ".rel" not in parts
            yield _Document(reader, hospital, name, parts[".txt"], parts[".con"], parts.get(".rel"))
    if bare == len(found):
        problem = "expected documents as .txt, .con and .rel files, found none"
        raise UserError(problem, file=folder, hint="check the path")
    reader.problems.note(".txt files without a .con, left out", bare, left_out=True)
    reader.problems.note("documents without a .rel, so that all their pairs are NA", unrelated)


def _hospital(file: Path, folder: Path) -> str:
    places = (place for place in reversed(file.parent.resolve().parts) if place in _HOSPITALS)
    return next(places, folder.resolve().name)


def _place(numbers: Sequence[str], file: Path, line: int) -> tuple[int, int, int]:
    """Line, first and last token of a concept."""
    start_line, first, end_line, last = map(int, numbers)
    if start_line != end_line:
        problem = f"a concept from line {start_line} to line {end_line}: expected one within a line"
        raise UserError(problem, file=file, line=line)
    return start_line, first, last


def _tokens(text: str) -> list[Span]:
    """The tokens as the annotation counts them; an empty one is where the next begins."""
    spans = whitespace(text)
    return [(start, start) for start, _ in spans[:1] if text.startswith(" ")] + spans
