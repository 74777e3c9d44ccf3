"""Secure sums, the site's half: it sends masked numbers, and helps to uncover one sum of them a round.

Bonawitz et al. 2017, Practical Secure Aggregation for Privacy-Preserving Machine Learning (Figure 4, with signed
keys and the consistency check against active adversaries). Every two peers agree on a mask that the one adds and
the other takes off, so that masks vanish in the sum. A site also adds a mask of its own. The seeds of both are
divided into shares among its peers and itself: if it drops out, a quorum uncovers the agreed masks, which nobody
took off; if it answers, its own mask. Never both: a site gives one kind of share for a peer, and only after a
quorum of its peers has signed the same lists of who takes part and who answered. A site counts as its own peer.

The coordinator's half is `secure_cohort.Cohort`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrel.federation.messages import CohortError, PeerError, RefusedError
from fedrel.federation.secure_messages import (
    MaskedNumbers,
    Peers,
    PeerShares,
    PeerSignatures,
    PublicKeys,
    SealedShares,
    Session,
    SignedLists,
    Survivors,
    Unmasking,
    numbers,
)
from fedrel.privacy.secret_keys import (
    KEY,
    SEALED,
    SECRET,
    Ring,
    SessionKeys,
    TamperedError,
    add_mask,
    agreed,
    derived,
    divided,
    framed,
    opened,
    peers_of,
    quorum,
    ring,
    rows,
    sealed,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from fedrel.federation.site import Site


class Member:
    """A site in one session. Between requests it keeps the session's secret, and notes of what it has answered."""

    def __init__(self, site: Site) -> None:
        self._site, self._sums = site, site.sums
        self._session = session_name(self._sums.run, site.round, site.received(Session))

    def public_keys(self) -> PublicKeys:
        """Step 1: keys for this session, signed."""
        public = SessionKeys.of(self._sums.secret(self._session, new=True)).public
        signature = self._sums.sign(signed_keys(self._session, self._site.number, public))
        return PublicKeys(*(np.frombuffer(part, np.uint8) for part in (public, signature)))

    def shares(self) -> SealedShares:
        """Step 2: each peer's shares of the two secrets, encrypted for it, once its signed keys are checked."""
        peers = self._peers
        self._check_peers()
        self._once("shares", self._told)
        divide = [
            divided(seed, self._quorum, len(peers)) for seed in (self._keys.mask_seed, self._keys.own_seed)
        ]
        boxes = [
            sealed(self._share_key(peer, outgoing=True), b"".join(parts))
            for peer, parts in zip(peers, zip(*divide, strict=True), strict=True)
        ]
        return SealedShares(rows(boxes, SEALED))

    def check_shares(self) -> None:
        """Before step 3: refuse shares that cannot be read; a peer that dropped out could not be replaced."""
        _ = self._shares

    def masked(self, values: Ring) -> MaskedNumbers:
        """Step 3: the numbers with the mask agreed with each peer that sent shares, and the site's own.

        Different numbers under the same masks would tell their difference: a session has one such answer.
        """
        self.check_shares()
        self._once("numbers", f"{hashlib.sha256(values.data).hexdigest()} {_hash(self._shared)}")
        add_mask(values, own_mask(self._keys.own_seed), 1)
        for peer in self._alive:
            if peer != self._site.number:
                mask = pair_mask(self._keys.mask_key, self._peers[peer][:KEY], self._session)
                add_mask(values, mask, sign(self._site.number, peer))
        return MaskedNumbers(values)

    def signed_lists(self) -> SignedLists:
        """Step 4: the site's signature of who takes part, who gave shares and who answered."""
        text = self._lists.text
        self._once("signature", hashlib.sha256(text).hexdigest())
        return SignedLists(np.frombuffer(self._sums.sign(text), np.uint8))

    def unmasking(self) -> Unmasking:
        """Step 5: one share of each peer, if a quorum of peers has signed the same lists.

        Sums over two cohorts would tell their difference: a round has one.
        """
        lists, given = self._lists, self._site.received(PeerSignatures)
        if self._noted("signature") != hashlib.sha256(lists.text).hexdigest():
            raise RefusedError("names other sites than in the lists that this site has signed")
        signers = given.site.tolist()
        if strange := sorted(set(signers) - set(self._alive).intersection(lists.answered)):
            raise PeerError(f"site {strange[0]} signed, and is no peer that answered", strange[0])
        for peer, signature in zip(signers, given.signature, strict=True):
            problem = f"site {peer} was told other lists by the coordinator, or signed none"
            self._sums.check(peer, bytes(signature), lists.text, problem)
        if len(signers) < self._quorum:
            raise RefusedError(f"{len(signers)} peers signed the same lists, and {self._quorum} must")
        own, _, _ = (self._noted("numbers") or "").partition(" ")
        self._sums.once("sum", _hash([own, lists.cohort, lists.bound, lists.answered]))
        kinds = {True: slice(SECRET, None), False: slice(SECRET)}  # of its own mask, or of those it agreed on
        given_shares = [share[kinds[peer in lists.answered]] for peer, share in self._shares.items()]
        return Unmasking(rows(given_shares, SECRET))

    # What the requests say, checked.

    @cached_property
    def _keys(self) -> SessionKeys:
        return SessionKeys.of(self._sums.secret(self._session))

    @cached_property
    def _peers(self) -> dict[int, bytes]:
        """The peers' public keys by their numbers, ascending: those of the ring, and this site among them."""
        told = self._site.received(Peers)
        found = dict(zip(told.site.tolist(), map(bytes, told.keys), strict=True))
        cohort = told.cohort.tolist()
        if self._site.number not in cohort or found.get(self._site.number) != self._keys.public:
            raise RefusedError("the site itself is missing among the peers, or has other keys there")
        self._demand(len(cohort), "a cohort of")
        if list(found) != peers_of(self._site.number, ring(self._session, cohort), self._sums.threshold):
            raise RefusedError("names other peers than the cohort and the session give")
        return found

    @property
    def _quorum(self) -> int:
        return quorum(len(self._peers), self._sums.threshold)

    def _check_peers(self) -> None:
        """Refuse keys that a peer has not signed, or that are none."""
        for (peer, keys), signature in zip(
            self._peers.items(), self._site.received(Peers).signature, strict=True
        ):
            text, problem = signed_keys(self._session, peer, keys), f"the keys of site {peer} are not its own"
            self._sums.check(peer, bytes(signature), text, problem)
            try:
                for key in (keys[:KEY], keys[KEY:]):  # one of low order fails here
                    agreed(self._keys.mask_key, key, b"check")
            except TamperedError as error:
                raise PeerError(f"the keys of site {peer}: {error}", peer) from error

    @cached_property
    def _told(self) -> str:
        """A digest of the cohort, the peers and their keys; signatures may be made anew."""
        told = self._site.received(Peers)
        return _hash([told.cohort.tolist(), told.bound, told.site.tolist(), told.keys.tobytes().hex()])

    @cached_property
    def _shared(self) -> list[int]:
        """All sites of the cohort that gave shares; the site's own peers are those that it checked in step 2."""
        if self._noted("shares") != self._told:
            raise RefusedError("names other peers, or other keys, than those that this site made shares for")
        shared: list[int] = self._site.received(PeerShares).shared.tolist()
        if not set(shared) <= set(self._site.received(Peers).cohort.tolist()):
            raise RefusedError("names sites that gave shares and are not in the cohort")
        if self._site.number not in shared:
            raise RefusedError("says that this site gave no shares")
        self._demand(len(shared), "shares of")
        return shared

    @cached_property
    def _alive(self) -> list[int]:
        """The peers that exchanged shares with this site."""
        alive = [peer for peer in self._peers if peer in set(self._shared)]
        if len(alive) < self._quorum:
            raise RefusedError(f"shares of {len(alive)} peers, and at least {self._quorum} are needed")
        return alive

    @cached_property
    def _lists(self) -> Lists:
        """Who takes part and who answered, as this site was told: what it signs."""
        told = self._site.received(Peers)
        answered: list[int] = self._site.received(Survivors).answered.tolist()
        shared = self._shared
        if (self._noted("numbers") or "").partition(" ")[2] != _hash(shared):
            raise RefusedError("says that other sites gave shares than when this site sent its numbers")
        if not set(answered) <= set(shared):
            raise RefusedError("names sites that answered and gave no shares")
        if self._site.number not in answered:
            raise RefusedError("says that this site dropped out")
        self._demand(len(answered), "a sum over")
        if len(left := set(answered).intersection(self._alive)) < self._quorum:
            raise RefusedError(f"a sum with {len(left)} peers, and at least {self._quorum} are needed")
        cohort: list[int] = told.cohort.tolist()
        needed = quorum(len(cohort), self._sums.threshold)  # in a large cohort its peers are not all
        if len(answered) < needed:
            raise RefusedError(f"a sum over {len(answered)} of {len(cohort)} sites, and {needed} must answer")
        return Lists(self._session, cohort, told.bound, shared, answered)

    def _demand(self, sites: int, what: str) -> None:
        least = self._sums.min_cohort
        if sites < least:
            raise CohortError(f"{what} {sites} sites, and at least {least} are demanded", least)

    @cached_property
    def _shares(self) -> dict[int, bytes]:
        """By peer, its shares for this site: of the seed of its agreed masks, then of its own mask."""
        boxes = self._site.received(PeerShares).sealed
        if len(boxes) != len(self._alive):
            raise RefusedError(f"shares of {len(boxes)} peers, expected {len(self._alive)}")
        found = {}
        for peer, box in zip(self._alive, boxes, strict=True):
            try:
                found[peer] = opened(self._share_key(peer, outgoing=False), bytes(box))
            except TamperedError as error:
                raise PeerError(
                    f"the shares of site {peer} were changed, or made for another list", peer
                ) from error
        return found

    def _share_key(self, peer: int, *, outgoing: bool) -> bytes:
        """The key for shares from this site to a peer, or the other way, if both know the same cohort and keys."""
        own, told = self._site.number, self._site.received(Peers)
        sender, receiver = (own, peer) if outgoing else (peer, own)
        context = _hash([told.cohort.tolist(), told.bound, sender, receiver]).encode()
        keys = self._peers[sender], self._peers[receiver]
        return agreed(self._keys.share_key, self._peers[peer][KEY:], b"shares", self._session, context, *keys)

    # What the site has answered under the masks of these keys.

    def _once(self, purpose: str, answer: str) -> None:
        self._sums.once(self._under_keys(purpose), answer)

    def _noted(self, purpose: str) -> str | None:
        return self._sums.noted(self._under_keys(purpose))

    def _under_keys(self, purpose: str) -> str:
        return f"{purpose} {hashlib.sha256(self._keys.public).hexdigest()[:32]}"


@dataclass(frozen=True)
class Lists:
    """What all sites of a session must have been told alike before masks are taken off."""

    session: bytes
    cohort: list[int]
    bound: int
    shared: list[int]
    answered: list[int]

    @property
    def text(self) -> bytes:
        """What a site signs."""
        lists = (numbers(one).tobytes() for one in (self.cohort, self.shared, self.answered))
        return framed(b"fedrel secure sum lists", self.session, self.bound.to_bytes(8, "big"), *lists)


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def session_name(run: str, round_: int, session: Session) -> bytes:
    """What all keys, shares and signatures of a session are bound to: its run, its round and its nonce."""
    parts = framed(b"fedrel secure sum", run.encode(), round_.to_bytes(4, "big"), session.nonce.tobytes())
    return hashlib.sha256(parts).digest()


def signed_keys(session: bytes, site: int, keys: bytes) -> bytes:
    """What a site signs in step 1."""
    return framed(b"fedrel secure sum keys", session, site.to_bytes(4, "big"), keys)


def own_mask(seed: bytes) -> bytes:
    """The key of a site's own mask."""
    return derived(seed, b"own mask")


def pair_mask(own: X25519PrivateKey, peer: bytes, session: bytes) -> bytes:
    """The key of the mask that two sites agree on."""
    return agreed(own, peer, b"mask", session)


def sign(site: int, peer: int) -> int:
    """Whether a site adds the mask agreed with a peer (1) or takes it off (-1)."""
    return 1 if site < peer else -1
