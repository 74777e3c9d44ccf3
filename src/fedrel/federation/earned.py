"""Of which sites' updates the global weights are made: what a coordinator shows to sites that vouch for theirs.

The coordinator keeps this with the weights, and so in checkpoints: a run that goes back to earlier weights goes
back to what those were made of, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from fedrel.federation.messages import Array, Message
from fedrel.privacy.vouching import SIZE, TAG_BYTES, WHOLE, Tag, add_tags

_KEPT = "earned/"  # how its arrays are called in the coordinator's state
VOUCH_BYTES = 8 + TAG_BYTES  # of what comes with an update: the question's number, then the tag


@dataclass(frozen=True, slots=True)
class Earned(Message):
    """Down: the updates that the global weights are made of since the initial ones, and the sum of their tags."""

    total: Annotated[Tag, Array("uint64", (SIZE,))]
    """The sum of the tags, each times its update's share."""
    round: Annotated[npt.NDArray[np.int32], Array("int32", ("updates",), low=1, high=10**6)]
    """In which round each update was trained."""
    site: Annotated[npt.NDArray[np.int32], Array("int32", ("updates",), low=0)]
    """At which site."""
    question: Annotated[npt.NDArray[np.uint64], Array("uint64", ("updates",))]
    """The number of the question that it answers."""
    share: Annotated[npt.NDArray[np.int32], Array("int32", ("updates",), low=0, high=WHOLE)]
    """How much it counts in its round's mean, in parts of 2^20."""

    @classmethod
    def kept_in(cls, state: Mapping[str, npt.NDArray[Any]]) -> Earned:
        """What the coordinator's state has; of initial weights, nothing."""
        empty = {
            name: np.zeros(SIZE if name == "total" else 0, declared.dtype)  # type: ignore[union-attr]
            for name, declared in cls.declared().items()
        }
        return cls(**{name: state.get(f"{_KEPT}{name}", array) for name, array in empty.items()})

    def for_state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that `kept_in` reads."""
        return {f"{_KEPT}{name}": array for name, array in self.pack().items()}

    def with_round(self, round_: int, shares: Mapping[int, float], vouches: Mapping[int, bytes]) -> Earned:
        """With the updates of one more round: each site's share in the mean, and what came with its update."""
        numbers = {site: np.frombuffer(vouches[site], "<u8").astype(np.uint64) for site in shares}
        parts = {site: round(share * WHOLE) for site, share in shares.items()}
        tags = {site: number[1:] for site, number in numbers.items()}
        return Earned(
            add_tags(self.total, parts, tags),
            np.append(self.round, np.full(len(parts), round_, np.int32)).astype(np.int32),
            np.append(self.site, np.array(list(parts), np.int32)).astype(np.int32),
            np.append(self.question, np.array([numbers[site][0] for site in parts], np.uint64)),
            np.append(self.share, np.array(list(parts.values()), np.int32)).astype(np.int32),
        )


def vouch(question: int, tag: Tag) -> bytes:
    """What goes with an update: the number of the question that it answers, and its tag."""
    return np.append(np.uint64(question), tag).astype("<u8").tobytes()
