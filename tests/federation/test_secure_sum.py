"""Secure sums: the sum of the survivors, whoever drops out when, and nothing else for a coordinator that lies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from fedrel.config.config_sections import PrivacySection
from fedrel.federation.messages import CohortError, PeerError, RefusedError
from fedrel.federation.secure_cohort import Cohort
from fedrel.federation.secure_messages import (
    MaskedNumbers,
    Peers,
    PeerShares,
    PeerSignatures,
    Session,
    Survivors,
    numbers,
)
from fedrel.federation.secure_sum import Lists, Member, session_name, signed_keys
from fedrel.federation.site_memory import SumNotes
from fedrel.federation.site_sums import SiteSums
from fedrel.federation.summands import FixedPoint, decoded
from fedrel.privacy import secret_keys
from fedrel.privacy.secret_keys import (
    SimulatedSecrets,
    add_mask,
    combined,
    degree,
    divided,
    neighbours,
    peers_of,
    quorum,
    ring,
)
from fedrel.tensors.weights import NoAnswerError

SECRETS = SimulatedSecrets(7, run="a run")
SESSION = Session(np.arange(16, dtype=np.uint8))
NAME = session_name("a run", 1, SESSION)
LENGTH = 50
BOUND = 10


@dataclass
class FakeSite:
    """A site as `Member` uses it."""

    number: int
    notes: SumNotes
    min_cohort: int = 3
    round: int = 1
    secrets: SimulatedSecrets = SECRETS
    messages: list = field(default_factory=list)

    @property
    def sums(self) -> SiteSums:
        privacy = PrivacySection.model_construct(min_cohort=self.min_cohort)
        model = SimpleNamespace(rules=None, privacy=privacy, secrets=self.secrets, notes=self.notes, seed=7)
        return SiteSums(model, self.number, self.round)  # type: ignore[arg-type]

    def received(self, kind):
        return next(one for one in self.messages if isinstance(one, kind))


class Trial:
    """A session between so many sites; sites in `lost[step]` do not answer from that step on."""

    def __init__(
        self, folder, count: int, lost: dict[int, set[int]] | None = None, min_cohort: int = 3
    ) -> None:
        self.sites = {number: FakeSite(number, SumNotes(folder), min_cohort) for number in range(count)}
        self.lost = lost or {}
        generator = np.random.default_rng(3)
        self.numbers = {n: generator.integers(0, 2**32, LENGTH, dtype=np.uint32) for n in self.sites}
        keys = dict(self.asked(1, {n: [] for n in self.sites}, Member.public_keys))
        self.cohort = Cohort(NAME, keys, BOUND)

    def asked(self, step, own, answer):
        gone = set().union(*(self.lost.get(earlier, set()) for earlier in range(1, step + 1)))
        for number, messages in own.items():
            if number not in gone:
                yield number, answer(self.member(number, *messages))

    def member(self, number: int, *messages) -> Member:
        self.sites[number].messages = [SESSION, *messages]
        return Member(self.sites[number])

    def share(self) -> None:
        peers = {number: [one] for number, one in self.cohort.peers().items()}
        self.cohort.shared(self.asked(2, peers, Member.shares))

    def mask(self) -> np.ndarray:
        peers, shares = self.cohort.to_mask()
        own = {number: [peers[number], shares[number]] for number in peers}
        gone = set().union(*(self.lost.get(earlier, set()) for earlier in (1, 2, 3)))
        self.masked = {
            number: self.member(number, *messages).masked(self.numbers[number].copy())
            for number, messages in own.items()
            if number not in gone
        }
        return self.cohort.total(self.masked.items())

    def sign(self) -> None:
        self.cohort.signed(self.asked(4, by_site(self.cohort.to_sign()), Member.signed_lists))

    def unmask(self, total: np.ndarray) -> np.ndarray:
        self.cohort.unmask(total, self.asked(5, by_site(self.cohort.to_unmask()), Member.unmasking))
        return total

    def run(self) -> np.ndarray:
        self.share()
        total = self.mask()
        self.sign()
        return self.unmask(total)

    def expected(self) -> np.ndarray:
        return sum((self.numbers[n] for n in self.masked), np.zeros(LENGTH, np.uint32))


def by_site(told) -> dict[int, list]:
    """What each site is told, of those that are told all of it."""
    return {site: [one[site] for one in told] for site in told[-1]}


def test_the_sum_is_the_sites_sum_and_single_numbers_are_masked(tmp_path):
    trial = Trial(tmp_path, 5)
    np.testing.assert_array_equal(trial.run(), trial.expected())
    for number, answer in trial.masked.items():
        assert np.count_nonzero(answer.numbers == trial.numbers[number]) < 2


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("count", [3, 4, 7])
def test_a_site_may_drop_out_at_any_step(step, count, tmp_path):
    trial = Trial(tmp_path, count, {step: {1}}, min_cohort=2)
    total = trial.run()
    assert (1 in trial.masked) == (step > 3)
    np.testing.assert_array_equal(total, trial.expected())


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (4, "4 sites signed the lists of who takes part, and 5 are needed"),
        (5, "4 sites helped to unmask the sum, and 5 are needed"),
    ],
)
def test_too_few_survivors_end_the_round_and_reveal_nothing(step, reason, tmp_path):
    trial = Trial(tmp_path, 7, {step: {0, 1, 2}})
    trial.share()
    total = trial.mask()
    before = total.copy()
    trial.sign()
    with pytest.raises(NoAnswerError, match=reason):
        trial.unmask(total)
    np.testing.assert_array_equal(total, before)


@pytest.fixture
def count(monkeypatch) -> int:
    """How many sites make a large cohort: fewer here, for each has keys and shares to compute."""
    monkeypatch.setattr(secret_keys, "SPARSE_FROM", 40)
    return 40


def test_a_large_cohort_has_fewer_peers_and_the_same_sum(count, tmp_path):
    assert degree(count) < count - 1
    trial = Trial(tmp_path, count, {3: {5}, 2: {17}})
    total = trial.run()
    assert len(trial.masked) == count - 2
    np.testing.assert_array_equal(total, trial.expected())


def test_a_sum_over_fewer_than_two_thirds_of_a_large_cohort_is_refused(count, tmp_path):
    """Noise in shares counts on two thirds of the cohort; a site's peers may all be among few that answered."""
    trial = Trial(tmp_path, count)
    trial.share()
    peers, boxes = trial.cohort.to_mask()
    trial.member(0, peers[0], boxes[0]).masked(trial.numbers[0])
    few = Survivors(peers[0].site)
    said = f"a sum over {len(few.answered)} of 40 sites, and 27 must answer"
    with pytest.raises(RefusedError, match=said):
        trial.member(0, peers[0], boxes[0], few).signed_lists()


def test_neighbours_are_mutual():
    order = ring(NAME, range(400))
    around = neighbours(order)
    assert {len(peers) for peers in around.values()} == {degree(400) + 1}
    assert all(site in around[peer] for site, peers in around.items() for peer in peers)
    assert all(peers_of(site, order) == peers for site, peers in around.items())
    assert ring(NAME[::-1], range(400)) != order == ring(NAME, range(399, -1, -1))


@pytest.mark.parametrize("peers", range(3, 40))
def test_a_quorum_of_both_kinds_needs_a_third_that_tell_both(peers):
    """Honest peers give one kind of share each, colluding ones both: 2 * quorum shares of peers + colluding."""
    colluding = next(c for c in range(peers + 1) if 2 * quorum(peers) <= peers + c)
    assert colluding >= peers / 3
    assert quorum(peers) == -(-2 * peers // 3)  # a third may drop out
    assert quorum(peers, 1.0) == peers


class TestALyingCoordinator:
    """What a site refuses, at each step, and whom it names."""

    @pytest.fixture
    def at(self, tmp_path):
        """A trial before a step, and the messages for site 0 in it."""

        def at(step: int, count: int = 4) -> tuple[Trial, list]:
            trial = Trial(tmp_path, count)
            if step == 2:
                return trial, [trial.cohort.peers()[0]]
            trial.share()
            if step == 3:
                return trial, [one[0] for one in trial.cohort.to_mask()]
            trial.mask()
            if step == 4:
                return trial, [one[0] for one in trial.cohort.to_sign()]
            trial.sign()
            return trial, [one[0] for one in trial.cohort.to_unmask()]

        return at

    def test_a_cohort_of_too_few(self, at):
        trial, (peers,) = at(2)
        few = Peers(peers.site[:2], peers.keys[:2], peers.signature[:2], numbers([0, 1]), BOUND)
        with pytest.raises(CohortError, match="a cohort of 2 sites, and at least 3 are demanded") as refused:
            trial.member(0, few).shares()
        assert refused.value.number == 3

    def test_fewer_peers_than_the_cohort_gives(self, at):
        trial, (peers,) = at(2)
        few = Peers(peers.site[:3], peers.keys[:3], peers.signature[:3], peers.cohort, BOUND)
        with pytest.raises(RefusedError, match="other peers than the cohort and the session give"):
            trial.member(0, few).shares()

    def test_keys_of_its_own_making(self, at):
        trial, (peers,) = at(2)
        keys = peers.keys.copy()
        keys[2] = peers.keys[1]
        with pytest.raises(PeerError, match="the keys of site 2 are not its own: not signed") as refused:
            trial.member(0, replace(peers, keys=keys)).shares()
        assert refused.value.number == 2

    def test_a_signature_of_another_site(self, at):
        trial, (peers,) = at(2)
        signature = peers.signature.copy()
        signature[[1, 2]] = signature[[2, 1]]
        with pytest.raises(PeerError, match="the keys of site 1"):
            trial.member(0, replace(peers, signature=signature)).shares()

    @pytest.mark.parametrize(("round_", "run"), [(2, "a run"), (1, "another run")])
    def test_signed_keys_of_another_round_or_run(self, round_, run, at):
        """The same session, replayed: this site has other keys in it, and so has everybody else."""
        trial, (peers,) = at(2)
        trial.sites[0].round, trial.sites[0].secrets = round_, SimulatedSecrets(7, run)
        with pytest.raises(RefusedError, match="missing among the peers, or has other keys"):
            trial.member(0, peers).shares()
        own = trial.member(0).public_keys()
        keys, signature = peers.keys.copy(), peers.signature.copy()
        keys[0], signature[0] = own.keys, own.signature
        with pytest.raises(PeerError, match="the keys of site 1 are not its own"):
            trial.member(0, replace(peers, keys=keys, signature=signature)).shares()

    def test_keys_of_another_session(self, at):
        trial, (peers,) = at(2)
        trial.sites[0].messages = [Session(np.zeros(16, np.uint8)), peers]
        with pytest.raises(RefusedError, match="missing among the peers, or has other keys"):
            Member(trial.sites[0]).shares()

    def test_a_peer_twice(self, at):
        _, (peers,) = at(2)
        twice = [0, 1, 1, 3]
        with pytest.raises(RefusedError, match="each once"):
            Peers(peers.site[twice], peers.keys[twice], peers.signature[twice], peers.cohort, BOUND)

    def test_a_key_of_low_order(self, at):
        trial, (peers,) = at(2)
        keys, signature = peers.keys.copy(), peers.signature.copy()
        keys[2] = 0  # the site signs it itself
        text = signed_keys(NAME, 2, keys[2].tobytes())
        signature[2] = np.frombuffer(SECRETS.sign(2, text), np.uint8)
        with pytest.raises(PeerError, match="the keys of site 2: a public key is not one"):
            trial.member(0, replace(peers, keys=keys, signature=signature)).shares()

    def test_other_shares_of_the_same_secrets(self, at):
        trial, (peers,) = at(2, count=6)
        trial.member(0, peers).shares()
        fewer = Peers(peers.site[:4], peers.keys[:4], peers.signature[:4], peers.cohort[:4], BOUND)
        with pytest.raises(RefusedError, match="another request for its shares"):
            trial.member(0, fewer).shares()

    def test_changed_shares(self, at):
        trial, (peers, shares) = at(3)
        changed = shares.sealed.copy()
        changed[1, 3] ^= 1
        with pytest.raises(PeerError, match="the shares of site 1 were changed") as refused:
            trial.member(0, peers, replace(shares, sealed=changed)).check_shares()
        assert refused.value.number == 1

    def test_shares_that_were_made_for_another_cohort(self, tmp_path):
        """Sites that were told different lists of the cohort cannot read each other's shares."""
        trial = Trial(tmp_path, 5)
        others = Cohort(NAME, {n: k for n, k in trial.cohort._keys.items() if n != 4}, BOUND)
        boxes = {
            number: trial.member(number, (others if number == 1 else trial.cohort).peers()[number]).shares()
            for number in range(5)
        }
        boxes[1] = replace(boxes[1], sealed=np.concatenate([boxes[1].sealed, boxes[1].sealed[:1]]))
        trial.cohort.shared(boxes.items())
        peers, shares = trial.cohort.to_mask()
        with pytest.raises(PeerError, match="the shares of site 1 were changed, or made for another list"):
            trial.member(0, peers[0], shares[0]).check_shares()

    def test_other_peers_than_it_made_shares_for(self, at):
        trial, (peers, shares) = at(3, count=5)
        fewer = Peers(peers.site[:4], peers.keys[:4], peers.signature[:4], peers.cohort[:4], BOUND)
        with pytest.raises(RefusedError, match="other peers, or other keys"):
            trial.member(0, fewer, PeerShares(shares.sealed[:4], numbers(range(4)))).check_shares()

    def test_too_few_shares(self, at):
        trial, (peers, shares) = at(3, count=7)
        with pytest.raises(RefusedError, match="shares of 4 peers, and at least 5 are needed"):
            trial.member(0, peers, PeerShares(shares.sealed[:4], numbers(range(4)))).check_shares()
        with pytest.raises(CohortError, match="shares of 2 sites"):
            trial.member(0, peers, PeerShares(shares.sealed[:2], numbers(range(2)))).check_shares()

    def test_two_answers_under_the_same_masks(self, at):
        trial, messages = at(3)
        first = trial.member(0, *messages).masked(np.ones(LENGTH, np.uint32))
        again = trial.member(0, *messages).masked(np.ones(LENGTH, np.uint32))
        np.testing.assert_array_equal(
            first.numbers, again.numbers
        )  # a coordinator that crashed may ask again
        peers, shares = messages
        with pytest.raises(RefusedError, match="another request for its numbers"):
            fewer = PeerShares(shares.sealed[:3], numbers(range(3)))
            trial.member(0, peers, fewer).masked(np.ones(LENGTH, np.uint32))
        with pytest.raises(RefusedError, match="another request for its numbers"):
            trial.member(0, peers, shares).masked(np.full(LENGTH, 2, np.uint32))

    def test_other_shares_than_the_numbers_were_masked_for(self, at):
        """Else some masks would be taken for those of sites that never took part."""
        trial, (peers, shares, survivors) = at(4, count=5)
        fewer = PeerShares(shares.sealed[:4], numbers(range(4)))
        with pytest.raises(RefusedError, match="other sites gave shares than when this site sent"):
            trial.member(0, peers, fewer, replace(survivors, answered=numbers(range(4)))).signed_lists()

    @pytest.mark.parametrize(
        ("answered", "error", "reason"),
        [
            ([1, 2, 3, 4], RefusedError, "says that this site dropped out"),
            ([0, 1], CohortError, "a sum over 2 sites"),
            ([0, 1, 2], RefusedError, "a sum with 3 peers, and at least 4 are needed"),
            ([0, 1, 2, 3, 4, 5], RefusedError, "answered and gave no shares"),
        ],
    )
    def test_lists_that_cannot_be(self, answered, error, reason, at):
        trial, (peers, shares, _) = at(4, count=5)
        with pytest.raises(error, match=reason):
            trial.member(0, peers, shares, Survivors(numbers(answered))).signed_lists()

    def test_a_second_list_is_not_signed(self, at):
        trial, (peers, shares, survivors) = at(4, count=5)
        trial.member(0, peers, shares, survivors).signed_lists()
        with pytest.raises(RefusedError, match="another request for its signature"):
            trial.member(0, peers, shares, Survivors(numbers([0, 1, 2, 3]))).signed_lists()

    def test_different_lists_for_different_sites(self, tmp_path):
        """It wants site 3's numbers: it tells some sites that 3 dropped out, and others that it did not.

        With both kinds of share of site 3, and its masked numbers, it would have them. No site gives any.
        """
        trial = Trial(tmp_path, 6)
        trial.share()
        trial.mask()
        told = by_site(trial.cohort.to_sign())
        without = Survivors(numbers([0, 1, 2, 4, 5]))
        for number in (0, 1, 2):
            told[number][-1] = without
        signed = dict(trial.asked(4, told, Member.signed_lists))
        for number in range(6):
            own = 0 if number < 3 else 3
            signatures = PeerSignatures.of({n: one for n, one in signed.items() if n != 3 or own})
            with pytest.raises(
                PeerError, match=r"site \d was told other lists by the coordinator"
            ) as refused:
                trial.member(number, *told[number], signatures).unmasking()
            assert refused.value.number // 3 == 1 - own // 3  # one that was told otherwise
            alike = PeerSignatures.of({n: one for n, one in signed.items() if n // 3 == own // 3})
            with pytest.raises(RefusedError, match="3 peers signed the same lists, and 4 must"):
                trial.member(number, *told[number], alike).unmasking()

    def test_forged_signatures_of_lists(self, at):
        trial, (*told, signatures) = at(5, count=5)
        forged = signatures.signature.copy()
        forged[2, 5] ^= 1
        with pytest.raises(PeerError, match=r"site 2") as refused:
            trial.member(0, *told, replace(signatures, signature=forged)).unmasking()
        assert refused.value.number == 2

    def test_signatures_of_sites_that_are_no_peers(self, at):
        trial, (*told, signatures) = at(5, count=5)
        strange = PeerSignatures(
            np.append(signatures.site, np.int32(9)), signatures.signature[[0, 1, 2, 3, 4, 4]]
        )
        with pytest.raises(PeerError, match="site 9 signed, and is no peer"):
            trial.member(0, *told, strange).unmasking()

    def test_both_kinds_of_share_one_after_the_other(self, at):
        trial, (peers, shares, survivors, signatures) = at(5, count=5)
        trial.member(0, peers, shares, survivors, signatures).unmasking()
        with pytest.raises(RefusedError, match="other sites than in the lists that this site has signed"):
            other = Survivors(numbers([0, 1, 2, 3]))
            trial.member(0, peers, shares, other, signatures).unmasking()

    def test_a_second_sum_in_the_same_round(self, tmp_path):
        """Of fewer sites, in a session of its own: the difference would be the numbers of the site left out."""
        trial = Trial(tmp_path, 5)
        trial.run()
        second = Trial(tmp_path, 5)
        for site in second.sites.values():
            site.messages = [Session(np.ones(16, np.uint8))]
        keys = {n: Member(site).public_keys() for n, site in second.sites.items() if n != 4}
        other = Session(np.ones(16, np.uint8))
        cohort = Cohort(session_name("a run", 1, other), keys, BOUND)

        def asked(own, answer):
            for number, messages in own.items():
                second.sites[number].messages = [other, *messages]
                yield number, answer(Member(second.sites[number]))

        cohort.shared(asked({n: [one] for n, one in cohort.peers().items()}, Member.shares))
        masked = asked(by_site(cohort.to_mask()), lambda member: member.masked(np.ones(LENGTH, np.uint32)))
        cohort.total(masked)
        cohort.signed(asked(by_site(cohort.to_sign()), Member.signed_lists))
        with pytest.raises(RefusedError, match="another request for its sum"):
            dict(asked(by_site(cohort.to_unmask()), Member.unmasking))


def test_a_site_without_keys_refuses(tmp_path):
    site = FakeSite(0, SumNotes(tmp_path), secrets=None, messages=[SESSION])  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="no keys for secure sums"):
        Member(site)  # type: ignore[arg-type]


def test_a_session_that_was_never_begun_is_refused(tmp_path):
    class Forgetful(SimulatedSecrets):
        def of_session(self, site, round_, session, *, new):
            return super().of_session(site, round_, session, new=new) if new else None

    trial = Trial(tmp_path, 4)
    trial.sites[0].secrets = Forgetful(7, "a run")
    with pytest.raises(RefusedError, match="for which this site has given no keys"):
        trial.member(0, trial.cohort.peers()[0]).shares()


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


@given(st.integers(2, 12), st.integers(0, 5), st.binary(min_size=16, max_size=16), st.randoms())
def test_shares_are_put_together_as_by_pycryptodome(threshold, more, secret, chance):
    shares = list(enumerate(divided(secret, threshold, threshold + more), start=1))
    some = dict(chance.sample(shares, threshold))
    assert combined(some) == Shamir.combine(list(some.items())) == secret
    wrong = {number: share[::-1] for number, share in some.items()}
    assert combined(wrong) == Shamir.combine(list(wrong.items()))


def test_messages_survive_packing(tmp_path):
    trial = Trial(tmp_path, 4)
    trial.share()
    trial.mask()
    trial.sign()
    for message in (*by_site(trial.cohort.to_unmask())[0], trial.masked[0], SESSION):
        again = type(message).unpack(message.pack(), {})
        for name, array in message.pack().items():
            np.testing.assert_array_equal(array, again.pack()[name])


@pytest.mark.parametrize(("round_", "run"), [(2, "a run"), (1, "another run")])
def test_the_same_session_in_another_round_or_run_has_other_masks(round_, run, tmp_path):
    one = FakeSite(0, SumNotes(tmp_path), messages=[SESSION])
    other = FakeSite(
        0, SumNotes(tmp_path), round=round_, secrets=SimulatedSecrets(7, run), messages=[SESSION]
    )
    assert not np.array_equal(Member(one).public_keys().keys, Member(other).public_keys().keys)


def test_signed_lists_differ_in_every_part():
    lists = Lists(NAME, [0, 1, 2], 5, [0, 1], [0])
    changes = {"session": NAME[::-1], "cohort": [0, 1], "bound": 6, "shared": [0, 1, 2], "answered": [1]}
    texts = {lists.text, *(replace(lists, **{name: other}).text for name, other in changes.items())}
    assert len(texts) == 1 + len(changes)


def test_an_answer_of_another_length_is_left_out(tmp_path):
    trial = Trial(tmp_path, 5)
    trial.share()
    trial.mask()
    trial.cohort._masked.clear()
    cut = {n: MaskedNumbers(one.numbers[:1]) if n == 3 else one for n, one in trial.masked.items()}
    total = trial.cohort.total(cut.items())
    assert trial.cohort.answered == [0, 1, 2, 4]
    del trial.masked[3]
    trial.sign()
    np.testing.assert_array_equal(trial.unmask(total), trial.expected())


@pytest.mark.parametrize(("weight", "sites"), [(0, 3), (2, 3), (31, 3)])
def test_weights_that_cannot_be_true_end_the_round(weight, sites):
    total = np.array([5, 6, weight, 9, 0], np.uint32)
    with pytest.raises(NoAnswerError, match="a site lied"):
        decoded(total, FixedPoint(4.0, sites), 10, sites)


def test_without_an_answer_there_is_no_mean():
    with pytest.raises(NoAnswerError):
        decoded(np.zeros(0, np.uint32), FixedPoint(4.0, 3), 10, 0)
