"""fedrel.extractors.optim."""
