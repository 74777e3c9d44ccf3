"""ChemProt as BioCreative VI ships it: a folder of tables for abstracts, entities and relations.

`*_abstracts*.tsv` has pmid, title and abstract; `*_entities*.tsv` pmid, id, type, start, end and text, with
offsets into title, one separator and abstract; `*_gold_standard*.tsv` pmid, group, `Arg1:T1` and `Arg2:T2`. Where
that is absent `*_relations*.tsv`, which has all groups and two columns more, serves as well.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.text import Span, sentences
from fedrel.data.text_files import files_in, lines
from fedrel.errors import UserError

_GROUPS = [f"CPR:{number}" for number in range(11)]
_TYPES = {"CHEMICAL": "CHEMICAL", "GENE": "GENE", "GENE-Y": "GENE", "GENE-N": "GENE"}
_log = logging.getLogger(__name__)


class ChemProt(Reader):
    """A folder of ChemProt's tables."""

    name = "chemprot"
    relations = RelationMap(["CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9"])

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """Every chemical (head) and gene (tail) that share a sentence, with their relation or NA.

        The groups that BioCreative does not evaluate are NA too. A pair with two relations gives two instances.
        Gold relations between sentences are left out, and their number is logged. The source is the abstract.
        """
        tables = _tables(path)
        documents = _documents(tables["abstracts"])
        _add_entities(documents, tables["entities"])
        _add_relations(documents, tables["relations"], relations)
        far = 0
        for pmid, document in documents.items():
            far += sum(len(groups) for groups in document.relations.values())
            for start, end in document.sentences():
                text = document.text[start:end]
                inside = sorted(
                    (one for one in document.entities.values() if start <= one.start and one.end <= end),
                    key=lambda one: (one.start, one.end),
                )
                chemicals = [_within(one, start) for one in inside if one.type == "CHEMICAL"]
                genes = [_within(one, start) for one in inside if one.type == "GENE"]
                for chemical, gene in product(chemicals, genes):
                    groups = document.relations.get((chemical.id, gene.id), {})
                    far -= len(groups)
                    for relation in groups or (NA,):
                        yield Instance(text, chemical, gene, relation, pmid)
        if far:
            _log.warning("%s: %d gold relations cross a sentence boundary and are left out", path, far)


@dataclass(slots=True)
class _Document:
    title: str
    abstract: str
    entities: dict[str, Mention] = field(default_factory=dict)  # by `T1`; places in the document
    relations: dict[tuple[str, str], dict[str, None]] = field(  # by mention ids; an ordered set of groups
        default_factory=lambda: defaultdict(dict)
    )

    @property
    def text(self) -> str:
        return f"{self.title}\t{self.abstract}"

    def sentences(self) -> list[Span]:
        """Those of the title, then those of the abstract; a full stop inside an entity ends none."""
        offset = len(self.title) + 1
        found = [*sentences(self.title), *((offset + a, offset + b) for a, b in sentences(self.abstract))]
        whole: list[Span] = []
        for span in found:
            cut = whole and any(one.start < whole[-1][1] < one.end for one in self.entities.values())
            whole.append((whole.pop()[0], span[1]) if cut else span)
        return whole


def _tables(folder: Path) -> dict[str, Path]:
    """The three tables of a folder."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for file in files_in(folder):
        for kind in ("abstracts", "entities", "gold_standard", "relations"):
            if f"_{kind}" in file.name and ".tsv" in file.suffixes:
                found[kind].append(file)
    found["relations"] = found.pop("gold_standard", found["relations"])
    for kind in ("abstracts", "entities", "relations"):
        if len(found[kind]) != 1:
            names = ", ".join(file.name for file in found[kind]) or "none"
            problem = f"expected one table of {kind} (as chemprot_training_{kind}.tsv), found {names}"
            raise UserError(problem, file=folder, hint="name a folder with one part of the corpus")
    return {kind: paths[0] for kind, paths in found.items()}


def _documents(path: Path) -> dict[str, _Document]:
    documents: dict[str, _Document] = {}
    for number, row in _rows(path, "pmid", "title", "abstract"):
        pmid, title, abstract = row
        if pmid in documents:
            raise UserError(f"the abstract {pmid} is there twice", file=path, line=number)
        documents[pmid] = _Document(title, abstract)
    return documents


def _add_entities(documents: dict[str, _Document], path: Path) -> None:
    for number, row in _rows(path, "pmid", "id", "type", "start", "end", "text"):
        pmid, key, kind, *place, name = map(str.strip, row)
        document = _document(documents, pmid, path, number)
        if kind not in _TYPES:
            problem = f"expected the type CHEMICAL, GENE-Y or GENE-N, found {kind!r}"
            raise UserError(problem, file=path, line=number)
        if key in document.entities:
            raise UserError(f"the entity {key} of {pmid} is there twice", file=path, line=number)
        start, end = (int(number) if number.isdecimal() else -1 for number in place)
        found = document.text[start:end] if 0 <= start < end else ""
        if not name or found != name:
            problem = f"expected {name!r} at the characters {' to '.join(place)} of {pmid}, found {found!r}"
            raise UserError(problem, file=path, line=number)
        document.entities[key] = Mention(f"{pmid}:{key}", name, start, end, _TYPES[kind])


def _add_relations(documents: dict[str, _Document], path: Path, known: RelationMap | None) -> None:
    columns = ("pmid", "group", "first argument", "second argument")
    for number, row in _rows(path, *columns, more=2):
        pmid, group, *arguments = map(str.strip, row)
        document = _document(documents, pmid, path, number)
        if group not in _GROUPS:
            problem = f"expected a group from {_GROUPS[0]} to {_GROUPS[-1]}, found {group!r}"
            raise UserError(problem, file=path, line=number)
        pair: dict[str, str] = {}
        for argument in arguments[-2:]:
            entity = document.entities.get(argument.partition(":")[2])
            if entity is None:
                problem = f"expected an argument as Arg1:T1 with an entity of {pmid}, found {argument!r}"
                raise UserError(problem, file=path, line=number)
            pair[entity.type] = entity.id
        if len(pair) != 2:
            raise UserError("expected a chemical and a gene as arguments", file=path, line=number)
        if group in ChemProt.relations:
            if known is not None:
                known.check(group, path, number)
            document.relations[pair["CHEMICAL"], pair["GENE"]][group] = None


def _rows(path: Path, *columns: str, more: int = 0) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table with these columns, and in some tables `more` of them."""
    for number, line in lines(path):
        if not line.strip():
            continue
        row = line.split("\t")
        if len(row) not in (len(columns), len(columns) + more):
            problem = f"expected {len(columns)} columns ({', '.join(columns)}), found {len(row)}"
            raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
        yield number, row


def _document(documents: dict[str, _Document], pmid: str, path: Path, number: int) -> _Document:
    if pmid not in documents:
        raise UserError(f"there is no abstract {pmid!r}", file=path, line=number)
    return documents[pmid]


def _within(entity: Mention, start: int) -> Mention:
    """The mention with places in the sentence that begins at `start`."""
    return Mention(entity.id, entity.name, entity.start - start, entity.end - start, entity.type)
