"""Is it better to take part? Each natural site's metric on its own test part: alone, with others, with all text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrel.evaluation.outcome import AtSites
from fedrel.runs.folder import Run
from fedrel.studio import formatting as fmt
from fedrel.studio.formatting import Spread

BASELINE = "local"


@dataclass(frozen=True, slots=True)
class Cell:
    """A method at a site: its metric, and the change against training alone."""

    spread: Spread | None
    change: float | None
    verdict: str  # "gain", "loss", or "" where seeds differ more than the methods

    @property
    def mark(self) -> str:
        """The verdict as a sign that does not need colour."""
        return {"gain": "▲", "loss": "▼"}.get(self.verdict, "=")


@dataclass(frozen=True, slots=True)
class Row:
    """A site: how many sentences or documents it trains and is tested on, and each method there."""

    site: str
    trained: int | None
    tested: int | None
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Gains:
    """The table, and what it says in sentences."""

    metric: str
    baseline: str
    methods: list[str]
    rows: list[Row]
    said: list[str]


def gains(runs: Mapping[str, Sequence[Run]]) -> Gains | None:
    """Every method against `local`; None unless sites are natural, and `local` and another method were run."""
    found = {method: _by_seed(own) for method, own in runs.items()}
    found = {method: own for method, own in found.items() if own}
    if BASELINE not in found or len(found) < 2:
        return None
    first = next(iter(found[BASELINE].values()))
    trained = _trained(runs[BASELINE])
    rows = [
        Row(
            site,
            trained.get(site),
            first.rows.get(site),
            [
                _cell(site, own, found[BASELINE] if method != BASELINE else None)
                for method, own in found.items()
            ],
        )
        for site in first.values
    ]
    methods = list(found)
    said = [
        _sentence(method, [(row.site, row.cells[place]) for row in rows])
        for place, method in enumerate(methods)
    ]
    return Gains(first.metric, BASELINE, methods, rows, [line for line in said if line])


def _by_seed(runs: Sequence[Run]) -> dict[int, AtSites]:
    known = {run.result.seed: run.result.sites for run in runs}
    return {seed: sites for seed, sites in known.items() if sites is not None and sites.natural}


def _trained(runs: Sequence[Run]) -> dict[str, int]:
    counts = next((run.label_counts for run in runs if run.label_counts), None)
    return dict(zip(counts.sites, map(sum, counts.counts), strict=True)) if counts else {}


def _cell(site: str, own: Mapping[int, AtSites], alone: Mapping[int, AtSites] | None) -> Cell:
    spread = Spread.of([one.values.get(site) for one in own.values()])
    if spread is None or alone is None:
        return Cell(spread, None, "")
    pairs = [(own[seed].values.get(site), alone[seed].values.get(site)) for seed in own if seed in alone]
    change = Spread.of([here - there for here, there in pairs if here is not None and there is not None])
    if change is None:
        return Cell(spread, None, "")
    clear = change.runs > 1 and abs(change.mean) > change.std
    return Cell(spread, change.mean, ("gain" if change.mean > 0 else "loss") if clear else "")


def _sentence(method: str, cells: Sequence[tuple[str, Cell]]) -> str:
    """Who gains and who loses with a method."""
    known = [(site, cell) for site, cell in cells if cell.change is not None]
    if not known:
        return ""
    parts = []
    for verdict, verb in (("gain", "gains"), ("loss", "loses")):
        sites = [f"{site} ({cell.change:+.3f})" for site, cell in known if cell.verdict == verdict]
        if sites:
            parts.append(f"{fmt.several(sites)} {verb if len(sites) == 1 else verb[:-1]}")
    unclear = [site for site, cell in known if not cell.verdict]
    if unclear:
        parts.append(f"for {fmt.several(unclear)} seeds differ more than the change")
    return f"With {method}, against training alone: {'; '.join(parts)}."
