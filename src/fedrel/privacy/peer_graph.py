"""Who is whose peer in a secure sum, and how many of a site's peers must work together to uncover a secret of it.

In a small cohort all sites are peers. From `SPARSE_FROM` on, a site's peers are its neighbours in a ring (Bell et
al. 2020, Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, Algorithm 2). The order of the ring
follows from the session's name, so that every site can check that its peers are its neighbours, not a chosen few.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from math import ceil, comb

SPARSE_FROM = 100  # so many sites
COLLUDING, DROPPING = 0.2, 0.1  # of a sparse cohort: the shares of sites that it must withstand
UNSAFE, FAILS = 2.0**-40, 2.0**-30  # how likely that it does not, for any of its sites
TWO_THIRDS = 2 / 3


def quorum(peers: int, threshold: float = TWO_THIRDS) -> int:
    """How many of a site's peers must work together to uncover a secret of it: two thirds, or a larger part.

    Each gives one kind of share. So of one division into shares a coordinator gets no quorum of both kinds, as long
    as fewer than a third of them tell it both.
    """
    return ceil(threshold * peers - 1e-9)  # 2 / 3 * 9 must be 6


def ring(session: bytes, sites: Sequence[int]) -> list[int]:
    """The sites of a cohort in an order that follows from the session's name."""
    return sorted(sites, key=lambda site: hashlib.sha256(session + site.to_bytes(4, "big")).digest())


def neighbours(order: Sequence[int], threshold: float = TWO_THIRDS) -> dict[int, list[int]]:
    """The peers of each site of a ring, ascending, itself among them: all, or in a large cohort the nearest."""
    if len(order) < SPARSE_FROM:
        return dict.fromkeys(order, sorted(order))
    return {site: _nearest(order, place, threshold) for place, site in enumerate(order)}


def peers_of(site: int, order: Sequence[int], threshold: float = TWO_THIRDS) -> list[int]:
    """The peers of one site of a ring."""
    return sorted(order) if len(order) < SPARSE_FROM else _nearest(order, order.index(site), threshold)


def _nearest(order: Sequence[int], place: int, threshold: float) -> list[int]:
    half = degree(len(order), threshold) // 2
    return sorted({order[(place + step) % len(order)] for step in range(-half, half + 1)})


@cache
def degree(count: int, threshold: float = TWO_THIRDS) -> int:
    """How many other peers each of so many sites needs, an even number: the fewest that withstand what they must.

    With them, the chance that any site has a quorum of colluding peers is below `UNSAFE`, and that any has fewer
    peers than a quorum left is below `FAILS`.
    """
    colluding, dropping = int(COLLUDING * count), int(DROPPING * count)
    for peers in range(2, count - 1, 2):
        needed = quorum(peers + 1, threshold)
        unsafe = _at_least(needed, peers, colluding, count - 1)
        fails = _at_least(peers + 1 - needed, peers, dropping, count - 1)
        if count * unsafe < UNSAFE and count * fails < FAILS:
            return peers
    return 2 * (count // 2)


def _at_least(least: int, drawn: int, marked: int, count: int) -> float:
    """The chance that so many of `drawn` sites are marked, if `marked` of all `count` are (hypergeometric)."""
    ways = sum(
        comb(marked, k) * comb(count - marked, drawn - k) for k in range(least, min(drawn, marked) + 1)
    )
    return ways / comb(count, drawn)
