"""A method's file reads like the algorithm box of its paper: it is short, and its options are documented."""

from __future__ import annotations

import ast
import importlib
import io
import tokenize
from pathlib import Path

import pytest

import fedrel.methods
from fedrel.federation.method import Method
from fedrel.methods.by_name import methods

MOST = 80  # lines of code, without blank lines, comments and docstrings
FOLDER = Path(fedrel.methods.__file__).parent
MODULES = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem != "__init__")
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(source: str) -> int:
    """The lines of a file that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def named(module: str) -> list[type[Method]]:
    """The methods that a module defines."""
    name = f"fedrel.methods.{module}"
    importlib.import_module(name)
    return [kind for kind in methods().values() if kind.__module__ == name]


def test_lines_are_counted_without_comments_and_docstrings():
    assert lines_of_code('"""Says\nwhat it is."""\n\nx = 1  # one\n# two\n\ny = (\n    2,\n)\n') == 4


@pytest.mark.parametrize("module", [module for module in MODULES if named(module)])
def test_a_methods_whole_file_has_at_most_80_lines_of_code(module):
    assert lines_of_code((FOLDER / f"{module}.py").read_text(encoding="utf-8")) <= MOST


def test_every_method_is_in_a_file_of_the_package():
    ours = [kind for kind in methods().values() if kind.__module__.startswith("fedrel.")]
    assert len(ours) == 23
    assert {kind for module in MODULES for kind in named(module)} == set(ours)


@pytest.mark.parametrize("kind", methods().values(), ids=lambda kind: kind.name)
def test_a_method_names_its_paper_and_documents_itself_and_its_options(kind):
    assert kind.__dict__["paper"]
    assert kind.__doc__.endswith(".")
    assert [
        name for name, field in kind.model_fields.items() if not (field.description or "").endswith(".")
    ] == []
