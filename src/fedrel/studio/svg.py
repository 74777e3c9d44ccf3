"""Drawings of Markdown pages, as SVG files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedrel.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_svg(figure: Figure, path: Path, salt: str) -> None:
    """Write a figure; with the same salt, the same drawing has the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": salt}), atomic_file(path) as part:
        figure.savefig(part, format="svg", metadata={"Date": None})
