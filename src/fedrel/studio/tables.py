"""The tables that compare methods, as Markdown and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedrel.runs.records import read_run
from fedrel.studio.rows import Row, row
from fedrel.studio.summary import CHOSEN, Column, Summary, summarise

if TYPE_CHECKING:
    from rich.table import Table


_TERMINAL = 80  # characters
_DEAREST = (
    "f1",
    "p_mean",
    "precision",
    "recall",
    "up",
    "seconds",
    CHOSEN,
    "worst_site",
)  # after the first metric


def comparison_rows(runs: Mapping[str, Sequence[Path]]) -> list[Row]:
    """One row a run, from the run folders of each method."""
    return [row(method, read_run(folder)) for method, folders in runs.items() for folder in folders]


def comparison_markdown(rows: Sequence[Row]) -> str:
    """The tables as Markdown: mean ± standard deviation over seeds, the best of each quality in bold."""
    summary = summarise(rows)
    parts = [_markdown(summary.methods, summary.columns)]
    if summary.traffic:
        parts.append(_markdown(summary.methods, summary.traffic))
    return "\n\n".join([*parts, summary.note]) + "\n"


def comparison_table(rows: Sequence[Row]) -> Table:
    """The table for a terminal: the columns that fit into 80 characters."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    summary = summarise(rows)
    columns = _fitting(summary)
    table = Table(box=box.SIMPLE_HEAD, caption=Text(summary.note), caption_justify="left")
    table.add_column("method", no_wrap=True)
    for column in columns:
        heading = Text(column.label)  # headings wrap, not numbers
        table.add_column(heading, justify="right", min_width=_widest(column, summary.methods))
    for method in summary.methods:
        cells = (Text(c.text(method), style="bold green" if method in c.best else "") for c in columns)
        table.add_row(Text(method), *cells)
    return table


def _markdown(methods: Sequence[str], columns: Sequence[Column]) -> str:
    lines = [
        ["method", *(column.label for column in columns)],
        ["---", *("---:" for _ in columns)],
        *([method.replace("|", "\\|"), *(_bold(column, method) for column in columns)] for method in methods),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _bold(column: Column, method: str) -> str:
    text = column.text(method)
    return f"**{text}**" if method in column.best else text


def _fitting(summary: Summary) -> list[Column]:
    """The first metric and as many of the dearest other columns as there is room for, in the table's order."""
    known = {column.name: column for column in summary.columns}
    left = _TERMINAL - max(map(len, [*summary.methods, "method"])) - 3
    chosen: set[str] = set()
    for name in (*list(known)[:1], *_DEAREST):
        if name in known:
            width = _widest(known[name], summary.methods) + 2
            if width <= left or not chosen:
                chosen.add(name)
                left -= width
    return [column for column in summary.columns if column.name in chosen]


def _widest(column: Column, methods: Sequence[str]) -> int:
    cells = [column.text(method) for method in methods]
    return max(map(len, [*cells, *column.label.split()]), default=0)
