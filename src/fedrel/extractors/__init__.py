"""Models that turn sentences into relations, and the bag heads that pool them."""
