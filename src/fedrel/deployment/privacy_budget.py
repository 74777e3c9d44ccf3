"""What a site's answers have cost so far, on its own disk, and what the next one would cost.

The file lists the noised sums of all answers that were computed from the site's text, of every run and experiment,
and ε is composed of them. It belongs to the site's folder, whatever is published or prepared in it, since nobody
can tell how much of the text is still the same. The record names ε and the number of answers after each of them: a
file that was removed, or replaced by an earlier copy, is noticed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedrel.config.privacy_sections import DifferentialPrivacy
from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.federation.messages import Update
from fedrel.federation.predictions import BytePredictions, Predictions
from fedrel.federation.secure_messages import MaskedNumbers
from fedrel.files import read_sealed, sealed, write_text
from fedrel.privacy.accounting import Steps, composed_epsilon, local_steps
from fedrel.privacy.noise_shares import NoiseShares

TRAINED = (Update, Predictions, BytePredictions, MaskedNumbers)  # kinds of answers that come of training
_WHAT, _HINT = "a site's account of its privacy", "restore it from a copy: without it, nothing is answered"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a site has told: how many answers that came of training, and the noised sums that they were made of."""

    answers: int = 0
    steps: tuple[Steps, ...] = ()

    def plus(self, steps: Steps) -> Spent:
        """After one more answer; steps of one kind are counted together."""
        counts = {replace(one, count=0): one.count for one in self.steps}
        kind = replace(steps, count=0)
        counts[kind] = counts.get(kind, 0) + steps.count
        return Spent(self.answers + 1, tuple(replace(one, count=count) for one, count in counts.items()))

    def epsilon(self, delta: float) -> float:
        """ε of all of them."""
        return composed_epsilon(self.steps, delta)


class PrivacyBudget:
    """The file of a site."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Spent:
        """What was spent so far; nothing before the first answer."""
        if not self.path.exists():
            return Spent()
        fields = read_sealed(self.path, _WHAT, _HINT)
        try:
            return Spent(int(fields["answers"]), tuple(Steps(**one) for one in fields["steps"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"is not {_WHAT}: {error}", file=self.path, hint=_HINT) from error

    def write(self, spent: Spent) -> None:
        """Keep it; on return it is on the disk."""
        fields = {"answers": spent.answers, "steps": [asdict(one) for one in spent.steps]}
        write_text(self.path, json.dumps(sealed(fields)))


def answer_cost(dp: DifferentialPrivacy, config: Config, examples: int, sites: int, numbers: int) -> Steps:
    """The noised sums of one answer that comes of training on so many examples.

    A site that noise on a sum hides cannot know how sites are drawn: it counts on no sampling. Of noise in shares,
    what is beyond Gaussian noise depends a little on how many sites and numbers there are, at most.
    """
    if dp.level == "sentence":
        return local_steps(dp, config.training, examples)
    return NoiseShares(dp, sites, numbers).cost if config.privacy.secure_sum else Steps(dp.noise)
