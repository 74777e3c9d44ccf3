"""A site's side: what a method's `at_site` code may use, and the desk where a process does sites' work.

A process holds one desk: one resident model, the corpus columns, the method. Sites come to it one after the
other; each starts from the global weights again and finds nothing of the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, batch_of, by_triple, singles, slices
from fedrel.data.columns import Corpus, open_corpus
from fedrel.data.partition import Partition
from fedrel.federation.journal import Entry, Journal
from fedrel.federation.messages import Arrays, Message, RefusedError, Update
from fedrel.privacy.keyed import digests
from fedrel.seeding import numpy_generator, torch_generator

if TYPE_CHECKING:
    import torch

    from fedrel.config import Training
    from fedrel.extractors.bags import BagHead
    from fedrel.extractors.base import Extractor
    from fedrel.extractors.batch import Batch
    from fedrel.federation.weights import Weights
    from fedrel.methods.base import Method

Ints = npt.NDArray[np.int64]
Kind = TypeVar("Kind", bound=Message)

SCORED_AT_ONCE = 512  # sentences; large enough for full GEMM speed, small enough to stay in cache


@dataclass(frozen=True)
class Materials:
    """What a run's processes work with: text as columns, who holds which rows, the model's vocabulary."""

    corpus: Corpus
    lookup: Ints  # [words of the corpus], their ids in the model's vocabulary
    vocabulary_size: int
    partition: Partition
    watched: Ints  # rows that journals follow for the case study
    truth_known: bool

    def save(self, folder: Path) -> None:
        """Leave it for other processes of this machine, which map what they need."""
        arrays = {"lookup": self.lookup, "watched": self.watched}
        arrays |= {"order": self.partition.order, "bounds": self.partition.bounds}
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        rest = {
            "corpus": str(self.corpus.folder),
            "vocabulary_size": self.vocabulary_size,
            "truth_known": self.truth_known,
            "names": self.partition.names,
        }
        (folder / "materials.json").write_text(json.dumps(rest))

    @classmethod
    def load(cls, folder: Path) -> Materials:
        """Open what `save` left."""
        rest = json.loads((folder / "materials.json").read_text())
        lookup, watched, order, bounds = (
            np.load(folder / f"{name}.npy", mmap_mode="r")
            for name in ("lookup", "watched", "order", "bounds")
        )
        return cls(
            corpus=open_corpus(Path(rest["corpus"])),
            lookup=lookup,
            vocabulary_size=rest["vocabulary_size"],
            partition=Partition(order, bounds, tuple(rest["names"])),
            watched=watched,
            truth_known=rest["truth_known"],
        )


class Desk:
    """Where a process answers for sites, with one resident model."""

    def __init__(
        self, materials: Materials, extractor: Extractor, method: Method, training: Training, seed: int
    ) -> None:
        self.materials, self.extractor, self.method = materials, extractor, method
        self.training, self.seed = training, seed
        self._round = 0
        self._messages: dict[type[Message], Message] = {}

    def open(self, phase: str, round_: int, shared: Arrays) -> None:
        """Take in what a question sends to every site; it stays here until the round ends."""
        kept = self._messages if round_ == self._round else {}
        self._round, self._messages = round_, kept | self._unpack(phase, shared)

    def answer(self, phase: str, round_: int, site: int, own: Arrays) -> tuple[Arrays, Entry]:
        """One site's answer to the question that was opened, and the site's journal entry."""
        received = self._messages | self._unpack(phase, own)
        ask = getattr(self.method, phase)
        missing = [kind.__name__ for kind in ask.takes if kind not in received]
        if missing:
            raise RefusedError(f"the request for {phase} lacks {missing[0]}")
        asked = Site(self, site, round_, received)
        return ask(asked).pack(), asked.journal.entry

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each test bag, [B, R], under the given weights."""
        import torch

        from fedrel.extractors.bags import HEADS

        self.extractor.begin(weights)
        with torch.inference_mode():
            parts = [
                HEADS[head].probabilities(self.extractor, self.batch(part)).cpu().numpy()
                for part in slices(bags, SCORED_AT_ONCE)
            ]
        return np.concatenate(parts)

    def batch(self, bags: Bags) -> Batch:
        """Gather bags from the corpus."""
        return batch_of(self.materials.corpus, self.materials.lookup, bags, self.training.device)

    def _unpack(self, phase: str, arrays: Arrays) -> dict[type[Message], Message]:
        """The messages of a request; arrays are named `Kind.field`."""
        kinds = {kind.__name__: kind for kind in (*getattr(self.method, phase).takes, *self.method.carried())}
        parts: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            kind, _, field = name.partition(".")
            parts.setdefault(kind, {})[field] = array
        for kind in parts:
            if kind not in kinds:
                raise RefusedError(f"{phase} takes no {kind}")
        return {
            kinds[kind]: kinds[kind].unpack(part, self.extractor.shapes()) for kind, part in parts.items()
        }


class Site:
    """One site in one round: its text, the model in training, its generators, what it was sent."""

    def __init__(
        self, desk: Desk, number: int, round_: int, messages: Mapping[type[Message], Message]
    ) -> None:
        self.number, self.round = number, round_
        self.extractor = desk.extractor
        self.journal = Journal(desk.materials.corpus, desk.materials.truth_known, desk.materials.watched)
        self._desk, self._messages = desk, messages
        self._losses: list[float] = []

    # What it holds.

    @cached_property
    def rows(self) -> Ints:
        """The corpus rows of this site; a sentence's index here is its place in this list."""
        return self._desk.materials.partition.rows(self.number)

    @cached_property
    def bags(self) -> Bags:
        """The site's bags, one a triple."""
        return by_triple(self._desk.materials.corpus, self.rows)

    def rows_at(self, index: npt.NDArray[np.int32]) -> Ints:
        """The rows of sentences named by their index; refuses an index that this site does not have."""
        if len(index) and index.max() >= len(self.rows):
            raise RefusedError(f"names sentence {index.max()}, but this site holds {len(self.rows)}")
        return self.rows[index]

    def index_of(self, rows: Ints) -> npt.NDArray[np.int32]:
        """The index here of some of this site's rows."""
        order = np.argsort(self.rows)
        return order[np.searchsorted(self.rows, rows, sorter=order)].astype(np.int32)

    def rows_elsewhere(self, sites: npt.NDArray[np.int32], index: npt.NDArray[np.int32]) -> Ints:
        """Other sites' sentences: only a simulation has them at hand."""
        partition = self._desk.materials.partition
        if len(sites) and (sites.max() >= partition.sites or (index >= partition.sizes[sites]).any()):
            raise RefusedError("names a sentence that its site does not hold")
        rows: Ints = partition.order[partition.bounds[sites] + index]
        return rows

    def singles(self, rows: Ints) -> Bags:
        """Sentences on their own, each with the label that its triple gives it."""
        corpus = self._desk.materials.corpus
        return singles(rows, corpus.relation[rows].astype(np.int64), corpus.triple[rows].astype(np.int64))

    def digests(self, triples: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """Keyed digests of triples. In simulation the sites' common key is derived from the run's seed."""
        corpus = self._desk.materials.corpus
        pair, relation = corpus.triples[triples].T
        head, tail = corpus.pairs[pair].T
        names = zip(
            (corpus.entities[i] for i in head),
            (corpus.relations[i] for i in relation),
            (corpus.entities[i] for i in tail),
            strict=True,
        )
        key = numpy_generator(self._desk.seed, "triple-key").bytes(32)
        return digests(key, names)

    def received(self, kind: type[Kind]) -> Kind:
        """The message of a kind that came with the question."""
        message = self._messages.get(kind)
        if not isinstance(message, kind):
            raise RefusedError(f"the request lacks {kind.__name__}")
        return message

    # Scoring and training.

    def begin(self, weights: Any) -> None:
        """Start from these weights."""
        self.extractor.begin(weights)

    def label_probabilities(self, bags: Bags) -> npt.NDArray[np.float32]:
        """p(r|s) of Eq. 1 for every sentence, with r its bag's relation."""
        import torch

        from fedrel.extractors.bags import sentence_probabilities

        values = []
        with torch.inference_mode():
            for part in slices(bags, SCORED_AT_ONCE):
                scores = sentence_probabilities(self.extractor, self._desk.batch(part)).cpu().numpy()
                labels = np.repeat(part.labels, np.diff(part.bounds))
                values.append(scores[np.arange(len(labels)), labels])
        return np.concatenate(values).astype(np.float32)

    def head(self, name: str) -> BagHead:
        """A bag head by name."""
        from fedrel.extractors.bags import HEADS

        return HEADS[name]

    def batches(self, bags: Bags) -> Iterator[Batch]:
        """E epochs of batches of B bags, shuffled by the site's generator for this round."""
        training = self._desk.training
        shuffle = numpy_generator(self._desk.seed, "shuffle", self.round, self.number)
        for _ in range(training.epochs):
            order = shuffle.permutation(len(bags))
            for begin in range(0, len(bags), training.batch_size):
                yield self._desk.batch(bags.take(order[begin : begin + training.batch_size]))

    @cached_property
    def dropout(self) -> torch.Generator:
        """The generator of this site's dropout masks in this round."""
        training = self._desk.training
        return torch_generator(self._desk.seed, "dropout", self.round, self.number, device=training.device)

    @cached_property
    def _optimiser(self) -> Any:
        from fedrel.extractors.sgd import SGD

        training = self._desk.training
        return SGD(
            self.extractor, lr=training.learning_rate_in(self.round), weight_decay=training.weight_decay
        )

    def step(self, loss: torch.Tensor) -> None:
        """One step of the optimiser down the gradient of this loss."""
        self._losses.append(float(loss.detach()))
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()

    def update(self, examples: int) -> Update:
        """What the site sends back: its weights, how many examples made them, its mean loss."""
        return Update(self.extractor.update(), examples, float(np.mean(self._losses)))
