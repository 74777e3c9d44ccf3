"""Which sites are active in a round: so many of them, or each by itself with the same probability."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

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
