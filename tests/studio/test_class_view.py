from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from fedrel.evaluation.outcome import Classes, ClassScores, Confusion
from fedrel.runs.folder import read_run
from fedrel.studio.class_view import class_comparison, class_view
from tests.studio.conftest import write_classification


def made(counts: list[list[int]]) -> Classes:
    names = [f"r{n}" for n in range(len(counts))]
    rows = [
        ClassScores(relation=name, precision=0.5, recall=0.5, f1=0.5, support=sum(row))
        for name, row in zip(names, counts, strict=True)
    ]
    return Classes(per_class=rows, confusion=Confusion(relations=names, counts=counts))


def test_relations_stand_by_their_frequency() -> None:
    view = class_view(made([[1, 0], [4, 5]]))
    assert view is not None
    assert [row.relation for row in view.rows] == ["r1", "r0"]
    assert not view.wide


def test_confusion_by_hand() -> None:
    """Frequencies 10, 4, 2 keep their order; what is right and what is not are two layers of shares of a row."""
    view = class_view(made([[8, 2, 0], [1, 3, 0], [2, 0, 0]]))
    assert view is not None
    assert view.confusion is not None
    wrong, right = view.confusion.figure["data"]
    assert right["z"] == [[0.8, None, None], [None, 0.75, None], [None, None, 0.0]]
    assert wrong["z"] == [[None, 0.2, 0.0], [0.25, None, 0.0], [1.0, 0.0, None]]
    assert right["text"] == [["8", "", ""], ["", "3", ""], ["", "", ""]]
    assert wrong["hovertext"][1][0] == "r1 found as r0: 1, 25% of the row"
    assert "The most frequent mistake is r0 found as r1: 2 times." in view.confusion.note
    assert "69% of the test sentences" in view.confusion.alt
    go.Figure(view.confusion.figure)


def test_sixty_relations_are_the_most_frequent_and_others() -> None:
    counts = np.diag(np.arange(60, 0, -1))
    counts[:, 0] += 1
    view = class_view(made(counts.tolist()))
    assert view is not None
    assert view.confusion is not None
    assert view.wide
    _, right = view.confusion.figure["data"]
    names = view.confusion.figure["layout"]["yaxis"]["ticktext"]
    assert (len(names), names[0], names[-1]) == (30, "r0", "31 others")
    assert right["text"][-1][-1] == str(sum(range(1, 32)))
    assert "rarest relations share the last row" in view.confusion.note


@pytest.mark.parametrize("counts", [[[0, 0], [0, 0]], []])
def test_nothing_tested_is_no_matrix(counts: list[list[int]]) -> None:
    view = class_view(made(counts))
    assert view is not None
    assert view.confusion is None


def test_nothing_confused() -> None:
    view = class_view(made([[3, 0], [0, 2]]))
    assert view is not None
    assert view.confusion is not None
    assert "Nothing is confused." in view.confusion.alt


def test_methods_by_relation_are_means_over_seeds(tmp_path: Path) -> None:
    runs = {
        method: [
            read_run(write_classification(tmp_path / f"{method}-{seed}", method, seed)) for seed in (1, 2)
        ]
        for method in ("fedavg", "fedcmc")
    }
    plot = class_comparison(runs)
    assert plot is not None
    trace = plot.figure["data"][0]
    assert trace["z"][0] == trace["z"][1] == [0.8247, 0.6292, 0.0]  # 160/194, 56/89, and none found
    assert plot.figure["layout"]["yaxis"]["ticktext"] == ["fedavg", "fedcmc"]
    assert class_comparison({"fedavg": runs["fedavg"]}) is None
