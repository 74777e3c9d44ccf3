"""PCNN in compiled code: forward and backward pass, training and scoring (numba, the extra `fast`)."""
