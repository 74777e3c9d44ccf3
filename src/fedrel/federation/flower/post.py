"""Letters to nodes and their replies, in the order of the letters, within a deadline.

`Grid.send_and_receive` waits three seconds at a time and hands over everything at once. Here replies are used as
they come, only so many letters are under way as the other side can work on, and a reply is fetched when its turn
has come: until then it waits in Flower's own store.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

SPARE = 60.0  # seconds that Flower keeps a letter beyond its deadline: clocks of machines differ


class Letter(NamedTuple):
    """A question on its way: to which node, in which envelope."""

    node: int
    content: RecordDict


class Post:
    """Sends letters by a grid."""

    def __init__(
        self, grid: Grid, *, every: float, window: int | None = None, deadline: float | None = None
    ) -> None:
        self._grid, self._every, self._window, self._deadline = grid, every, window, deadline

    def send(
        self, sites: Sequence[int], write: Callable[[int], Letter | None]
    ) -> Iterator[tuple[int, Message | str]]:
        """Send each site its letter; yield the replies in the same order, or why there is none.

        Letters are written when their time comes, so that no more than a window of them takes up memory. For a
        site that cannot be reached, there is none.
        """
        end = None if self._deadline is None else time.monotonic() + self._deadline
        waiting = deque(sites)
        under_way: dict[int, str | None] = {}
        for site in sites:
            while waiting and (self._window is None or len(under_way) < self._window):
                following = waiting.popleft()
                letter = write(following)
                under_way[following] = self._push(letter) if letter else None
            number = under_way[site]
            yield site, "is not connected" if number is None else self._await(number, end)
            del under_way[site]

    def _push(self, letter: Letter) -> str | None:
        ttl = None if self._deadline is None else self._deadline + SPARE
        message = Message(letter.content, dst_node_id=letter.node, message_type="query", ttl=ttl)
        pushed = list(self._grid.push_messages([message]))
        return pushed[0] if pushed else None

    def _await(self, number: str, end: float | None) -> Message | str:
        """The reply to a letter; once the deadline is past, only if it has come already."""
        while True:
            for reply in self._grid.pull_messages([number]):
                return reply
            if end is not None and time.monotonic() >= end:
                return f"did not answer within {self._deadline:g} seconds"
            time.sleep(self._every)
