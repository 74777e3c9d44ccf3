"""fedrel.extractors.transformer."""
