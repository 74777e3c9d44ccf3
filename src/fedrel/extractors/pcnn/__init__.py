"""fedrel.extractors.pcnn."""
