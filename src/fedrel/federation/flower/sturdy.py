"""Rounds that survive sites which crash, hang, come late or answer rubbish.

Whoever does not answer well is left out and named (`Federation.ask`). Here stands what makes such a round good
enough: sites in reserve that stand in for those who failed, and a quorum below which a round does not count. When
every site answers, neither changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedrel.federation.coordinator import Federation
from fedrel.federation.messages import Message
from fedrel.federation.weights import NoAnswerError
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from fedrel.federation.site import Site

Reply = TypeVar("Reply", bound=Message)


@runtime_checkable
class Surveys(Protocol):
    """An engine whose sites say for themselves what they hold."""

    triples: int
    """How many facts have a number that all agreed on."""

    def sizes(self) -> npt.NDArray[np.int64]:
        """How many sentences each site holds; none where it has not said so yet."""


class SturdyFederation(Federation):
    """A federation with a reserve and a quorum."""

    def __init__(self, *given: Any, min_sites: int = 1, extra_sites: int = 0, **named: Any) -> None:
        super().__init__(*given, **named)
        self._min_sites, self._extra_sites = min_sites, extra_sites
        self._reserve: list[int] = []

    def draw(self, round_: int, attempt: int = 0) -> None:
        """Draw the active sites as ever, and some others into the reserve, in the order they would step in."""
        if isinstance(self._engine, Surveys):
            self.sizes, self.triples = self._engine.sizes(), self._engine.triples
        super().draw(round_, attempt)
        others = np.setdiff1d(np.flatnonzero(self.sizes), self.notes.active)
        order = numpy_generator(self._seed, "reserve", round_, attempt).permutation(others)
        self._reserve = order[: self._extra_sites].tolist()

    def ask(
        self, phase: Callable[[Site], Reply], *sent: Message | Mapping[int, Message]
    ) -> Iterator[tuple[int, Reply]]:
        """Ask the active sites and the reserve; yield as many answers as there are active sites, if so many come.

        The reserve comes last, so that it is known by then how many are missing; those who step in stay active for
        the rest of the round. What the others of the reserve sent is counted, and not used.
        """
        active, reserve, self._reserve = self.notes.active, self._reserve, []
        self.notes.active = [*active, *reserve]
        before = len(self.notes.refused)
        used: list[int] = []
        stood_in = 0
        for site, reply in super().ask(phase, *sent):
            if site in reserve:
                if stood_in == len(self._failed(active, before)):
                    self.notes.class_distances.pop(site, None)
                    continue
                stood_in += 1
            used.append(site)
            yield site, reply
        failed = self._failed(active, before)
        if reserve:
            self.notes.active = sorted({*active, *used} - failed)
        else:
            self.notes.active = active
        if len(used) < min(self._min_sites, len(used) - stood_in + len(failed)):
            few = f"{len(used)} answers could be used, and engine.min_sites is {self._min_sites}"
            raise NoAnswerError(few if used else "")

    def _failed(self, active: Sequence[int], before: int) -> set[int]:
        """The active sites that this question's refusals name."""
        return {one["site"] for one in self.notes.refused[before:]}.intersection(active)
