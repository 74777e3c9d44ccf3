"""That a method comes to the same weights however it is carried, and when a round is lost and done again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrel.config.schema import Config
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.engines import engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from tests.methods.slow_rounds import fast

WORKERS = ("engine.kind=workers", "engine.workers=2")


def same_when_resumed(config: Config, folder: Path) -> None:
    """Three rounds at one runner equal three by the config's engine, of which the third is lost and done again."""
    ready = prepare(config)
    whole = fast(config, ready, 3, folder / "whole").checkpoint()
    checkpoints = Checkpoints(folder / "checkpoint", config.shapes_result())
    with engine(config, ready, folder / "sites") as carrier:
        lost = Session(config, ready, carrier, None)
        for _ in range(2):
            lost.next_round()
            checkpoints.save(lost.checkpoint())
        lost.next_round()  # its sites remember it, but the coordinator does not
        resumed = Session(config, ready, carrier, checkpoints.latest())
        resumed.next_round()
    for session in (lost, resumed):
        at = session.checkpoint()
        for found, expected in ((at.weights, whole.weights), (at.state, whole.state)):
            assert found.keys() == expected.keys()
            for name in found:
                np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
