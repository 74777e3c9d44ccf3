"""Flower as an engine: it carries the same requests and answers, on one machine or between many."""
