"""The made-up run folders that the pages' tests use, too, and a made-up paper of a few seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedrel.runs.train import Watcher
from tests.conftest import tiny
from tests.studio.conftest import classification, comparison, make_run

__all__ = ["classification", "comparison", "make_run"]

PAPER = """
title = "Nobody 2020, A made-up paper"

[exhibits.table1]
about = "AUC on the world"
metric = "auc"
scale = 100

[exhibits.table1.search]
"training.learning_rate" = [1e-6, 0.3]

[exhibits.table1.rows]
one = {}
fedavg = {}
"fedavg, still" = { method = "fedavg", set = { "training.learning_rate" = 1e-9 } }

[[exhibits.table1.columns]]
name = "few"
preset = "CONFIG"
set = { "training.fraction" = 0.5 }
paper = { one = 70.0, fedavg = 60.0 }

[[exhibits.table1.columns]]
name = "lost"
preset = "LOST"
paper = { one = 1.0 }

[exhibits.table2]
about = "Rounds to an AUC of .01"
metric = "rounds"
target = 0.01
target_metric = "auc"
better = "less"

[exhibits.table2.rows]
one = {}
fedavg = {}

[[exhibits.table2.columns]]
name = "few"
preset = "LOST"
instead = "CONFIG"
set = { "training.fraction" = 0.5, "evaluation.target_on" = "test" }
paper = { one = 3, fedavg = 5 }
"""


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    config, lost, file = tmp_path / "config.toml", tmp_path / "lost.toml", tmp_path / "paper.toml"
    config.write_text(tiny(training__rounds=4).to_toml())
    lost.write_text('[data]\ncorpus = "files"\ntrain = ["no.jsonl"]\ntest = ["no.jsonl"]\n')
    file.write_text(PAPER.replace("CONFIG", str(config)).replace("LOST", str(lost)))
    return file


def columns(paper: Path, **settings: str) -> str:
    """Table 1 of the made-up paper with other columns: the settings of each by name; returns the table's name."""
    head = paper.read_text().partition("[[exhibits.table1.columns]]")[0]
    config = paper.parent / "config.toml"
    for name, text in settings.items():
        head += f'[[exhibits.table1.columns]]\nname = "{name}"\npreset = "{config}"\nset = {{ {text} }}\n'
        head += "paper = { one = 70.0, fedavg = 60.0 }\n"
    paper.write_text(head)
    return f"{paper}/table1"


def stop_after(rounds: int) -> Callable[..., Watcher]:
    """A watch that stops as a kill would: with an exception between two rounds."""
    left = [rounds]

    def round_done(_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return lambda _, __: Watcher(round_done=round_done)
