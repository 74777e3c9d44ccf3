"""Checkpoints: all that a run needs to resume, written to one file after every round.

Randomness is derived from (seed, round, site, purpose), so there is no generator state to keep: the weights,
what the method remembers, the best weights so far and a few numbers are all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from fedrel.errors import UserError
from fedrel.files import ELSEWHERE, write_tensors
from fedrel.tensors.weights import Weights

_TENSORS = ("weights", "state")  # the parts of a checkpoint that are tensors by name


@dataclass(frozen=True)
class Checkpoint:
    """A run after `round` rounds: global weights, the best round on dev so far and its weights' file."""

    round: int
    weights: Weights
    state: Weights  # what the method remembers at the coordinator
    best_round: int
    best_metric: float
    seconds: float


class Checkpoints:
    """The checkpoint folder of a run; `config` is what a checkpoint must agree with to be resumed."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._folder, self._config = folder, json.dumps(config, sort_keys=True)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a round's checkpoint, then remove what it replaces."""
        latest = self._folder / f"round-{checkpoint.round:05}.safetensors"
        best = self._folder / f"best-{checkpoint.best_round:05}.safetensors"
        numbers = {name: value for name, value in vars(checkpoint).items() if name not in _TENSORS}
        tensors = {f"{part}/{name}": t for part in _TENSORS for name, t in getattr(checkpoint, part).items()}
        if checkpoint.best_round == checkpoint.round:
            write_tensors(best, checkpoint.weights, {})
        write_tensors(latest, tensors, {"run": json.dumps(numbers), "config": self._config})
        for file in self._folder.glob("*.safetensors"):
            if file not in (latest, best):
                file.unlink()

    def latest(self) -> Checkpoint | None:
        """The last checkpoint, or None if there is none; fails if it is of another experiment."""
        files = sorted(self._folder.glob("round-*.safetensors"))
        if not files:
            return None
        try:
            with safe_open(files[-1], framework="numpy") as opened:
                about = opened.metadata() or {}
            config, numbers = about["config"], json.loads(about["run"])
            numbers.pop("rounds_since_best", None)  # checkpoints of version 0.1 have it
            tensors = load_file(files[-1])
        except (SafetensorError, KeyError, OSError, ValueError) as error:
            hint = f"restore the file from a copy, or {ELSEWHERE} and begin anew"
            raise UserError(f"is not a checkpoint: {error}", file=files[-1], hint=hint) from error
        if config != self._config:
            raise UserError(
                f"was made with another config ({_first_difference(json.loads(config), json.loads(self._config))})",
                file=files[-1],
                hint=f"resume with the config of that run, or {ELSEWHERE}",
            )
        parts: dict[str, Any] = {
            part: {n.removeprefix(f"{part}/"): t for n, t in tensors.items() if n.startswith(f"{part}/")}
            for part in _TENSORS
        }
        return Checkpoint(**parts, **numbers)

    def best(self, checkpoint: Checkpoint) -> dict[str, npt.NDArray[np.float32]]:
        """The weights of the best round on dev."""
        weights: dict[str, npt.NDArray[np.float32]] = load_file(
            self._folder / f"best-{checkpoint.best_round:05}.safetensors"
        )
        return weights


def _first_difference(there: Any, here: Any, key: str = "") -> str:
    """The first key at which two configs differ, with both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                return _first_difference(there.get(name), here.get(name), f"{key}.{name}" if key else name)
    return f"{key} was {there!r}, is {here!r}"
