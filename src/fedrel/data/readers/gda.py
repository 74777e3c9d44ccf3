"""GDA (Wu et al. 2019), genes and diseases in abstracts, as its authors ship it: a folder of three files.

`abstracts.txt` has pmid, title and abstract on lines of their own and a blank line; `anns.txt` a mention a line:
pmid, start, end, text, type, id; `labels.csv` the columns `pmid`, `geneId`, `diseaseId` and `label` (0 or 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from fedrel.data.annotations import Document
from fedrel.data.readers import Reader
from fedrel.data.readers.marked import Marked, MarkedText, Relation, document, split_ids
from fedrel.data.relations import NA, RelationMap
from fedrel.data.structured_files import csv_rows
from fedrel.data.text_files import files_in, lines, stem
from fedrel.errors import UserError

_FILES = ("abstracts", "anns", "labels")


class GDA(Reader):
    """A folder of GDA's three files."""

    name = "gda"
    unit = "documents"
    relations = RelationMap(["GDA"])

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Document]:
        """The documents, asked about every gene (head) and disease (tail)."""
        files = _files(path)
        texts = _abstracts(files["abstracts"], self)
        for number, line in lines(files["anns"]):
            if line.strip():
                with self.problems:
                    _add_mention(texts, line, files["anns"], number)
        columns = ("pmid", "geneId", "diseaseId", "label")
        for number, row in csv_rows(files["labels"], columns, self.problems):
            with self.problems:
                self._add_label(texts, row, relations, files["labels"], number)
        for marked in texts.values():
            with self.problems:
                yield document(marked, self.problems, [("Gene", "Disease")])

    def _add_label(
        self,
        texts: dict[str, MarkedText],
        row: dict[str, str],
        relations: RelationMap | None,
        path: Path,
        number: int,
    ) -> None:
        marked = _text(texts, row["pmid"], path, number)
        if row["label"] not in ("0", "1"):
            raise UserError(f"expected the label 0 or 1, found {row['label']!r}", file=path, line=number)
        known = {identity for mention in marked.mentions.values() for identity in mention.ids}
        for identity in (row["geneId"], row["diseaseId"]):
            if identity not in known:
                problem = f"the label names {identity!r}, which {marked.id} never mentions"
                hint = "give the entity a mention, or remove the label"
                raise UserError(problem, file=path, line=number, hint=hint)
        relation = self.relation("GDA", relations, path, number) if row["label"] == "1" else NA
        marked.relations.append(Relation(relation, row["geneId"], row["diseaseId"]))


def _files(folder: Path) -> dict[str, Path]:
    found = {stem(file): file for file in files_in(folder)}
    for name in _FILES:
        if name not in found:
            names = ", ".join(sorted(file.name for file in found.values())) or "nothing"
            problem = f"expected abstracts.txt, anns.txt and labels.csv in it, found {names}"
            raise UserError(problem, file=folder, hint="name the folder that has the three files")
    return found


def _abstracts(path: Path, reader: GDA) -> dict[str, MarkedText]:
    texts: dict[str, MarkedText] = {}
    block: list[str] = []
    first = 1
    for number, line in chain(lines(path), [(0, "")]):
        if line.strip():
            first = first if block else number
            block.append(line)
        elif block:
            with reader.problems:
                if len(block) not in (2, 3) or block[0] in texts:
                    problem = "expected a new pmid, a title and an abstract on lines of their own"
                    hint = f"put a blank line between abstracts; found {len(block)} lines, first {block[0][:30]!r}"
                    raise UserError(problem, file=path, line=first, hint=hint)
                pmid, title, *rest = block
                text = " ".join([title, *rest])
                texts[pmid] = MarkedText(pmid, text, path, [(0, len(title)), (len(title), len(text))])
            block = []
    return texts


def _add_mention(texts: dict[str, MarkedText], line: str, path: Path, number: int) -> None:
    columns = line.split("\t")
    if len(columns) < 6 or not (columns[1].isdecimal() and columns[2].isdecimal()):
        problem = f"expected pmid, start, end, text, type and id, found {len(columns)} columns"
        raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
    pmid, start, end, name, kind, identity = columns[:6]
    marked = _text(texts, pmid, path, number)
    mention = Marked(name, kind, int(start), int(end), split_ids(identity, "|"))
    try:
        marked.mark(f"line {number}", mention, number)
    except UserError as error:
        raise UserError(error.problem, file=path, line=number, hint=error.hint) from error


def _text(texts: dict[str, MarkedText], pmid: str, path: Path, number: int) -> MarkedText:
    if pmid not in texts:
        raise UserError(f"there is no abstract {pmid!r}", file=path, line=number)
    return texts[pmid]
