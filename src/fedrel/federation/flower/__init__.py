"""Flower as an engine: the same questions and answers, carried by its messages on one machine or between many."""
