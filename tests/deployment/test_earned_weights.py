"""Weights must be earned: what honest training explains passes, made-up weights do not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.deployment.earned_weights import EarnedWeights, UnearnedError, _along, fingerprint
from fedrel.federation.messages import ModelTensors
from fedrel.federation.method import OwnStep
from fedrel.methods.by_name import method
from fedrel.methods.server import FedAdam
from fedrel.tensors.weights import Rows, dense

START = {"a": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "b": np.zeros(3, np.float32)}
OWN = {"a": np.full((3, 4), 0.1, np.float32), "b": np.full(3, 0.05, np.float32)}


def moved(by: float = 1.0, start: Any = START, **only: Any) -> dict[str, Any]:
    return {name: tensor + np.float32(by) * only.get(name, OWN[name]) for name, tensor in start.items()}


class Judge:
    """A site that begins with START and whose training always takes the step OWN."""

    def __init__(self, folder: Path, name: str = "fedavg", step: float = 10, against: float = 3) -> None:
        self.folder, self.method = folder, method(name, {})
        self.limits: tuple[Any, ...] = (step, against)
        self.trials = 0

    def asks(self, round_: int, weights: Any, effort: float = 0.0) -> str:
        def trial(start: Any) -> Any:
            self.trials += 1
            return moved(start=start)

        judge = EarnedWeights(self.folder, *self.limits)  # a new process each time
        try:
            known = fingerprint(weights)
            judge.judge(round_, weights, known, self.method, lambda: START, trial, effort)
        except UnearnedError as error:
            return str(error)
        return ""

    def trains(self, round_: int, weights: Any) -> None:
        EarnedWeights(self.folder, *self.limits).trained(round_, weights, moved(start=weights))


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return Judge(tmp_path)


def test_round_1_must_be_the_seeds_weights(judge: Judge):
    assert "differs by 0.1 from what the seed gives" in judge.asks(1, moved(1.0))
    assert judge.asks(1, START) == ""


def test_a_processor_of_another_family_may_round_otherwise(judge: Judge):
    other = {name: np.nextafter(tensor, np.float32(9)) for name, tensor in START.items()}
    assert judge.asks(1, other | {"b": START["b"]}) == ""
    assert judge.asks(1, START | {"b": np.full(3, 1e-6, np.float32)}) != ""


def test_a_step_as_long_as_ten_of_its_own_passes_and_a_longer_one_is_named(judge: Judge):
    judge.asks(1, START)
    judge.trains(1, START)
    assert judge.asks(2, moved(10.5)).startswith("a went 3.64 in 1 round, 10.5 times")
    assert judge.asks(2, moved(9.9)) == ""


def test_one_tensor_alone_is_enough(judge: Judge):
    judge.asks(1, START)
    judge.trains(1, START)
    assert judge.asks(2, moved(1.0, b=np.full(3, 0.6, np.float32))).startswith("b went 1.04")


def test_absent_rounds_are_allowed_for(judge: Judge):
    judge.asks(1, START)
    judge.trains(1, START)
    assert judge.asks(4, moved(31)) and not judge.asks(4, moved(29))


def test_a_site_that_was_never_asked_judges_by_a_trial_of_its_own(judge: Judge):
    assert judge.asks(3, moved(21)) and not judge.asks(3, moved(19))
    assert judge.trials == 1


def test_a_site_whose_training_hardly_moves_anything_judges_by_a_trial_too(judge: Judge):
    """As one with a single relation under FedLC, whose loss is then zero."""
    judge.asks(1, START)
    still = EarnedWeights(judge.folder, *judge.limits)
    still.trained(1, START, {name: tensor + np.float32(1e-6) for name, tensor in START.items()})
    assert judge.asks(2, moved(9)) == "" and judge.trials == 1
    assert judge.asks(3, moved(20)) != "" and judge.trials == 1


def test_weights_that_were_seen_may_come_back(judge: Judge):
    far = moved(29)
    judge.asks(1, START)
    judge.trains(1, START)
    for round_, weights in ((2, moved(9)), (3, moved(18)), (4, moved(27)), (5, START), (6, moved(9))):
        assert judge.asks(round_, weights) == ""
    assert judge.asks(7, far) != ""  # it is judged from where they are now


def test_weights_that_lengthen_the_sites_own_step_gain_little(judge: Judge):
    """Else each question would allow a longer step than the one before."""
    judge.asks(1, START)
    judge.trains(1, START)
    longer = EarnedWeights(judge.folder, *judge.limits)
    longer.trained(1, START, moved(100))
    assert judge.asks(2, moved(41)) and not judge.asks(2, moved(39))


def test_a_step_against_its_own_update_is_refused(judge: Judge):
    judge.asks(1, START)
    judge.trains(1, START)
    assert judge.asks(2, moved(-3.5)) == "they went against this site's own update, 3.5 times its length"
    assert judge.asks(2, moved(-2.5)) == ""


def others(by: float, own: float) -> dict[str, Any]:
    """A mean that went `own` times the site's update its way, and `by` across it."""
    across = {"a": OWN["a"] * np.float32([1, -1, 1, -1]), "b": np.zeros(3, np.float32)}
    return {name: moved(own)[name] + np.float32(by) * across[name] for name in START}


def test_weights_without_its_own_update_are_refused_where_the_site_demands_it(tmp_path: Path):
    """A fourth of the mean is its own; the others went partly its way, too."""
    as_it_was = Judge(tmp_path / "as it was")
    strict = Judge(tmp_path / "strict")
    strict.limits = (10, 3, None, 0.2)
    for judge in (as_it_was, strict):
        judge.asks(1, START)
        judge.trains(1, START)
    assert as_it_was.asks(2, others(0.5, 0.05)) == ""
    assert "0.05 times this site's own update its way: it is not in them" in strict.asks(2, others(0.5, 0.05))
    assert strict.asks(2, others(0.5, 0.25)) == ""


def test_nothing_is_demanded_of_weights_that_are_no_mean_or_of_later_rounds(tmp_path: Path):
    for name, round_ in (("fedavgm", 2), ("scaffold", 2), ("fedavg", 3)):
        judge = Judge(tmp_path / name, name)
        judge.limits = (10, 3, None, 0.2)
        judge.asks(1, START)
        judge.trains(1, START)
        assert judge.asks(round_, others(0.5, 0.0)) == ""


def test_rounds_that_are_left_out_do_not_hide_the_direction(judge: Judge):
    judge.asks(1, START)
    judge.trains(1, START)
    assert "went against this site's own update" in judge.asks(3, moved(-7))


def test_going_back_and_forth_between_rounds_earns_nothing(judge: Judge):
    judge.asks(1, START)
    judge.trains(1, START)
    assert judge.asks(50, moved(400)) == ""  # it may have been away for 49 rounds
    assert "in 1 round," in judge.asks(2, moved(800))


def test_where_it_did_not_take_part_its_update_need_not_be_in_it(judge: Judge):
    judge.asks(1, START)
    judge.trains(1, START)
    judge.asks(2, moved(1))
    assert judge.asks(3, moved(-5)) == ""


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("fedavg", 2.0),
        ("fedavgm", 2 + 2 / (1 - 0.9)),
        ("fedatt", 2 + 1.2 * 2),
        ("scaffold", 4.0),
        ("feddyn", 2 + 5 * 2),
        ("feded", 2 + 2 * 0.5 * 2),
        ("fedatt+fedavgm", 2 + 20 + 2.4),
    ],
)
def test_how_far_a_methods_coordinator_may_go(name: str, by_hand: float):
    reach = method(name, {}).reach(OwnStep(2.0, 9, 5, effort=0.5))
    assert reach == pytest.approx(by_hand)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.floats(-1, 1), min_size=4, max_size=4), min_size=1, max_size=8))
def test_fedadams_steps_are_within_its_reach(changes):
    """The bound by Cauchy and Schwarz, against the step itself."""
    adam, fed = FedAdam(), cast(Any, SimpleNamespace(state={}))
    for round_, change in enumerate(changes, 1):
        step = adam.server_step(fed, "a", np.array(change))
        assert np.linalg.norm(step) <= adam.reach(OwnStep(0.0, 4, round_)) + 1e-9


@pytest.mark.parametrize("rest", [1.0, 0.98])
def test_a_table_of_which_few_rows_changed_is_judged_as_a_whole_one(tmp_path: Path, rest: float):
    """Its step is kept as the rows that changed and the factor of all others."""
    generator = np.random.default_rng(5)
    start = {"t": generator.normal(size=(500, 4)).astype(np.float32), "b": np.zeros(3, np.float32)}
    index = np.array([3, 70, 400], np.int32)
    sent = {"t": Rows(index, start["t"][index] + np.float32(2), rest), "b": np.ones(3, np.float32)}
    whole = dense(start, sent)
    judge = EarnedWeights(tmp_path, 10, 3)
    judge.trained(1, start, sent)
    steps = {name: whole[name] - start[name] for name in start}
    for name, (length, farthest) in judge._memory.last.items():
        assert length == pytest.approx(np.linalg.norm(steps[name]), rel=1e-2)
        assert farthest == pytest.approx(
            np.linalg.norm(steps[name].reshape(len(steps[name]), -1), axis=1).max()
        )
    after = {name: start[name] - np.float32(3.5) * steps[name] for name in start}
    unpacked = ModelTensors(rows=True).unpack(
        judge._read("own"), {name: tensor.shape for name, tensor in start.items()}
    )
    for name, own in unpacked.items():
        expected = float((steps[name] * (after[name] - start[name])).sum())
        assert _along(own, start[name], after[name]) == pytest.approx(expected, rel=1e-3)
    assert (tmp_path / "own.safetensors").stat().st_size < start["t"].nbytes / 4
