from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.evaluation.classification import Classification
from fedrel.evaluation.outcome import ClassScores

NAMES = ("NA", "treats", "causes", "prevents")


def of(predicted: list[int], gold: list[int], names: tuple[str, ...] = NAMES) -> Classification:
    return Classification(np.array(predicted, np.int32), np.array(gold, np.int32), names)


# Of five right guesses three are of relations; of five guessed relations three
# are right; and five relations were there to be found.
BY_HAND = of([0, 1, 1, 0, 2, 1, 3, 0], [0, 1, 1, 1, 2, 2, 0, 0])


def test_metrics_by_hand() -> None:
    # treats: 2 right of 3 predicted and 3 gold; causes: 1 of 1 and 2; prevents: 0 of 1 and 0.
    assert BY_HAND.metrics() == pytest.approx(
        {
            "f1": 3 / 5,
            "precision": 3 / 5,
            "recall": 3 / 5,
            "macro_f1": (2 / 3 + 2 / 3 + 0) / 3,
            "accuracy": 5 / 8,
        }
    )


def test_per_class_by_hand() -> None:
    columns = ("relation", "precision", "recall", "f1", "support")
    rows = [tuple(getattr(row, column) for column in columns) for row in BY_HAND.per_class()]
    assert rows == [
        ("NA", 2 / 3, 2 / 3, 2 / 3, 3),
        ("treats", 2 / 3, 2 / 3, 2 / 3, 3),
        ("causes", 1.0, 0.5, 2 / 3, 2),
        ("prevents", 0.0, 0.0, 0.0, 0),
    ]


def test_confusion_by_hand() -> None:
    assert json.loads(BY_HAND.confusion().model_dump_json()) == {
        "relations": list(NAMES),
        "counts": [[2, 0, 0, 1], [1, 2, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]],
    }
    assert [ClassScores.model_validate_json(row.model_dump_json()) for row in BY_HAND.per_class()] == (
        BY_HAND.per_class()
    )


def test_with_one_relation_it_is_the_f1_of_the_positive_class() -> None:
    from sklearn.metrics import f1_score

    one = of([1, 1, 0, 1, 0], [1, 0, 1, 1, 0], ("NA", "association"))
    assert one.metrics()["f1"] == pytest.approx(f1_score([1, 0, 1, 1, 0], [1, 1, 0, 1, 0]))
    assert one.metrics()["macro_f1"] == one.metrics()["f1"]


@pytest.mark.parametrize("classes", [[], [0, 0]])
def test_nothing_to_find_is_zero(classes: list[int]) -> None:
    metrics = of(classes, classes).metrics()
    assert metrics.pop("accuracy") == float(bool(classes))
    assert set(metrics.values()) == {0.0}


@pytest.mark.parametrize(
    ("predicted", "gold", "problem"),
    [
        ([1, 2], [1], "as many predicted as gold"),
        ([4], [1], "outside the 4 relations"),
        ([1], [-1], "outside the 4 relations"),
    ],
)
def test_what_cannot_be_counted(predicted: list[int], gold: list[int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        of(predicted, gold)


classes = st.integers(0, len(NAMES) - 1)


@given(st.lists(st.tuples(classes, classes), min_size=1, max_size=40))
def test_as_scikit_learn_has_it(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support

    predicted, gold = [one for one, _ in pairs], [other for _, other in pairs]
    found = of(predicted, gold)
    labels, relations = range(len(NAMES)), range(1, len(NAMES))
    micro = precision_recall_fscore_support(
        gold, predicted, labels=relations, average="micro", zero_division=0
    )
    present = sorted({*gold, *predicted} - {0})
    macro = f1_score(gold, predicted, labels=present, average="macro", zero_division=0) if present else 0.0
    metrics = found.metrics()
    assert [metrics["precision"], metrics["recall"], metrics["f1"]] == pytest.approx(micro[:3])
    assert metrics["macro_f1"] == pytest.approx(macro)
    assert metrics["accuracy"] == pytest.approx(accuracy_score(gold, predicted))
    assert found.confusion().counts == confusion_matrix(gold, predicted, labels=labels).tolist()
    columns = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0)
    for name, column in zip(("precision", "recall", "f1", "support"), columns, strict=True):
        assert [getattr(row, name) for row in found.per_class()] == pytest.approx(column.tolist())
