"""A knowledge base: entities with their names, and the facts between them that text is labelled with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fedrel.data.relations import NA, RelationMap
from fedrel.data.text_files import lines
from fedrel.errors import UserError


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


def _names(column: str, path: Path, line: int) -> list[str]:
    names = [name.strip() for name in column.split("|") if name.strip()]
    if not names:
        hint = "give at least one, or several with | between them"
        raise UserError("an entity has no name", file=path, line=line, hint=hint)
    return names
