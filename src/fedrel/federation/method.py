"""What a method is: its options, the coordinator's half and the site's half, in one class.

The coordinator's half is ordinary code in `round`, which asks sites for things. What a site does when it is
asked is a method marked `at_site`, beside it. The engine decides how the asking travels.

A method holds no state: the coordinator's is in `fed`, a site's in `site`. So one class composes with another
by name: `att+fedprox` is a class that inherits from both, and neither file knows of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from fedrel.federation.messages import Message

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation


Answer = TypeVar("Answer", bound=Callable[..., Message])


def at_site(*, takes: tuple[type[Message], ...], gives: type[Message]) -> Callable[[Answer], Answer]:
    """Mark a method that runs at a site: the kinds of message it is asked with, and the kind it answers."""

    def mark(answer: Answer) -> Answer:
        answer.takes, answer.gives = takes, gives  # type: ignore[attr-defined]
        return answer

    return mark


at_coordinator = at_site
"""Mark a method that runs at the coordinator's own desk, with its own labelled sentences (`Federation.work`)."""


class Method(BaseModel):
    """The base of all methods; its pydantic fields are the method's options under `[methods.NAME]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str] = ""
    carries: ClassVar[tuple[type[Message], ...]] = ()
    """Kinds of message that this class adds to the request for training."""
    test_head: ClassVar[str] = "none"
    """The bag head that pools a pair's sentences at test time."""
    pools_data: ClassVar[bool] = False
    """True for a method that puts all sites' text in one place: a yardstick, for simulation only."""
    differentially_private: ClassVar[bool] = False
    """True for a method all of whose answers are differentially private; a site may demand it. None is, yet."""

    def round(self, fed: Federation) -> None:
        """One communication round: ask the active sites, leave the new weights in `fed.weights`."""
        raise TypeError(f"{type(self).__name__} does not say what a round is")

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Refuse (`RefusedError`) an answer that fits its declaration but cannot be true; nothing by default."""

    def simulation_only(self) -> str | None:
        """Why this method may not run between real sites, or None."""
        return "it trains on all sites' text in one place" if self.pools_data else None

    @classmethod
    def carried(cls) -> tuple[type[Message], ...]:
        """What all composed classes add to the request for training."""
        return tuple(kind for part in cls.__mro__ for kind in part.__dict__.get("carries", ()))
