"""PGR (Sousa et al. 2019): human phenotypes and genes in sentences of abstracts, in both of its releases.

A header names the columns. Offsets count the characters of the sentence as the file has it, with `&lt;` and the
like, which are undone here. RELATION says whether a knowledge base relates the pair; where curators went over it,
CONFIRMATION says whether that is correct of the sentence (C), incorrect (I: the truth is the opposite) or
uncertain (U).
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_RELATED = "association"
_ENTITIES = ("GENE", "PHENOTYPE")
_COLUMNS = {
    "FILE_ID",
    "SENTENCE",
    "RELATION",
    *(f"{entity}{rest}" for entity in _ENTITIES for rest in ("", "_ID", "_START_POSITION", "_END_POSITION")),
}


class PGR(Reader):
    """PGR's table."""

    name = "pgr"
    relations = RelationMap([_RELATED])

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file: the gene is the head, the phenotype the tail, the abstract the source.

        Two kinds of lines are left out and counted, because the corpus has them by nature: those with an entity
        that is not at its offsets, and those with an uncertain relation.
        """
        header: list[str] = []
        for number, line in lines(path):
            columns = line.split("\t")
            if not header:
                header = _header(columns, path, number)
            elif line.strip():
                with self.problems:
                    fields = _fields(header, columns, path, number)
                    yield from self._instances(fields, relations, path, number)

    def _instances(
        self, fields: dict[str, str], relations: RelationMap | None, path: Path, number: int
    ) -> Iterator[Instance]:
        relation = _relation(fields, path, number)
        spans = [_span(fields, entity, path, number) for entity in _ENTITIES]
        sentence, found = fields["SENTENCE"], zip(_ENTITIES, spans, strict=True)
        if relation is None:
            self.problems.note("lines whose relation is uncertain, left out", left_out=True)
        elif any(sentence[slice(*span)] != fields[entity] for entity, span in found):
            what = "lines whose entity is not at its offsets, left out"
            self.problems.note(what, 1, f"{path.name}:{number}", left_out=True)
        else:
            text, spans = _unescaped(sentence, spans)
            head, tail = (
                Mention(fields[f"{entity}_ID"], text[slice(*span)], *span, entity)
                for entity, span in zip(_ENTITIES, spans, strict=True)
            )
            relation = self.relation(relation, relations, path, number)
            yield Instance(text, head, tail, relation, fields["FILE_ID"])


def _header(columns: Sequence[str], path: Path, number: int) -> list[str]:
    header = [name.split(" ")[0] for name in columns]  # the last explains itself: `CONFIRMATION (C ...`
    if missing := _COLUMNS.difference(header):
        problem = f"expected a header with the columns {', '.join(sorted(missing))}"
        raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
    return header


def _fields(header: Sequence[str], columns: Sequence[str], path: Path, number: int) -> dict[str, str]:
    if len(columns) != len(header):
        problem = f"expected {len(header)} columns, as in the header, found {len(columns)}"
        raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
    return dict(zip(header, columns, strict=True))


def _relation(fields: dict[str, str], path: Path, number: int) -> str | None:
    """The gold relation; None if it is uncertain."""
    related, confirmation = fields["RELATION"].strip().lower(), fields.get("CONFIRMATION", "C").strip()
    if related not in ("true", "false"):
        problem = f"expected RELATION to be True or False, found {fields['RELATION']!r}"
        raise UserError(problem, file=path, line=number)
    if confirmation not in ("C", "I", "U"):
        problem = f"expected CONFIRMATION to be C, I or U, found {confirmation!r}"
        raise UserError(problem, file=path, line=number)
    if confirmation == "U":
        return None
    return _RELATED if (related == "true") == (confirmation == "C") else NA


def _span(fields: dict[str, str], entity: str, path: Path, number: int) -> Span:
    start, end = fields[f"{entity}_START_POSITION"].strip(), fields[f"{entity}_END_POSITION"].strip()
    size = len(fields["SENTENCE"])
    if start.isdecimal() and end.isdecimal() and int(start) < int(end) <= size:
        return int(start), int(end)
    problem = f"expected offsets of the {entity.lower()} in the sentence of {size} characters"
    raise UserError(f"{problem}, found {start!r} and {end!r}", file=path, line=number)


def _unescaped(text: str, spans: list[Span]) -> tuple[str, list[Span]]:
    """The text without HTML entities, and where the spans are in it."""
    cuts = sorted({0, len(text), *(place for span in spans for place in span)})
    # Twice, because some have been escaped twice: `&amp;alpha;`.
    parts = [html.unescape(html.unescape(text[start:end])) for start, end in pairwise(cuts)]
    moved = dict(zip(cuts, accumulate(map(len, parts), initial=0), strict=True))
    return "".join(parts), [(moved[start], moved[end]) for start, end in spans]
