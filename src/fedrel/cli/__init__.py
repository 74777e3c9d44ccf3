"""fedrel.cli."""
