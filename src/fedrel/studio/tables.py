"""Tables of results: methods compared over seeds, as Markdown, in a terminal, on a page, and in a notebook.

For other programs a comparison is a file: CSV for spreadsheets, LaTeX for papers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedrel.evaluation.outcome import Record
from fedrel.runs.records import ComparisonRow, Result
from fedrel.studio.formatting import (
    NOTHING,
    Show,
    Spread,
    count,
    duration,
    label,
    markdown_table,
    median,
    several,
    share,
    size,
)

if TYPE_CHECKING:
    from rich.table import Table


Value = Callable[[ComparisonRow], float | None]
_Runs = Mapping[str, Sequence[ComparisonRow]]  # of each method

SELECTION = "selection_precision"
ENOUGH = 3  # runs of a method whose median is worth a column

_TERMINAL = 80  # characters
# Which columns a terminal shows, after the first metric, as long as there is room.
_PREFERRED = ("f1", "p_mean", "precision", "recall", "up", "seconds", SELECTION, "worst_site")

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    NOTHING: "--",
}


def comparison_markdown(rows: Sequence[ComparisonRow]) -> str:
    """The tables as Markdown: mean ± standard deviation over seeds, the best of each quality in bold."""
    summary = summarise(rows)
    parts = [_markdown(summary.methods, summary.columns)]
    if summary.traffic:
        parts.append(_markdown(summary.methods, summary.traffic))
    return "\n\n".join([*parts, summary.note]) + "\n"


def comparison_table(rows: Sequence[ComparisonRow]) -> Table:
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


def run_view(folder: Path, result: Result) -> str:
    """A run: its metrics on test, and what they cost."""
    rows = [[label(name), share(value)] for name, value in result.metrics.items()]
    if result.selection_precision is not None:
        rows.append(["Selection precision", share(result.selection_precision)])
    if result.epsilon is not None:
        rows.append(["ε", f"{result.epsilon:.2f}"])
    if result.threshold is not None:
        rows.append(["Threshold, tuned on dev", share(result.threshold)])
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


@dataclass(frozen=True, slots=True)
class Column:
    """One quality or cost of all methods. Only a quality has a best value: cheaper is not better by itself."""

    name: str
    label: str
    value: Value
    cells: Mapping[str, Spread | None]
    runs: Mapping[str, int]  # how many each method has
    show: Show
    quality: bool

    def text(self, method: str) -> str:
        """The cell as printed: the mean, and how much seeds differ where there are several."""
        cell = self.cells[method]
        return f"{self.show(cell.mean)} {self.spread(method)}".strip() if cell else NOTHING

    def spread(self, method: str) -> str:
        """How much seeds differ (unless it is a cost that all share); how many have a value, if not all."""
        cell = self.cells[method]
        return cell.after_mean(self.show, self.runs[method], zero=self.quality).strip() if cell else ""

    @property
    def best(self) -> frozenset[str]:
        """The methods with the highest mean as it is printed: several, if they differ in later digits only."""
        known = {method: cell.mean for method, cell in self.cells.items() if cell}
        if not self.quality or len(known) < 2:
            return frozenset()
        highest = self.show(max(known.values()))
        return frozenset(method for method, mean in known.items() if self.show(mean) == highest)

    @property
    def filled(self) -> bool:
        """Whether there is a value at all."""
        return any(self.cells.values())


@dataclass(frozen=True, slots=True)
class Summary:
    """A comparison over seeds: its methods, its columns (qualities, then costs), and traffic in detail."""

    methods: list[str]
    columns: list[Column]
    traffic: list[Column]
    seeds: list[int]

    @property
    def note(self) -> str:
        """What the table's numbers are."""
        if len(self.seeds) < 2:
            return f"One run a method, seed {several(self.seeds)}." if self.seeds else "No runs."
        return f"Mean ± standard deviation over seeds {several(self.seeds)}."

    def column(self, name: str) -> Column | None:
        """The column of that name, if there is one."""
        return next((one for one in (*self.columns, *self.traffic) if one.name == name), None)


def summarise(rows: Sequence[ComparisonRow]) -> Summary:
    """Gather the runs of each method."""
    methods = _distinct(row.method for row in rows)
    own = {method: [row for row in rows if row.method == method] for method in methods}
    metrics = [_metric(name) for name in _distinct(name for row in rows for name in row.metrics)]
    columns = [
        *(column for main in metrics[:1] for column in _with_median(own, main)),
        *(_column(own, one) for one in (*metrics[1:], *_QUALITIES_AND_COSTS)),
    ]
    traffic = [one for one in (_column(own, shown) for shown in _TRAFFIC) if one.filled]
    if any(row.target for row in rows):  # also where no run reached it: that is worth knowing
        traffic += _with_median(own, _rounds_to(_targets(rows)))
        traffic += [_column(own, one) for one in _UNTIL_TARGET]
    seeds = sorted({row.seed for row in rows})
    return Summary(methods, [one for one in columns if one.filled], traffic, seeds)


class _Shown(NamedTuple):
    """What a column shows of a run."""

    name: str
    label: str
    value: Value
    show: Show
    quality: bool = False


_QUALITIES_AND_COSTS = (
    _Shown("worst_site", "Worst site", lambda row: _field(row.sites, "worst"), share, quality=True),
    _Shown("site_spread", "Spread over sites", lambda row: _field(row.sites, "spread"), share),
    _Shown(SELECTION, "Selection precision", lambda row: row.selection_precision, share, quality=True),
    _Shown("rounds", "Rounds", lambda row: row.rounds, count),
    _Shown("up", "Sent by sites", lambda row: row.bytes.up, size),
    _Shown("down", "Sent to sites", lambda row: row.bytes.down, size),
    _Shown("seconds", "Time", lambda row: row.seconds, duration),
)
_TRAFFIC = (
    _Shown("round_up", "Sent by sites a round", lambda row: row.bytes.up / max(row.rounds, 1), size),
    _Shown("round_down", "Sent to sites a round", lambda row: row.bytes.down / max(row.rounds, 1), size),
    _Shown("site_up", "Sent by one site a round", lambda row: _field(row.per_site_and_round, "up"), size),
    _Shown("site_framing", "Its framing", lambda row: _field(row.per_site_and_round, "framing"), size),
    _Shown("site_down", "Sent to one site a round", lambda row: _field(row.per_site_and_round, "down"), size),
)
_UNTIL_TARGET = (
    _Shown("target_up", "Sent by sites until then", lambda row: _field(row.to_target, "up"), size),
    _Shown("target_down", "Sent to sites until then", lambda row: _field(row.to_target, "down"), size),
)


def _metric(name: str) -> _Shown:
    return _Shown(name, label(name), lambda row: row.metrics.get(name), share, quality=True)


def _rounds_to(target: str) -> _Shown:
    return _Shown("target_round", f"Rounds to {target}", lambda row: _field(row.to_target, "round"), count)


def _column(own: _Runs, shown: _Shown) -> Column:
    name, label, value, show, quality = shown
    cells = {method: Spread.of([value(row) for row in rows]) for method, rows in own.items()}
    runs = {method: len(rows) for method, rows in own.items()}
    return Column(name, label, value, cells, runs, show, quality)


def _with_median(own: _Runs, shown: _Shown) -> list[Column]:
    """A column, and that of its median if some method has enough runs."""
    enough = max(map(len, own.values())) >= ENOUGH
    return [_column(own, shown), *([_median_column(own, shown)] if enough else [])]


def _median_column(own: _Runs, shown: _Shown) -> Column:
    name, label, value, show, quality = shown
    cells = {method: Spread.of([median([value(row) for row in rows])]) for method, rows in own.items()}
    title = f"Median {label[0].lower() + label[1:] if label.startswith('Rounds') else label}"
    return Column(f"median_{name}", title, value, cells, dict.fromkeys(own, 1), show, quality)


def comparison_csv(rows: Sequence[ComparisonRow]) -> str:
    """A line for each run; numbers with all their digits. A name that looks like a formula is made text."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    costs = ["rounds", "bytes_up", "bytes_down", "seconds", "selection_precision", "worst_site"]
    writer.writerow(["method", "seed", *map(_text, metrics), *costs])
    for row in rows:
        values = [row.metrics.get(name) for name in metrics]
        worst = row.sites.worst if row.sites else None
        spent = [row.rounds, row.bytes.up, row.bytes.down, row.seconds, row.selection_precision, worst]
        writer.writerow([_text(row.method), row.seed, *values, *spent])
    return out.getvalue()


def comparison_latex(summary: Summary) -> str:
    r"""The table of qualities as `tabular`, for the package booktabs: means and deviations, the best in bold."""
    columns = [column for column in summary.columns if column.quality]
    lines = [
        f"% {latex(summary.note)}",
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["Method", *(latex(column.label) for column in columns)]) + r" \\",
        r"\midrule",
    ]
    for method in summary.methods:
        cells = [latex(column.text(method)) for column in columns]
        cells = [
            rf"\textbf{{{cell}}}" if method in column.best else cell
            for cell, column in zip(cells, columns, strict=True)
        ]
        lines.append(" & ".join([latex(method), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    r"""A text in which nothing is a command.

    >>> latex("att_ra & 100 %")
    'att\\_ra \\& 100 \\%'
    """
    return "".join(_LATEX.get(one, one) for one in " ".join(text.split()))


def _markdown(methods: Sequence[str], columns: Sequence[Column]) -> str:
    rows = [[method, *(_bold(column, method) for column in columns)] for method in methods]
    return markdown_table(["method", *(column.label for column in columns)], rows)


def _bold(column: Column, method: str) -> str:
    text = column.text(method)
    return f"**{text}**" if method in column.best else text


def _fitting(summary: Summary) -> list[Column]:
    """The first metric and as many of the preferred columns as there is room for, in the table's order."""
    known = {column.name: column for column in summary.columns}
    left = _TERMINAL - max(map(len, [*summary.methods, "method"])) - 3
    chosen: set[str] = set()
    for name in (*list(known)[:1], *_PREFERRED):
        if name in known:
            width = _widest(known[name], summary.methods) + 2
            if width <= left or not chosen:
                chosen.add(name)
                left -= width
    return [column for column in summary.columns if column.name in chosen]


def _widest(column: Column, methods: Sequence[str]) -> int:
    cells = [column.text(method) for method in methods]
    return max(map(len, [*cells, *column.label.split()]), default=0)


def _field(part: Record | None, name: str) -> float | None:
    """A number of a part of a row that may be missing."""
    return None if part is None else float(getattr(part, name))


def _targets(rows: Iterable[ComparisonRow]) -> str:
    aims = _distinct(f"{label(name)} {aim:g}" for row in rows for name, aim in (row.target or {}).items())
    return several(aims, last="or") if aims else ""


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


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


def _text(name: str) -> str:
    return f"'{name}" if name.startswith(_FORMULA) else name
