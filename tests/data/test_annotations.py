from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.annotations import Draft, Mention, asked_about, candidates, places


def test_all_ordered_pairs_by_default() -> None:
    assert candidates(["x", "y"], None, set()).tolist() == [[0, 1], [1, 0]]


def test_only_the_types_that_make_a_pair() -> None:
    types = ["Disease", "Chemical", "Disease"]
    assert candidates(types, [("Chemical", "Disease")], set()).tolist() == [[1, 0], [1, 2]]
    assert candidates(types, [("Gene", "Disease")], set()).shape == (0, 2)


def test_one_entity_makes_no_pair() -> None:
    assert candidates(["x"], None, set()).shape == (0, 2)
    assert candidates([], None, set()).shape == (0, 2)


def test_annotated_lists_related_directions_and_other_pairs_one_way() -> None:
    pairs = candidates(["x"] * 3, None, {(2, 0)}, "annotated").tolist()
    assert pairs == [[0, 1], [1, 2], [2, 0]]
    assert candidates(["x"] * 2, None, {(0, 1), (1, 0)}, "annotated").tolist() == [[0, 1], [1, 0]]


def test_once_does_not_look_at_labels() -> None:
    pairs = candidates(["x"] * 3, None, {(2, 0)}, "once")
    assert pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    facts = {(2, 0): {"r": 1}, (0, 2): {"r": 2, "s": 3}, (1, 1): {"r": 4}}
    assert asked_about(facts, pairs, "once") == ({(0, 2): {"r": 1, "s": 3}}, [(1, 1)])
    assert asked_about(facts, pairs, "both") == ({(0, 2): {"r": 2, "s": 3}}, [(2, 0), (1, 1)])


def test_a_document_asked_once_has_its_facts_turned_round() -> None:
    draft = Draft()
    for place, name in enumerate("abc"):
        draft.mention(name, "x", Mention(name, place, place + 1))
    for head, tail in ("ca", "ac", "bc"):
        draft.fact(head, "r", tail, attribute="Novel")
    document = draft.document("1", "abc", [[(0, 1), (1, 2), (2, 3)]], directions="once")
    assert [(fact.head, fact.tail) for fact in document.facts] == [(0, 2), (1, 2)]
    assert document.facts[0].attribute == "Novel"
    assert document.handled == {"repeated_facts": 1}


def test_once_changes_nothing_where_types_give_the_direction() -> None:
    types, wanted = ["Disease", "Chemical"], [("Chemical", "Disease")]
    assert candidates(types, wanted, set(), "once").tolist() == [[1, 0]]


@given(st.lists(st.sampled_from("abc"), max_size=6), st.data())
def test_against_a_loop(types: list[str], data: st.DataObject) -> None:
    every = list(permutations(range(len(types)), 2))
    related = set(data.draw(st.lists(st.sampled_from(every), max_size=5))) if every else set()
    wanted = [("a", "b"), ("b", "a"), ("c", "c"), ("a", "c")]
    allowed = [(h, t) for h, t in every if (types[h], types[t]) in wanted]

    def annotated(h: int, t: int) -> bool:
        if (t, h) not in allowed or (h, t) in related:
            return True
        return (t, h) not in related and h < t

    assert list(map(tuple, candidates(types, wanted, related).tolist())) == allowed
    found = candidates(types, wanted, related, "annotated")
    assert list(map(tuple, found.tolist())) == [pair for pair in allowed if annotated(*pair)]
    found = candidates(types, wanted, related, "once")
    once = [(h, t) for h, t in allowed if (t, h) not in allowed or h < t]
    assert list(map(tuple, found.tolist())) == once


def test_places_of_pairs() -> None:
    pairs = np.array([[0, 1], [0, 3], [2, 0]], np.int32)
    assert places(pairs, np.array([[2, 0], [0, 2], [0, 1], [9, 9]])).tolist() == [2, -1, 0, -1]
    assert places(pairs[:0], np.array([[2, 0]])).tolist() == [-1]
    assert places(pairs, np.empty((0, 2), np.int64)).tolist() == []
