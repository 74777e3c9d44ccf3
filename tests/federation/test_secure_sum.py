"""Secure sums: the sum of the survivors, whoever drops out when, and nothing else for a coordinator that lies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedrel.config.schema import PrivacySection
from fedrel.federation.messages import RefusedError
from fedrel.federation.secure_messages import MaskedNumbers, Peers, PeerShares, Session, Survivors
from fedrel.federation.secure_sum import (
    SPARSE_FROM,
    Cohort,
    Member,
    bound_to_round,
    degree,
    neighbours,
    quorum,
    signed_text,
)
from fedrel.federation.summands import decoded
from fedrel.privacy.fixed_point import FixedPoint
from fedrel.privacy.secret_keys import SimulatedSecrets, add_mask, combined, divided, signing_key
from fedrel.tensors.weights import NoAnswerError

SECRETS = SimulatedSecrets(7)
SESSION = Session(np.arange(16, dtype=np.uint8))
LENGTH = 50


@dataclass
class FakeSite:
    """A site as `Member` uses it."""

    number: int
    round: int = field(default=1, init=False)
    privacy: PrivacySection = field(default_factory=PrivacySection)
    noted: dict[str, str] = field(default_factory=dict)
    messages: list = field(default_factory=list)

    @property
    def secret(self) -> bytes:
        return SECRETS.of(self.number)

    def registered_key(self, site: int) -> bytes:
        return SECRETS.registered_key(site)

    def received(self, kind):
        return next(one for one in self.messages if isinstance(one, kind))

    def once(self, purpose: str, digest: str) -> None:
        if self.noted.setdefault(purpose, digest) != digest:
            raise RefusedError("was asked before")


class Trial:
    """A session between so many sites; sites in `lost[step]` do not answer from that step on."""

    def __init__(self, count: int, lost: dict[int, set[int]] | None = None, min_cohort: int = 3) -> None:
        privacy = PrivacySection.model_construct(min_cohort=min_cohort)
        self.sites = {number: FakeSite(number, privacy) for number in range(count)}
        self.lost = lost or {}
        generator = np.random.default_rng(3)
        self.numbers = {n: generator.integers(0, 2**32, LENGTH, dtype=np.uint32) for n in self.sites}
        keys = dict(self.asked(1, {n: [] for n in self.sites}, Member.public_keys))
        self.cohort = Cohort(SESSION, 1, keys, 10, sorted(keys))

    def asked(self, step, own, answer):
        gone = set().union(*(self.lost.get(earlier, set()) for earlier in range(1, step + 1)))
        for number, messages in own.items():
            if number not in gone:
                self.sites[number].messages = [SESSION, *messages]
                yield number, answer(Member(self.sites[number]))

    def share(self) -> None:
        peers = {number: [one] for number, one in self.cohort.peers().items()}
        self.cohort.shared(self.asked(2, peers, Member.shares))

    def mask(self) -> np.ndarray:
        peers, shares = self.cohort.to_mask()
        own = {number: [peers[number], shares[number]] for number in peers}
        answers = dict(self.asked(3, own, lambda member: member))
        self.masked = {n: member.masked(self.numbers[n].copy()) for n, member in answers.items()}
        return self.cohort.total(self.masked.items())

    def unmask(self, total: np.ndarray) -> np.ndarray:
        survivors, peers, shares = self.cohort.to_unmask()
        own = {number: [survivors[number], peers[number], shares[number]] for number in survivors}
        self.cohort.unmask(total, self.asked(4, own, Member.unmasking))
        return total

    def expected(self) -> np.ndarray:
        return sum((self.numbers[n] for n in self.masked), np.zeros(LENGTH, np.uint32))


def test_the_sum_is_the_sites_sum_and_single_numbers_are_masked():
    trial = Trial(5)
    trial.share()
    total = trial.unmask(trial.mask())
    np.testing.assert_array_equal(total, trial.expected())
    for number, answer in trial.masked.items():
        assert np.count_nonzero(answer.numbers == trial.numbers[number]) < 2


@pytest.mark.parametrize("step", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [3, 4, 7])
def test_a_site_may_drop_out_at_any_step(step, count):
    trial = Trial(count, {step: {1}}, min_cohort=2)
    trial.share()
    total = trial.unmask(trial.mask())
    assert (1 in trial.masked) == (step == 4)
    np.testing.assert_array_equal(total, trial.expected())


def test_too_few_survivors_end_the_round_and_reveal_nothing():
    trial = Trial(7, {4: {0, 1, 2}})
    trial.share()
    total = trial.mask()
    before = total.copy()
    with pytest.raises(NoAnswerError, match="4 sites helped to unmask the sum, and 5 are needed"):
        trial.unmask(total)
    np.testing.assert_array_equal(total, before)


def test_a_large_cohort_has_fewer_peers_and_the_same_sum():
    count = SPARSE_FROM
    assert degree(count) < count - 1
    trial = Trial(count, {3: {5}, 2: {17}})
    trial.share()
    total = trial.unmask(trial.mask())
    assert len(trial.masked) == count - 2
    np.testing.assert_array_equal(total, trial.expected())


def test_neighbours_are_mutual():
    around = neighbours(np.random.default_rng(0).permutation(400).tolist())
    assert {len(peers) for peers in around.values()} == {degree(400) + 1}
    assert all(site in around[peer] for site, peers in around.items() for peer in peers)


@pytest.mark.parametrize("peers", range(3, 40))
def test_a_quorum_of_both_kinds_needs_a_third_that_tell_both(peers):
    """Honest peers give one kind of share each, colluding ones both: 2 * quorum shares of peers + colluding."""
    colluding = next(c for c in range(peers + 1) if 2 * quorum(peers) <= peers + c)
    assert colluding >= peers / 3
    assert quorum(peers) <= peers - peers // 3  # a third may drop out


class TestALyingCoordinator:
    """What a site refuses, at each step."""

    def at(self, step: int, count: int = 4) -> tuple[Trial, int, list]:
        """A trial, and the messages for site 0 in a step."""
        trial = Trial(count)
        trial.share()
        if step == 2:
            return trial, 0, [trial.cohort.peers()[0]]
        peers, shares = trial.cohort.to_mask()
        if step == 3:
            return trial, 0, [peers[0], shares[0]]
        trial.mask()
        return trial, 0, [one[0] for one in trial.cohort.to_unmask()]

    def member(self, trial: Trial, messages: list) -> Member:
        trial.sites[0].messages = [SESSION, *messages]
        return Member(trial.sites[0])

    def test_a_cohort_of_too_few(self):
        trial, _, (peers,) = self.at(2)
        few = Peers(peers.site[:2], peers.keys[:2], peers.signature[:2], 4, 10)
        with pytest.raises(RefusedError, match="a cohort of 2 sites, and at least 3 are demanded"):
            self.member(trial, [few]).shares()

    def test_keys_of_its_own_making(self):
        trial, _, (peers,) = self.at(2)
        keys = peers.keys.copy()
        keys[2] = trial.cohort.peers()[0].keys[1]
        with pytest.raises(RefusedError, match=r"not signed with its registered key \(site 2\)"):
            self.member(trial, [replace(peers, keys=keys)]).shares()

    def test_keys_of_another_session(self):
        trial, _, (peers,) = self.at(2)
        trial.sites[0].messages = [Session(np.zeros(16, np.uint8)), peers]
        with pytest.raises(RefusedError, match="missing among the peers, or has other keys"):
            Member(trial.sites[0]).shares()

    def test_a_peer_twice(self):
        _, _, (peers,) = self.at(2)
        twice = [0, 1, 1, 3]
        with pytest.raises(RefusedError, match="each once"):
            Peers(peers.site[twice], peers.keys[twice], peers.signature[twice], 4, 10)

    def test_changed_shares(self):
        trial, _, (peers, shares) = self.at(3)
        changed = shares.sealed.copy()
        changed[1, 3] ^= 1
        with pytest.raises(RefusedError, match="changed on the way"):
            self.member(trial, [peers, PeerShares(changed)]).masked(np.zeros(LENGTH, np.uint32))

    def test_two_answers_under_the_same_masks(self):
        trial, _, messages = self.at(3)
        first = self.member(trial, messages).masked(np.ones(LENGTH, np.uint32))
        again = self.member(trial, messages).masked(np.ones(LENGTH, np.uint32))
        np.testing.assert_array_equal(
            first.numbers, again.numbers
        )  # a coordinator that crashed may ask again
        fewer = [
            Peers(messages[0].site[:3], messages[0].keys[:3], messages[0].signature[:3], 4, 10),
            PeerShares(messages[1].sealed[:3]),
        ]
        with pytest.raises(RefusedError, match="was asked before"):
            self.member(trial, fewer).masked(np.ones(LENGTH, np.uint32))

    def test_both_kinds_of_share_of_a_peer(self):
        trial, _, (survivors, *rest) = self.at(4)
        both = Survivors(survivors.answered, survivors.answered[1:2])
        with pytest.raises(RefusedError, match="two shares of one peer"):
            self.member(trial, [both, *rest]).unmasking()

    def test_one_kind_after_the_other(self):
        trial, _, (survivors, *rest) = self.at(4, count=5)
        self.member(trial, [survivors, *rest]).unmasking()
        other = Survivors(survivors.answered[:4], survivors.answered[4:])
        with pytest.raises(RefusedError, match="was asked before"):
            self.member(trial, [other, *rest]).unmasking()

    def test_a_sum_over_too_few(self):
        trial, _, (survivors, *rest) = self.at(4)
        few = Survivors(survivors.answered[:2], survivors.answered[2:])
        with pytest.raises(RefusedError, match="a sum over 2 sites"):
            self.member(trial, [few, *rest]).unmasking()

    def test_a_site_that_is_said_to_have_dropped_out(self):
        trial, _, (survivors, *rest) = self.at(4, count=5)
        without = Survivors(survivors.answered[1:], survivors.answered[:1])
        with pytest.raises(RefusedError, match="says that this site dropped out"):
            self.member(trial, [without, *rest]).unmasking()

    def test_a_peer_that_is_not_mentioned(self):
        trial, _, (survivors, *rest) = self.at(4, count=5)
        with pytest.raises(RefusedError, match="other peers than those"):
            self.member(trial, [Survivors(survivors.answered[:4], survivors.dropped), *rest]).unmasking()


def test_a_mask_is_the_stream_of_aes_in_counter_mode():
    key = bytes(range(32))
    total = np.zeros(200_000, np.uint32)
    add_mask(total, key, 1)
    blocks = b"".join(number.to_bytes(16, "big") for number in range(len(total) // 4))
    expected = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)
    np.testing.assert_array_equal(total, np.frombuffer(expected, "<u4"))
    add_mask(total, key, -1)
    assert not total.any()


def test_fewer_shares_than_the_threshold_say_nothing_of_the_secret():
    secret = bytes(range(16))
    shares = dict(enumerate(divided(secret, 3, 5), start=1))
    assert combined({number: shares[number] for number in (2, 4, 5)}) == secret
    assert combined({number: shares[number] for number in (2, 4)}) != secret


def test_messages_survive_packing():
    trial = Trial(4)
    trial.share()
    trial.mask()
    survivors, peers, shares = trial.cohort.to_unmask()
    for message in (survivors[0], peers[0], shares[0], trial.masked[0], SESSION):
        again = type(message).unpack(message.pack(), {})
        for name, array in message.pack().items():
            np.testing.assert_array_equal(array, again.pack()[name])


def test_the_same_session_in_another_round_has_other_masks():
    one, other = FakeSite(0), FakeSite(0)
    one.messages = other.messages = [SESSION]
    other.round = 2
    assert not np.array_equal(Member(one).public_keys().keys, Member(other).public_keys().keys)


def test_other_shares_of_the_same_secrets_are_refused():
    trial = Trial(6)
    trial.share()
    peers = trial.cohort.peers()[0]
    fewer = Peers(peers.site[:4], peers.keys[:4], peers.signature[:4], 6, 10)
    trial.sites[0].messages = [SESSION, fewer]
    with pytest.raises(RefusedError, match="was asked before"):
        Member(trial.sites[0]).shares()


def test_a_key_of_low_order_is_refused():
    trial = Trial(4)
    peers = trial.cohort.peers()[0]
    keys, signature = peers.keys.copy(), peers.signature.copy()
    keys[2] = 0  # the site signs it itself
    text = signed_text(bound_to_round(SESSION, 1), 2, keys[2].tobytes())
    signature[2] = np.frombuffer(signing_key(SECRETS.of(2)).sign(text), np.uint8)
    trial.sites[0].messages = [SESSION, replace(peers, keys=keys, signature=signature)]
    with pytest.raises(RefusedError, match=r"a public key is not one \(site 2\)"):
        Member(trial.sites[0]).shares()


def test_an_answer_of_another_length_is_left_out():
    trial = Trial(5)
    trial.share()
    trial.mask()
    trial.cohort._masked.clear()
    cut = {n: MaskedNumbers(one.numbers[:1]) if n == 3 else one for n, one in trial.masked.items()}
    total = trial.cohort.total(cut.items())
    assert trial.cohort.answered == [0, 1, 2, 4]
    del trial.masked[3]
    np.testing.assert_array_equal(trial.unmask(total), trial.expected())


@pytest.mark.parametrize(("weight", "sites"), [(0, 3), (2, 3), (31, 3)])
def test_weights_that_cannot_be_true_end_the_round(weight, sites):
    total = np.array([5, 6, weight, 9, 0], np.uint32)
    with pytest.raises(NoAnswerError, match="a site lied"):
        decoded(total, FixedPoint(4.0, sites), 10, sites)


def test_without_an_answer_there_is_no_mean():
    with pytest.raises(NoAnswerError):
        decoded(np.zeros(0, np.uint32), FixedPoint(4.0, 3), 10, 0)
