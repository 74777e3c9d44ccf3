"""Relation extraction across institutions that may not share text."""
