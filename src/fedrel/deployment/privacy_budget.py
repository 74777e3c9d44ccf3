"""What a site's answers have cost so far, on its own disk, and what the next one would cost.

The file lists the noised sums of all answers that were computed from the site's text, of every run and experiment,
and ε is composed of them; of answers without noise, whose cost has no bound, it has the number. It belongs to the
site's folder, whatever is published or prepared in it, since nobody can tell how much of the text is still the
same. The record names ε and the numbers of answers after each of them: a file that was removed, changed, or
replaced by an earlier copy, is noticed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedrel.config.privacy_sections import DifferentialPrivacy
from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.federation.noised_sums import NoiseShares
from fedrel.files import read_sealed, sealed, write_text
from fedrel.privacy.accounting import Steps, composed_epsilon, local_steps

_WHAT, _HINT = "a site's account of its privacy", "restore it from a copy: without it, nothing is answered"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a site has told: answers with noise, the noised sums that they are made of, and answers without."""

    answers: int = 0
    steps: tuple[Steps, ...] = ()
    unnoised: int = 0

    def plus(self, steps: Steps) -> Spent:
        """After one more answer; steps of one kind are counted together."""
        counts = {replace(one, count=0): one.count for one in self.steps}
        kind = replace(steps, count=0)
        counts[kind] = counts.get(kind, 0) + steps.count
        made = tuple(replace(one, count=count) for one, count in counts.items())
        return Spent(self.answers + 1, made, self.unnoised)

    def epsilon(self, delta: float) -> float:
        """ε of all answers with noise."""
        return composed_epsilon(self.steps, delta)

    def recorded(self, delta: float) -> dict[str, float]:
        """What the record says of it; nothing before the first answer."""
        if not self.answers and not self.unnoised:
            return {}
        told = {"epsilon": round(self.epsilon(delta), 6), "answers": self.answers, "delta": delta}
        return told | {"unnoised": self.unnoised}


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
            steps = tuple(Steps(**one) for one in fields["steps"])
            return Spent(int(fields["answers"]), steps, int(fields.get("unnoised", 0)))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"is not {_WHAT}: {error}", file=self.path, hint=_HINT) from error

    def write(self, spent: Spent) -> None:
        """Keep it; on return it is on the disk."""
        write_text(self.path, json.dumps(sealed(asdict(spent))))


def answer_cost(dp: DifferentialPrivacy, config: Config, examples: int, sites: int, numbers: int) -> Steps:
    """The noised sums of one answer that comes of training on so many examples.

    A site that noise on a sum hides cannot know how sites are drawn: it counts on no sampling. Of noise in shares,
    what is beyond Gaussian noise depends a little on how many sites and numbers there are, at most.
    """
    if dp.level == "sentence":
        return local_steps(dp, config.training, examples)
    return NoiseShares(dp, sites, numbers).cost if config.privacy.secure_sum else Steps(dp.noise)
