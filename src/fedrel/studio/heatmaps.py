"""Heat maps of the report pages: a cell for each row and column; the larger its value, the stronger its colour."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrel.studio.figures import Figure, framed
from fedrel.studio.formatting import short

MOST = 30  # rows or columns; more would be too thin to be told apart
FEW = 16  # so few that cells have room for a number
OTHERS = -1  # in an order: all that are not named, together

_LONGEST_NAME = 26
_SHADES = 5  # of each hue in the page's style
_EVEN = tuple(np.linspace(0, 1, _SHADES).tolist())
_SMALL_SHOW = (0.0, 0.04, 0.15, 0.45, 1.0)  # for shares, so that a few per cent can be seen


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
