"""Means that keep even the declared numbers from telling too much."""
