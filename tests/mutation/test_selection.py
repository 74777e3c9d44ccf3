"""Every method's module is in the mutation check, with tests that exist."""

from __future__ import annotations

import json
from pathlib import Path

import fedrel.methods
from tests.golden.cases import CASES
from tests.mutation import selection

ROOT = Path(__file__).parents[2]


def test_every_module_of_the_methods_is_checked():
    folder = Path(fedrel.methods.__file__).parent
    assert set(selection.METHODS) == {file.stem for file in folder.glob("*.py")} - {"__init__"}


def test_the_tests_that_should_notice_exist():
    for module in selection.MODULES:
        for asked in selection.tests_of(module):
            assert (ROOT / asked.partition("::")[0]).is_file(), asked
    assert {case for _, cases in selection.METHODS.values() for case in cases} <= set(CASES)


def test_the_recorded_survivors_have_reasons():
    found = json.loads((ROOT / "results" / "mutation.json").read_text(encoding="utf-8"))
    assert found["killed"] >= 0.9 * found["tested"]
    for module in found["modules"].values():
        assert module["mutants"] - module["killed"] == len(module["survivors"])
        assert all(one["reason"] for one in module["survivors"])
