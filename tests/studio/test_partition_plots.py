from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from fedrel.studio.partition_plots import (
    Columns,
    _about,
    _columns,
    _frequent,
    _number,
    entropy_plot,
    partition_plot,
)


def size(png: Path) -> tuple[int, int]:
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


@pytest.mark.parametrize(("sites", "relations"), [(1, 1), (5, 10), (100, 53), (250, 3)])
def test_draws_any_shape(sites: int, relations: int, tmp_path: Path) -> None:
    counts = np.random.default_rng(1).poisson(3, (sites, relations))
    names = [f"site ${n}" for n in range(sites)]
    partition_plot(counts, [f"r${n}_{{" for n in range(relations)], names, tmp_path / "sites.png")
    width, height = size(tmp_path / "sites.png")
    assert 1000 < width < 2000
    assert 200 < height < 2000
    assert [file.name for file in tmp_path.iterdir()] == ["sites.png"]


def test_empty_sites_can_be_drawn(tmp_path: Path) -> None:
    partition_plot(np.zeros((3, 2), dtype=int), ["NA", "r"], ["a", "b", "c"], tmp_path / "sites.png")
    assert size(tmp_path / "sites.png")


@pytest.mark.parametrize("shape", [(3,), (0, 2), (3, 1)])
def test_refuses_other_shapes(shape: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="counts must be"):
        partition_plot(np.ones(shape, dtype=int), ["NA", "r"], ["s"] * shape[0], tmp_path / "sites.png")


def test_many_sites_share_columns() -> None:
    columns = _columns(250)
    cells = columns.mean(np.arange(250, dtype=float)[None])
    assert cells.shape == (1, 100) == (1, len(columns))
    assert (columns.edges[0], columns.edges[-1]) == (-0.5, 249.5)
    assert cells @ np.diff(columns.bounds) == pytest.approx(sum(range(250)))  # nothing lost, nothing twice


def test_a_columns_mean_is_of_the_sites_that_have_a_value() -> None:
    columns = Columns(np.array([0, 2, 3, 5]))
    nan = float("nan")
    np.testing.assert_equal(columns.mean(np.array([[1.0, nan, nan, 2.0, 4.0]])), [[1.0, nan, 3.0]])


@pytest.mark.parametrize(
    ("counts", "title"),
    [
        ([[1, 2]], "1 site"),
        ([[1, 2], [0, 3]], "2 sites"),
        ([[1, 2], [0, 0]], "2 sites, 1 of them without data (grey)"),
        ([[1, 2]] * 300, "300 sites; a column is the mean of about 3 neighbours"),
    ],
)
def test_the_title_says_what_there_is_to_see(counts: list[list[int]], title: str) -> None:
    assert _about(np.array(counts), _columns(len(counts))) == title


def test_numbers_of_the_scale_are_short() -> None:
    assert [_number(value) for value in (0.25, 1, 50, 3000, 1e6)] == ["0.25", "1", "50", "3k", "1,000k"]


def test_rare_relations_share_a_row() -> None:
    counts = np.arange(40, dtype=float)[:, None]
    names, rows = _frequent(counts, [f"r{n}" for n in range(40)])
    assert names[:2] == ["r39", "r38"]
    assert names[-1] == "11 other relations"
    assert rows[-1, 0] == sum(range(11))
    assert rows.sum() == counts.sum()


def test_leaves_the_users_matplotlib_alone(tmp_path: Path) -> None:
    sys.modules.pop("matplotlib.pyplot", None)
    partition_plot(np.ones((2, 2), dtype=int), ["NA", "r"], ["a", "b"], tmp_path / "sites.png")
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize("sites", [1, 10, 100])
def test_entropies_of_any_number_of_sites_can_be_drawn(sites: int, tmp_path: Path) -> None:
    sizes = np.random.default_rng(1).poisson(3, sites)
    entropy_plot(np.linspace(1, 4, sites + 1), sizes, tmp_path / "entropy.png")
    assert size(tmp_path / "entropy.png") == (1500, 540)
    assert [file.name for file in tmp_path.iterdir()] == ["entropy.png"]


def test_entropies_that_are_all_alike_can_be_drawn(tmp_path: Path) -> None:
    entropy_plot(np.full(3, 2.0), np.array([5, 0]), tmp_path / "entropy.png")
    assert size(tmp_path / "entropy.png")


def test_refuses_edges_of_other_sites(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 sites need 3 edges, got 2"):
        entropy_plot(np.array([0.0, 1.0]), np.array([1, 1]), tmp_path / "entropy.png")


def test_entropies_leave_the_users_matplotlib_alone(tmp_path: Path) -> None:
    sys.modules.pop("matplotlib.pyplot", None)
    entropy_plot(np.array([0.0, 1.0]), np.array([1]), tmp_path / "entropy.png")
    assert "matplotlib.pyplot" not in sys.modules
