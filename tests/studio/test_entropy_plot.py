from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fedrel.studio.plots import entropy_plot
from tests.studio.test_plots import size


@pytest.mark.parametrize("sites", [1, 10, 100])
def test_draws_any_number_of_sites(sites: int, tmp_path: Path) -> None:
    sizes = np.random.default_rng(1).poisson(3, sites)
    entropy_plot(np.linspace(1, 4, sites + 1), sizes, tmp_path / "entropy.png")
    assert size(tmp_path / "entropy.png") == (1500, 540)
    assert [file.name for file in tmp_path.iterdir()] == ["entropy.png"]


def test_documents_that_are_all_alike_can_be_drawn(tmp_path: Path) -> None:
    entropy_plot(np.full(3, 2.0), np.array([5, 0]), tmp_path / "entropy.png")
    assert size(tmp_path / "entropy.png")


def test_refuses_edges_of_other_sites(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 sites need 3 edges, got 2"):
        entropy_plot(np.array([0.0, 1.0]), np.array([1, 1]), tmp_path / "entropy.png")


def test_leaves_the_users_matplotlib_alone(tmp_path: Path) -> None:
    sys.modules.pop("matplotlib.pyplot", None)
    entropy_plot(np.array([0.0, 1.0]), np.array([1]), tmp_path / "entropy.png")
    assert "matplotlib.pyplot" not in sys.modules
