"""The partition by structural entropy as a picture, drawn with matplotlib: FedLCC's Fig. 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrel.files import atomic_file

_LABELLED = 25  # more sites than this leave no room for a number above each bar


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
