from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedrel.evaluation.document_metrics import Scores, ign_f1, metrics, micro

Bools = NDArray[np.bool_]


def table(*rows: str) -> Bools:
    return np.array([[mark == "x" for mark in row] for row in rows])


# Four pairs, NA and three relations. Right: (0, a), (0, b), (2, c). Wrong: (1, a), (3, c). Missed: (1, b).
FACTS = table(".xx.", "..x.", "...x", "x...")
GUESSES = table(".xx.", ".x..", "...x", "...x")


def test_worked_out_by_hand() -> None:
    assert micro(GUESSES, FACTS) == Scores(correct=3, guesses=5, facts=4)
    found = metrics(GUESSES, FACTS)
    assert found == pytest.approx({"precision": 3 / 5, "recall": 3 / 4, "f1": 2 / 3})


def test_na_is_neither_guess_nor_fact() -> None:
    assert micro(table("x.", "x."), table("x.", ".x")) == Scores(0, 0, 1)


def test_within_one_sentence_and_over_several() -> None:
    found = metrics(GUESSES, FACTS, intra=np.array([True, False, False, True]))
    assert found["intra_f1"] == pytest.approx(2 * 2 / (3 + 2))  # 2 right, 3 guessed, 2 facts
    assert found["inter_f1"] == pytest.approx(2 * 1 / (2 + 2))  # 1 right, 2 guessed, 2 facts


def test_facts_that_training_gave_away() -> None:
    # (0, a) was guessed rightly and seen; (1, b) was seen but missed; (1, a) is wrong, whatever was seen.
    seen = table(".x..", ".xx.", "....", "....")
    precision, recall = (3 - 1) / (5 - 1), 3 / 4
    expected = 2 * precision * recall / (precision + recall)
    assert ign_f1(GUESSES, FACTS, seen) == pytest.approx(expected)
    assert metrics(GUESSES, FACTS, seen=seen)["ign_f1"] == pytest.approx(expected)
    assert ign_f1(FACTS, FACTS, FACTS) == 0.0  # nothing is left that was not known
    assert ign_f1(GUESSES, FACTS, np.zeros_like(FACTS)) == micro(GUESSES, FACTS).f1


def test_no_pairs_no_guesses_and_no_facts_score_nothing() -> None:
    none = np.zeros((0, 2), np.bool_)
    assert metrics(none, none, intra=np.zeros(0, np.bool_), seen=none) == dict.fromkeys(
        ("precision", "recall", "f1", "intra_f1", "inter_f1", "ign_f1"), 0.0
    )


@pytest.mark.parametrize(("guesses", "facts"), [((2, 3), (2, 4)), ((3,), (3,)), ((2, 0), (2, 0))])
def test_other_shapes_are_refused(guesses: tuple[int, ...], facts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must be \\[pairs, relations\\]"):
        micro(np.zeros(guesses, np.bool_), np.zeros(facts, np.bool_))


ROWS = st.lists(st.tuples(*[st.lists(st.booleans(), min_size=4, max_size=4)] * 3, st.booleans()), max_size=8)


@given(ROWS)
def test_against_sets_of_facts(rows: list[tuple[list[bool], list[bool], list[bool], bool]]) -> None:
    """The same numbers from sets of (pair, relation), counted as DocRED's evaluation counts them."""
    empty = np.zeros((0, 4), np.bool_)
    guesses, facts, seen = (np.array([row[n] for row in rows], np.bool_).reshape(-1, 4) for n in range(3))
    intra = np.array([row[3] for row in rows], np.bool_)
    sets = [set(map(tuple, np.argwhere(array).tolist())) for array in (guesses, facts, seen)]
    guessed, true, known = ({(pair, relation) for pair, relation in each if relation} for each in sets)

    def f1(guessed: set[tuple[int, ...]], true: set[tuple[int, ...]], ignored: int = 0) -> float:
        right = len(guessed & true)
        precision = (right - ignored) / (len(guessed) - ignored) if len(guessed) > ignored else 0.0
        recall = right / len(true) if true else 0.0
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0

    found = metrics(guesses, facts, intra=intra, seen=seen)
    assert found["f1"] == pytest.approx(f1(guessed, true))
    assert found["ign_f1"] == pytest.approx(f1(guessed, true, len(guessed & true & known)))
    for name, wanted in (("intra_f1", True), ("inter_f1", False)):
        part = [{fact for fact in each if intra[fact[0]] == wanted} for each in (guessed, true)]
        assert found[name] == pytest.approx(f1(*part))
    assert micro(empty, empty).f1 == 0.0
