"""A site whose answer is invalid is refused by name, and the round goes on without it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedrel.federation.coordinator import Answer
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.messages import Array, Update
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.round_outcome import LostRoundError
from fedrel.runs.train import Session
from tests.conftest import NO_STATES, local_engine, tiny

LIAR = 1


class LyingEngine(LocalEngine):
    """One site's answers, or all of them, are changed on their way."""

    def __init__(self, at, phase: str, lie: Callable[[dict], None], sites: set[int]) -> None:
        super().__init__(at)
        self.phase, self.lie, self.sites = phase, lie, sites

    def ask(self, phase, round_, shared, own):
        for site, answer in super().ask(phase, round_, shared, own):
            if phase == self.phase and site in self.sites:
                arrays = {name: np.array(array) for name, array in answer.arrays.items()}
                self.lie(arrays)
                answer = Answer(arrays, journal=answer.journal)  # noqa: PLW2901
            yield site, answer


def session(phase: str, lie: Callable[[dict], None], sites: set[int]) -> Session:
    config = tiny(method="lazy-mil", training__fraction=1.0)
    ready = prepare(config)
    return Session(
        config, ready, LyingEngine(new_runner(config, ready.site_data, NO_STATES), phase, lie, sites), None
    )


def nan_weights(arrays: dict) -> None:
    arrays["weights/classifier.weight"][0, 0] = np.nan


def huge_weights(arrays: dict) -> None:
    arrays["weights/classifier.weight"][0, 0] = 3e38


def boast(arrays: dict) -> None:
    arrays["examples"] = np.array(10**9)


def endless_examples(arrays: dict) -> None:
    arrays["examples"] = np.array(10**15)


def endless_loss(arrays: dict) -> None:
    arrays["loss"] = np.array(1.7e308)


def one_sentence_for_all(arrays: dict) -> None:
    arrays["index"][:] = 0


def wrong_shape(arrays: dict) -> None:
    arrays["weights/classifier.bias"] = arrays["weights/classifier.bias"][:-1]


def unknown_triple(arrays: dict) -> None:
    arrays["triple"][-1] = 10**6


def foreign_sentence(arrays: dict) -> None:
    arrays["index"][0] = 10**6


def twice(arrays: dict) -> None:
    arrays["triple"][1] = arrays["triple"][0]


def nan_value(arrays: dict) -> None:
    arrays["value"][0] = np.nan


def with_text(arrays: dict) -> None:
    arrays["patient"] = np.frombuffer(b"John Doe", np.uint8)


@pytest.mark.parametrize(
    ("phase", "lie", "message", "reason"),
    [
        ("train", nan_weights, "Update", "classifier.weight holds a value that is not finite"),
        ("train", huge_weights, "Update", "classifier.weight holds 3"),
        ("train", boast, "Update", "says it trained on 1000000000 examples, but holds"),
        ("train", endless_examples, "Update", "examples holds 1000000000000000, above 1000000000000"),
        ("train", endless_loss, "Update", "loss holds 1.7e+308, above 1000000.0"),
        ("claim", one_sentence_for_all, "Claims", "claims a sentence twice"),
        ("train", wrong_shape, "Update", "classifier.bias has shape (4,), expected 5 along 5"),
        ("train", with_text, "Update", "patient is not a field of Update"),
        ("claim", unknown_triple, "Claims", "claims triple 1000000, but the KB has"),
        ("claim", foreign_sentence, "Claims", "claims sentence 1000000, but holds"),
        ("claim", twice, "Claims", "claims a triple twice"),
        ("claim", nan_value, "Claims", "value holds a value that is not finite"),
    ],
)
def test_a_lie_is_refused_named_and_left_out(phase, lie, message, reason):
    rounds = session(phase, lie, {LIAR})
    line = rounds.next_round()
    (refusal,) = line.refused
    assert (refusal.site, refusal.message) == (LIAR, message)
    assert refusal.reason.startswith(reason)
    assert line.examples > 0
    assert all(np.isfinite(array).all() for array in rounds.checkpoint().weights.values())


def test_a_loss_beyond_bounds_made_all_losses_infinite(monkeypatch):
    """As it was: any finite number is a loss."""
    monkeypatch.setitem(Update.declared(), "loss", Array("float64"))
    with np.errstate(over="ignore"):
        line = session("train", endless_loss, {LIAR, LIAR + 1}).next_round()
    assert not line.refused and not abs(line.loss) < 1e300


def test_a_refused_site_changes_the_result_like_an_absent_one():
    """Lazy MIL without site 1's claims: the others win what they hold, and site 1 does not train."""
    rounds = session("claim", nan_value, {LIAR})
    line = rounds.next_round()
    assert line.bytes.by_kind["Update"].up > 0
    assert len(line.active) == 6
    honest = session("none", nan_value, set())
    assert honest.next_round().examples >= line.examples


def test_with_no_answer_left_the_round_is_repeated_and_then_the_run_stops():
    rounds = session("train", nan_weights, set(range(6)))
    with pytest.raises(LostRoundError) as lost:
        rounds.next_round()
    assert lost.value.error(0.3).problem == (
        "round 1: no site's answer could be used (site-0, site-1, site-2, site-3, site-4 and 1 more: "
        "classifier.weight holds a value that is not finite)"
    )


def test_a_site_refuses_a_message_that_a_phase_does_not_take():
    config = tiny(method="lazy-mil")
    ready = prepare(config)
    engine = local_engine(config, ready)
    weights = Session(config, ready, engine, None).checkpoint().weights
    shared = {f"Model.weights/{name}": array for name, array in weights.items()}
    far = {"Winners.index": np.array([10**6], np.int32)}
    ((_, answer),) = engine.ask("train", 1, shared, {0: far})
    assert answer.arrays is None
    assert "names sentence 1000000, but this site holds" in answer.failure
    ((_, answer),) = engine.ask("train", 1, shared, {0: {}})
    assert "lacks Winners" in answer.failure
