"""Corpora of documents: entities with several mentions, and relations that take more than one sentence to tell."""
