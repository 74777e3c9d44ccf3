"""Weights must be earned: whether global weights that a coordinator sends can come from honest training.

Weights that somebody made for the purpose read a site's text: a filter becomes a word detector, a classifier tells
one relation from all others, and the site's answers say where they respond. So a site uses weights only if

- in round 1, they are those that everybody can compute from the published seed;
- later, no tensor, and no row of one, went farther since the site saw it last than its own training explains: a
  stated multiple of its own step, for every round in between, and what the method's coordinator adds
  (`Method.reach`);
- the step does not go against the site's own update, if it took part, by more than a multiple of that update;
- or the site has seen just these weights before: a coordinator may go back to an earlier round.

The multiples are for what a site cannot know, how much text the others have and how much theirs differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrel.errors import UserError
from fedrel.federation.messages import ModelTensors, RefusedError, hash_arrays
from fedrel.federation.method import Method, OwnStep
from fedrel.files import read_sealed, read_tensors, sealed, write_tensors, write_text
from fedrel.methods.by_name import gives_mean
from fedrel.tensors.weights import Rows, Tensors, Weights, moved

_MEMORY = "memory.json"
ROUNDING = 2.0**-20  # of a tensor's largest number: how far apart two processors may compute initial weights
GROWTH = (
    4.0  # how much longer than its first step a site's own step counts at most: weights must not lengthen it
)
STILL = 0.1  # a tensor that the site's text hardly moves may move as much as this share of an average one
_LAST: dict[Path, tuple[str, Weights]] = {}  # by folder, what this process saw last, and its SHA-256


class UnearnedError(Exception):
    """Weights that honest training does not explain; `initial` if they should be those of the seed."""

    def __init__(self, reason: str, *, initial: bool = False) -> None:
        super().__init__(reason)
        self.initial = initial


@dataclass(frozen=True)
class Fingerprint:
    """What a record keeps of weights: their SHA-256, and the length of each tensor."""

    sha256: str
    norms: dict[str, float]


def fingerprint(weights: Weights) -> Fingerprint:
    """The fingerprint of weights: SHA-256 of names, types, shapes and numbers."""
    whole = hashlib.sha256()
    hash_arrays(whole, weights)
    norms = {name: float(f"{_length(tensor):.6g}") for name, tensor in sorted(weights.items())}
    return Fingerprint(whole.hexdigest(), norms)


@dataclass
class _Memory:
    """What a site remembers of a run's weights, beside the weights that it saw last and its own last step."""

    round: int = 0  # of the weights seen last; 0: none
    highest: int = 0  # the largest number of a round so far
    seen: list[str] = field(default_factory=list)  # the SHA-256 of all that passed
    trained: int = 0  # the round of its own last step; 0: none
    first: dict[str, list[float]] = field(default_factory=dict)  # by tensor, how long its first step was
    last: dict[str, list[float]] = field(
        default_factory=dict
    )  # and its last: of the tensor, of its farthest row
    trial: dict[str, list[float]] = field(
        default_factory=dict
    )  # of a step from the initial weights, if it was needed


@dataclass(frozen=True)
class _Step:
    """A step of the global weights that is to be judged."""

    before: Weights
    after: Weights
    method: Method
    rounds: int  # since the site saw them last
    round: int
    effort: float


class EarnedWeights:
    """A site's judgement of the global weights of one run; what it needs lies in `folder`, on the site's disk.

    `multiple` and `against` are the site's own limits: how many of its own steps the mean may go in a round, and
    how many against its own update; `toward`, how many of its own update a mean must have gone its way in the next
    round, which an honest one need not do where sites differ much. `noise`, with site-level differential privacy:
    how far the coordinator's noise moves so many weights in a round, at most.
    """

    def __init__(
        self,
        folder: Path,
        multiple: float,
        against: float,
        noise: Callable[[int], float] | None = None,
        toward: float | None = None,
    ) -> None:
        self._folder, self._multiple, self._against = folder, multiple, against
        self._toward = None if noise else toward
        self._noise = noise or (lambda size: 0.0)
        self._memory = self._recalled()

    def judge(
        self,
        round_: int,
        weights: Weights,
        known: Fingerprint,
        method: Method,
        initial: Callable[[], Weights],
        train: Callable[[Weights], Tensors],
        effort: float = 0.0,
    ) -> None:
        """Pass and remember weights, or raise `UnearnedError`.

        `initial` computes the published initial weights; `train` trains them on the site's text, for a site that
        has no step of its own yet, or hardly any. `effort` is the coordinator's training beside the site's
        (`OwnStep`).
        """
        memory = self._memory
        if memory.round == round_ and memory.seen[-1:] == [known.sha256]:
            return  # they came with an earlier request of this round
        if known.sha256 not in memory.seen:
            if round_ == 1:
                check_initial(weights, initial())
            else:
                begun = memory.round > 0
                try:
                    before = self._seen() if begun else initial()
                except UserError:  # a machine that failed may have left the file incomplete
                    begun, before = False, initial()
                rounds = max(round_ - memory.highest, 1) if begun else round_ - 1
                step = _Step(before, weights, method, rounds, round_, effort)
                try:
                    self._check_step(step, trial=False)
                except UnearnedError:
                    if memory.trial:
                        raise
                    start = initial() if begun else before
                    memory.trial = _lengths(start, train(start))
                    self._keep()  # whoever asks again need not wait for another one
                    self._check_step(step, trial=True)
        memory.seen = [one for one in memory.seen if one != known.sha256] + [known.sha256]
        memory.round, memory.highest = round_, max(round_, memory.highest)
        self._write("seen", weights)
        _LAST[self._folder] = known.sha256, weights

    def trained(self, round_: int, start: Weights, tensors: Tensors) -> None:
        """Remember the site's own step of a round: how far its training moved the weights."""
        memory = self._memory
        memory.last = _lengths(start, tensors)
        memory.first = memory.first or memory.last
        memory.trained = round_
        self._write("own", ModelTensors(rows=True).pack(_faded(start, tensors)))

    def _check_step(self, step: _Step, *, trial: bool) -> None:
        own = self._own(trial or bool(self._memory.trial))
        if not own:
            raise UnearnedError("this site has no step of its own to judge by")
        whole = np.sqrt(sum(length**2 for length, _ in own.values()))
        count = sum(tensor.size for tensor in step.after.values())
        for name, tensor in step.after.items():
            gone, farthest = _length_and_row(tensor - step.before[name])
            for what, far, mine, size in (
                (name, gone, own[name][0], tensor.size),
                (f"a row of {name}", farthest, own[name][1], tensor.size // max(len(tensor), 1)),
            ):
                usual = STILL * whole * (size / count) ** 0.5
                length = self._multiple * max(mine, usual) + self._noise(size)
                explained = OwnStep(length, size, step.round, step.effort)
                beyond = far - step.rounds * step.method.reach(explained)
                if beyond > 0 and beyond > ROUNDING * (_length(step.before[name]) + 1e-6):
                    rounds = "1 round" if step.rounds == 1 else f"{step.rounds} rounds"
                    times = far / max(mine, 1e-30)
                    raise UnearnedError(
                        f"{what} went {far:.3g} in {rounds}, {times:.3g} times this site's own step"
                    )
        self._check_direction(step, float(whole))

    def _check_direction(self, step: _Step, whole: float) -> None:
        """The step must not go far against the site's own update, where that is part of it."""
        memory = self._memory
        if not memory.trained or memory.trained != memory.round or step.effort:
            return
        try:
            update = ModelTensors(rows=True).unpack(
                self._read("own"), {name: tensor.shape for name, tensor in step.after.items()}
            )
        except (UserError, RefusedError):  # as above
            return
        length = np.sqrt(sum(one**2 for one, _ in memory.last.values()))
        along = sum(_along(own, step.before[name], step.after[name]) for name, own in update.items())
        along /= max(length, 1e-30)
        if along < -(self._against * whole + self._noise(1)) * step.rounds:
            raise UnearnedError(
                f"they went against this site's own update, {-along / whole:.3g} times its length"
            )
        share = along / max(length, 1e-30)
        if self._toward is not None and step.rounds == 1 and gives_mean(step.method) and share < self._toward:
            raise UnearnedError(
                f"they went {share:.3g} times this site's own update its way: it is not in them"
            )

    def _own(self, trial: bool) -> dict[str, list[float]]:
        """By tensor, how long the site's own step is, and its farthest row's: not much longer than its first one.

        With a trial, at least as long as that.
        """
        memory, nothing = self._memory, [0.0, 0.0]
        found = {}
        for name in memory.last or memory.trial:
            first, last = memory.first.get(name, nothing), memory.last.get(name, nothing)
            tried = memory.trial.get(name, nothing) if trial else nothing
            found[name] = [
                max(min(now, GROWTH * begun), other)
                for now, begun, other in zip(last, first, tried, strict=True)
            ]
        return found

    def _seen(self) -> Weights:
        """The weights that the site saw last: this process may have them still, else from the disk."""
        sha256, weights = _LAST.get(self._folder, ("", {}))
        return weights if sha256 == self._memory.seen[-1] else self._read("seen")

    def _read(self, name: str) -> dict[str, Any]:
        return read_tensors(
            self._folder / f"{name}.safetensors", "what this site keeps of a run's weights", ""
        )[0]

    def _write(self, name: str, tensors: Weights) -> None:
        plain = {key: np.require(tensor, None, "C") for key, tensor in tensors.items()}
        write_tensors(self._folder / f"{name}.safetensors", plain, {}, flush=False)
        self._keep()

    def _keep(self) -> None:
        write_text(self._folder / _MEMORY, json.dumps(sealed(vars(self._memory))))

    def _recalled(self) -> _Memory:
        path = self._folder / _MEMORY
        if not path.exists():
            return _Memory()
        hint = "restore it from a copy: without it, weights cannot be judged"
        return _Memory(**read_sealed(path, "what this site remembers of a run's weights", hint))


def check_initial(weights: Weights, initial: Weights) -> None:
    """Equal to the bit, or to what processors of another family round differently."""
    for name, tensor in initial.items():
        apart = float(np.abs(weights[name] - tensor).max(initial=0.0))
        if apart > ROUNDING * float(np.abs(tensor).max(initial=0.0)):
            raise UnearnedError(f"{name} differs by {apart:.3g} from what the seed gives", initial=True)


def _lengths(start: Weights, tensors: Tensors) -> dict[str, list[float]]:
    """By tensor, how far it went from `start`, and how far its farthest row.

    Of a table, only the listed rows are looked at: all others faded by the same factor, counted for all rows.
    """
    found = {}
    for name, step in moved(start, tensors).items():
        if isinstance(step, Rows):
            fading = 1 - tensors[name].rest  # type: ignore[union-attr]
            listed = _length_and_row(step.values - np.float32(fading) * start[name][step.index])
            others = _length_and_row(start[name]) if fading else (0.0, 0.0)
            found[name] = [float(np.hypot(listed[0], fading * others[0])), max(listed[1], fading * others[1])]
        else:
            found[name] = list(_length_and_row(step))
    return found


def _faded(start: Weights, tensors: Tensors) -> Tensors:
    """How far training moved the weights; of a table, the listed rows beyond what fading explains, and `rest`."""
    return {
        name: Rows(step.index, step.values, tensors[name].rest) if isinstance(step, Rows) else step  # type: ignore[union-attr]
        for name, step in moved(start, tensors).items()
    }


def _along(own: Any, before: Any, after: Any) -> float:
    """The product of a site's own step, as `_faded` has it, with the step from `before` to `after`."""
    if not isinstance(own, Rows):
        return _dot(own, after - before)
    listed = _dot(own.values, after[own.index] - before[own.index])
    return listed if own.rest == 1 else listed + (own.rest - 1) * _dot(before, after - before)


def _length_and_row(step: Any) -> tuple[float, float]:
    """How far a tensor went, and how far the row of it that went farthest, in one pass."""
    rows = np.reshape(step, (len(step), -1))
    squares = np.einsum("ij,ij->i", rows, rows)
    return float(np.sqrt(squares.sum(dtype=np.float64))), float(np.sqrt(squares.max(initial=0.0)))


def _length(tensor: Any) -> float:
    return float(np.sqrt(_dot(tensor, tensor)))


def _dot(left: Any, right: Any) -> float:
    return float(np.dot(np.ravel(left), np.ravel(right)))
