"""Secure sums: the coordinator learns the sum of the sites' numbers, and of a single site's numbers nothing.

Bonawitz et al. 2017, Practical Secure Aggregation for Privacy-Preserving Machine Learning (Figure 4, with signed
keys). Every two peers agree on a mask that the one adds and the other takes off, so that masks vanish in the sum. A
site also adds a mask of its own. The seeds of both are divided into shares among its peers and itself: if it drops
out, a quorum uncovers the agreed masks, which nobody took off; if it answers, its own mask. Never both: one gives
one kind of share for a peer, once a round, and a quorum is two thirds. From `SPARSE_FROM` sites on, a site's peers
are its neighbours in a ring in random order (Bell et al. 2020, Algorithm 2). A site counts as a peer of itself.

`Member` is a site's half, `Cohort` the coordinator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from fedrel.federation.messages import RefusedError
from fedrel.federation.secure_messages import (
    MaskedNumbers,
    Peers,
    PeerShares,
    PublicKeys,
    SealedShares,
    Session,
    Survivors,
    Unmasking,
    digest,
)
from fedrel.privacy.fixed_point import Ring
from fedrel.privacy.secret_keys import (
    KEY,
    SEALED,
    SECRET,
    Bytes,
    SessionKeys,
    TamperedError,
    add_mask,
    agreed,
    check_signature,
    combined,
    derived,
    divided,
    opened,
    private_key,
    rows,
    sealed,
    signing_key,
)
from fedrel.tensors.weights import NoAnswerError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from fedrel.federation.site import Site

SPARSE_FROM = 100  # so many sites
COLLUDING, DROPPING = 0.2, 0.1  # of a sparse cohort: the shares of sites that it must withstand
UNSAFE, FAILS = 2.0**-40, 2.0**-30  # how likely that it does not, for any of its sites


def quorum(peers: int) -> int:
    """How many of a site's peers must work together to uncover a secret of it: two thirds.

    Each gives one kind of share. So of one division into shares a coordinator gets no quorum of both kinds, as long
    as fewer than a third of them tell it both.
    """
    return -(-2 * peers // 3)


class Member:
    """A site in one session. It keeps nothing between requests but its secret and what it has answered (`once`)."""

    def __init__(self, site: Site) -> None:
        self._site, self._min_cohort = site, site.privacy.min_cohort
        self._nonce = bound_to_round(site.received(Session), site.round)
        self._keys = SessionKeys.of(site.secret, self._nonce)

    def public_keys(self) -> PublicKeys:
        """Step 1: keys for this session, signed."""
        text = signed_text(self._nonce, self._site.number, self._keys.public)
        signature = signing_key(self._site.secret).sign(text)
        return PublicKeys(*(np.frombuffer(part, np.uint8) for part in (self._keys.public, signature)))

    def shares(self) -> SealedShares:
        """Step 2: each peer's shares of the two secrets, encrypted for it."""
        peers = self._peers
        self._site.once(f"shares {self._nonce.hex()}", digest([self._site.received(Peers)]))
        divide = [
            divided(seed, quorum(len(peers)), len(peers))
            for seed in (self._keys.mask_seed, self._keys.own_seed)
        ]
        boxes = [
            sealed(self._share_key(peer, outgoing=True), b"".join(parts))
            for peer, parts in zip(peers, zip(*divide, strict=True), strict=True)
        ]
        return SealedShares(rows(boxes, SEALED))

    def masked(self, numbers: Ring) -> MaskedNumbers:
        """Step 3: the numbers with the mask agreed with each peer that sent shares, and the site's own.

        Different numbers under the same masks would tell their difference: a session has one such request.
        """
        self._opened()  # a peer whose shares cannot be read could not be replaced
        sent = [
            one for one in self._site.messages if not isinstance(one, PeerShares)
        ]  # masks do not need these
        self._site.once(f"masked {self._nonce.hex()}", digest(sent))
        add_mask(numbers, own_mask(self._keys.own_seed), 1)
        for peer, keys in self._peers.items():
            if peer != self._site.number:
                mask = pair_mask(self._keys.mask_key, keys[:KEY], self._nonce)
                add_mask(numbers, mask, sign(self._site.number, peer))
        return MaskedNumbers(numbers)

    def unmasking(self) -> Unmasking:
        """Step 4: one share of each peer. Sums over two cohorts would tell their difference: a round has one."""
        asked = self._site.received(Survivors)
        answered, dropped = set(asked.answered.tolist()), set(asked.dropped.tolist())
        if answered & dropped or len(answered) + len(dropped) < len(asked.answered) + len(asked.dropped):
            raise RefusedError("asks for two shares of one peer")
        if answered | dropped != set(self._peers):
            raise RefusedError("names other peers than those that exchanged shares")
        if self._site.number in dropped:
            raise RefusedError("says that this site dropped out")
        if len(answered) < max(self._min_cohort, quorum(len(self._peers))):
            raise RefusedError(
                f"a sum over {len(answered)} sites, and at least {self._min_cohort} are demanded"
            )
        self._site.once("unmasked", digest([asked, self._site.received(Peers), self._site.received(Session)]))
        shares = self._opened()
        given = [shares[peer][SECRET:] for peer in asked.answered.tolist()]
        given += [shares[peer][:SECRET] for peer in asked.dropped.tolist()]
        return Unmasking(rows(given, SECRET))

    @cached_property
    def _peers(self) -> dict[int, bytes]:
        """The peers' public keys by their numbers, once the signatures are checked."""
        peers = self._site.received(Peers)
        found = dict(zip(peers.site.tolist(), map(bytes, peers.keys), strict=True))
        if found.get(self._site.number) != self._keys.public:
            raise RefusedError("the site itself is missing among the peers, or has other keys there")
        if len(found) < self._min_cohort:
            raise RefusedError(
                f"a cohort of {len(found)} sites, and at least {self._min_cohort} are demanded"
            )
        for (peer, keys), signature in zip(found.items(), peers.signature, strict=True):
            try:
                check_signature(
                    self._site.registered_key(peer), bytes(signature), signed_text(self._nonce, peer, keys)
                )
                for key in (keys[:KEY], keys[KEY:]):  # one of low order fails here
                    agreed(self._keys.mask_key, key, b"check")
            except TamperedError as error:
                raise RefusedError(f"{error} (site {peer})") from error
        return found

    def _opened(self) -> dict[int, bytes]:
        """By peer, its shares for this site: of the seed of its agreed masks, then of its own mask."""
        boxes = self._site.received(PeerShares).sealed
        if len(boxes) != len(self._peers):
            raise RefusedError(f"shares of {len(boxes)} peers, expected {len(self._peers)}")
        try:
            return {
                peer: opened(self._share_key(peer, outgoing=False), bytes(box))
                for peer, box in zip(self._peers, boxes, strict=True)
            }
        except TamperedError as error:
            raise RefusedError(str(error)) from error

    def _share_key(self, peer: int, *, outgoing: bool) -> bytes:
        """The key for shares from this site to a peer, or the other way."""
        way = (self._site.number, peer) if outgoing else (peer, self._site.number)
        context = b"%d to %d" % way
        return agreed(self._keys.share_key, self._peers[peer][KEY:], b"shares", self._nonce, context)


class Cohort:
    """The sites of one session, as the coordinator sees them: who is whose peer, and how far each has come."""

    def __init__(
        self, session: Session, round_: int, keys: Mapping[int, PublicKeys], bound: int, order: Sequence[int]
    ) -> None:
        self._nonce, self._keys, self._bound = bound_to_round(session, round_), keys, bound
        self._neighbours = neighbours(order)
        self._boxes: dict[int, dict[int, Bytes]] = {}  # by sender and receiver
        self._masked: set[int] = set()

    def peers(self) -> dict[int, Peers]:
        """For step 2: each site's peers."""
        return {site: self._peers(site, self._neighbours[site]) for site in self._keys}

    def shared(self, answers: Iterable[tuple[int, SealedShares]]) -> None:
        """Take in the answers of step 2."""
        for site, answer in answers:
            if len(answer.sealed) == len(self._neighbours[site]):
                self._boxes[site] = dict(zip(self._neighbours[site], answer.sealed, strict=True))

    def to_mask(self) -> tuple[dict[int, Peers], dict[int, PeerShares]]:
        """For step 3: of each site that gave shares, the peers that did so too, and their shares for it."""
        peers = {site: self._peers(site, self._alive(site)) for site in self._boxes if self._alive(site)}
        return peers, {site: self._shares_for(site) for site in peers}

    def total(self, answers: Iterable[tuple[int, MaskedNumbers]]) -> Ring:
        """The sum of the answers of step 3, with what is left of the masks; one of another length is left out."""
        total: Ring = np.zeros(0, np.uint32)
        for site, answer in answers:
            if not self._masked:
                total = answer.numbers.copy()
            elif len(answer.numbers) == len(total):
                total += answer.numbers
            else:
                continue
            self._masked.add(site)
        return total

    @property
    def answered(self) -> list[int]:
        """The sites that the sum is over."""
        return sorted(self._masked)

    def to_unmask(self) -> tuple[dict[int, Survivors], dict[int, Peers], dict[int, PeerShares]]:
        """For step 4: of each site that answered, which peers answered too."""
        survivors = {}
        for site in self.answered:
            answered = [peer in self._masked for peer in self._alive(site)]
            alive = np.array(self._alive(site), np.int32)
            survivors[site] = Survivors(alive[answered], alive[np.logical_not(answered)])
        peers = {site: self._peers(site, self._alive(site)) for site in survivors}
        return survivors, peers, {site: self._shares_for(site) for site in survivors}

    def unmask(self, total: Ring, answers: Iterable[tuple[int, Unmasking]]) -> None:
        """Take the rest of the masks off the sum; `NoAnswerError` if too few shares came to uncover one."""
        shares: dict[int, dict[int, bytes]] = {site: {} for site in self._boxes}  # by owner and number
        for site, answer in answers:
            alive = self._alive(site)
            order = [p for p in alive if p in self._masked] + [p for p in alive if p not in self._masked]
            if len(answer.shares) == len(order):
                for owner, share in zip(order, answer.shares, strict=True):
                    shares[owner][1 + self._neighbours[owner].index(site)] = bytes(share)
        seeds = {owner: self._secret(owner, found) for owner, found in shares.items() if self._alive(owner)}
        for owner, seed in seeds.items():
            if owner in self._masked:
                add_mask(total, own_mask(seed), -1)
            else:
                own = private_key(seed)
                if own.public_key().public_bytes_raw() != self._keys[owner].keys[:KEY].tobytes():
                    raise NoAnswerError("shares of a site that dropped out do not fit its key: a site lied")
                for peer in self._masked.intersection(self._alive(owner)):
                    key = self._keys[peer].keys[:KEY].tobytes()
                    add_mask(total, pair_mask(own, key, self._nonce), -sign(peer, owner))

    def _secret(self, owner: int, shares: Mapping[int, bytes]) -> bytes:
        needed = quorum(len(self._neighbours[owner]))
        if len(shares) < needed:
            raise NoAnswerError(
                f"{len(shares)} sites helped to unmask the sum, and {needed} are needed; nothing was uncovered"
            )
        return combined(dict(sorted(shares.items())[:needed]))

    def _peers(self, site: int, of: Sequence[int]) -> Peers:
        return Peers.of({peer: self._keys[peer] for peer in of}, len(self._keys), self._bound)

    def _alive(self, site: int) -> list[int]:
        """The peers of a site with which it has exchanged shares."""
        return [peer for peer in self._neighbours[site] if peer in self._boxes]

    def _shares_for(self, site: int) -> PeerShares:
        return PeerShares(np.stack([self._boxes[peer][site] for peer in self._alive(site)]))


def neighbours(order: Sequence[int]) -> dict[int, list[int]]:
    """The peers of each site, ascending: all, or in a large cohort the nearest in a ring of this order."""
    count = len(order)
    if count < SPARSE_FROM:
        return dict.fromkeys(order, sorted(order))
    steps = range(-(degree(count) // 2), degree(count) // 2 + 1)
    return {
        site: sorted({order[(place + step) % count] for step in steps}) for place, site in enumerate(order)
    }


def degree(count: int) -> int:
    """How many other peers each of so many sites needs, an even number: the fewest that withstand what they must.

    With them, the chance that any site has a quorum of colluding peers is below `UNSAFE`, and that any has fewer
    peers than a quorum left is below `FAILS`.
    """
    colluding, dropping = int(COLLUDING * count), int(DROPPING * count)
    for peers in range(2, count - 1, 2):
        needed = quorum(peers + 1)
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


def bound_to_round(session: Session, round_: int) -> bytes:
    """What all keys of a session are bound to: the same session in another round has other keys."""
    return session.nonce.tobytes() + round_.to_bytes(4, "big")


def signed_text(nonce: bytes, site: int, keys: bytes) -> bytes:
    """What a site signs: its keys, for one session."""
    return b"fedrel secure sum" + nonce + site.to_bytes(4, "big") + keys


def own_mask(seed: bytes) -> bytes:
    """The key of a site's own mask."""
    return derived(seed, b"own mask")


def pair_mask(own: X25519PrivateKey, peer: bytes, nonce: bytes) -> bytes:
    """The key of the mask that two sites agree on."""
    return agreed(own, peer, b"mask", nonce)


def sign(site: int, peer: int) -> int:
    """Whether a site adds the mask agreed with a peer (1) or takes it off (-1)."""
    return 1 if site < peer else -1
