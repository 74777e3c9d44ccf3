"""ChemProt: as BioCreative VI ships it, and as SciBERT's authors do.

BioCreative VI has a folder of tables for abstracts, entities and relations: `*_abstracts*.tsv` has pmid, title
and abstract; `*_entities*.tsv` pmid, id, type, start, end and text, with offsets into title, one separator and
abstract; `*_gold_standard*.tsv` pmid, group, `Arg1:T1` and `Arg2:T2`. Where that is absent `*_relations*.tsv`,
which has all groups and two columns more, serves as well.

SciBERT (Beltagy et al. 2019) has JSON lines with the 13 fine labels and no pair without one. In `text` the entity
that comes first is marked `<< so >>` and the second `[[ so ]]`, whichever of them is the chemical: the file does
not say, so mentions have no type. Labels map to the five classes that BioCreative VI evaluates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.readers.marked import Marked, MarkedText, Relation, instances
from fedrel.data.readers.opennre import Record, records
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, Mention, own_ids
from fedrel.data.text_files import files_in, lines
from fedrel.errors import UserError, nearest

_GROUPS = [f"CPR:{number}" for number in range(11)]
_TYPES = {"CHEMICAL": "CHEMICAL", "GENE": "GENE", "GENE-Y": "GENE", "GENE-N": "GENE"}
_PAIR = ("CHEMICAL", "GENE")
_GROUP_OF_LABEL = {
    "UPREGULATOR": "CPR:3",
    "ACTIVATOR": "CPR:3",
    "INDIRECT-UPREGULATOR": "CPR:3",
    "DOWNREGULATOR": "CPR:4",
    "INHIBITOR": "CPR:4",
    "INDIRECT-DOWNREGULATOR": "CPR:4",
    "AGONIST": "CPR:5",
    "AGONIST-ACTIVATOR": "CPR:5",
    "AGONIST-INHIBITOR": "CPR:5",
    "ANTAGONIST": "CPR:6",
    "SUBSTRATE": "CPR:9",
    "PRODUCT-OF": "CPR:9",
    "SUBSTRATE_PRODUCT-OF": "CPR:9",
}


class ChemProt(Reader):
    """A folder of ChemProt's tables."""

    name = "chemprot"
    relations = RelationMap(["CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9"])

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """Every chemical (head) and gene (tail) that share a sentence, with their relation or NA.

        The groups that BioCreative does not evaluate are NA too. A pair with two relations gives two instances.
        Gold relations between sentences are left out and counted. The source is the abstract.
        """
        tables = _tables(path)
        texts: dict[str, MarkedText] = {}
        for number, row in _rows(tables["abstracts"]):
            with self.problems:
                _add_abstract(texts, row, tables["abstracts"], number)
        for number, row in _rows(tables["entities"]):
            with self.problems:
                _add_entity(texts, row, tables["entities"], number)
        for number, row in _rows(tables["relations"]):
            with self.problems:
                self._add_relation(texts, row, relations, tables["relations"], number)
        for marked in texts.values():
            yield from instances(marked, self.problems, [_PAIR])

    def _add_relation(
        self,
        texts: dict[str, MarkedText],
        row: Sequence[str],
        relations: RelationMap | None,
        path: Path,
        number: int,
    ) -> None:
        columns = ("pmid", "group", "first argument", "second argument")
        pmid, group, *arguments = _columns(row, columns, path, number, more=2)
        marked = _text(texts, pmid, path, number)
        if group not in _GROUPS:
            problem = f"expected a group from {_GROUPS[0]} to {_GROUPS[-1]}, found {group!r}"
            raise UserError(problem, file=path, line=number)
        pair: dict[str, str] = {}
        for argument in arguments[-2:]:
            key = argument.partition(":")[2]
            if key not in marked.mentions:
                problem = f"expected an argument as Arg1:T1 with an entity of {pmid}, found {argument!r}"
                raise UserError(problem, file=path, line=number)
            pair[marked.mentions[key].type] = key
        if len(pair) != 2:
            raise UserError("expected a chemical and a gene as arguments", file=path, line=number)
        if group in ChemProt.relations:
            group = self.relation(group, relations, path, number)
            marked.relations.append(Relation(group, pair["CHEMICAL"], pair["GENE"]))


class ChemProtSciBERT(Reader):
    """SciBERT's JSON lines of ChemProt."""

    name = "chemprot-scibert"
    relations = ChemProt.relations

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file, without the markers: `<< >>` is the head; each line is a pair of its own."""
        for record in records(path, self):
            with self.problems:
                yield self._instance(record, relations)

    def _instance(self, record: Record, relations: RelationMap | None) -> Instance:
        marked, _ = record.sentence()
        parts = _parts(marked)
        if parts is None:
            raise record.error("expected `text` to have << one entity >> and then [[ the other ]]")
        relation = self.relation(_group(record), relations, record.file, record.line)
        before, first, between, second, _ = parts
        head_id, tail_id = own_ids(record.line, marked)
        head = Mention(head_id, first, len(before), len(before + first))
        start = head.end + len(between)
        tail = Mention(tail_id, second, start, start + len(second))
        return Instance("".join(parts), head, tail, relation)


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


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines(path):
        if line.strip():
            yield number, line.split("\t")


def _columns(row: Sequence[str], names: Sequence[str], path: Path, number: int, more: int = 0) -> list[str]:
    """The row's cells, if it has these columns or, in some tables, `more` of them."""
    if len(row) not in (len(names), len(names) + more):
        problem = f"expected {len(names)} columns ({', '.join(names)}), found {len(row)}"
        raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
    return [cell.strip() for cell in row]


def _add_abstract(texts: dict[str, MarkedText], row: Sequence[str], path: Path, number: int) -> None:
    pmid, *_ = _columns(row, ("pmid", "title", "abstract"), path, number)
    if pmid in texts:
        raise UserError(f"the abstract {pmid} is there twice", file=path, line=number)
    _, title, abstract = row
    text = f"{title}\t{abstract}"
    parts = [(0, len(title)), (len(title) + 1, len(text))]
    texts[pmid] = MarkedText(pmid, text, path, parts)


def _add_entity(texts: dict[str, MarkedText], row: Sequence[str], path: Path, number: int) -> None:
    columns = ("pmid", "id", "type", "start", "end", "text")
    pmid, key, kind, *place, name = _columns(row, columns, path, number)
    marked = _text(texts, pmid, path, number)
    if kind not in _TYPES:
        problem = f"expected the type CHEMICAL, GENE-Y or GENE-N, found {kind!r}"
        raise UserError(problem, file=path, line=number)
    if key in marked.mentions:
        raise UserError(f"the entity {key} of {pmid} is there twice", file=path, line=number)
    start, end = (int(number) if number.isdecimal() else -1 for number in place)
    found = marked.text[start:end] if 0 <= start < end else ""
    if not name or found != name:
        problem = f"expected {name!r} at the characters {' to '.join(place)} of {pmid}, found {found!r}"
        raise UserError(problem, file=path, line=number)
    marked.mentions[key] = Marked(name, _TYPES[kind], start, end)


def _text(texts: dict[str, MarkedText], pmid: str, path: Path, number: int) -> MarkedText:
    if pmid not in texts:
        raise UserError(f"there is no abstract {pmid!r}", file=path, line=number)
    return texts[pmid]


def _parts(marked: str) -> list[str] | None:
    """The text before, in, between and after the two pairs of markers; each marker is the first that fits."""
    parts, done = [], 0
    for marker, least in (("<< ", 0), (" >>", 1), ("[[ ", 0), (" ]]", 1)):
        place = marked.find(marker, done + least)
        if place < 0:
            return None
        parts.append(marked[done:place])
        done = place + len(marker)
    return [*parts, marked[done:]]


def _group(record: Record) -> str:
    label = record.fields.get("label")
    if not isinstance(label, str) or label not in _GROUP_OF_LABEL:
        hint = nearest(str(label), _GROUP_OF_LABEL)
        raise record.error(f"expected one of ChemProt's 13 labels, found {label!r}; {hint}")
    return _GROUP_OF_LABEL[label]
