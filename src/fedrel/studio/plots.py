"""Pictures for files and slides, drawn with matplotlib: what each site holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedrel.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SITES = 100  # more columns than this would be thinner than a reader can tell apart
_MOST_RELATIONS = 30
_FEW_SITES = 16  # so few that every cell has room for its number
_LONGEST_NAME = 48


def partition_plot(counts: NDArray[np.integer], relations: Sequence[str], path: Path) -> None:
    """Draw how many sentences of each relation each site holds, `counts` [sites, relations], as a PNG.

    Bars above a heat map: the sites' sizes, and the relations, the most frequent first. Colour is logarithmic
    because `NA` outnumbers the rest by orders of magnitude; white is none at all. Above 100 sites, neighbouring
    sites share a column that shows their mean; the relations after the first 29 share a row.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = np.asarray(counts)
    if counts.ndim != 2 or counts.shape[1] != len(relations) or not counts.size:
        raise ValueError(f"counts must be [sites, {len(relations)}] and not empty; got shape {counts.shape}")
    names, by_relation = _frequent(counts.T.astype(np.float64), relations)
    edges, cells = _columns(by_relation)

    height = 1.9 + 0.26 * len(names)
    width = float(np.clip(3.5 + 0.55 * cells.shape[1], 7.5, 12))
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    bars, heat = figure.subplots(2, 1, sharex=True, height_ratios=[1.1, 0.26 * len(names)])
    _draw_sizes(bars, edges, cells.sum(axis=0), sites=len(counts))
    _draw_cells(figure, heat, edges, cells, names)
    with atomic_file(path) as part:
        figure.savefig(part, format="png")


def _frequent(
    by_relation: NDArray[np.float64], relations: Sequence[str]
) -> tuple[list[str], NDArray[np.float64]]:
    """The rows from the most frequent relation down, the rarest of too many summed into a last one."""
    order = np.argsort(-by_relation.sum(axis=1), kind="stable")
    names, rows = [_short(relations[r]) for r in order], by_relation[order]
    if len(names) <= _MOST_RELATIONS:
        return names, rows
    kept = _MOST_RELATIONS - 1
    names[kept:] = [f"{len(names) - kept} other relations"]
    return names, np.vstack([rows[:kept], rows[kept:].sum(axis=0)])


def _columns(by_relation: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where columns begin and end, in sites, and the mean of the sites in each."""
    sites = by_relation.shape[1]
    bounds = np.linspace(0, sites, min(sites, _MOST_SITES) + 1).round().astype(int)
    cells = np.add.reduceat(by_relation, bounds[:-1], axis=1) / np.diff(bounds)
    return bounds - 0.5, cells


def _draw_sizes(axes: Axes, edges: NDArray[np.float64], sizes: NDArray[np.float64], sites: int) -> None:
    share = 0.85 if len(sizes) <= 40 else 1.0
    axes.bar((edges[:-1] + edges[1:]) / 2, sizes, width=np.diff(edges) * share, color="#0072b2")
    grouped = len(sizes) < sites
    axes.set_ylabel("sentences\na site" if not grouped else "mean\nsentences")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0, labelbottom=False)
    about = f"{sites:,} site{'s' if sites > 1 else ''}" + (
        f", about {sites / len(sizes):,.0f} neighbours a column" if grouped else ""
    )
    axes.set_title(about, loc="left", fontsize=11)


def _draw_cells(
    figure: Any, axes: Axes, edges: NDArray[np.float64], cells: NDArray[np.float64], names: list[str]
) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.ticker import MaxNLocator

    present = cells[cells > 0]
    low, high = (float(present.min()), float(present.max())) if present.size else (1.0, 1.0)
    scale = LogNorm(low, max(high, low * 10))
    colours = ListedColormap(colormaps["Blues"](np.linspace(0.15, 1, 256)))  # the palest is not white yet
    image = axes.pcolormesh(
        edges, np.arange(len(names) + 1) - 0.5, np.ma.masked_less_equal(cells, 0), cmap=colours, norm=scale
    )
    axes.set_yticks(np.arange(len(names)), names, fontsize=9, parse_math=False)  # a name may hold dollars
    axes.invert_yaxis()
    if cells.shape[1] <= _FEW_SITES:
        axes.set_xticks(np.arange(cells.shape[1]))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("site")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(
        image, ax=axes, label="sentences", pad=0.015, aspect=30, format=lambda value, _: _tick(value)
    )
    if cells.shape[1] <= _FEW_SITES:
        for row, column in zip(*np.nonzero(cells), strict=True):
            value = cells[row, column]
            ink = "white" if scale(value) > 0.6 else "black"
            axes.text(column, row, f"{value:,.0f}", ha="center", va="center", fontsize=7.5, color=ink)


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.2g}"


def _short(name: str) -> str:
    half = (_LONGEST_NAME - 1) // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[-half:]}"
