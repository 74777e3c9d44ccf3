"""Figures of the report pages: the frame and the colours that all share; lines, curves, bars and heat maps.

A figure is the dictionary that plotly.js draws. Colours are names of the page's style (`var(--series-1)`), resolved
in the browser, so one figure serves light, dark and printed pages. The seven series colours are Okabe and Ito's
without yellow, which is hard to see on white; further series repeat them with other dashes. A heat map has a cell
for each row and column; the larger its value, the stronger its colour.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrel.evaluation.outcome import Curve
from fedrel.studio.formatting import Spread, short

Figure = dict[str, Any]

COLOURS = 7

MOST = 30  # rows or columns of a heat map; more would be too thin to be told apart
FEW = 16  # so few that cells have room for a number
OTHERS = -1  # in an order: all that are not named, together

_LONGEST_NAME = 26
_SHADES = 5  # of each hue in the page's style
_EVEN = tuple(np.linspace(0, 1, _SHADES).tolist())
_SMALL_SHOW = (0.0, 0.04, 0.15, 0.45, 1.0)  # for shares, so that a few per cent can be seen


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with its heading, what it shows in words (for screen readers) and a note on how to read it.

    A figure whose size depends on its content has a height and a greatest width, in the page's rem.
    """

    title: str
    figure: Figure
    alt: str
    note: str
    height: float | None = None
    width: float | None = None


def framed(traces: list[Figure], x: str, y: str) -> Figure:
    """Traces in the frame that all plots share: axes with these titles, and the page's colours and font."""
    axis = {
        "gridcolor": "var(--rule)",
        "linecolor": "var(--muted)",
        "tickcolor": "var(--rule)",
        "zeroline": False,
        "automargin": True,
        "fixedrange": False,
    }
    title = {"font": {"size": 13, "color": "var(--muted)"}}
    layout = {
        "font": {"family": "var(--sans)", "size": 13, "color": "var(--ink)"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 12, "t": 28, "b": 8},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--muted)", "activecolor": "var(--ink)"},
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": "var(--rule)"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": {
            **axis,
            "title": {**title, "text": x},
            "showgrid": False,
            "showline": True,
            "ticks": "outside",
        },
        "yaxis": {**axis, "title": {**title, "text": y}},
    }
    return {"data": traces, "layout": layout}


def rule(
    figure: Figure,
    axis: Literal["x", "y"],
    at: float,
    text: str,
    *,
    anchor: Literal["left", "right"] = "left",
) -> None:
    """Draw a dotted line across a figure, where x or y is `at`, with a text at its lower or left end."""
    across = "y" if axis == "x" else "x"
    ends = {f"{axis}0": at, f"{axis}1": at, f"{across}0": 0, f"{across}1": 1, f"{across}ref": "paper"}
    layout = figure["layout"]
    layout.setdefault("shapes", []).append(
        {"type": "line", **ends, "line": {"color": "var(--muted)", "width": 1, "dash": "dot"}}
    )
    layout.setdefault("annotations", []).append(
        {
            "text": f"&nbsp;{text}&nbsp;",
            axis: at,
            across: 0,
            f"{across}ref": "paper",
            "xanchor": anchor,
            "yanchor": "bottom",
            "showarrow": False,
            "font": {"color": "var(--muted)", "size": 12},
        }
    )


def colour(place: int) -> str:
    """The colour of the series in that place."""
    return f"var(--series-{place % COLOURS + 1})"


def finite(value: float | None, more: float = 0.0) -> float | None:
    """The value for JSON, which has no infinity: a gap in the line instead."""
    return value + more if value is not None and math.isfinite(value) else None


_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True, slots=True)
class Series:
    """A named line. `place` decides its colour, the same on every plot of a page; `std` draws a band.

    It is `cut` if it is a mean over runs some of which went on after its end.
    """

    name: str
    place: int
    x: Sequence[float]
    y: Sequence[float | None]
    std: Sequence[float] = ()
    strong: bool = field(default=False, kw_only=True)
    cut: bool = field(default=False, kw_only=True)


def lines(
    series: Sequence[Series],
    x: str,
    y: str,
    *,
    unit: bool = False,
    marked: int | None = None,
    target: float | None = None,
) -> Figure:
    """Lines over x, with a band where seeds differ; `unit` fixes y to [0, 1].

    `marked` is an x to point out (the best round), `target` a y to point out (the value to be reached).
    """
    traces = chain.from_iterable(_line(one, alone=len(series) == 1) for one in series)
    figure = framed(list(traces), x, y)
    layout = figure["layout"]
    layout["showlegend"] = len(series) > 1
    if unit:
        layout["yaxis"].update(range=[0, 1.02], tickformat=".1f")
    if marked is not None:
        right = 2 * marked > max(max(one.x) for one in series)
        rule(figure, "x", marked, f"best: {marked}", anchor="right" if right else "left")
    if target is not None:
        rule(figure, "y", target, f"target: {target:g}")
    return figure


def by_round(figure: Figure, rounds: int) -> Figure:
    """The same figure with whole rounds on its x axis, all of them whether or not they have a value."""
    figure["layout"]["xaxis"].update(range=[0.5, rounds + 0.5], tickformat="d")
    if rounds <= 10:
        figure["layout"]["xaxis"]["dtick"] = 1
    return figure


def precision_recall(series: Sequence[Series]) -> Figure:
    """Precision over recall."""
    figure = lines(series, "Recall", "Precision", unit=True)
    figure["layout"]["xaxis"].update(range=[0, 1], tickformat=".1f")
    figure["layout"]["hovermode"] = "closest"
    return figure


def stacked_bytes(x: Sequence[int], kinds: Mapping[str, Sequence[int]], top: float) -> Figure:
    """Bytes a round, each kind of message on top of the last; `top` makes two such plots comparable."""
    traces = [
        {
            "type": "bar",
            "name": html.escape(kind),
            "showlegend": any(values),
            "x": list(x),
            "y": list(values),
            "marker": {"color": colour(place)},
            "hovertemplate": "%{y:.3s}B",
        }
        for place, (kind, values) in enumerate(kinds.items())
    ]
    figure = framed(traces, "Round", "Bytes")
    figure["layout"].update(barmode="stack", bargap=0.25, showlegend=True)
    figure["layout"]["yaxis"].update(range=[0, top * 1.05 or 1], tickformat="~s", ticksuffix="B")
    return figure


def grouped_bytes(methods: Sequence[str], groups: Mapping[str, Sequence[float]]) -> Figure:
    """Bytes of whole runs: a row a method, a bar a direction."""
    names = [html.escape(method) for method in methods]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": html.escape(group),
            "x": list(values),
            "y": names,
            "marker": {"color": colour(place)},
            "hovertemplate": "%{x:.3s}B",
        }
        for place, (group, values) in enumerate(groups.items())
    ]
    figure = framed(traces, "Bytes in a run", "")
    figure["layout"].update(showlegend=True, hovermode="y unified")
    figure["layout"]["xaxis"].update(rangemode="tozero", tickformat="~s", ticksuffix="B", showgrid=True)
    figure["layout"]["yaxis"].update(autorange="reversed", showgrid=False, type="category")
    return figure


def mean_curve(curves: Sequence[Curve], points: int = 400) -> tuple[list[float], list[float]]:
    """Recall and mean precision of several runs, over the recall that all of them reach."""
    if len(curves) == 1:
        return curves[0].recall, curves[0].precision
    grid = np.linspace(0, min(curve.recall[-1] for curve in curves), points)
    precision = np.mean([np.interp(grid, curve.recall, curve.precision) for curve in curves], axis=0)
    return grid.tolist(), precision.tolist()


def mean_series(
    name: str, place: int, runs: Sequence[Mapping[int, float | None]], *, strong: bool = False
) -> Series:
    """The mean over runs of a value known at some rounds, and its spread where there are several runs.

    It has the rounds that all runs have, until the shortest ends: the mean of some would jump as none of them does.
    """
    begun = [run for run in runs if run]
    last = min(map(max, begun), default=0)
    spreads: dict[int, Spread] = {}
    for number in sorted(set(chain.from_iterable(runs))):
        spread = Spread.of([run.get(number) for run in begun])
        if spread is not None and number <= last and spread.runs == len(begun):
            spreads[number] = spread
    std = [spread.std for spread in spreads.values()] if len(runs) > 1 else []
    means = [spread.mean for spread in spreads.values()]
    cut = any(max(run) > last for run in begun)
    return Series(name, place, list(spreads), means, std, strong=strong, cut=cut)


@dataclass(frozen=True, slots=True)
class Layer:
    """The cells of one hue, [rows, columns]: their shade, the text in them and the text shown on hovering."""

    shade: NDArray[np.float64]  # how strong, from 0 to 1; NaN where the cell is not of this layer
    text: Sequence[Sequence[str]]
    hover: Sequence[Sequence[str]]
    hue: Literal["cool", "warm"] = "cool"
    small_show: bool = False


def heat_map(layers: Sequence[Layer], rows: Sequence[str], columns: Sequence[str], y: str, x: str) -> Figure:
    """Draw layers on top of each other. Texts in cells are shown where they fit, texts on hovering always."""
    figure = framed([_trace(layer) for layer in layers], x, y)
    layout = figure["layout"]
    layout["hovermode"] = "closest"
    for axis, names in (("xaxis", columns), ("yaxis", rows)):
        shown = [html.escape(short(name, _LONGEST_NAME)) for name in names]
        layout[axis].update(
            tickvals=list(range(len(names))),  # places, for two names may be shortened to the same
            ticktext=shown,
            range=[-0.5, len(names) - 0.5],
            showgrid=False,
            showline=False,
            ticks="",
            tickfont={"size": 12 if len(names) <= FEW else 10},
            ticklabelstandoff=4,
        )
        layout[axis]["title"]["standoff"] = 12
    layout["xaxis"]["tickangle"] = 0 if _fit(columns) else -40 if len(columns) <= FEW else -90
    layout["yaxis"]["range"] = [len(rows) - 0.5, -0.5]
    return figure


def size(rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float]:
    """How high and at most how wide a map is, in rem, so that cells are neither thin nor huge."""
    tall = 4 if len(rows) <= 4 else 2.4 if len(rows) <= FEW else 1.25
    broad = 5 if len(columns) <= FEW else 2.4
    below = 0 if _fit(columns) else _longest(columns) * (0.32 if len(columns) <= FEW else 0.4)
    height = 3.5 + tall * len(rows) + below
    width = 3 + 0.5 * _longest(rows) + broad * max(len(columns), 3)
    return round(height, 1), round(width, 1)


def most_frequent(counts: NDArray[np.integer]) -> list[int]:
    """The indices of the largest counts, the largest first; if there are too many, the rest is `OTHERS`."""
    order = np.argsort(-counts, kind="stable").tolist()
    return order if len(order) <= MOST else [*order[: MOST - 1], OTHERS]


def merged(table: NDArray[np.integer], order: Sequence[int], axis: int) -> NDArray[np.integer]:
    """A table's rows or columns in the given order; `OTHERS` stands for the sum of those that are left out."""
    named = [place for place in order if place != OTHERS]
    parts = [np.take(table, named, axis)]
    if OTHERS in order:
        rest = [place for place in range(table.shape[axis]) if place not in set(named)]
        parts.append(np.take(table, rest, axis).sum(axis, keepdims=True))
    return np.concatenate(parts, axis)


def names_of(names: Sequence[str], order: Sequence[int]) -> list[str]:
    """The names in that order; for `OTHERS`, how many they are."""
    left = len(names) - len(order) + 1
    return [f"{left} others" if place == OTHERS else names[place] for place in order]


def _line(series: Series, *, alone: bool) -> list[Figure]:
    """A series' traces: its band first, so that the band does not cover the line."""
    name, tint = html.escape(series.name), colour(series.place)
    shared = {"type": "scatter", "legendgroup": name, "name": name}
    traces: list[Figure] = []
    if series.std:
        upper = [finite(y, std) for y, std in zip(series.y, series.std, strict=True)]
        lower = [finite(y, -std) for y, std in zip(series.y, series.std, strict=True)]
        traces.append(
            {
                **shared,
                "x": [*series.x, *reversed(series.x)],
                "y": [*upper, *reversed(lower)],
                "fill": "toself",
                "fillcolor": f"var(--band-{series.place % COLOURS + 1})",
                "line": {"width": 0},
                "mode": "lines",
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    few = len(series.x) <= 30
    traces.append(
        {
            **shared,
            "x": list(series.x),
            "y": [finite(y) for y in series.y],
            "mode": "lines+markers" if few else "lines",
            "line": {
                "color": tint,
                "width": 3 if series.strong or alone else 1.75,
                "dash": _DASHES[series.place // COLOURS % len(_DASHES)],
            },
            "marker": {"size": 6 if series.strong or alone else 5},
            "hovertemplate": "%{y:.3f}",
        }
    )
    return traces


def _trace(layer: Layer) -> Figure:
    stops = _SMALL_SHOW if layer.small_show else _EVEN
    mine = ~np.isnan(layer.shade)
    written = [
        [html.escape(text) if shown else "" for text, shown in zip(*row, strict=True)]
        for row in zip(layer.text, mine, strict=True)
    ]
    return {
        "type": "heatmap",
        "z": [[None if np.isnan(cell) else round(float(cell), 4) for cell in row] for row in layer.shade],
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[stop, f"var(--{layer.hue}-{shade})"] for shade, stop in enumerate(stops, 1)],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "text": written,
        "texttemplate": "%{text}",
        "hovertext": [[html.escape(text) for text in row] for row in layer.hover],
        "hoverinfo": "text",
        "hoverongaps": False,
    }


def _fit(columns: Sequence[str]) -> bool:
    """Whether there is room for the columns' names side by side."""
    return len(columns) <= 6 and _longest(columns) <= 10


def _longest(names: Sequence[str]) -> int:
    return min(max(map(len, names), default=0), _LONGEST_NAME)
