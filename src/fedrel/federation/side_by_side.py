"""Several functions side by side on one thread: what they need at the same time is computed in one call.

Each function runs until it asks for work that others may need as well (`Wait`); then the next one does. When all
have asked or returned, the work is done for all that asked for it, and they go on with what it found, in the same
order. Nothing runs in parallel, and no function is interrupted anywhere else.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

from greenlet import getcurrent, greenlet

Result = TypeVar("Result")
Wanted = TypeVar("Wanted")
Found = TypeVar("Found")


class Wait(Protocol):
    """How a function asks for work."""

    def __call__(
        self, key: Hashable, work: Callable[[Sequence[Wanted]], Sequence[Found]], wanted: Wanted
    ) -> Found:
        """What `work` finds for `wanted`; it is called once for all functions that wait with the same key."""


def side_by_side(functions: Sequence[Callable[[Wait], Result]]) -> list[Result]:
    """What the functions return, in their order; what one of them raises is raised here."""
    caller = getcurrent()

    def wait(key: Hashable, work: Callable[..., Any], wanted: Any) -> Any:
        return caller.switch((key, work, wanted))

    running = {number: greenlet(function) for number, function in enumerate(functions)}
    for one in running.values():
        one.gr_context = contextvars.copy_context()
    said: dict[int, Any] = dict.fromkeys(running, wait)  # what each is told next
    returned: dict[int, Result] = {}
    while running:
        asked: dict[Hashable, tuple[Callable[..., Any], list[int], list[Any]]] = {}
        for number, one in list(running.items()):
            answer = one.switch(said.pop(number))
            if one.dead:
                returned[number] = answer
                del running[number]
            else:
                key, work, wanted = answer
                _, numbers, each = asked.setdefault(key, (work, [], []))
                numbers.append(number)
                each.append(wanted)
        for work, numbers, each in asked.values():
            said |= zip(numbers, work(each), strict=True)
    return [returned[number] for number in range(len(functions))]
