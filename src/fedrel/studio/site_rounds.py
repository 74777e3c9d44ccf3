"""Sites over rounds: who took part, with which loss, what it sent, and whose answers were refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrel.runs.folder import Run
from fedrel.runs.records import Round
from fedrel.studio import formatting as fmt
from fedrel.studio import heatmaps, notes
from fedrel.studio.figures import Plot
from fedrel.studio.heatmaps import Layer

Floats = NDArray[np.float64]
_LEAST, _REFUSED = 0.12, 0.75  # shades: of the lowest loss, and of a refusal


@dataclass(frozen=True, slots=True)
class SiteLine:
    """A site over the whole run; what is not known is None."""

    name: str
    rounds: int
    loss: float | None  # the last that it reported
    up: int | None
    refused: int
    value: float | None  # the metric on its test part


@dataclass(frozen=True, slots=True)
class SitesView:
    """The map, a line for each site, and the metric that the lines have."""

    plot: Plot
    lines: list[SiteLine]
    metric: str


def site_rounds(run: Run) -> SitesView | None:
    """The sites of a run; None before the first round, and where all data are in one place."""
    known = sorted({site for one in run.rounds for site in one.active})
    if len(known) < 2:
        return None
    names = _names(run, known[-1] + 1)
    lines = [_line(run, site, names[site]) for site in known]
    order = sorted(range(len(known)), key=lambda place: (-lines[place].refused, -lines[place].rounds, place))
    shown = sorted(order[: heatmaps.MOST])
    return SitesView(
        plot=_map(run.rounds, [known[place] for place in shown], names, len(known)),
        lines=[lines[place] for place in shown],
        metric=run.result.sites.metric if run.result.sites else "",
    )


def _names(run: Run, sites: int) -> list[str]:
    """The sites' names by number, where the folder has them."""
    file = run.folder / "federation.json"
    named: Sequence[str] = ()
    if run.label_counts is not None:
        named = run.label_counts.sites
    elif run.result.sites is not None:
        named = list(run.result.sites.values)
    elif file.exists():
        named = [str(one["name"]) for one in json.loads(file.read_text(encoding="utf-8"))["sites"]]
    return list(named) if len(named) >= sites else [f"site {number}" for number in range(sites)]


def _line(run: Run, site: int, name: str) -> SiteLine:
    own = [one.at_sites[site] for one in run.rounds if site in one.at_sites]
    values = run.result.sites.values if run.result.sites else {}
    return SiteLine(
        name=name,
        rounds=sum(site in one.active for one in run.rounds),
        loss=next((one.loss for one in reversed(own) if one.loss is not None), None),
        up=sum(one.up for one in own) if own else None,
        refused=sum(refusal.site == site for one in run.rounds for refusal in one.refused),
        value=values.get(name),
    )


def _map(rounds: Sequence[Round], sites: Sequence[int], names: Sequence[str], all_sites: int) -> Plot:
    groups = [list(part) for part in np.array_split(np.arange(len(rounds)), min(len(rounds), heatmaps.MOST))]
    columns = [_column([rounds[at].round for at in group]) for group in groups]
    loss = np.full((len(sites), len(groups)), np.nan)
    took_part = np.zeros_like(loss, dtype=bool)
    refused = np.full_like(loss, np.nan)
    hover = [["" for _ in groups] for _ in sites]
    for column, group in enumerate(groups):
        within = [rounds[at] for at in group]
        for row, site in enumerate(sites):
            own = [one.at_sites[site] for one in within if site in one.at_sites]
            losses = [one.loss for one in own if one.loss is not None]
            times = sum(site in one.active for one in within)
            reasons = Counter(
                refusal.reason for one in within for refusal in one.refused if refusal.site == site
            )
            took_part[row, column] = bool(times)
            loss[row, column] = np.mean(losses) if losses else np.nan
            refused[row, column] = _REFUSED if reasons else np.nan
            hover[row][column] = _said(
                names[site], columns[column], times, len(group), losses, sum(one.up for one in own), reasons
            )
    names_shown = [names[site] for site in sites]
    shade = np.where(took_part & np.isnan(refused), _shade(loss), np.nan)
    empty = [["" for _ in groups] for _ in sites]
    marks = [["" if np.isnan(cell) else "✕" for cell in row] for row in refused]
    figure = heatmaps.heat_map(
        [Layer(shade, empty, hover), Layer(refused, marks, hover, "warm")], names_shown, columns, "", "Round"
    )
    height, width = heatmaps.size(names_shown, columns)
    some = f" Shown are {len(sites)} of {all_sites:,} sites." if len(sites) < all_sites else ""
    total = int(np.sum(~np.isnan(refused)))
    return Plot(
        "Sites, round by round",
        figure,
        f"A map of {len(sites)} sites by {len(rounds)} rounds; refused answers in {total} of its cells.",
        notes.SITE_ROUNDS + some,
        height=height,
        width=width,
    )


def _shade(
    loss: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Stronger for a higher loss; in the middle where none was reported."""
    known = loss[np.isfinite(loss)]
    if not known.size:
        return np.full_like(loss, 0.5)
    low, high = float(known.min()), float(known.max())
    scaled = _LEAST + (1 - _LEAST) * (loss - low) / max(high - low, 1e-9)
    return np.where(np.isfinite(loss), scaled, 0.5)


def _column(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _said(
    name: str,
    column: str,
    times: int,
    rounds: int,
    losses: Sequence[float],
    sent: int,
    reasons: Counter[str],
) -> str:
    if not times and not reasons:
        return f"{name}, round {column}: not drawn"
    parts = ["took part" if rounds == 1 else f"took part in {times} of {rounds}"]
    if losses:
        parts.append(f"loss {fmt.share(float(np.mean(losses)))}")
    if sent:
        parts.append(f"sent {fmt.size(sent)}")
    parts += [f"refused: {reason}" for reason in reasons]
    return f"{name}, round {column}: {', '.join(parts)}"
