"""A site's side: what a method's `at_site` code may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, singles, slices
from fedrel.extractors.inputs import shuffled
from fedrel.extractors.optim.correction import Correction
from fedrel.federation.journal import Journal
from fedrel.federation.messages import Message, ModelTensors, RefusedError, Update
from fedrel.privacy.keyed import digests
from fedrel.seeding import derive, numpy_generator, torch_generator

if TYPE_CHECKING:
    import torch

    from fedrel.extractors.base import Batch, Extractor
    from fedrel.extractors.heads import Reading
    from fedrel.extractors.optim.optimiser import Optimiser
    from fedrel.federation.runner import Desk
    from fedrel.tensors.weights import Tensors, Weights


COORDINATOR = -1  # the number under which the coordinator works with its own labelled sentences
_MEMORY = ModelTensors(rows=True)  # how a site keeps something of the model's shape

Ints = npt.NDArray[np.int64]
Kind = TypeVar("Kind", bound=Message)


class Site:
    """One site in one round: its text, the model in training, its generators, what it was sent."""

    def __init__(
        self, desk: Desk, number: int, round_: int, messages: Mapping[type[Message], Message]
    ) -> None:
        self.number, self.round = number, round_
        self.extractor = desk.extractor
        self.journal = Journal(desk.materials.text, desk.materials.truth_known, desk.materials.watched)
        self.memo: dict[str, Any] = {}  # what a method notes while it answers
        self._desk, self._messages = desk, messages
        self._remembered: dict[str, npt.NDArray[np.float32]] = {}
        self._losses: list[float] = []
        self._correction = Correction()
        self._steps = 0

    # What it holds.

    @cached_property
    def rows(self) -> Ints:
        """The corpus rows of this site; a sentence's index here is its place in this list."""
        if self.number == COORDINATOR:
            return self._desk.materials.validation
        return self._desk.materials.partition.rows(self.number)

    @cached_property
    def bags(self) -> Bags:
        """The site's bags, one a triple; of documents, each by itself."""
        return self._desk.materials.bags(self.rows)

    @property
    def validation(self) -> Bags:
        """The coordinator's labelled sentences, which every site may read, in the order all agree on (D_v)."""
        return self.singles(self._desk.materials.validation)

    @cached_property
    def label_counts(self) -> Ints:
        """How many of the site's sentences have each relation, [R]."""
        corpus = self._desk.materials.corpus
        return np.bincount(corpus.relation[self.rows], minlength=len(corpus.relations))

    def rows_at(self, index: npt.NDArray[np.int32]) -> Ints:
        """The rows of sentences named by their index; refuses one that this site does not have, or named twice."""
        if len(index) and index.max() >= len(self.rows):
            raise RefusedError(f"names sentence {index.max()}, but this site holds {len(self.rows)}")
        if len(np.unique(index)) < len(index):  # few sentences would pass for many examples
            raise RefusedError("names a sentence twice")
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

    def sample(self, bags: Bags, count: int) -> Bags:
        """So many of the bags, at random, others in every round."""
        generator = numpy_generator(self._desk.seed, "sample", self.round, self.number)
        return bags.take(np.sort(generator.permutation(len(bags))[:count]))

    def digests(self, triples: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """Keyed digests of triples, under a key that real sites share and the coordinator does not have.

        In a simulation, where there is nobody to hide it from, the key is derived from the run's seed.
        """
        corpus = self._desk.materials.corpus
        pair, relation = corpus.triples[triples].T
        head, tail = corpus.pairs[pair].T
        names = zip(
            (corpus.entities[i] for i in head),
            (corpus.relations[i] for i in relation),
            (corpus.entities[i] for i in tail),
            strict=True,
        )
        key = self._desk.triple_key or numpy_generator(self._desk.seed, "triple-key").bytes(32)
        return digests(key, names)

    def received(self, kind: type[Kind]) -> Kind:
        """The message of a kind that came with the question."""
        message = self._messages.get(kind)
        if not isinstance(message, kind):
            raise RefusedError(f"the request lacks {kind.__name__}")
        return message

    # What it remembers from round to round.

    def recall(self) -> Weights | None:
        """What this site kept under `remember` in the last round it took part in before this one."""
        return self._desk.states.read(self.number, self.round)

    def remember(self, tensors: Weights) -> None:
        """Keep tensors at the site, on its disk, for the next round it takes part in.

        Composed methods each keep their own, under names of their own.
        """
        self._remembered |= tensors
        self._desk.states.write(self.number, self.round, self._remembered)

    def recall_model(self, owner: str) -> Tensors:
        """What this site kept under `remember_model`; nothing before that."""
        own = f"{owner}."
        kept = {key.removeprefix(own): a for key, a in (self.recall() or {}).items() if key.startswith(own)}
        return _MEMORY.unpack(kept, self.extractor.shapes()) if kept else {}

    def remember_model(self, owner: str, tensors: Tensors) -> None:
        """Keep something of the model's shape for a method: of word tables, only the rows it lists."""
        self.remember({f"{owner}.{key}": array for key, array in _MEMORY.pack(tensors).items()})

    # Scoring and training.

    def begin(self, weights: Any) -> None:
        """Start from these weights."""
        self.extractor.begin(weights)

    def correct(self, correction: Correction) -> None:
        """Add this to the gradients of all steps; to be called before the first."""
        training = self._desk.training
        rate = training.learning_rate_in(self.round)
        if training.optimiser == "sgd" and correction.pull and rate * correction.pull >= 2:
            raise RefusedError(
                f"a pull of {correction.pull:g} overshoots at a learning rate of {rate:g}: lower one of them"
            )
        if training.optimiser != "sgd" and correction.common:
            raise RefusedError('control variates are defined for training.optimiser = "sgd" only')
        self._correction = correction

    def label_probabilities(self, bags: Bags) -> npt.NDArray[np.float32]:
        """p(r|s) of Eq. 1 for every sentence, with r its bag's relation."""
        labels = np.repeat(bags.labels, np.diff(bags.bounds))
        return self._scored(bags)[np.arange(len(labels)), labels]

    def other(self, role: str) -> Extractor:
        """A model beside the one in training, for methods that compare the two; `begin` it before use."""
        return self._desk.other(role)

    def probabilities(self, bags: Bags) -> npt.NDArray[np.float64]:
        """p(r|s) of every sentence, [S, R], in order, without dropout."""
        return self._scored(bags).astype(np.float64)

    def _scored(self, bags: Bags) -> npt.NDArray[np.float32]:
        import torch

        from fedrel.extractors.heads import sentence_probabilities

        with torch.inference_mode():
            parts = [sentence_probabilities(self.extractor, batch).cpu().numpy() for batch in self.scan(bags)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def vectors(self, rows: Ints) -> torch.Tensor:
        """What the model at hand makes of sentences, [S, d], in order, without dropout or gradient."""
        import torch

        with torch.no_grad():
            parts = [self.extractor.encode(batch) for batch in self.scan(self.singles(rows))]
        return torch.cat(parts)

    def scan(self, bags: Bags) -> Iterator[Batch]:
        """Once through bags, in order and in batches of any size: to look at them, not to train."""
        for part in slices(bags, self._desk.materials.inputs.at_once):
            yield self._desk.batch(part)

    def read(self, head: str, batch: Batch) -> Reading:
        """What a bag head makes of a batch, in training; the journal notes it."""
        reading = self.extractor.read(head, batch, self.dropout)
        self.journal.trained(batch, reading.weights)
        return reading

    def batches(self, bags: Bags, epochs: int | None = None) -> Iterator[Batch]:
        """E epochs of batches of B bags, shuffled by the site's generator for this round."""
        training = self._desk.training
        shuffle = numpy_generator(self._desk.seed, "shuffle", self.round, self.number)
        epochs = epochs or training.epochs
        self._steps = epochs * -(-len(bags) // training.batch_size)
        lengths = self._lengths(bags) if self.extractor.pads else None
        for _ in range(epochs):
            for which in shuffled(len(bags), training.batch_size, shuffle, lengths):
                yield self._desk.batch(bags.take(which))

    def fit(self, bags: Bags, head: str) -> bool:
        """All E epochs of a head's cross-entropy at once, by the extractor's kernels; False where it has none."""
        import torch

        training = self._desk.training
        if self._correction or not self._desk.can_fit(head):
            return False
        shuffle = numpy_generator(self._desk.seed, "shuffle", self.round, self.number)
        batch = self._desk.batch(bags)
        fitted = self.extractor.fit(
            batch,
            [shuffle.permutation(len(bags)) for _ in range(training.epochs)],
            batch_size=training.batch_size,
            lr=training.learning_rate_in(self.round),
            weight_decay=training.weight_decay,
            seed=derive(self._desk.seed, "dropout", self.round, self.number),
            head=head,
        )
        self._losses += fitted.losses.tolist()
        self.journal.trained(batch, torch.from_numpy(fitted.times))
        return True

    @cached_property
    def dropout(self) -> torch.Generator:
        """The generator of this site's dropout masks in this round."""
        training = self._desk.training
        return torch_generator(self._desk.seed, "dropout", self.round, self.number, device=training.device)

    @cached_property
    def _optimiser(self) -> Optimiser:
        from fedrel.extractors.optim.optimiser import optimiser

        return optimiser(self.extractor, self._desk.training, self.round, self._steps, self._correction)

    def _lengths(self, bags: Bags) -> Ints:
        """Of each bag, its longest sentence."""
        return np.maximum.reduceat(self._desk.materials.inputs.lengths(bags.rows), bags.bounds[:-1])

    def step(self, loss: torch.Tensor) -> None:
        """One step of the optimiser down the gradient of this loss."""
        self._losses.append(float(loss.detach()))
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()

    @property
    def path(self) -> float:
        """How far this round's steps of SGD take a weight for each unit of a constant force."""
        from fedrel.extractors.optim.sgd import SGD

        assert isinstance(self._optimiser, SGD)
        return self._optimiser.path

    def update(self, examples: int) -> Update:
        """What the site sends back: its weights, how many examples made them, its mean loss."""
        return Update(self.extractor.update(), examples, float(np.mean(self._losses)))
