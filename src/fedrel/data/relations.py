"""The relations a model chooses from, in the order of its classes: `NA`, where it is one of them, is class 0."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from fedrel.data.text_files import lines
from fedrel.errors import UserError, nearest

NA = "NA"  # the relation of a pair that no fact relates


class RelationMap(tuple[str, ...]):
    """The names of the relations: the class of `names[i]` is `i`, and `names[0]` is `NA`.

    >>> RelationMap(["treats", "NA", "causes"])
    ('NA', 'treats', 'causes')
    """

    __slots__ = ()

    def __new__(cls, names: Iterable[str]) -> RelationMap:
        """Put NA first, whether it is among the names or not; the others keep their order."""
        return super().__new__(cls, dict.fromkeys((NA, *names)))

    def check(self, relation: str, file: Path, line: int | None) -> None:
        """Raise a `UserError` for a relation that is not in the map."""
        if relation not in self:
            problem = f"the relation {relation!r} is not in the relation map"
            raise UserError(problem, file=file, line=line, hint=nearest(relation, self))


def read_relations(path: Path) -> RelationMap:
    """A map as JSON (`{name: class}`) or as NYT10's `relation2id.txt`: a count, if any, and `name class` lines."""
    numbered = [(number, line) for number, line in lines(path) if line.strip()]
    content = "\n".join(line for _, line in numbered)
    classes = _from_json(content, path) if content.lstrip().startswith("{") else _from_table(numbered, path)
    if sorted(classes.values()) != list(range(len(classes))):
        problem = f"expected the classes 0 to {len(classes) - 1}, each once, found {sorted(classes.values())}"
        raise UserError(problem, file=path)
    return RelationMap(sorted(classes, key=classes.__getitem__))


def _from_json(content: str, path: Path) -> dict[str, int]:
    try:
        classes = json.loads(content)
    except ValueError as error:
        raise UserError(f"broken JSON: {error}", file=path) from error
    if not all(type(number) is int for number in classes.values()):
        raise UserError("expected a class number for each relation", file=path)
    return dict(classes)


def _from_table(numbered: list[tuple[int, str]], path: Path) -> dict[str, int]:
    first = numbered[0][1].strip() if numbered else ""
    counted = first.isdecimal()
    classes: dict[str, int] = {}
    for number, line in numbered[counted:]:
        name, _, index = line.strip().rpartition(" " if "\t" not in line else "\t")
        if not name.strip() or not index.isdecimal() or name in classes:
            problem = f"expected a new relation and its class, found {line!r}"
            raise UserError(
                problem, file=path, line=number, hint="write `name class` lines, or a JSON object"
            )
        classes[name] = int(index)
    if counted and len(classes) != int(first):
        problem = f"the first line says {first} relations, found {len(classes)}"
        raise UserError(problem, file=path)
    if not classes:
        raise UserError("no relation in it", file=path, hint="write `name class` lines, or a JSON object")
    return classes
