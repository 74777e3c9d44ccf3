"""Differences of two rows of a table: rounds and bytes by hand, and what the bootstrap is told of folds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrel.evaluation.bootstrap import Interval
from fedrel.runs.collect import of_bytes, of_rounds
from fedrel.runs.plan import Job, Plan
from fedrel.runs.reproduction_record import Cell
from tests.runs.conftest import columns


def cell(values: dict[int, float | None], rounds: int) -> Cell:
    shared = {"best_round": 1, "rounds": rounds, "converged": True, "seconds": 1.0, "dev": []}
    runs = [{"seed": seed, "value": value, **shared} for seed, value in values.items()]
    return Cell.model_validate({"row": "a", "column": "c", "runs": runs})


def test_rounds_to_a_target_are_paired_by_seed_and_never_is_the_most_rounds_and_one() -> None:
    """A run that ended by patience in round 16 without reaching the target is not ahead of one that took 40."""
    never = cell({1: None, 2: 50, 3: None}, rounds=16)
    reaches = cell({3: 45, 2: 35, 1: 40, 4: 1}, rounds=60)
    found = of_rounds(never, reaches, 60)
    assert found is not None
    assert (found.mean, found.low, found.high) == (pytest.approx((21 + 15 + 16) / 3), 15, 21)
    assert of_rounds(reaches, never, 60) == Interval(mean=-found.mean, low=-21, high=-15)
    assert of_rounds(never, cell({1: 40, 2: 35}, rounds=60), 60) is None  # two seeds


def test_bytes_are_counted_over_common_seeds() -> None:
    found = of_bytes(cell({1: 10, 2: 30}, 5), cell({2: 5, 3: 100}, 5))
    assert found == Interval(mean=25, low=25, high=25)
    assert of_bytes(cell({1: 10}, 5), cell({2: 5}, 5)) is None


def test_the_bootstrap_is_told_which_fold_each_seed_was_tested_on(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "fedrel.runs.plan.difference_if_known", lambda _, __, ___, folds: asked.append(list(folds))
    )
    monkeypatch.setattr("fedrel.runs.kept_runs.KeptRuns.units", lambda _, config: config)
    name = columns(paper, few='"training.rounds" = 1')
    plan = Plan(name, tmp_path / "out", tmp_path / "runs", 3, searched=False)

    def in_folds(row: str) -> list[Job]:
        jobs = [job for job in plan.jobs() if job.row == row]
        data = [job.config.data.model_copy(update={"test": f"fold {job.seed}"}) for job in jobs]
        return [
            replace(job, config=job.config.model_copy(update={"data": one}))
            for job, one in zip(jobs, data, strict=True)
        ]

    plan.difference(in_folds("one"), in_folds("fedavg")[1:], "auc")
    assert asked == [["fold 2", "fold 3"]]
