"""Metrics of ranked facts."""
