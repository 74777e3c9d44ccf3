"""The built-in corpus: made-up text of any size and noise, with its truth known (docs/world.md)."""

from __future__ import annotations

from fedrel.data.world.world import SPLITS, World, WorldConfig, nyt10_shape, relation_names

__all__ = ["SPLITS", "World", "WorldConfig", "nyt10_shape", "relation_names"]
