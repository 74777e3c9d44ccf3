"""What a method is: its options, the coordinator's half and the site's half, in one class.

The coordinator's half is `round`, ordinary code that asks sites for things (`fed.ask`). The site's half are the
functions marked `at_site`. The engine decides how requests and answers travel.

A method holds no state: the coordinator's is in `fed`, a site's in `site`. So classes compose by name:
`att+fedprox` inherits from both, and neither file knows of the other.
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
    """Mark a function that runs at a site: the kinds of message it needs, and the kind that it answers with."""

    def mark(answer: Answer) -> Answer:
        answer.takes, answer.gives = takes, gives  # type: ignore[attr-defined]
        return answer

    return mark


at_coordinator = at_site
"""Mark a function that runs at the coordinator, on its own labelled sentences (`Federation.work`)."""


class Method(BaseModel):
    """The base of all methods; its pydantic fields are the method's options under `[methods.NAME]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str] = ""
    carries: ClassVar[tuple[type[Message], ...]] = ()
    """Kinds of message that this class adds to the training request."""
    test_head: ClassVar[str] = "none"
    """The bag head that pools a pair's sentences at test time."""
    pools_data: ClassVar[bool] = False
    """True for a method that puts all sites' text in one place: a baseline, for simulation only."""
    differentially_private: ClassVar[bool] = False
    """True if all of the method's answers are differentially private; a site may demand it. No method is, yet."""

    def kernel_head(self) -> str | None:
        """The bag head whose cross-entropy is all of a site's training, so that kernels may do it; else None."""
        return None

    def round(self, fed: Federation) -> None:
        """One communication round: ask the active sites, set `fed.weights`."""
        raise TypeError(f"{type(self).__name__} does not say what a round is")

    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Raise `RefusedError` for an answer that fits its declaration but cannot be true; nothing by default."""

    def simulation_only(self) -> str | None:
        """Why this method may not run between real sites, or None."""
        return "it trains on all sites' text in one place" if self.pools_data else None

    @classmethod
    def carried(cls) -> tuple[type[Message], ...]:
        """What all composed classes add to the training request."""
        return tuple(kind for part in cls.__mro__ for kind in part.__dict__.get("carries", ()))
