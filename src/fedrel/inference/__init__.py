"""fedrel.inference."""
