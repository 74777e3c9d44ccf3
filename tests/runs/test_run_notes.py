"""What a run leaves behind when it ends well, fails, is stopped or killed; and that asking does not disturb it."""

from __future__ import annotations

import fcntl
import os
import threading
from unittest.mock import Mock

import pytest

from fedrel.errors import UserError
from fedrel.files import locked
from fedrel.runs.run_notes import StoppedError, is_running, noted, read_state
from fedrel.runs.train import run
from tests.conftest import tiny

CONFIG = tiny(method="one", training__rounds=7)


def test_the_phases_of_a_run(out):
    out.mkdir()
    with noted(out, CONFIG) as note:
        assert read_state(out).phase == "reading"
        note("training")
        assert read_state(out).phase == "training"
        note("finished")
    found = read_state(out)
    assert (found.phase, found.method, found.seed, found.rounds, found.metric) == (
        "finished",
        "one",
        1,
        7,
        "auc",
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [(UserError("no site answered", hint="repair them"), "no site answered\nhint: repair them"),
     (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero")],
)  # fmt: skip
def test_a_failure_is_kept_with_its_message(out, error, message):
    out.mkdir()
    with pytest.raises(type(error)), noted(out, CONFIG) as note:
        note("training")
        (out / "metrics.jsonl").touch()
        raise error
    assert (read_state(out).phase, read_state(out).message) == ("failed", message)


def test_a_run_that_fails_before_it_has_written_anything_leaves_nothing(out):
    with pytest.raises(UserError), locked(out), noted(out, CONFIG):
        raise UserError("no such file")
    assert not out.exists()


def test_a_method_that_cannot_be_protected_is_refused_before_data_are_read(out):
    noise = {"privacy__dp__level": "sentence", "privacy__dp__noise": 1.0, "privacy__dp__clip": 1.0}
    sites = Mock()
    with pytest.raises(UserError, match=r"^privacy\.dp: .*would tell more than the noise covers"):
        run(tiny(method="lazy-mil", **noise), out, sites=sites)
    assert not sites.prepare.called
    assert not out.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoppedError])
def test_a_run_that_is_stopped_has_not_failed(out, error):
    out.mkdir()
    with pytest.raises(error), noted(out, CONFIG) as note:
        note("training")
        raise error
    assert read_state(out).phase == "training"


def test_whether_a_run_goes_on_is_told_by_its_lock(out):
    with locked(out):
        (out / "state.json").touch()
        assert is_running(out)
    assert not is_running(out)


def test_a_run_that_begins_while_someone_asks_waits_for_it(out):
    out.mkdir()
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)  # someone asks, and is slow
    threading.Timer(0.02, os.close, [handle]).start()
    with locked(out):
        assert is_running(out)
