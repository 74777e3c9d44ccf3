"""The table that compares methods: its rows for `comparison.json`, and as Markdown and in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from fedrel.studio.runs import Result, read_run
from fedrel.studio.words import NOTHING, Spread, count, duration, label, several, share, size

if TYPE_CHECKING:
    from rich.table import Table


class ByteCounts(TypedDict):
    """Bytes from the sites to the coordinator, and back."""

    up: int
    down: int


class Row(TypedDict):
    """One run in a comparison, under the names of its `result.json`."""

    method: str
    seed: int
    metrics: dict[str, float]
    rounds: int
    bytes: ByteCounts
    seconds: float
    selection_precision: float | None


def comparison_rows(runs: Mapping[str, Sequence[Path]]) -> list[Row]:
    """One row a run, from the run folders of each method."""
    return [row(method, read_run(folder).result) for method, folders in runs.items() for folder in folders]


def row(method: str, result: Result) -> Row:
    """The row of one run, under the name that the comparison gives its method."""
    return {
        "method": method,
        "seed": result.seed,
        "metrics": dict(result.metrics),
        "rounds": result.rounds,
        "bytes": {"up": result.bytes.up, "down": result.bytes.down},
        "seconds": result.seconds,
        "selection_precision": result.selection_precision,
    }


def comparison_markdown(rows: Sequence[Row]) -> str:
    """The table as Markdown: mean ± standard deviation over seeds, the best of each quality in bold."""
    table = summarise(rows)
    lines = [
        ["method", *(column.label for column in table.columns)],
        ["---", *("---:" for _ in table.columns)],
        *(
            [method.replace("|", "\\|"), *(_bold(column, method) for column in table.columns)]
            for method in table.methods
        ),
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{body}\n\n{table.note}\n"


def comparison_table(rows: Sequence[Row]) -> Table:
    """The table for a terminal: the columns that fit into 80 characters."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    summary = summarise(rows)
    first = next((column.name for column in summary.columns), "")
    fitting = {first, "p_mean", "selection_precision", "up", "seconds"}
    columns = [column for column in summary.columns if column.name in fitting]
    table = Table(box=box.SIMPLE_HEAD, caption=Text(summary.note), caption_justify="left")
    table.add_column("method", no_wrap=True)
    for column in columns:
        widest = max(len(column.text(method)) for method in summary.methods)
        table.add_column(Text(column.label), justify="right", min_width=widest)  # headings wrap, not numbers
    for method in summary.methods:
        cells = (Text(c.text(method), style="bold green" if method in c.best else "") for c in columns)
        table.add_row(Text(method), *cells)
    return table


@dataclass(frozen=True, slots=True)
class Column:
    """One quality or cost of all methods. Only qualities have a best: cheaper is not better by itself."""

    name: str
    label: str
    cells: Mapping[str, Spread | None]
    show: Callable[[float | None], str]
    quality: bool

    def text(self, method: str) -> str:
        """The cell as printed: the mean, and how much seeds differ where there are several."""
        cell = self.cells[method]
        return f"{self.show(cell.mean)} {self.spread(method)}".strip() if cell else NOTHING

    def spread(self, method: str) -> str:
        """How much seeds differ; nothing for a single run, and for a cost that all seeds share."""
        cell = self.cells[method]
        told = cell is not None and cell.runs > 1 and (self.quality or cell.std > 0)
        return f"± {self.show(cell.std)}" if cell and told else ""

    @property
    def best(self) -> frozenset[str]:
        """The methods with the highest mean, also those that only unprinted digits tell from it."""
        known = {method: cell.mean for method, cell in self.cells.items() if cell}
        if not self.quality or len(known) < 2:
            return frozenset()
        highest = self.show(max(known.values()))
        return frozenset(method for method, mean in known.items() if self.show(mean) == highest)


@dataclass(frozen=True, slots=True)
class Summary:
    """A comparison over seeds: methods in their given order, columns from quality to cost."""

    methods: list[str]
    columns: list[Column]
    seeds: list[int]

    @property
    def note(self) -> str:
        """What the table's numbers are."""
        if len(self.seeds) < 2:
            return f"One run a method, seed {several(self.seeds)}." if self.seeds else "No runs."
        return f"Mean ± standard deviation over seeds {several(self.seeds)}."


def summarise(rows: Sequence[Row]) -> Summary:
    """Gather the runs of each method into means and spreads."""
    methods = _distinct(row["method"] for row in rows)

    def column(
        name: str,
        label: str,
        value: Callable[[Row], float | None],
        show: Callable[[float | None], str],
        quality: bool = False,
    ) -> Column:
        cells = {m: Spread.of([value(row) for row in rows if row["method"] == m]) for m in methods}
        return Column(name, label, cells, show, quality)

    def metric(name: str) -> Column:
        return column(name, label(name), lambda row: row["metrics"].get(name), share, quality=True)

    chosen = "selection_precision"
    columns = [
        *(metric(name) for name in _distinct(name for row in rows for name in row["metrics"])),
        column(chosen, "Selection precision", lambda row: row["selection_precision"], share, quality=True),
        column("rounds", "Rounds", lambda row: row["rounds"], count),
        column("up", "Sent by sites", lambda row: row["bytes"]["up"], size),
        column("down", "Sent to sites", lambda row: row["bytes"]["down"], size),
        column("seconds", "Time", lambda row: row["seconds"], duration),
    ]
    filled = [c for c in columns if any(c.cells.values())]
    return Summary(methods, filled, sorted({row["seed"] for row in rows}))


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _bold(column: Column, method: str) -> str:
    text = column.text(method)
    return f"**{text}**" if method in column.best else text
