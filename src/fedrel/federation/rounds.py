"""A round at the coordinator: which sites are active in it, and what is noted of it.

Sites are drawn so many at a time, or each by itself with the same probability. Noted are the bytes that were sent,
by kind, who was refused and why, and what the sites told.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedrel.federation.messages import Arrays, payload
from fedrel.federation.site_memory import Entry
from fedrel.federation.wire import framing
from fedrel.privacy.trust import Moves
from fedrel.seeding import numpy_generator


@dataclass(frozen=True, slots=True)
class Draw:
    """The sites of a round, in their order, and how they came to be drawn."""

    sites: list[int]
    reserve: list[int]
    """Others, in the order in which they would replace those that fail."""
    expected: float = 0.0
    """How many sites such a draw has, on average."""
    rate: float = 1.0
    """The probability with which any one site is drawn; 1 if that is not known, after a failed attempt."""


def draw(
    sizes: npt.NDArray[np.int64],
    fraction: float,
    seed: int,
    round_: int,
    attempt: int = 0,
    *,
    without: Collection[int] = (),
    reserve: int = 0,
    sampling: Literal["poisson", "fixed"] = "fixed",
) -> Draw:
    """Draw from the sites that have data, none of them in `without`.

    `fixed`: max(int(C*K), 1) sites without replacement, C the fraction and K the number of sites. `poisson`: each
    by itself with probability C, so that there may be none. A second attempt at a round draws other sites.
    """
    with_data = np.setdiff1d(np.flatnonzero(sizes), list(without))
    generator = numpy_generator(seed, "draw", round_, attempt)
    if sampling == "poisson":
        drawn = with_data[generator.random(len(with_data)) < fraction]
        expected, rate = fraction * len(with_data), fraction
    else:
        wanted = max(int(fraction * len(sizes) + 1e-9), 1)  # 0.29 * 100 is 28.999… in floats
        drawn = generator.choice(with_data, size=min(wanted, len(with_data)), replace=False)
        expected, rate = float(len(drawn)), len(drawn) / max(len(with_data), 1)
    others = np.setdiff1d(with_data, drawn)
    order = numpy_generator(seed, "reserve", round_, attempt).permutation(others)
    return Draw(np.sort(drawn).tolist(), order[:reserve].tolist(), expected, rate if not attempt else 1.0)


@dataclass
class Traffic:
    """Bytes sent, by direction and kind of message. `payload` counts the numbers themselves.

    What encoding adds is counted beside it, as `framing`: it too is the same on every engine.
    """

    up: dict[str, int] = field(default_factory=dict)
    down: dict[str, int] = field(default_factory=dict)
    framing: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})

    def record(self, direction: str, kind: str, arrays: Arrays, times: int = 1) -> None:
        """Add a message, sent to one site or to several."""
        counts: dict[str, int] = getattr(self, direction)
        counts[kind] = counts.get(kind, 0) + times * payload(arrays)
        self.framing[direction] += times * framing(arrays)

    def summary(self) -> dict[str, Any]:
        """Totals, and the split by kind."""
        kinds = sorted({*self.up, *self.down})
        return {
            "up": sum(self.up.values()),
            "down": sum(self.down.values()),
            "framing": self.framing,
            "by_kind": {k: {"up": self.up.get(k, 0), "down": self.down.get(k, 0)} for k in kinds},
        }


@dataclass
class RoundNotes:
    """What metrics.jsonl says about a round besides the evaluation."""

    active: list[int] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    refused: list[dict[str, Any]] = field(default_factory=list)
    examples: int = 0
    loss: float = 0.0
    clipped: int = 0
    """How many numbers did not fit the fixed point of a secure sum."""
    journals: dict[int, Entry] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    """Of each site's update, its mean training loss."""
    sent: dict[int, int] = field(default_factory=dict)
    """The bytes of each site's answers."""
    class_distances: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Of each update, d(k,c) of FedCMC's Definition 1; empty where the classifier has a bias."""
    moves: Moves = field(default_factory=Moves)
    rates: list[float] = field(default_factory=list)
    """Of every noised sum of updates, failed attempts too, the probability with which a site was drawn for it."""
    clip: float | None = None
    """The norm that updates were clipped to in the last of them."""
    extra: float = 0.0
    """Of noise in shares under secure sums, what it costs beyond Gaussian noise (`Steps.extra`)."""
    left_out: list[int] = field(default_factory=list)
    """The sites whose updates the rule left out, where that is kept (`aggregation.exclude_after`)."""
    excluded: list[int] = field(default_factory=list)
    """The sites that were not drawn because of it."""
    shortened: dict[int, float] = field(default_factory=dict)
    """By how much updates were shortened, by site."""
    vouches: dict[int, bytes] = field(default_factory=dict)
    """What came with updates, where sites vouch for theirs."""
