"""Metrics: ranked facts, labels of sentences, relations in documents, differences between sites."""
