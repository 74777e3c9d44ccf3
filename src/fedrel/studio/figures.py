"""Figures of the report pages: the frame and the colours that all share; lines, curves and bars.

A figure is the dictionary that plotly.js draws. Colours are names of the page's style (`var(--series-1)`),
resolved in the browser, so one figure serves light, dark and printed pages. The seven series colours are
Okabe and Ito's without yellow, which is hard to see on white; further series repeat them with other dashes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np

from fedrel.evaluation.outcome import Curve
from fedrel.studio.formatting import Spread

Figure = dict[str, Any]

COLOURS = 7


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
    """A named line. `place` decides its colour, the same on every plot of a page; `std` draws a band."""

    name: str
    place: int
    x: Sequence[float]
    y: Sequence[float | None]
    std: Sequence[float] = ()
    strong: bool = field(default=False, kw_only=True)


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
    """The mean over runs of a value known at some rounds, and its spread where there are several runs."""
    spreads: dict[int, Spread] = {}
    for number in sorted(set(chain.from_iterable(runs))):
        if (spread := Spread.of([run.get(number) for run in runs])) is not None:
            spreads[number] = spread
    std = [spread.std for spread in spreads.values()] if len(runs) > 1 else []
    return Series(name, place, list(spreads), [s.mean for s in spreads.values()], std, strong=strong)


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
