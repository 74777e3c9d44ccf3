"""Site states: the one from before a round is found, at most two files stay, another model's is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.errors import UserError
from fedrel.federation.site_memory import SiteStates


def number(tensors):
    return None if tensors is None else int(tensors["n"][0])


@given(rounds=st.lists(st.integers(1, 30), unique=True, min_size=1).map(sorted), asked=st.integers(1, 31))
def test_a_site_finds_what_it_wrote_last_before_a_round(tmp_path_factory, rounds, asked):
    states = SiteStates(tmp_path_factory.mktemp("states"), "model")
    for round_ in rounds:
        before = [earlier for earlier in rounds if earlier < round_]
        assert number(states.read(7, round_)) == (before[-1] if before else None)
        states.write(7, round_, {"n": np.array([round_], np.float32)})
    # A round that is done again, after a kill, finds what it found the first time.
    last, *earlier = rounds[::-1]
    assert number(states.read(7, last)) == (earlier[0] if earlier else None)
    assert states.read(8, asked) is None


def test_two_files_a_site_stay_at_most(tmp_path):
    states = SiteStates(tmp_path, "model")
    for round_ in range(1, 9):
        states.write(3, round_, {"n": np.array([round_], np.float32)})
    assert sorted(file.name for file in tmp_path.rglob("*.safetensors")) == [
        "round-00007.safetensors",
        "round-00008.safetensors",
    ]


def test_a_state_of_another_model_or_a_damaged_one_is_refused(tmp_path):
    SiteStates(tmp_path, "one").write(3, 1, {"n": np.zeros(1, np.float32)})
    with pytest.raises(UserError, match="state of another model"):
        SiteStates(tmp_path, "two").read(3, 2)
    next(tmp_path.rglob("*.safetensors")).write_bytes(b"rubbish")
    with pytest.raises(UserError, match="is not a site's state"):
        SiteStates(tmp_path, "one").read(3, 2)


def test_what_was_answered_is_noted_once_and_a_line_cut_short_is_dropped(tmp_path):
    states = SiteStates(tmp_path, "model").notes
    assert states.noted(3, "1 masked") is None
    assert states.note(3, "1 masked", "a")
    assert states.note(3, "1 masked", "a") and not states.note(3, "1 masked", "b")
    file = tmp_path / "000003" / "answered.jsonl"
    file.write_text(file.read_text() + '["1 unmask')  # the machine failed while it wrote
    assert states.noted(3, "1 masked") == "a" and states.noted(3, "1 unmasked") is None
    assert states.note(3, "1 unmasked", "c") and not states.note(3, "1 unmasked", "d")
    file.write_text("x\n")
    with pytest.raises(UserError, match=r"answered\.jsonl: is damaged"):
        states.note(3, "2 masked", "a")
