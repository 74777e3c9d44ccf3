"""Shorter pauses for the loops in which Flower's programs wait.

Flower's supernode looks for a request every three seconds, and the program that starts its tasks every second. That
is more than most phases take. Here a program that has just had work looks again soon, and less and less often the
longer there is none: it waits a quarter of the time since, at most as long as Flower would.
"""

from __future__ import annotations

import time
from functools import partial
from importlib import import_module
from typing import Any

SHORTEST = 0.05  # seconds
SHARE = 0.25  # of the time since there was work
PULLS = {
    "pull_objects",
    "pull_and_inflate_object_from_tree",
}  # Flower's functions that get the parts of a message


def pull_soon_again(module: str) -> None:
    """Let a module of Flower's wait less before it asks again for a part of a message that has not come yet.

    Flower waits a second, then longer and longer. A process that looks often is likely to see a message whose parts
    are still being sent.
    """
    names = vars(import_module(module))
    for name in PULLS & names.keys():
        names[name] = partial(names[name], initial_backoff=SHORTEST)


class Pauses:
    """Stands for the module `time` in a module of Flower's."""

    def __init__(self) -> None:
        self._worked = time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def work(self) -> None:
        """Note that there is work."""
        self._worked = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait, at most so long."""
        idle = time.monotonic() - self._worked
        time.sleep(min(seconds, max(SHORTEST, SHARE * idle)))


class PausesOfANode(Pauses):
    """Of the supernode's loop, which waits half a second at a time for the answer to a request that it has."""

    ANSWER = 0.5

    def sleep(self, seconds: float) -> None:
        """Wait, at most so long."""
        if seconds <= self.ANSWER:
            self.work()
        super().sleep(seconds)
