"""Runs: from a config to a run folder, and several of them compared."""
