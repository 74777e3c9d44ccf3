"""Checkpoints: all that a run needs to resume, written to one file after every round.

Randomness is derived from (seed, round, site, purpose), so there is no generator state to keep: the weights,
what the method remembers, the best weights so far and a few numbers are all. The checkpoints of the last rounds and
of the best one stay, so that a run whose model was ruined can go back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.errors import UserError
from fedrel.files import ELSEWHERE, read_tensors, write_tensors
from fedrel.runs.records import Round
from fedrel.tensors.weights import Weights

_TENSORS = ("weights", "state")  # the parts of a checkpoint that are tensors by name
KEPT = 3  # of the last rounds, so that a run can go back; the best round's is kept as well


@dataclass(frozen=True)
class Checkpoint:
    """A run after `round` rounds: global weights, the best round on dev so far and its weights' file."""

    round: int
    weights: Weights
    state: Weights  # what the method remembers at the coordinator
    best_round: int
    best_metric: float
    seconds: float
    weights_of: int | None = None
    """The round that weights and state are of, if the run went back; else None."""
    metrics: str = ""  # SHA-256 of the lines of `metrics.jsonl` up to this round
    site_states: str = ""  # whether `all` sites that were active keep a state, `some`, or `none`

    def back_to(self, earlier: Checkpoint) -> Checkpoint:
        """The same run, as many rounds on, with the weights and the state of an earlier round."""
        of = earlier.round if earlier.weights_of is None else earlier.weights_of
        return replace(self, weights=earlier.weights, state=earlier.state, weights_of=of)


class Checkpoints:
    """The checkpoint folder of a run; `config` is what a checkpoint must agree with to be resumed, except in the
    sections that may differ."""

    def __init__(self, folder: Path, config: Mapping[str, Any], may_differ: Collection[str] = ()) -> None:
        self._folder, self._config = folder, json.dumps(config, sort_keys=True)
        self._may_differ = may_differ

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a round's checkpoint, then remove what it replaces."""
        latest = self._file(checkpoint.round)
        best = self._folder / f"best-{checkpoint.best_round:05}.safetensors"
        numbers = {name: value for name, value in vars(checkpoint).items() if name not in _TENSORS}
        tensors = {f"{part}/{name}": t for part in _TENSORS for name, t in getattr(checkpoint, part).items()}
        if checkpoint.best_round == checkpoint.round:
            write_tensors(best, checkpoint.weights, {})
        write_tensors(latest, tensors, {"run": json.dumps(numbers), "config": self._config})
        kept = {best, self._file(checkpoint.best_round), *self._files()[-KEPT:]}
        for file in self._folder.glob("*.safetensors"):
            if file not in kept:
                file.unlink()

    def latest(self) -> Checkpoint | None:
        """The last checkpoint, or None if there is none; fails if it is of another experiment."""
        files = self._files()
        return self._read(files[-1]) if files else None

    def last_round(self) -> int:
        """The round of the last checkpoint, 0 if there is none; what is in the file is not looked at."""
        return max(self._rounds(), default=0)

    def of_round(self, round_: int) -> Checkpoint:
        """The checkpoint of a round, if it is still there: of the best round and the last ones."""
        file = self._file(round_)
        if not file.exists():
            rounds = [str(one) for one in self._rounds()]
            hint = f"there are those of round {', '.join(rounds)}" if rounds else "there is none"
            raise UserError(f"has no checkpoint of round {round_}", file=self._folder.parent, hint=hint)
        return self._read(file)

    def _file(self, round_: int) -> Path:
        return self._folder / f"round-{round_:05}.safetensors"

    def _rounds(self) -> list[int]:
        return [int(one.stem.removeprefix("round-")) for one in self._files()]

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("round-*.safetensors"))

    def _read(self, file: Path) -> Checkpoint:
        hint = f"restore the file from a copy, or {ELSEWHERE} and begin anew"
        tensors, about = read_tensors(file, "a checkpoint", hint)
        try:
            config, numbers = about["config"], json.loads(about["run"])
            numbers.pop("rounds_since_best", None)  # checkpoints of version 0.1 have it
        except (KeyError, ValueError) as error:
            raise UserError(f"is not a checkpoint: {error}", file=file, hint=hint) from error
        there, here = (self._compared(one) for one in (config, self._config))
        if there != here:
            raise UserError(
                f"was made with another config ({_first_difference(there, here)})",
                file=file,
                hint=f"resume with the config of that run, or {ELSEWHERE}",
            )
        parts: dict[str, Any] = {
            part: {n.removeprefix(f"{part}/"): t for n, t in tensors.items() if n.startswith(f"{part}/")}
            for part in _TENSORS
        }
        return Checkpoint(**parts, **numbers)

    def _compared(self, config: str) -> dict[str, Any]:
        tree: dict[str, Any] = json.loads(config)
        return {key: value for key, value in tree.items() if key not in self._may_differ}

    def best(self, checkpoint: Checkpoint) -> dict[str, npt.NDArray[np.float32]]:
        """The weights of the best round on dev."""
        file = self._folder / f"best-{checkpoint.best_round:05}.safetensors"
        hint = f"restore the file from a copy, or {ELSEWHERE} and begin anew"
        weights, _ = read_tensors(file, "the best round's weights", hint)
        return weights


class KeptStates:
    """Which sites keep a state in a simulation's folder, so that states that were removed are noticed.

    Rounds name the sites that were active. If all of them wrote a state so far, all must have one when the run goes
    on; if only some did, there must at least be states.
    """

    def __init__(self, folder: Path, rounds: Sequence[Round], kept: str) -> None:
        self._folder, self.kept = folder, kept
        if kept == "all":
            missing = [site for site in sorted(_answered(rounds)) if not self._has(site)]
        else:
            missing = [] if kept != "some" or any(folder.glob("*/round-*.safetensors")) else [-1]
        if missing:
            problem = "the states of all sites are gone, or of some: "
            problem += "there is none" if missing[0] < 0 else f"site {missing[0]} has none"
            raise UserError(problem, file=folder, hint=f"restore the folder from a copy, or {ELSEWHERE}")

    def note(self, done: Round) -> None:
        """Look at the sites that were active in a round."""
        has = {self._has(site) for site in _answered([done])}
        now = "all" if has == {True} else "none" if True not in has else "some"
        self.kept = now if self.kept in ("", now) or not has else "some"

    def _has(self, site: int) -> bool:
        return any((self._folder / f"{site:06}").glob("round-*.safetensors"))


def _answered(rounds: Sequence[Round]) -> set[int]:
    """The sites that took part in any of the rounds."""
    return {site for one in rounds for site in one.active} - {
        out.site for one in rounds for out in one.refused
    }


def _first_difference(there: Any, here: Any, key: str = "") -> str:
    """The first key at which two configs differ, with both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                return _first_difference(there.get(name), here.get(name), f"{key}.{name}" if key else name)
    return f"{key} was {there!r}, is {here!r}"
