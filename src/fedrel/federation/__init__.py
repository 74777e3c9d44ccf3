"""What crosses the boundary, and the engines that carry it."""
