"""How a round ended: its record in `metrics.jsonl`, what it spent of ε, or why it was lost and what to do about it.

ε of a run with differential privacy, round by round, is what all of its models together tell. At site level,
against everyone who sees the models and not who was drawn: all rounds, with the rate at which sites are drawn.
Under secure sums and at sentence level, against everyone, also the coordinator, which knows who was drawn: of each
site the rounds in which it answered, and of all sites the largest ε.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import Config
from fedrel.errors import UserError, some_of
from fedrel.federation.coordinator import DivergedError
from fedrel.federation.messages import LARGEST, UNVOUCHED
from fedrel.federation.rounds import RoundNotes, draw
from fedrel.federation.site import DIVERGED
from fedrel.federation.summands import NoiseShares
from fedrel.privacy.differential_privacy import Steps, composed_epsilon, local_steps, round_steps
from fedrel.privacy.trust import described
from fedrel.runs.checkpoint import Checkpoint
from fedrel.runs.records import Round, Spent
from fedrel.tensors.weights import Weights

SHOWN = 5  # sites that are named for each reason when a round fails, and reasons


class LostRunError(UserError):
    """A run cannot go on, since a round failed as often as it may be tried."""


class DivergedRunError(LostRunError):
    """A run cannot go on, since its weights grew out of bounds."""


@dataclass(eq=False)
class LostRoundError(Exception):
    """A round that has failed as often as it may be tried: no model came of it."""

    round: int
    problem: str
    notes: RoundNotes
    mean_diverged: bool
    names: Sequence[str]
    """Of the sites, by number."""
    blamed: dict[int, float] = field(default_factory=dict)
    """Sites whose updates stood out in this round, or in those since the best one, and by how much."""
    before: Sequence[int] = ()
    """The sites of the round before, whose updates this round's weights are made of."""

    @property
    def diverged(self) -> bool:
        """Whether weights grew out of bounds, at the sites or in the mean, rather than sites being away."""
        signs = (DIVERGED, "not finite", f"above {LARGEST}")
        reasons = [one["reason"] for one in self.notes.refused]
        return self.mean_diverged or any(sign in reason for reason in reasons for sign in signs)

    def blame(self, rounds: Sequence[Round], best_round: int) -> None:
        """Add the sites that stood out in the rounds whose model this one began with, since the best."""
        self.before = rounds[-1].active if rounds else ()
        for one in rounds:
            if one.round > best_round:
                for site, factor in one.stood_out.items():
                    self.blamed[site] = max(factor, self.blamed.get(site, 0.0))

    def error(self, learning_rate: float) -> LostRunError:
        """The round's failure as the user reads it. If some sites' updates stood out, no others are named."""
        reasons: dict[str, dict[str, None]] = {}
        for one in self.notes.refused:
            reasons.setdefault(one["reason"], {})[self.names[one["site"]]] = None
        said = [f"{some_of(list(sites), SHOWN)}: {reason}" for reason, sites in reasons.items()]
        hint = f"the checkpoint of round {self.round - 1} is kept: repair this and go on with --resume"
        if self.diverged and self.blamed:
            said = [described(self.blamed, dict(enumerate(self.names)))]
            hint = (
                "find out what happened there; go on without these sites, or with --resume --from ROUND and "
                "aggregation.norm_bound = 2"
            )
        elif self.before and all(UNVOUCHED in one["reason"] for one in self.notes.refused):
            suspects = ", ".join(self.names[site] for site in self.before)
            hint = (
                f"the tag of an update of round {self.round - 1} is false, of one of these sites: {suspects}. "
                f"Leave them out one by one, with --resume --from {max(self.round - 2, 0)} (docs/protection.md)"
            )
        elif self.diverged:
            hint = (
                f"lower the learning rate, training.learning_rate, which is {learning_rate:g}, and begin anew"
            )
        more = [f"and {len(said) - SHOWN} more reasons"] if len(said) > SHOWN else []
        about = "; ".join(said[:SHOWN] + more) or "no site answered"
        kind = DivergedRunError if self.diverged else LostRunError
        return kind(f"round {self.round}: {self.problem} ({about})", hint=hint)


def check_weights(weights: Weights, state: Weights, before: Checkpoint) -> None:
    """`DivergedError` for weights, or a state, that must not be saved: no round could go on from them."""
    changed = {
        name: tensor
        for name, tensor in state.items()
        if before.state.get(name) is not tensor and tensor.dtype.kind == "f"  # tags of updates are no numbers
    }
    for name, tensor in [*weights.items(), *changed.items()]:
        # A comparison with NaN is false.
        if tensor.size and not (tensor.min() >= -LARGEST and tensor.max() <= LARGEST):
            raise DivergedError(
                f"{name} of the new model holds a value that is not finite or above {LARGEST}"
            )


def round_record(
    number: int,
    notes: RoundNotes,
    dev: Mapping[str, float] | None,
    seconds: float,
    epochs: int,
    began_from: int | None = None,
    spent: Spent | None = None,
) -> Round:
    """A round as `metrics.jsonl` has it; `notes` are what the coordinator and, in simulation, the sites noted."""
    weight = sum(entry.weight for entry in notes.journals.values())
    expressing = sum(entry.expressing for entry in notes.journals.values())
    watched: Counter[int] = Counter()  # of floats
    for entry in notes.journals.values():
        watched.update(entry.watched)
    return Round.model_validate(
        {
            "round": number,
            "loss": None if spent else notes.loss,  # sites that noise hides do not tell it
            "dev": dev,
            "bytes": notes.traffic.summary(),
            "seconds": round(seconds, 3),
            "selection_precision": expressing / weight if weight else None,
            "active": notes.active,
            "examples": notes.examples,
            "clipped": notes.clipped,
            "refused": notes.refused,
            "at_sites": {
                site: {"loss": None if spent else notes.losses.get(site), "up": notes.sent.get(site, 0)}
                for site in sorted({*notes.sent, *notes.losses})
            },
            "watched": {row: round(w / epochs, 4) for row, w in watched.items()},
            "class_distances": {site: d.round(4).tolist() for site, d in notes.class_distances.items()}
            or None,
            "stood_out": notes.moves.stood_out(),
            "left_out": notes.left_out,
            "excluded": notes.excluded,
            "began_from": began_from,
            "privacy": spent,
        }
    )


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
