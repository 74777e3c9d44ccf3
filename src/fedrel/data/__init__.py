"""Corpora as columns: readers, distant supervision, partitions, word vectors and the built-in world."""
