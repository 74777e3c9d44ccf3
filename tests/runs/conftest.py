"""The made-up run folders that the pages' tests use, too."""

from tests.studio.conftest import classification, comparison, make_run

__all__ = ["classification", "comparison", "make_run"]
