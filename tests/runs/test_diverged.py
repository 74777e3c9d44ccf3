"""A training that diverged is answered with what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.errors import UserError
from fedrel.federation.rounds import RoundNotes
from fedrel.runs.round_outcome import DivergedRunError, LostRoundError, LostRunError
from fedrel.runs.train import run
from tests.conftest import tiny


@pytest.mark.parametrize("method", ["fedavg", "ave", "centralised"])
def test_a_diverged_loss_says_to_lower_the_learning_rate(out: Path, method: str) -> None:
    config = tiny(method=method, training__learning_rate=1e8, training__rounds=2)
    with pytest.raises(UserError) as raised:
        run(config, out)
    assert "no site's answer could be used" in raised.value.problem
    assert (
        raised.value.hint == "lower the learning rate, training.learning_rate, which is 1e+08, and begin anew"
    )


@pytest.mark.parametrize(
    ("reason", "kind"), [("training diverged: the loss is nan", DivergedRunError), ("is away", LostRunError)]
)
def test_a_lost_round_is_told_from_other_mistakes(reason: str, kind: type[UserError]) -> None:
    notes = RoundNotes(refused=[{"site": 0, "message": "Update", "reason": reason}])
    assert type(LostRoundError(1, "no answer", notes, False, ["site-0"]).error(0.1)) is kind
