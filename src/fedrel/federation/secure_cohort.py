"""Secure sums, the coordinator's half: who is whose peer, how far each site has come, and taking masks off the sum.

The site's half, and where the protocol comes from, is `secure_sum.Member`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from fedrel.federation.secure_messages import (
    MaskedNumbers,
    Peers,
    PeerShares,
    PeerSignatures,
    PublicKeys,
    SealedShares,
    SignedLists,
    Survivors,
    Unmasking,
    numbers,
)
from fedrel.federation.secure_sum import Lists, own_mask, pair_mask, sign
from fedrel.privacy.secret_keys import (
    KEY,
    TWO_THIRDS,
    Bytes,
    Ring,
    add_mask,
    combined,
    neighbours,
    private_key,
    quorum,
    ring,
)
from fedrel.tensors.weights import NoAnswerError


class Cohort:
    """The sites of one session, as the coordinator sees them; `keys` are those whose signature it has checked."""

    def __init__(
        self, session: bytes, keys: Mapping[int, PublicKeys], bound: int, threshold: float | None = None
    ) -> None:
        self._session, self._keys, self._bound = session, keys, bound
        self._threshold = threshold or TWO_THIRDS
        self._neighbours = neighbours(ring(session, sorted(keys)), self._threshold)
        self._boxes: dict[int, dict[int, Bytes]] = {}  # by sender and receiver
        self._masked: set[int] = set()
        self._signed: dict[int, SignedLists] = {}

    def peers(self) -> dict[int, Peers]:
        """For step 2: each site's peers."""
        return {site: self._peers(site) for site in self._keys}

    def shared(self, answers: Iterable[tuple[int, SealedShares]]) -> None:
        """Take in the answers of step 2."""
        for site, answer in answers:
            if len(answer.sealed) == len(self._neighbours[site]):
                self._boxes[site] = dict(zip(self._neighbours[site], answer.sealed, strict=True))

    def to_mask(self) -> tuple[dict[int, Peers], dict[int, PeerShares]]:
        """For step 3: of each site that gave shares, its peers, and the shares of those that gave some too."""
        return self._told(self._boxes)

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

    @property
    def lists(self) -> Lists:
        """What every site is told, and signs in step 4."""
        return Lists(self._session, sorted(self._keys), self._bound, sorted(self._boxes), self.answered)

    def to_sign(self) -> tuple[dict[int, Peers], dict[int, PeerShares], dict[int, Survivors]]:
        """For step 4: the lists."""
        survivors = Survivors(numbers(self._masked))
        return *self._told(self._masked), dict.fromkeys(self.answered, survivors)

    def signed(self, answers: Iterable[tuple[int, SignedLists]]) -> None:
        """Take in the answers of step 4, whose signatures have been checked."""
        self._signed = dict(answers)

    def to_unmask(
        self,
    ) -> tuple[dict[int, Peers], dict[int, PeerShares], dict[int, Survivors], dict[int, PeerSignatures]]:
        """For step 5: the lists again, and the peers' signatures; `NoAnswerError` if too few signed."""
        signatures = {}
        for site in self._signed:
            peers = {peer: self._signed[peer] for peer in self._neighbours[site] if peer in self._signed}
            self._demand(site, len(peers), "signed the lists of who takes part")
            signatures[site] = PeerSignatures.of(peers)
        peers_of, shares, survivors = self.to_sign()
        return peers_of, shares, survivors, signatures

    def unmask(self, total: Ring, answers: Iterable[tuple[int, Unmasking]]) -> None:
        """Take the rest of the masks off the sum; `NoAnswerError` if too few shares came to uncover one."""
        shares: dict[int, dict[int, bytes]] = {site: {} for site in self._boxes}  # by owner and number
        for site, answer in answers:
            alive = self._alive(site)
            if len(answer.shares) == len(alive):
                for owner, share in zip(alive, answer.shares, strict=True):
                    shares[owner][1 + self._neighbours[owner].index(site)] = bytes(share)
        for owner, found in shares.items():
            self._demand(owner, len(found), "helped to unmask the sum")
        for owner, found in shares.items():
            needed = quorum(len(self._neighbours[owner]), self._threshold)
            seed = combined(dict(sorted(found.items())[:needed]))
            if owner in self._masked:
                add_mask(total, own_mask(seed), -1)
            else:
                own = private_key(seed)
                if own.public_key().public_bytes_raw() != self._keys[owner].keys[:KEY].tobytes():
                    raise NoAnswerError("shares of a site that dropped out do not fit its key: a site lied")
                for peer in self._masked.intersection(self._alive(owner)):
                    key = self._keys[peer].keys[:KEY].tobytes()
                    add_mask(total, pair_mask(own, key, self._session), -sign(peer, owner))

    def _demand(self, site: int, count: int, did: str) -> None:
        needed = quorum(len(self._neighbours[site]), self._threshold)
        if count < needed:
            raise NoAnswerError(f"{count} sites {did}, and {needed} are needed; nothing was uncovered")

    def _told(self, sites: Iterable[int]) -> tuple[dict[int, Peers], dict[int, PeerShares]]:
        """What each of some sites is told again in every step after the second: its peers, and their shares."""
        shared = numbers(self._boxes)
        peers, shares = {}, {}
        for site in sorted(sites):
            boxes = [self._boxes[peer][site] for peer in self._alive(site)]
            peers[site], shares[site] = self._peers(site), PeerShares(np.stack(boxes), shared)
        return peers, shares

    def _peers(self, site: int) -> Peers:
        return Peers.of({peer: self._keys[peer] for peer in self._neighbours[site]}, self._keys, self._bound)

    def _alive(self, site: int) -> list[int]:
        """The peers of a site with which it has exchanged shares."""
        return [peer for peer in self._neighbours[site] if peer in self._boxes]
