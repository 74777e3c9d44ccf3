"""fedrel.federation.engines."""
