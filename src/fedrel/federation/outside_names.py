"""What a site's sentences are called outside: in a simulation their index, else a place in a shuffled list.

The list is another one in every round, and only the site can compute it. So an index says nothing about neighbours
in the text, a sentence cannot be followed from round to round, and only what was claimed in a round can win in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.federation.messages import RefusedError, UnclaimedError
from fedrel.privacy.site_rules import Wins
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    from fedrel.federation.site_memory import SiteStates
    from fedrel.privacy.site_rules import SiteRules

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


class OutsideNames:
    """The names of one site's sentences in one round; without rules, as in a simulation, their index."""

    def __init__(
        self, rules: SiteRules | None, states: SiteStates, seed: int, site: int, round_: int
    ) -> None:
        self._rules, self._states, self._seed = rules, states, seed
        self._site, self._round = site, round_

    def generator(self, purpose: str) -> np.random.Generator:
        """Randomness of this round that nobody but the site can compute; in a simulation, from the run's seed."""
        if self._rules is None:
            return numpy_generator(self._seed, purpose, self._round, self._site)
        return self._rules.generator(self._round, purpose)

    def claim(self, index: Indices, held: int, *, decoys: bool = False) -> tuple[Ints, Indices]:
        """In which order to claim these sentences of a site that holds so many, and what to call each claim.

        An order of -1 is a decoy, a claim about nothing, where the message can have some.
        """
        rules = self._rules
        if rules is None:
            return np.arange(len(index)), index
        if rules.decoys and not decoys:
            raise RefusedError("privacy.decoys needs keyed claims: a fact's number is always a fact")
        more = min(int(rules.decoys * len(index)), held - len(index))
        order = np.concatenate([np.arange(len(index)), np.full(more, -1)])
        order = self.generator("shuffle").permutation(order)
        claimed = np.where(order < 0, -1, index[order]).astype(np.int32)
        before = self._states.kept(self._site, self._round)  # of a round that is done again
        self._states.keep(self._site, self._round, {**before, "claimed": claimed})
        return order, np.arange(len(order), dtype=np.int32)

    def won(self, names: Indices) -> Indices:
        """The index of sentences that won, by what `claim` called them, in order; without decoys.

        `UnclaimedError` for what the site did not claim in this round, for a claim twice, for a sentence that has
        won with few others in more rounds than the site allows, and for other winners than before in this round
        that differ from those by fewer sentences than an answer may be made from: two updates would tell these.
        """
        rules = self._rules
        if rules is None:
            return names
        kept = self._states.kept(self._site, self._round)
        claimed = kept.get("claimed", np.zeros(0, np.int32))
        if len(names) and names.max() >= len(claimed):
            raise UnclaimedError(f"says that claim {names.max()} won, and there were {len(claimed)} claims")
        if len(np.unique(names)) < len(names):
            raise UnclaimedError("says that a claim won twice")
        won = np.sort(claimed[names])
        won = won[won >= 0]
        few = len(won) < min(2 * rules.examples, len(claimed) / 2)
        if few and rules.wins and (often := Wins(rules.wins).add(self._round, won.tolist(), rules.alone)):
            raise UnclaimedError(f"sentence {often[0]} won with few others in more rounds than allow.alone")
        earlier = [name for name in kept if name != "claimed"]
        for name in earlier:
            if 0 < len(np.setxor1d(kept[name], won)) < rules.examples:
                raise UnclaimedError("the winners differ by few sentences from others of this round")
        if not any(np.array_equal(kept[name], won) for name in earlier):
            self._states.keep(self._site, self._round, {**kept, f"won {len(earlier)}": won})
        return won
