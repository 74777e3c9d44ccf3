"""Optimisers of local training, at the cost of the weights that a batch uses."""
