"""A site that says it holds more than was agreed is refused by name, before it takes part."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedrel[flower]'")

from fedrel.config.check import check
from fedrel.deployment.folders import FederationTable
from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer
from fedrel.federation.flower.members import Members, RemoteEngine
from fedrel.federation.flower.transport import FlowerEngine
from fedrel.federation.messages import Holdings


class Grid:
    """Three nodes are there."""

    def get_node_ids(self):
        return [10, 11, 12]


def table(**sizes):
    tree = {"host": "localhost", "port": 9092, "sites": ["a", "b", "c"], "sizes": sizes}
    return check(FederationTable, tree, "federation.toml")


def test_sizes_are_of_sites():
    assert table(c=10_000, a=1_000).agreed == [1_000, None, 10_000]
    assert table().agreed == [None, None, None]
    with pytest.raises(UserError, match="sizes names 'd', which is not one of the sites"):
        table(d=5)


def test_a_site_that_says_it_holds_more_than_agreed_is_refused(monkeypatch, tmp_path):
    held = {0: 900, 1: 50_000, 2: 50_000}

    def ask(self, phase, round_, shared, own):
        for site in own:
            yield site, Answer(Holdings(held[site]).pack())

    monkeypatch.setattr(FlowerEngine, "ask", ask)
    engine = RemoteEngine.__new__(RemoteEngine)
    engine._nodes = Members(Grid(), ["a", "b", "c"], {10: 0, 11: 1, 12: 2}, tmp_path / "federation.json")
    engine._triples, engine._not_ready, engine._taking_part = 7, {}, range(3)
    monkeypatch.setattr(engine, "_identify", lambda _: None)
    engine._agreed = table(c=10_000, a=1_000).agreed
    np.testing.assert_array_equal(engine.holdings().sizes, [900, 50_000, 0])
    assert engine._missing() == "c says it holds 50000, but at most 10000 were agreed (federation.toml)"
