"""fedrel.tensors."""
