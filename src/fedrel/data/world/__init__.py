"""The built-in corpus: a small made-up world, as large and as noisy as one asks for (docs/world.md)."""

from __future__ import annotations

from fedrel.data.world.world import SPLITS, World, WorldConfig, nyt10_shape, relation_names

__all__ = ["SPLITS", "World", "WorldConfig", "nyt10_shape", "relation_names"]
