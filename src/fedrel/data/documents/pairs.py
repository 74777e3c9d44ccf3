"""Which pairs of a document's entities a model is asked about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Directions = Literal["both", "once"]
PairTypes = Sequence[Sequence[str]]  # (head type, tail type) each


def candidates(
    types: Sequence[str],
    wanted: PairTypes | None,
    related: Collection[tuple[int, int]],
    directions: Directions = "both",
) -> NDArray[np.int32]:
    """The (head, tail) of a document whose entities have these types, in ascending order, [pairs, 2].

    `wanted` lists the types that make a pair, as (Chemical, Disease); without it all do. Where two entities
    could stand either way round, `"both"` asks about both. `"once"` takes the ways that are related, and of
    two entities that are not related at all only the one with the first of them as head: so counts FedLCC's
    Table 1 for CHR, and so no negative arises from a relation that has no direction.
    """
    size = len(types)
    mask = ~np.eye(size, dtype=np.bool_)
    if wanted is not None:
        mask &= _of_types(types, wanted)
    if directions == "once":
        facts = np.zeros((size, size), np.bool_)
        if related:
            facts[tuple(np.array(list(related)).T)] = True
        either_way = mask & mask.T
        mask &= ~either_way | facts | np.triu(~(facts | facts.T))
    return np.argwhere(mask).astype(np.int32)


def places(pairs: NDArray[np.int32], wanted: NDArray[np.integer]) -> NDArray[np.int64]:
    """Where each of the wanted (head, tail) is among ascending pairs; -1 for one that is not."""
    keys, sought = _keys(pairs), _keys(wanted)
    place = np.searchsorted(keys, sought)
    found = place < len(keys)
    found[found] = keys[place[found]] == sought[found]
    return np.where(found, place, -1)


def _keys(pairs: NDArray[np.integer]) -> NDArray[np.int64]:
    head, tail = np.asarray(pairs, np.int64).reshape(-1, 2).T
    return head << 32 | tail


def _of_types(types: Sequence[str], wanted: PairTypes) -> NDArray[np.bool_]:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(types))}
    allowed = np.zeros((len(numbers), len(numbers)), np.bool_)
    for head, tail in wanted:
        if head in numbers and tail in numbers:
            allowed[numbers[head], numbers[tail]] = True
    code = np.array([numbers[name] for name in types], np.int64)
    return allowed[code[:, None], code[None, :]]
