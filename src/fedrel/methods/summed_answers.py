"""How a round's answers reach the coordinator: one by one, or as their sum only (`privacy.secure_sum`).

Methods whose coordinator needs no more than a sum say what a site adds to it (`summand`) and what its mean stands
for (`summed`). The secure sum itself is Bonawitz et al. 2017; its two halves are in `fedrel.federation.secure_sum`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedrel.federation.messages import Message, Model, RefusedError
from fedrel.federation.method import adds_up, at_site
from fedrel.federation.secure_cohort import Cohort
from fedrel.federation.secure_messages import (
    NONCE,
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
)
from fedrel.federation.secure_sum import Member, session_name, signed_keys
from fedrel.federation.summands import (
    FixedPoint,
    Summand,
    decoded,
    encoded,
    noised_mean,
    noised_summand,
    site_noise,
    unnoised,
)
from fedrel.methods.local_objective import LocalObjective
from fedrel.privacy.secret_keys import TamperedError
from fedrel.tensors.weights import Floats, NoAnswerError

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation
    from fedrel.federation.site import Site


_SESSION, _LISTS = "session", "lists"  # what the coordinator keeps in a round, to check signatures
SUM = -2  # stands for a site's number where the answer is the mean of all sites'


class SummedAnswers(LocalObjective):
    """Answers one by one, or their sum; a base class without a name."""

    carries: ClassVar[tuple[type[Message], ...]] = (Session, Peers, PeerShares, Survivors, PeerSignatures)

    # The coordinator's half.

    def collect(
        self, fed: Federation, phase: Callable[[Site], Any], *sent: Message | Mapping[int, Message]
    ) -> Iterator[tuple[int, Any]]:
        """The active sites' answers; with secure sums, or with noise on sums, one answer, the mean of theirs."""
        if fed.privacy.secure_sum:
            return self.collect_sum(fed, *sent)
        return self.collect_noised(fed, phase, *sent) if fed.privacy.site_noise else fed.ask(phase, *sent)

    def collect_noised(
        self, fed: Federation, phase: Callable[[Site], Any], *sent: Message | Mapping[int, Message]
    ) -> Iterator[tuple[int, Any]]:
        """Site-level differential privacy: the clipped answers' mean with noise; nothing else of them is used."""
        total, examples = site_noise(fed, self.sum_size(fed)), 0
        for _, answer in fed.ask(phase, *sent):
            total.add(self.to_sum(fed, answer))
            examples += getattr(answer, "examples", 1)
        if fed.notes.active and not total.count:  # a draw that has no site is told as one that moved nothing
            raise NoAnswerError
        mean = Summand(noised_mean(fed, total), 1.0, max(examples, 1))
        yield SUM, self.summed(fed, mean, fed.drawn.expected)

    def collect_sum(
        self, fed: Federation, *sent: Message | Mapping[int, Message]
    ) -> Iterator[tuple[int, Any]]:
        """Figure 4 of the paper: keys, shares, masked numbers, the consistency check, unmasking.

        Every request has the session with it, so that a site need not keep one from an attempt that failed.
        """
        nonce = fed.generator("session", fed.attempt, *fed.notes.active).bytes(NONCE)
        session = Session(np.frombuffer(nonce, np.uint8))
        to_all = dict.fromkeys(range(len(fed.sizes)), session)
        name = session_name(fed.registered.run, fed.round, session)
        fed.memo[_SESSION] = name
        bound = 1 if fed.privacy.site_noise else self.largest_weight(fed)
        keys = dict(fed.ask(self.give_keys, to_all))
        cohort = Cohort(name, keys, bound, fed.privacy.threshold)
        cohort.shared(fed.ask(self.give_shares, to_all, cohort.peers()))
        total = cohort.total(fed.ask(self.answer_masked, to_all, *sent, *cohort.to_mask()))
        fed.memo[_LISTS] = cohort.lists.text
        cohort.signed(fed.ask(self.sign_lists, to_all, *cohort.to_sign()))
        cohort.unmask(total, fed.ask(self.unmask, to_all, *cohort.to_unmask()))
        if fed.privacy.site_noise:
            mean = unnoised(fed, total, len(keys), len(cohort.answered))
        else:
            mean = decoded(total, FixedPoint(fed.privacy.range, len(keys)), bound, len(cohort.answered))
        fed.notes.clipped += mean.clipped
        if mean.examples > fed.sizes[cohort.answered].sum():
            raise NoAnswerError("the sites say that they trained on more examples than they hold")
        yield SUM, self.summed(fed, mean, len(cohort.answered))

    @adds_up
    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Refuse keys and lists that the site has not signed with its registered key."""
        super().check(fed, site, answer)
        try:
            if isinstance(answer, PublicKeys):
                text = signed_keys(fed.memo[_SESSION], site, answer.keys.tobytes())
                fed.registered.check(site, answer.signature.tobytes(), text)
            elif isinstance(answer, SignedLists):
                fed.registered.check(site, answer.signature.tobytes(), fed.memo[_LISTS])
        except TamperedError as error:
            raise RefusedError(f"the signature does not fit: {error}") from error

    def summed(self, fed: Federation, mean: Summand, sites: float) -> Any:
        """The mean of several sites' `summand`s as if it were one site's answer."""
        raise TypeError(f"{type(self).__name__} does not say what a sum stands for")

    def to_sum(self, fed: Federation, answer: Any) -> Floats:
        """What a site that sent this answer would add to a sum (`summand`)."""
        raise TypeError(f"{type(self).__name__} does not say what an answer adds to a sum")

    def sum_size(self, fed: Federation) -> int:
        """How many numbers that are: those of the model."""
        return sum(tensor.size for tensor in fed.weights.values())

    def largest_weight(self, fed: Federation) -> int:
        """The largest weight that a site can have in a sum: all count the same."""
        return 1

    # The site's half.

    def summand(self, site: Site) -> Summand:
        """What the site adds to a sum of all sites."""
        raise TypeError(f"{type(self).__name__} does not say what a site adds to a sum")

    @at_site(takes=(Session,), gives=PublicKeys)
    def give_keys(self, site: Site) -> PublicKeys:
        """Step 1."""
        return Member(site).public_keys()

    @at_site(takes=(Session, Peers), gives=SealedShares)
    def give_shares(self, site: Site) -> SealedShares:
        """Step 2."""
        return Member(site).shares()

    @at_site(takes=(Model, Session, Peers, PeerShares), gives=MaskedNumbers)
    def answer_masked(self, site: Site) -> MaskedNumbers:
        """Step 3: train, and send what the sum needs, masked."""
        member, peers = Member(site), site.received(Peers)
        member.check_shares()  # before the site trains
        if site.privacy.site_noise:
            return member.masked(noised_summand(site, self.summand(site), len(peers.cohort)))
        numbers = FixedPoint(site.privacy.range, len(peers.cohort))
        summand = self.summand(site).within(site.privacy.clip)
        return member.masked(encoded(summand, numbers, peers.bound, site.rounding))

    @at_site(takes=(Session, Peers, PeerShares, Survivors), gives=SignedLists)
    def sign_lists(self, site: Site) -> SignedLists:
        """Step 4."""
        return Member(site).signed_lists()

    @at_site(takes=(Session, Peers, PeerShares, Survivors, PeerSignatures), gives=Unmasking)
    def unmask(self, site: Site) -> Unmasking:
        """Step 5."""
        return Member(site).unmasking()
