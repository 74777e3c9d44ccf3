from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from fedrel.studio.plots import _columns, _frequent, partition_plot


def size(png: Path) -> tuple[int, int]:
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


@pytest.mark.parametrize(("sites", "relations"), [(1, 1), (5, 10), (100, 53), (250, 3)])
def test_draws_any_shape(sites: int, relations: int, tmp_path: Path) -> None:
    counts = np.random.default_rng(1).poisson(3, (sites, relations))
    partition_plot(counts, [f"r${n}_{{" for n in range(relations)], tmp_path / "sites.png")
    width, height = size(tmp_path / "sites.png")
    assert 1000 < width < 2000
    assert 200 < height < 2000
    assert [file.name for file in tmp_path.iterdir()] == ["sites.png"]


def test_empty_sites_can_be_drawn(tmp_path: Path) -> None:
    partition_plot(np.zeros((3, 2), dtype=int), ["NA", "r"], tmp_path / "sites.png")
    assert size(tmp_path / "sites.png")


@pytest.mark.parametrize("shape", [(3,), (0, 2), (3, 1)])
def test_refuses_other_shapes(shape: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="counts must be"):
        partition_plot(np.ones(shape, dtype=int), ["NA", "r"], tmp_path / "sites.png")


def test_many_sites_share_columns() -> None:
    edges, cells = _columns(np.arange(250, dtype=float)[None])
    assert cells.shape == (1, 100)
    assert (edges[0], edges[-1]) == (-0.5, 249.5)
    assert cells @ np.diff(edges) == pytest.approx(sum(range(250)))  # nothing lost, nothing twice


def test_rare_relations_share_a_row() -> None:
    counts = np.arange(40, dtype=float)[:, None]
    names, rows = _frequent(counts, [f"r{n}" for n in range(40)])
    assert names[:2] == ["r39", "r38"]
    assert names[-1] == "11 other relations"
    assert rows[-1, 0] == sum(range(11))
    assert rows.sum() == counts.sum()


def test_leaves_the_users_matplotlib_alone(tmp_path: Path) -> None:
    sys.modules.pop("matplotlib.pyplot", None)
    partition_plot(np.ones((2, 2), dtype=int), ["NA", "r"], tmp_path / "sites.png")
    assert "matplotlib.pyplot" not in sys.modules
