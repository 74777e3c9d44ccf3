"""Small HTML views of results for notebooks: a few tables that need no script and no style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from fedrel.runs.records import ComparisonRow, Result
from fedrel.studio.formatting import count, duration, label, share, size
from fedrel.studio.tables import Column, summarise


def run_view(folder: Path, result: Result) -> str:
    """A run: its metrics on test, and what they cost."""
    rows = [[label(name), share(value)] for name, value in result.metrics.items()]
    if result.selection_precision is not None:
        rows.append(["Selection precision", share(result.selection_precision)])
    rows += [
        ["Best round", f"{count(result.best_round)} of {count(result.rounds)}"],
        ["Sent by sites", size(result.bytes.up)],
        ["Sent to sites", size(result.bytes.down)],
        ["Time", duration(result.seconds)],
    ]
    title = f"<strong>{escape(result.method)}, seed {result.seed}</strong>"
    cells = [[escape(cell) for cell in row] for row in rows]
    return f"<div>{title}{_table([], cells)}{_where(folder)}</div>"


def comparison_view(folder: Path, rows: Sequence[ComparisonRow]) -> str:
    """Methods side by side: means over seeds, the best of each quality in bold."""
    summary = summarise(rows)
    head = ["method", *(column.label for column in summary.columns)]
    cells = [
        [escape(method), *(_cell(column, method) for column in summary.columns)] for method in summary.methods
    ]
    return f"<div>{_table(head, cells)}<p>{escape(summary.note)}</p>{_where(folder)}</div>"


def _cell(column: Column, method: str) -> str:
    text = escape(column.text(method))
    return f"<strong>{text}</strong>" if method in column.best else text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML; the first column is text, the others are numbers."""
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"] if head else []
    for first, *cells in rows:
        numbers = "".join(f'<td style="text-align: right">{cell}</td>' for cell in cells)
        lines.append(f'<tr><th style="text-align: left">{first}</th>{numbers}</tr>')
    return f"<table>{''.join(lines)}</table>"


def _where(folder: Path) -> str:
    report = folder / "report.html"
    text = f"report: {report}" if report.exists() else f"folder: {folder}"
    return f"<p><code>{escape(text)}</code></p>"
