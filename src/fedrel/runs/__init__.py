"""fedrel.runs."""
