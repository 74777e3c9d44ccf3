"""Is what stands in the text what the annotators say stands there?"""

from __future__ import annotations

from collections import Counter


def agree(name: str, found: str, handled: Counter[str]) -> bool:
    """Whether a mention's name is what was found at its place; other case or spacing is counted and passes."""
    if not found.strip() or _plain(name) != _plain(found):
        return False
    handled["names_differ"] += name != found
    return True


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()
