"""The package as a tree of files: each is short, and has a name of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import fedrel

FOLDER = Path(fedrel.__file__).parent
MODULES = [file for file in FOLDER.rglob("*.py") if file.stem != "__init__"]


def test_no_two_modules_have_one_name():
    assert [name for name, times in Counter(file.stem for file in MODULES).items() if times > 1] == []


def test_no_module_has_more_than_400_lines():
    long = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in FOLDER.rglob("*.py")}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}
