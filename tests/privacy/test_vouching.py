"""Tags of updates add up as the updates do, and nobody without the sites' key can make one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.federation.earned import VOUCH_BYTES, Earned, vouch
from fedrel.privacy.vouching import SIZE, WHOLE, Vouching
from fedrel.tensors.weights import WeightedMean

SITES = Vouching(b"of all sites", "experiment")


def drawn(seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    shapes = {"filters": (20, 30), "bias": (20,), "classifier": (5, 60)}
    return {name: (scale * generator.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def plus(left: dict, right: dict, factor: float = 1.0) -> dict:
    return {name: (left[name] + np.float32(factor) * right[name]).astype(np.float32) for name in left}


class Run:
    """A coordinator with three sites: every round is a mean of their moves, by their numbers of examples."""

    def __init__(self, rounds: int, seed: int = 0, examples=(10, 300, 77)) -> None:
        self.initial = self.weights = drawn(seed)
        self.before, self.earned = self.initial, Earned.kept_in({})
        self.vouches: dict[int, bytes] = {}
        for round_ in range(1, rounds + 1):
            mean, total = WeightedMean(self.weights), sum(examples)
            for site, count in enumerate(examples):
                trained = plus(self.weights, drawn(100 * round_ + site + 1000 * seed, 0.3))
                question = 7 * round_ + site
                self.vouches[site] = vouch(question, SITES.tag(round_, site, question, self.weights, trained))
                mean.add(trained, count)
            shares = {site: count / total for site, count in enumerate(examples)}
            self.before, self.weights = self.weights, mean.result()
            self.earned = self.earned.with_round(round_, shares, self.vouches)
        self.round = rounds + 1

    def problem(self, weights=None, earned: Earned | None = None) -> str:
        return SITES.problem(earned or self.earned, self.round, self.initial, weights or self.weights)


def test_initial_weights_are_made_of_nothing():
    run = Run(0)
    assert run.problem() == ""
    assert "away from what the sites' updates add up to" in run.problem(drawn(5))


@given(st.integers(1, 5), st.integers(0, 50))
def test_means_of_updates_pass(rounds: int, seed: int):
    assert Run(rounds, seed).problem() == ""


def test_weights_that_somebody_made_up_do_not():
    run = Run(3)
    assert "away from" in run.problem(drawn(9))
    assert "away from" in run.problem(plus(run.weights, drawn(9), 0.02))  # a fiftieth of the weights
    one = {name: tensor.copy() for name, tensor in run.weights.items()}
    one["filters"][3, 4] += 0.2  # a single number
    assert "away from" in run.problem(one)
    assert "away from" in run.problem(run.before)  # nor those of a round ago


def test_neither_other_shares_nor_other_rounds_sites_or_questions_are_believed():
    run = Run(3)
    for name in ("round", "site", "question", "share"):
        array = getattr(run.earned, name).copy()
        array[[0, 1]] = array[[1, 0]] if name != "round" else (2, 1)
        assert run.problem(earned=replace(run.earned, **{name: array})), name


def test_a_mean_is_no_more_than_one():
    """Else differences of updates, many times over, would do to make up anything in their span."""
    run = Run(2)
    shares = run.earned.share.copy()
    shares[0] = WHOLE
    assert "more than a mean" in run.problem(earned=replace(run.earned, share=shares))
    twice = run.earned.with_round(2, {0: 0.0}, run.vouches)
    assert "twice" in run.problem(earned=twice)
    later = replace(run.earned, round=run.earned.round + np.int32(1))
    assert "an update of round 3 is said to be in round 3's weights" in run.problem(earned=later)


def test_who_lacks_the_key_cannot_vouch():
    """A coordinator that knows all updates, tags and the code, and guesses the key."""
    run, other = Run(1), Vouching(b"a guess", "experiment")
    wanted = drawn(4)
    tag = other.tag(1, 0, 7, run.initial, wanted)
    forged = Earned.kept_in({}).with_round(1, {0: 1.0}, {0: vouch(7, tag)})
    assert "away from" in run.problem(wanted, forged)
    honest = Earned.kept_in({}).with_round(
        1, {0: 1.0}, {0: vouch(7, SITES.tag(1, 0, 7, run.initial, wanted))}
    )
    assert run.problem(wanted, honest) == ""
    assert other.tag(1, 0, 7, run.initial, wanted).tolist() != honest.total.tolist()


def test_tags_of_the_same_update_are_the_same_for_the_same_question_only():
    start, trained = drawn(1), drawn(2)
    tags = {
        (round_, site, question): SITES.tag(round_, site, question, start, trained).tobytes()
        for round_ in (1, 2)
        for site in (0, 1)
        for question in (5, 6)
    }
    assert len(set(tags.values())) == 8
    assert SITES.tag(1, 0, 5, start, trained).tobytes() == tags[1, 0, 5]
    assert Vouching(b"of all sites", "another").tag(1, 0, 5, start, trained).tobytes() != tags[1, 0, 5]


def test_tags_look_like_chance():
    """Of an update that moved nothing, too."""
    start = drawn(1)
    bits = np.unpackbits(
        np.concatenate([SITES.tag(1, site, 0, start, start).view(np.uint8) for site in range(50)])
    )
    assert abs(bits.mean() - 0.5) < 0.01
    assert len(vouch(3, SITES.tag(1, 0, 3, start, start))) == VOUCH_BYTES == 8 * (SIZE + 1)


def test_a_shortened_update_counts_for_less():
    start, trained = drawn(1), drawn(2)
    vouches = {0: vouch(1, SITES.tag(1, 0, 1, start, trained))}
    half = plus(start, plus(trained, start, -1), 0.5)
    earned = Earned.kept_in({}).with_round(1, {0: 0.5}, vouches)
    assert SITES.problem(earned, 2, start, half) == ""
    assert SITES.problem(earned, 2, start, trained)


def test_the_coordinator_keeps_it_with_the_weights():
    earned = Run(2).earned
    again = Earned.kept_in(earned.for_state())
    for name in Earned.declared():
        np.testing.assert_array_equal(getattr(again, name), getattr(earned, name))
    assert Earned.unpack(earned.pack(), {}).round.tolist() == [1, 1, 1, 2, 2, 2]


def test_the_sketch_tells_how_far_weights_are_away():
    """Over many keys, to about the root of 2 / SIZE."""
    start, away = drawn(1), drawn(3, 0.5)
    true = np.sqrt(sum(float(np.vdot(one, one)) for one in away.values()))
    found = [
        np.linalg.norm(Vouching(bytes([key]), "")._sketch(start, plus(start, away))) for key in range(60)
    ]
    assert np.mean(found) == pytest.approx(true, rel=0.05)
    assert np.std(found) < 0.2 * true
