"""What a site keeps to itself: its state between rounds, and a journal of its training. None of it is sent.

A state is a file a site, on the site's own disk (SCAFFOLD, FedDyn, MOON and FedLCC need one). A run that is
killed in the middle of a round does that round again, and its sites must then find the state from before it. So
a file's name has its round, `read` looks for an earlier one, and `write` removes only what no round can ask for
again: at most two files a site stay, whatever the number of rounds.

A journal says which sentences were trained on and, where the truth is known (the built-in world), how many of them
really express their relation. A simulation on one machine may read it; real sites do not send it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Corpus
from fedrel.errors import UserError
from fedrel.files import locked_in_turn, read_tensors, write_tensors
from fedrel.tensors.weights import Weights

if TYPE_CHECKING:
    from torch import Tensor


_RESTORE = "restore the file from a copy, or remove the folder to start without site states"


class SiteStates:
    """A folder of site states, all of one model. `model` is a name for it that tells its states from another's."""

    def __init__(self, folder: Path, model: str) -> None:
        self._folder, self._model = folder, model

    def read(self, site: int, round_: int) -> Weights | None:
        """What the site wrote last before this round, or None."""
        before = [file for file in self._files(site) if _round(file) < round_]
        if not before:
            return None
        tensors, about = read_tensors(before[-1], "a site's state", _RESTORE)
        if about.get("model") != self._model:
            raise UserError(
                "is the state of another model",
                file=before[-1],
                hint="use the config it was made with, or remove the folder to start without site states",
            )
        return tensors

    def write(self, site: int, round_: int, tensors: Weights) -> None:
        """Keep a site's state of this round, and the one before it until this round can no longer be repeated."""
        folder = self._folder / f"{site:06}"
        write_tensors(folder / f"round-{round_:05}.safetensors", tensors, {"model": self._model})
        for file in [file for file in self._files(site) if _round(file) < round_][:-1]:
            file.unlink()

    def keep(self, site: int, round_: int, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep arrays for later requests of the same round, in place of those of other rounds."""
        about = {"model": self._model, "round": str(round_)}
        write_tensors(self._folder / f"{site:06}" / "within.safetensors", tensors, about)

    def kept(self, site: int, round_: int) -> Mapping[str, npt.NDArray[Any]]:
        """What the site kept in this round; empty if nothing."""
        file = self._folder / f"{site:06}" / "within.safetensors"
        if not file.exists():
            return {}
        tensors, about = read_tensors(file, "what a site keeps within a round", _RESTORE)
        return tensors if about == {"model": self._model, "round": str(round_)} else {}

    @property
    def notes(self) -> SumNotes:
        """What simulated sites have answered for secure sums, beside their states."""
        return SumNotes(self._folder)

    def _files(self, site: int) -> list[Path]:
        return sorted((self._folder / f"{site:06}").glob("round-*.safetensors"))


def _round(file: Path) -> int:
    return int(file.stem.removeprefix("round-"))


class SumNotes:
    """How sites answered questions of secure sums, in a folder; a note stays, whatever asks again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, site: int, question: str, answer: str) -> bool:
        """Note how a site answers a question; False if it answered otherwise before, in whatever process."""
        file = self._file(site)
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked_in_turn(file.parent), file.open("a+", encoding="utf-8") as opened:
            opened.seek(0)
            whole = [line for line in opened if line.endswith("\n")]  # one cut short was never acted upon
            opened.truncate(sum(len(line.encode()) for line in whole))
            found = _notes(file, whole)
            if question not in found:
                opened.write(json.dumps([question, answer]) + "\n")
                opened.flush()
                os.fsync(opened.fileno())
        return bool(found.get(question, answer) == answer)

    def noted(self, site: int, question: str) -> str | None:
        """How a site answered a question; None if it never did."""
        file = self._file(site)
        if not file.exists():
            return None
        with file.open(encoding="utf-8") as opened:
            return _notes(file, [line for line in opened if line.endswith("\n")]).get(question)

    def _file(self, site: int) -> Path:
        return self._folder / f"{site:06}" / "answered.jsonl"


def _notes(file: Path, lines: Sequence[str]) -> dict[str, str]:
    try:
        return dict(json.loads(line) for line in lines)
    except ValueError as error:
        raise UserError(f"is damaged: {error}", file=file, hint="restore it from a copy") from error


@dataclass(slots=True)
class Entry:
    """A journal's entry of one round: how much was trained in all, on sentences that express their relation, and on
    each watched row."""

    weight: float = 0.0
    expressing: float = 0.0
    watched: dict[int, float] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Entry:
        """The entry that another process wrote as JSON, which makes its row numbers strings."""
        return cls(**{**fields, "watched": {int(row): weight for row, weight in fields["watched"].items()}})


class Journal:
    """Collects an entry while a site trains. Sentences of `NA` pairs have no relation to express: left out."""

    def __init__(self, corpus: Corpus, truth_known: bool, watched: npt.NDArray[np.int64]) -> None:
        self._corpus, self._truth_known, self._watched = corpus, truth_known, watched
        self.entry = Entry()

    def trained(self, rows: npt.NDArray[np.int64], weights: Tensor) -> None:
        """Note how much each of some sentences was trained on."""
        if not self._truth_known and not len(self._watched):
            return
        corpus = cast(SentenceCorpus, self._corpus)  # documents have neither a known truth nor watched rows
        weight = weights.detach().cpu().numpy().astype(np.float64)
        if self._truth_known:
            facts = np.asarray(corpus.relation[rows]) >= int(corpus.has_na)
            truth = np.asarray(corpus.expresses[rows])
            self.entry.weight += float(weight[facts & (truth >= 0)].sum())
            self.entry.expressing += float(weight[facts & (truth == 1)].sum())
        for at in self._positions_of_watched(rows):
            row = int(rows[at])
            self.entry.watched[row] = self.entry.watched.get(row, 0.0) + float(weight[at])

    def _positions_of_watched(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The positions in `rows` of watched rows, which are ascending."""
        if not len(self._watched):
            return np.zeros(0, dtype=np.int64)
        place = np.searchsorted(self._watched[:-1], rows)
        return np.flatnonzero(self._watched[place] == rows)
