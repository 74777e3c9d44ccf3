"""Lazy ONE: our own variant of Lazy MIL (Sui et al. 2021) that leaves out text only where text is noisy.

Lazy MIL trains on one sentence for each triple, however clean the text is, and so loses good sentences. Here the
sites choose as in Lazy MIL (Algorithm 1), but a site trains on whole bags, as ONE does: in every step on the
sentence of a bag that is best then. What becomes of its bags whose triples another site won depends on how noisy
they are. Whether the model finds the relation in a single one tells little: a bag where it does not may be noise,
or merely difficult. But if it finds the relation in a smaller share of them than of the bags that won, by more than
a standard error, they are mostly noise: the site leaves them out. Else it trains on them too, and the method is
ONE. Sites send what they send in Lazy MIL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags
from fedrel.methods.claims import best_sentences, winning_rows
from fedrel.methods.lazy_mil import LazyMIL

if TYPE_CHECKING:
    from fedrel.federation.site import Site

ERRORS = 1.0  # how many standard errors apart two shares must be; a site has few bags


class LazyOne(LazyMIL):
    """As Lazy MIL, but a site trains on whole bags, and leaves out those that lost only if they look like noise."""

    name: ClassVar[str] = "lazy-one"
    paper: ClassVar[str] = f"ours, after {LazyMIL.paper}"
    train_head: ClassVar[str] = "one"

    pooled_winners: Literal[False] = False
    """Not here: bags do not move."""

    def examples(self, site: Site) -> Bags:
        """The bags that won and those of `NA`; those that lost, too, unless they are mostly noise."""
        bags = site.bags
        _, found = best_sentences(bags, site.probabilities(bags))
        winners = np.isin(bags.rows, winning_rows(site, pooled=False))
        won = np.logical_or.reduceat(winners, bags.bounds[:-1])
        related = site.related(bags)
        lost = related & ~won
        return bags.take(np.flatnonzero(~lost)) if fewer(found[lost], found[related & won]) else bags


def fewer(some: npt.NDArray[np.bool_], others: npt.NDArray[np.bool_]) -> bool:
    """Whether a smaller share of `some` is true than of `others`, by more than the error of the difference."""
    if not (len(some) and len(others)):
        return False
    share = np.concatenate([some, others]).mean()
    error = np.sqrt(share * (1 - share) * (1 / len(some) + 1 / len(others)))
    return bool(others.mean() - some.mean() > ERRORS * error)
