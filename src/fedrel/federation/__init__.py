"""A federation: what sites and coordinator send each other, and the engines that carry it."""
