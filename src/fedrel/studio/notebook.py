"""Small HTML views of results for notebooks: a few tables that need no script and no style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from fedrel.runs.records import Result, ComparisonRow
from fedrel.studio.summary import summarise
from fedrel.studio.words import count, duration, label, share, size

_RIGHT = ' style="text-align: right"'


def run_view(folder: Path, result: Result) -> str:
    """A run: its metrics on test, and what they cost."""
    facts = [
        ("best round", f"{count(result.best_round)} of {count(result.rounds)}"),
        ("sent by sites", size(result.bytes.up)),
        ("sent to sites", size(result.bytes.down)),
        ("time", duration(result.seconds)),
    ]
    if result.selection_precision is not None:
        facts.insert(1, ("selection precision", share(result.selection_precision)))
    rows = [(label(name), share(value)) for name, value in result.metrics.items()]
    return _page(f"{result.method}, seed {result.seed}", [_table(None, [*rows, *facts])], folder)


def comparison_view(folder: Path, rows: Sequence[ComparisonRow]) -> str:
    """Methods side by side: means over seeds, the best of each quality in bold."""
    summary = summarise(rows)
    body = [
        (method, *((column.text(method), method in column.best) for column in summary.columns))
        for method in summary.methods
    ]
    table = _table(["method", *(column.label for column in summary.columns)], body)
    return _page("", [table, f"<p>{escape(summary.note)}</p>"], folder)


def _page(title: str, parts: Iterable[str], folder: Path) -> str:
    report = folder / "report.html"
    where = f"report: {report}" if report.exists() else f"folder: {folder}"
    heading = f"<strong>{escape(title)}</strong>" if title else ""
    return f"<div>{heading}{''.join(parts)}<p><code>{escape(str(where))}</code></p></div>"


def _table(head: Sequence[str] | None, rows: Iterable[Sequence[str | tuple[str, bool]]]) -> str:
    """A table whose first column is text and whose others are numbers; a pair says whether its number is bold."""
    lines = [] if head is None else [f"<tr>{''.join(f'<th>{escape(one)}</th>' for one in head)}</tr>"]
    for first, *cells in rows:
        shown = [(cell, False) if isinstance(cell, str) else cell for cell in cells]
        numbers = (f"<td{_RIGHT}>{_bold(text) if best else escape(text)}</td>" for text, best in shown)
        lines.append(f"<tr><th{_LEFT}>{escape(str(first))}</th>{''.join(numbers)}</tr>")
    return f"<table>{''.join(lines)}</table>"


_LEFT = ' style="text-align: left"'


def _bold(text: str) -> str:
    return f"<strong>{escape(text)}</strong>"
