"""Leaves out negative pairs that are hardly wrong: those whose disease is a hypernym of a related one.

If an abstract relates lithium to nephrogenic diabetes insipidus and also mentions kidney diseases, then (lithium,
kidney diseases) is annotated as unrelated. CDR's users leave such pairs out of training and evaluation. EoG's files
mark them `not_include`; for other files they follow from a MeSH tree.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrel.data.annotations import Document, places
from fedrel.data.readers import eog
from fedrel.data.text_files import lines
from fedrel.errors import UserError

Rule = Callable[[Document], NDArray[np.bool_]]  # which of a document's pairs to leave out
Tree = dict[str, list[str]]  # tree numbers by descriptor id, C12.777.419 under C12.777

_NUMBER = re.compile(r"[A-Z]\d{2}(?:\.\d{3})*")
_DESCRIPTOR = re.compile(r"[A-Z]\d{6,}")


def filtered(documents: Iterable[Document], rule: Rule) -> Iterator[Document]:
    """The documents, with the pairs left out that a rule names, too; pairs with a fact always stay."""
    for document in documents:
        related = np.array([(fact.head, fact.tail) for fact in document.facts], np.int64)
        negative = np.ones(len(document.pairs), np.bool_)
        negative[places(document.pairs, related)] = False
        yield replace(document, left_out=document.left_out | (rule(document) & negative))


def as_listed(files: Iterable[Path]) -> Rule:
    """The pairs that EoG's files label `not_include`, found by the ids of document, head and tail."""
    listed = {key for file in files for key in eog.left_out(file)}

    def rule(document: Document) -> NDArray[np.bool_]:
        ids = [entity.id for entity in document.entities]
        pairs = document.pairs.tolist()
        return np.array([(document.id, ids[head], ids[tail]) in listed for head, tail in pairs], np.bool_)

    return rule


def by_tree(tree: Tree) -> Rule:
    """The pairs whose tail is above a tail that the same head is related to, on any path of the tree."""

    def rule(document: Document) -> NDArray[np.bool_]:
        numbers = [tree.get(_descriptor(entity.id), []) for entity in document.entities]
        above: defaultdict[int, set[str]] = defaultdict(set)
        for fact in document.facts:
            above[fact.head].update(upper for number in numbers[fact.tail] for upper in _ancestors(number))
        pairs = document.pairs.tolist()
        return np.array([not above[head].isdisjoint(numbers[tail]) for head, tail in pairs], np.bool_)

    return rule


def read_tree(path: Path) -> Tree:
    """A MeSH tree: a table, or the descriptors in MeSH's own ASCII form (`d2024.bin`).

    A table's first two columns, separated by a tab, are a descriptor id and a tree number, either first; a
    header is skipped. `mtrees2024.bin` cannot be used: it has terms instead of ids.
    """
    rows = ((number, line) for number, line in lines(path) if line.strip())
    first = next(rows, None)
    if first is None:
        raise UserError("expected a MeSH tree, found an empty file", file=path)
    if first[1].startswith("*NEWRECORD"):
        tree = _from_records(line for _, line in rows)
    else:
        tree = _from_table(path, [first, *rows])
    if not tree:
        raise UserError("found no descriptor with a tree number", file=path)
    return tree


def _from_records(rows: Iterable[str]) -> Tree:
    tree: Tree = {}
    numbers: list[str] = []
    for row in rows:
        key, _, value = row.partition(" = ")
        if key == "*NEWRECORD":
            numbers = []
        elif key == "MN":
            numbers.append(value.strip())
        elif key == "UI" and numbers:
            tree[value.strip()] = numbers
    return tree


def _from_table(path: Path, rows: list[tuple[int, str]]) -> Tree:
    tree: defaultdict[str, list[str]] = defaultdict(list)
    for place, (number, line) in enumerate(rows):
        match [column.strip() for column in line.split("\t")[:2]]:
            case [identity, where] if _DESCRIPTOR.fullmatch(identity) and _NUMBER.fullmatch(where):
                tree[identity].append(where)
            case [where, identity] if _DESCRIPTOR.fullmatch(identity) and _NUMBER.fullmatch(where):
                tree[identity].append(where)
            case _ if place > 0 or "\t" not in line:
                problem = f"expected a descriptor id and a tree number, found {line!r}"
                hint = "mtrees files have no ids: take dYYYY.bin of the same year" if ";" in line else ""
                raise UserError(problem, file=path, line=number, hint=hint)
    return dict(tree)


def _ancestors(number: str) -> Iterator[str]:
    """C12 and C12.777 of C12.777.419."""
    parts = number.split(".")
    return (".".join(parts[:depth]) for depth in range(1, len(parts)))


def _descriptor(identity: str) -> str:
    return identity.rpartition(":")[2]  # MESH:D007674 and D007674 are the same
