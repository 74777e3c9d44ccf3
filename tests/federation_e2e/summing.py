"""What tests of secure sums between real sites share: four sites, and what each of them would send by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrel.config.schema import Config
from fedrel.federation.coordinator import Answer
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.methods import summed_answers
from fedrel.runs.checkpoint import Checkpoint, Checkpoints
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import Preparation
from fedrel.runs.train import Session
from tests.federation_e2e.conftest import experiment

FOUR = ("north", "south", "west", "east")
WEST = 2  # the site that drops out
STEPS = {  # by function of `Member`: the phase and what the site would have sent
    "public_keys": ("give_keys", "PublicKeys"),
    "shares": ("give_shares", "SealedShares"),
    "masked": ("answer_masked", "MaskedNumbers"),
    "signed_lists": ("sign_lists", "SignedLists"),
    "unmasking": ("unmask", "Unmasking"),
}
WINDOW = 32  # bytes of an update that must not be found


def summed(method: str = "fedavg", *, secure: bool = True, **changes: object) -> Config:
    """An experiment of four sites with secure sums, or without."""
    return experiment(method, partition__sites=len(FOUR), privacy__secure_sum=secure, **changes)


class Dropping(LocalEngine):
    """In each round, loses all answers of the site that drops out from one phase on; None: it answers."""

    def __init__(self, runner: Any, phases: list[str | None]) -> None:
        super().__init__(runner)
        self._phases, self._order = phases, [phase for phase, _ in STEPS.values()]

    def ask(self, phase: str, round_: int, shared: Any, own: Any) -> Iterator[tuple[int, Answer]]:
        first = self._phases[round_ - 1]
        for site, answer in super().ask(phase, round_, shared, own):
            in_sum = first is not None and phase in self._order
            gone = site == WEST and in_sum and self._order.index(phase) >= self._order.index(first or "")
            yield site, Answer(None, "gone", lost=True) if gone else answer


class Absent(LocalEngine):
    """Without secure sums: in some rounds, the site does not answer."""

    def __init__(self, runner: Any, rounds: Iterable[int]) -> None:
        super().__init__(runner)
        self._rounds = set(rounds)

    def ask(self, phase: str, round_: int, shared: Any, own: Any) -> Iterator[tuple[int, Answer]]:
        for site, answer in super().ask(phase, round_, shared, own):
            yield site, Answer(None, "gone") if site == WEST and round_ in self._rounds else answer


def simulated(config: Config, ready: Preparation, engine: Any) -> dict[str, Any]:
    """The weights after all rounds of an experiment."""
    session = Session(config, ready, engine, None)
    while not session.finished():
        session.next_round()
    return dict(session.checkpoint().weights)


def plain_round(
    config: Config, ready: Preparation, start: Mapping[str, Any], round_: int, engine: LocalEngine
) -> dict[str, Any]:
    """The weights after one round without secure sums that begins with these."""
    session = Session(config, ready, engine, Checkpoint(round_ - 1, dict(start), {}, 0, -1.0, 0.0))
    session.next_round()
    return dict(session.checkpoint().weights)


def new_site_runner(config: Config, ready: Preparation, folder: Path) -> Any:
    return new_runner(config, ready.site_data, folder)


def single_answers(
    config: Config, ready: Preparation, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> list[bytes]:
    """What no coordinator may see: of each site and round, its update as numbers and in fixed point.

    They are those of a simulation, which trains the same to the bit.
    """
    found: list[bytes] = []
    plain = summed_answers.encoded

    def kept(summand: Any, *given: Any) -> Any:
        written = plain(summand, *given)
        found.extend((summand.numbers.astype("<f4").tobytes(), written.astype("<u4").tobytes()))
        return written

    with monkeypatch.context() as patch:
        patch.setattr(summed_answers, "encoded", kept)
        simulated(config, ready, engine)
    return found


def windows(secret: bytes, count: int = 12) -> Iterator[bytes]:
    """Pieces of a secret that are unlikely to be anywhere by chance: all their numbers differ."""
    whole = np.frombuffer(secret, "<u4")
    length, given = WINDOW // 4, 0
    for start in range(0, len(whole) - length, length):
        piece = whole[start : start + length]
        if len(np.unique(piece)) == length and given < count:
            given += 1
            yield piece.tobytes()


def seen(places: Mapping[str, bytes], secrets: Iterable[bytes]) -> list[str]:
    """The places where a piece of a secret is found."""
    pieces = [piece for secret in secrets for piece in windows(secret)]
    assert len(pieces) > 50
    return [name for name, content in places.items() if any(piece in content for piece in pieces)]


def weights_of(out: Path, config: Config) -> dict[str, Any]:
    """The weights after the last round of a run."""
    latest = Checkpoints(out / "checkpoint", config.shapes_result()).latest()
    assert latest is not None
    return dict(latest.weights)


def same_weights(found: Mapping[str, Any], expected: Mapping[str, Any], atol: float = 0.0) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, rtol=0, atol=atol, err_msg=name)
