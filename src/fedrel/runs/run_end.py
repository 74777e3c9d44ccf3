"""When a run ends, and whether one that is there ended as a config says: patience may differ from run to run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedrel.config.schema import Config
from fedrel.runs.records import Round


def is_over(config: Config, round_: int, best_round: int) -> bool:
    """Whether a run ends after a round: the last one, or `evaluation.patience` rounds after the best."""
    patience = config.evaluation.patience
    return round_ >= config.training.rounds or (patience is not None and round_ - best_round >= patience)


def ends_at(config: Config, round_: int, best_round: int) -> bool:
    """Whether a run that ended after a round is this config's: one with more rounds is another run."""
    return round_ <= config.training.rounds and is_over(config, round_, best_round)


def went_beyond(config: Config, rounds: Sequence[Round]) -> int | None:
    """The round after which this config's run ends, if a run has more of them: it was more patient."""
    best, highest = 0, -math.inf
    for one in rounds[:-1]:
        value = (one.dev or {}).get(config.evaluation.measure)
        if value is not None and value > highest:
            best, highest = one.round, value
        if is_over(config, one.round, best):
            return one.round
    return None
