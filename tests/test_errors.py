"""What an error says, and that it says the same after it went from one process to another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedrel.errors import UserError, nearest
from fedrel.federation.engines.processes import WorkerEngine
from fedrel.runs.engines import WORKER
from fedrel.runs.prepare import prepare
from tests.conftest import tiny


def test_the_hint_has_a_line_of_its_own():
    error = UserError("expected 6 columns", file=Path("a.txt"), line=3, hint="check the format")
    assert str(error) == "a.txt:3: expected 6 columns\nhint: check the format"
    assert str(UserError("no")) == "no"
    assert str(UserError("is empty", file="b.txt")) == "b.txt: is empty"


def test_an_error_is_the_same_in_another_process():
    error = UserError("expected 6 columns", file=Path("a.txt"), line=3, hint="check the format")
    again = UserError.from_json(json.loads(json.dumps(error.to_json())))
    assert str(again) == str(error)
    assert (again.problem, again.file, again.line, again.hint) == (
        "expected 6 columns",
        "a.txt",
        3,
        "check the format",
    )


def test_a_worker_reports_its_error_with_the_hint(out):
    """A method that this process does not check when it hands the config over, and no worker knows."""
    config = tiny(training__rounds=1)
    ready = prepare(config)
    wrong = config.model_copy(update={"method": "lazi-mil"})
    with (
        WorkerEngine(wrong, ready.site_data, out, workers=1, module=WORKER) as engine,
        pytest.raises(UserError) as caught,
    ):
        list(engine.ask("train", 1, {}, {0: {}}))
    assert caught.value.problem == "no method is called 'lazi-mil'"
    assert caught.value.hint == "did you mean 'lazy-mil'?"


def test_a_near_name_is_suggested_and_else_all_are_listed():
    assert nearest("fedavgg", ["one", "fedavg"]) == "did you mean 'fedavg'?"
    assert nearest("xyz", ["one", "fedavg"]) == "known: fedavg, one"
