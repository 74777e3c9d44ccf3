"""fedrel.extractors.document."""
