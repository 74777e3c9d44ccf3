"""Weights as arrays: how they are summed up, and the compiled loops that do it fast."""
