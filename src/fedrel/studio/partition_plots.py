"""PNG plots of what each site holds, drawn with matplotlib: `fedrel partition --plot`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedrel.data.partition import Partition
from fedrel.data.partition.entropy import entropy_in, intervals
from fedrel.data.store import Corpus
from fedrel.evaluation.heterogeneity import label_distances
from fedrel.files import atomic_file
from fedrel.studio.formatting import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedrel.config.schema import PartitionSection


Floats = NDArray[np.float64]

_MOST_SITES = 100  # more columns would be too thin to be told apart
_MOST_RELATIONS = 30
_FEW_SITES = 16  # up to so many, there is room for a number in each cell and for each site's name
_LONGEST_NAME = 48
_ROW = 0.26  # inches
_SIZES, _DISTANCES, _EMPTY = "#0072b2", "#d55e00", "#ececec"


def partition_plot(
    counts: NDArray[np.integer], relations: Sequence[str], sites: Sequence[str], path: Path
) -> None:
    """Draw how many sentences of each relation each site holds, `counts` [sites, relations], as a PNG.

    The relations by site (FedCMC's Fig. 1a) as a heat map, the most frequent relation first, with the whole
    beside it (Fig. 1b) and each site's size and distance to the whole above. Colour is logarithmic because `NA`
    outnumbers the rest by orders of magnitude; white is none at all, a grey column a site without data. Above
    100 sites, neighbouring sites share a column that shows their mean; the relations after the first 29 share
    a row.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = np.asarray(counts)
    if counts.shape != (len(sites), len(relations)) or not counts.size:
        expected = f"[{len(sites)}, {len(relations)}] and not empty"
        raise ValueError(f"counts must be {expected}; got shape {counts.shape}")
    names, by_relation = _frequent(counts.T.astype(np.float64), relations)
    columns = _columns(len(sites))
    cells = columns.mean(by_relation)

    rows = _ROW * len(names)
    width = float(np.clip(5 + 0.55 * len(columns), 8, 13))
    figure = Figure(figsize=(width, 2.5 + rows), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(3, 2, height_ratios=[0.9, 0.5, rows], width_ratios=[width - 3, 1.3])
    heat = figure.add_subplot(grid[2, 0])
    total = figure.add_subplot(grid[2, 1], sharey=heat)
    key = figure.add_subplot(grid[0, 1])
    key.set_axis_off()
    _draw_cells(heat, key, columns, cells, names)
    _name_sites(heat, sites)
    _draw_totals(total, by_relation.sum(axis=1))
    above = [figure.add_subplot(grid[row, 0], sharex=heat) for row in (0, 1)]
    _draw_bars(above[0], columns, cells.sum(axis=0), _SIZES)
    above[0].set_ylabel("sentences", rotation=0, ha="right", va="center")
    above[0].set_title(_about(counts, columns), loc="left", fontsize=11)
    _draw_bars(above[1], columns, columns.mean(label_distances(counts)[None])[0], _DISTANCES)
    above[1].set_ylabel("distance\nto the whole", rotation=0, ha="right", va="center")
    above[1].set(ylim=(0, 2), yticks=[0, 1, 2])
    figure.align_ylabels(above)
    with atomic_file(path) as part:
        figure.savefig(part, format="png")


@dataclass(frozen=True)
class Columns:
    """The plot's columns, each for one or more neighbouring sites: column i is sites bounds[i] to bounds[i + 1]."""

    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def edges(self) -> Floats:
        """Their edges in the plot, where site k is at x = k."""
        return self.bounds - np.float64(0.5)

    def mean(self, values: Floats) -> Floats:
        """The mean of the sites in each column, [n, sites] to [n, columns]; NaN counts as no site."""
        there = ~np.isnan(values)
        sums, numbers = (
            np.add.reduceat(one, self.bounds[:-1], axis=1, dtype=np.float64)
            for one in (np.where(there, values, 0), there)
        )
        means: Floats = np.divide(sums, numbers, out=np.full(sums.shape, np.nan), where=numbers > 0)
        return means


def _columns(sites: int) -> Columns:
    """A column for each site; if there are too many, one for several neighbours."""
    return Columns(np.linspace(0, sites, min(sites, _MOST_SITES) + 1).round().astype(np.int64))


def _frequent(by_relation: Floats, relations: Sequence[str]) -> tuple[list[str], Floats]:
    """The relations' rows, the most frequent first; if there are too many, the rarest are summed in a last row."""
    order = np.argsort(-by_relation.sum(axis=1), kind="stable")
    names, rows = [short(relations[r], _LONGEST_NAME) for r in order], by_relation[order]
    if len(names) <= _MOST_RELATIONS:
        return names, rows
    kept = _MOST_RELATIONS - 1
    names[kept:] = [f"{len(names) - kept} other relations"]
    return names, np.vstack([rows[:kept], rows[kept:].sum(axis=0)])


def _about(counts: NDArray[np.integer], columns: Columns) -> str:
    sites, empty = len(counts), int((counts.sum(axis=1) == 0).sum())
    about = f"{sites:,} site{'s' if sites > 1 else ''}"
    if empty:
        about += f", {empty:,} of them without data"
    if len(columns) < sites:
        return f"{about}; a column is the mean of about {sites / len(columns):,.0f} neighbours"
    return f"{about} (grey)" if empty else about


def _draw_bars(axes: Axes, columns: Columns, heights: Floats, colour: str) -> None:
    share = 0.85 if len(columns) <= 40 else 1.0
    centres = (columns.edges[:-1] + columns.edges[1:]) / 2
    axes.bar(centres, np.nan_to_num(heights), width=np.diff(columns.edges) * share, color=colour)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0, labelbottom=False)


def _draw_cells(axes: Axes, key: Axes, columns: Columns, cells: Floats, names: list[str]) -> None:
    """Draw the heat map; where numbers do not fit into its cells, `key` gets a scale of its colours."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.ticker import LogLocator

    present = cells[cells > 0]
    low, high = (float(present.min()), float(present.max())) if present.size else (1.0, 1.0)
    scale = LogNorm(low, max(high, low * 10))
    colours = ListedColormap(colormaps["Blues"](np.linspace(0.15, 1, 256)))  # the palest is not white yet
    for column in np.flatnonzero(cells.sum(axis=0) == 0):
        axes.axvspan(columns.edges[column], columns.edges[column + 1], color=_EMPTY, linewidth=0, zorder=0)
    image = axes.pcolormesh(
        columns.edges,
        np.arange(len(names) + 1) - 0.5,
        np.ma.masked_less_equal(cells, 0),
        cmap=colours,
        norm=scale,
    )
    axes.hlines(np.arange(1, len(names)) - 0.5, *columns.edges[[0, -1]], color="white", linewidth=1.5)
    axes.hlines(np.arange(1, len(names)) - 0.5, *columns.edges[[0, -1]], color="#cccccc", linewidth=0.5)
    axes.set_yticks(np.arange(len(names)), names, fontsize=9, parse_math=False)  # a name may hold dollars
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(*columns.edges[[0, -1]])
    axes.tick_params(length=0)
    axes.spines[:].set_color("#cccccc")
    if len(columns) > _FEW_SITES:
        bar = key.inset_axes((0, 0.5, 1, 0.2))
        key.figure.colorbar(
            image,
            cax=bar,
            orientation="horizontal",
            ticks=LogLocator(numticks=6),
            format=lambda value, _: _number(value),
        )
        bar.set_title("sentences", loc="left", fontsize=9)
        bar.tick_params(labelsize=8)
        return
    for row, column in zip(*np.nonzero(cells), strict=True):
        value = cells[row, column]
        ink = "white" if scale(value) > 0.6 else "black"
        axes.text(column, row, f"{value:,.0f}", ha="center", va="center", fontsize=7.5, color=ink)


def _name_sites(axes: Axes, sites: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    if len(sites) > _FEW_SITES:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("site")
        return
    names = [short(name, _LONGEST_NAME) for name in sites]
    axes.set_xticks(np.arange(len(names)), names, fontsize=9, parse_math=False)
    if max(map(len, names)) > 8:
        for label in axes.get_xticklabels():
            label.set(rotation=35, ha="right", rotation_mode="anchor")


def _draw_totals(axes: Axes, totals: Floats) -> None:
    axes.barh(np.arange(len(totals)), totals, height=0.75, color=_SIZES)
    for row, total in enumerate(totals):
        axes.annotate(
            f"{total:,.0f}", (total, row), (3, 0), textcoords="offset points", va="center", fontsize=7.5
        )
    axes.set_xlim(0, max(float(totals.max()), 1) * 1.5)  # room for the numbers
    axes.set_title("all sites", loc="left", fontsize=9)
    axes.tick_params(length=0, labelleft=False, labelbottom=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _number(value: float) -> str:
    """Short enough for a small scale: 0.2, 50, 3k."""
    return f"{value / 1000:,.0f}k" if value >= 1000 else f"{value:.2g}" if value < 1 else f"{value:.0f}"


_LABELLED = 25  # with more sites there is no room for a number above each bar


def entropy_plot(edges: NDArray[np.float64], sizes: NDArray[np.integer], path: Path) -> None:
    """Draw which entropies each site has and how many documents, as a PNG.

    `edges` [sites + 1] bound the sites' intervals and `sizes` [sites] are their documents. Left, a bar a site
    over its interval; right, as the paper has it, how many sites have about as many documents.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    if len(edges) != len(sizes) + 1 or not len(sizes):
        raise ValueError(f"{len(sizes)} sites need {len(sizes) + 1} edges, got {len(edges)}")
    if edges[0] == edges[-1]:  # all documents alike: an interval of no width could not be seen
        edges = edges[0] + np.linspace(-0.5, 0.5, len(edges))
    figure = Figure(figsize=(10, 3.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])

    bars = left.bar(edges[:-1], sizes, np.diff(edges), align="edge", color="#0072b2", edgecolor="white")
    if len(sizes) <= _LABELLED:
        left.bar_label(bars, [f"{size:,}" for size in sizes], fontsize=8)
    left.set_xlabel("structural entropy of a document")
    left.set_ylabel("documents")
    left.set_title(f"{len(sizes):,} sites, {int(sizes.sum()):,} documents", loc="left", fontsize=11)

    right.hist(sizes, bins=10, color="#d55e00", edgecolor="white")
    right.set_xlabel("documents a site has")
    right.set_ylabel("sites")
    for axes in (left, right):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
    with atomic_file(path) as part:
        figure.savefig(part, format="png")


def plot_entropy(section: PartitionSection, parts: Partition, corpus: Corpus, path: Path) -> None:
    """Draw which entropies each site has, and how many documents (FedLCC, Fig. 2)."""
    entropy = entropy_in(section, corpus)[parts.order]
    entropy_plot(intervals(entropy, parts.sites), parts.sizes, path)
