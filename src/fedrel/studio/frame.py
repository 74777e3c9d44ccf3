"""What all plots of the report pages share: their frame, their colours, their marks.

A figure is the dictionary that plotly.js draws. Colours are names of the page's style (`var(--series-1)`),
resolved in the browser, so one figure serves light, dark and printed pages. The seven series colours are
Okabe and Ito's without yellow, which white paper swallows; further series repeat them in other dashes.
"""

from __future__ import annotations

import math
from typing import Any, Literal

Figure = dict[str, Any]

COLOURS = 7


def framed(traces: list[Figure], x: str, y: str) -> Figure:
    """Traces in the frame that all plots share: axes with these titles, and the page's colours and type."""
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
    """Draw a dotted line across a figure, where x or y is `at`, with a word at its foot or its left end."""
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
