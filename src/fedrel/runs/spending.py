"""ε of a run with differential privacy, round by round: what all of its models together tell.

At site level, against everyone who sees the models and not who was drawn: all rounds, with the rate at which sites
are drawn. Under secure sums and at sentence level, against everyone, also the coordinator, which knows who was
drawn: of each site the rounds in which it answered, and of all sites the largest ε.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import Config
from fedrel.federation.rounds import RoundNotes, draw
from fedrel.federation.summands import NoiseShares
from fedrel.privacy.differential_privacy import Steps, composed_epsilon, local_steps, round_steps
from fedrel.runs.records import Round, Spent


class Spending:
    """The steps of a run so far; `rounds` are those that were done before, in a run that is resumed."""

    def __init__(self, config: Config, rounds: Sequence[Round] = ()) -> None:
        self._training, self._privacy = config.training, config.privacy
        self._sums: list[Steps] = []
        self._answered: Counter[int] = Counter()
        self._extra = 0.0  # the most of any round
        for one in rounds:
            if one.privacy is not None:
                self._add(one.privacy.rates, one.at_sites, one.privacy.extra)

    def after(self, notes: RoundNotes, sizes: npt.NDArray[np.int64]) -> Spent | None:
        """What the run has told after one more round; `sizes` are how many examples each site has."""
        if self._privacy.dp is None:
            return None
        self._add(notes.rates, notes.sent, notes.extra)
        return Spent(epsilon=self.epsilon(sizes), rates=notes.rates, clip=notes.clip, extra=notes.extra)

    def epsilon(self, sizes: npt.NDArray[np.int64]) -> float:
        """ε of all rounds so far."""
        dp = self._privacy.dp
        assert dp is not None
        if self._privacy.site_noise and not self._privacy.secure_sum:
            return composed_epsilon(self._sums, dp.delta)
        steps = {
            Steps(dp.noise, 1.0, times, self._extra)
            if dp.level == "site"
            else local_steps(dp, self._training, int(sizes[site]), times)
            for site, times in self._answered.items()
        }
        return max((composed_epsilon([one], dp.delta) for one in _worst(steps)), default=0.0)

    def plan(self, sizes: npt.NDArray[np.int64], seed: int, numbers: int) -> float:
        """ε of all rounds of the config, if none fails: who is drawn follows from the seed.

        `numbers` are the most that a sum has: what is beyond Gaussian noise, of noise in shares, depends on them.
        """
        dp, training = self._privacy.site_noise, self._training
        for round_ in range(1, training.rounds + 1):
            drawn = draw(sizes, training.fraction, seed, round_, sampling=dp.sampling if dp else "fixed")
            in_shares = self._privacy.secure_sum and len(drawn.sites) > 0
            extra = NoiseShares(dp, len(drawn.sites), numbers).cost.extra if dp and in_shares else 0.0
            self._add([] if self._privacy.secure_sum else [drawn.rate], drawn.sites, extra)
        return self.epsilon(sizes)

    def _add(self, rates: Iterable[float], answered: Iterable[int], extra: float) -> None:
        dp = self._privacy.site_noise
        if dp is not None:
            self._sums += [round_steps(dp, rate, self._training.rounds) for rate in rates]
        self._answered.update(list(answered))  # of a mapping, Counter would add the values
        self._extra = max(self._extra, extra)


def _worst(steps: Collection[Steps]) -> list[Steps]:
    """Those that no other exceeds in rate and count: ε grows with either, so the largest is among them."""
    return [
        one
        for one in steps
        if not any(other != one and other.rate >= one.rate and other.count >= one.count for other in steps)
    ]
