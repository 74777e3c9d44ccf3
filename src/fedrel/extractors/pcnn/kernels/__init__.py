"""fedrel.extractors.pcnn.kernels."""
