"""Several methods over several seeds in means and spreads: the columns of every table that compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrel.studio.rows import Row
from fedrel.studio.words import NOTHING, Spread, count, duration, label, several, share, size

Value = Callable[[Row], float | None]
Show = Callable[[float | None], str]

CHOSEN = "selection_precision"


@dataclass(frozen=True, slots=True)
class Column:
    """One quality or cost of all methods. Only qualities have a best: cheaper is not better by itself."""

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
        """How much seeds differ, but for a cost that all seeds share; and how many have a value, if not all."""
        cell = self.cells[method]
        if cell is None:
            return ""
        told = cell.runs > 1 and (self.quality or cell.std > 0)
        parts = [f"± {self.show(cell.std)}"] if told else []
        if cell.runs < self.runs[method]:
            parts.append(f"({cell.runs} of {self.runs[method]})")
        return " ".join(parts)

    @property
    def best(self) -> frozenset[str]:
        """The methods with the highest mean, also those that only unprinted digits tell from it."""
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
    """A comparison over seeds: methods in their given order, columns from quality to cost, traffic in detail."""

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


def summarise(rows: Sequence[Row]) -> Summary:
    """Gather the runs of each method."""
    methods = _distinct(row["method"] for row in rows)
    own = {method: [row for row in rows if row["method"] == method] for method in methods}
    runs = {method: len(of_method) for method, of_method in own.items()}

    def column(name: str, label: str, value: Value, show: Show, quality: bool = False) -> Column:
        cells = {method: Spread.of([value(row) for row in of_method]) for method, of_method in own.items()}
        return Column(name, label, value, cells, runs, show, quality)

    def metric(name: str) -> Column:
        return column(name, label(name), lambda row: row["metrics"].get(name), share, quality=True)

    columns = [
        *(metric(name) for name in _distinct(name for row in rows for name in row["metrics"])),
        column("worst_site", "Worst site", lambda row: _in(row["sites"], "worst"), share, quality=True),
        column("site_spread", "Spread over sites", lambda row: _in(row["sites"], "spread"), share),
        column(CHOSEN, "Selection precision", lambda row: row["selection_precision"], share, quality=True),
        column("rounds", "Rounds", lambda row: row["rounds"], count),
        column("up", "Sent by sites", lambda row: row["bytes"]["up"], size),
        column("down", "Sent to sites", lambda row: row["bytes"]["down"], size),
        column("seconds", "Time", lambda row: row["seconds"], duration),
    ]
    traffic = [
        column(
            "round_up", "Sent by sites a round", lambda row: row["bytes"]["up"] / max(row["rounds"], 1), size
        ),
        column(
            "round_down",
            "Sent to sites a round",
            lambda row: row["bytes"]["down"] / max(row["rounds"], 1),
            size,
        ),
        column("site_up", "Sent by one site a round", lambda row: _in(row["per_site_and_round"], "up"), size),
        column("site_framing", "Its framing", lambda row: _in(row["per_site_and_round"], "framing"), size),
        column(
            "site_down", "Sent to one site a round", lambda row: _in(row["per_site_and_round"], "down"), size
        ),
    ]
    to_target = [
        column(
            "target_round", f"Rounds to {_targets(rows)}", lambda row: _in(row["to_target"], "round"), count
        ),
        column("target_up", "Sent by sites until then", lambda row: _in(row["to_target"], "up"), size),
        column("target_down", "Sent to sites until then", lambda row: _in(row["to_target"], "down"), size),
    ]
    shown = [one for one in traffic if one.filled]
    if any(row["target"] for row in rows):
        shown += to_target  # also where no run reached it: that is worth knowing
    return Summary(
        methods, [one for one in columns if one.filled], shown, sorted({row["seed"] for row in rows})
    )


def _in(part: Mapping[str, Any] | None, field: str) -> float | None:
    """A number of a part of a row that may be missing."""
    return None if part is None else float(part[field])


def _targets(rows: Iterable[Row]) -> str:
    aims = _distinct(f"{label(name)} {aim:g}" for row in rows for name, aim in (row["target"] or {}).items())
    return several(aims, last="or") if aims else ""


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
