"""What the site's half of a method works with: the site's own text, the model in training, what was sent to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, singles, slices
from fedrel.extractors.batches import shuffled
from fedrel.extractors.correction import Correction
from fedrel.federation.messages import Message, ModelTensors, RefusedError, Update
from fedrel.federation.site_memory import Journal
from fedrel.privacy.keyed import digests
from fedrel.seeding import derive, numpy_generator, torch_generator

if TYPE_CHECKING:
    import torch

    from fedrel.extractors.base import Extractor
    from fedrel.extractors.batches import Batch
    from fedrel.extractors.heads import Reading
    from fedrel.extractors.objective import Objective
    from fedrel.extractors.optim.optimiser import Optimiser
    from fedrel.federation.resident import ResidentModel
    from fedrel.tensors.weights import Tensors, Weights


DIVERGED = "training diverged"  # how a site's reason begins, if its model was lost to too large steps
COORDINATOR = -1  # the site number of the coordinator itself, for work on its own labelled sentences
_STORED = ModelTensors(rows=True)  # the form in which a site stores tensors of the model's shape

Ints = npt.NDArray[np.int64]
Kind = TypeVar("Kind", bound=Message)


class Site:
    """One site in one round. `received` gives what it was sent, `update` makes what it sends back."""

    def __init__(
        self, model: ResidentModel, number: int, round_: int, messages: Mapping[type[Message], Message]
    ) -> None:
        self.number, self.round = number, round_
        self.extractor = model.extractor
        self.memo: dict[str, Any] = {}  # what a method keeps while it answers
        data = model.site_data
        self.journal = Journal(data.text, data.truth_known, data.watched)
        self._model, self._data, self._messages = model, data, messages
        self._remembered: dict[str, npt.NDArray[np.float32]] = {}
        self._losses: list[float] = []
        self._correction = Correction()
        self._steps = 0
        self._fitted_path: float | None = None  # of training by kernels

    # The site's own text.

    @cached_property
    def rows(self) -> Ints:
        """The corpus rows of this site. A sentence's index at this site is its position in this list."""
        if self.number == COORDINATOR:
            return self._data.validation
        return self._data.partition.rows(self.number)

    @cached_property
    def bags(self) -> Bags:
        """The site's bags: one for each triple, or one for each document."""
        return self._data.bags(self.rows)

    @property
    def validation(self) -> Bags:
        """The coordinator's labelled sentences that every site has too (FedED's D_v), in an agreed order."""
        return self.singles(self._data.validation)

    @cached_property
    def label_counts(self) -> Ints:
        """How many of the site's sentences have each relation, [R]."""
        corpus = self._data.corpus
        return np.bincount(corpus.relation[self.rows], minlength=len(corpus.relations))

    def rows_at(self, index: npt.NDArray[np.int32]) -> Ints:
        """The rows of sentences given by their index; `RefusedError` for an index out of range or given twice."""
        if len(index) and index.max() >= len(self.rows):
            raise RefusedError(f"names sentence {index.max()}, but this site holds {len(self.rows)}")
        if len(np.unique(index)) < len(index):  # else a few sentences would count as many examples
            raise RefusedError("names a sentence twice")
        return self.rows[index]

    def index_of(self, rows: Ints) -> npt.NDArray[np.int32]:
        """The index at this site of some of its rows."""
        order = np.argsort(self.rows)
        return order[np.searchsorted(self.rows, rows, sorter=order)].astype(np.int32)

    def rows_elsewhere(self, sites: npt.NDArray[np.int32], index: npt.NDArray[np.int32]) -> Ints:
        """Rows of other sites' sentences: only a simulation has them."""
        partition = self._data.partition
        if len(sites) and (sites.max() >= partition.sites or (index >= partition.sizes[sites]).any()):
            raise RefusedError("names a sentence that its site does not hold")
        rows: Ints = partition.order[partition.bounds[sites] + index]
        return rows

    def singles(self, rows: Ints) -> Bags:
        """Each sentence as a bag of its own, with its triple's relation as label."""
        corpus = self._data.corpus
        return singles(rows, corpus.relation[rows].astype(np.int64), corpus.triple[rows].astype(np.int64))

    def sample(self, bags: Bags, count: int) -> Bags:
        """`count` of the bags at random, drawn anew in every round."""
        generator = numpy_generator(self._model.seed, "sample", self.round, self.number)
        return bags.take(np.sort(generator.permutation(len(bags))[:count]))

    def digests(self, triples: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """Keyed digests of triples. Real sites share the key and keep it from the coordinator.

        A simulation has nobody to keep it from: its key is derived from the run's seed.
        """
        corpus = self._data.corpus
        pair, relation = corpus.triples[triples].T
        head, tail = corpus.pairs[pair].T
        names = zip(
            (corpus.entities[i] for i in head),
            (corpus.relations[i] for i in relation),
            (corpus.entities[i] for i in tail),
            strict=True,
        )
        key = self._model.triple_key or numpy_generator(self._model.seed, "triple-key").bytes(32)
        return digests(key, names)

    def received(self, kind: type[Kind]) -> Kind:
        """The message of this kind that came with the request."""
        message = self._messages.get(kind)
        if not isinstance(message, kind):
            raise RefusedError(f"the request lacks {kind.__name__}")
        return message

    # The site's state between rounds.

    def recall(self) -> Weights | None:
        """What this site stored with `remember` in the last round that it took part in; None before that."""
        return self._model.states.read(self.number, self.round)

    def remember(self, tensors: Weights) -> None:
        """Store tensors on the site's disk for the next round that it takes part in.

        Composed methods store theirs under different names.
        """
        self._remembered |= tensors
        self._model.states.write(self.number, self.round, self._remembered)

    def recall_model(self, owner: str) -> Tensors:
        """What this site stored with `remember_model`; empty before that."""
        own = f"{owner}."
        kept = {key.removeprefix(own): a for key, a in (self.recall() or {}).items() if key.startswith(own)}
        return _STORED.unpack(kept, self.extractor.shapes()) if kept else {}

    def remember_model(self, owner: str, tensors: Tensors) -> None:
        """Store tensors of the model's shape for a method; of row-sparse ones only the rows they have."""
        self.remember({f"{owner}.{key}": array for key, array in _STORED.pack(tensors).items()})

    # Scoring and training.

    def begin(self, weights: Any) -> None:
        """Start from these weights."""
        self.extractor.begin(weights)

    def correct(self, correction: Correction) -> None:
        """Add this to the gradient of every step; call it before the first step."""
        training = self._model.training
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
        """A second model, for methods that compare it with the one in training; call its `begin` first."""
        return self._model.other(role)

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
        """The current model's sentence vectors, [S, d], in order, without dropout or gradient."""
        import torch

        with torch.no_grad():
            parts = [self.extractor.encode(batch) for batch in self.scan(self.singles(rows))]
        return torch.cat(parts)

    def scan(self, bags: Bags) -> Iterator[Batch]:
        """Batches once through the bags, in order: for scoring, not for training."""
        for part in slices(bags, self._data.inputs.at_once):
            yield self._model.batch(part)

    def read(self, head: str, batch: Batch) -> Reading:
        """A bag head's output for a batch in training; the journal notes its weights."""
        reading = self.extractor.read(head, batch, self.dropout)
        self.journal.trained(batch, reading.weights)
        return reading

    def batches(self, bags: Bags, epochs: int | None = None) -> Iterator[Batch]:
        """E epochs of batches of B bags, shuffled by the site's generator for this round."""
        training = self._model.training
        shuffle = numpy_generator(self._model.seed, "shuffle", self.round, self.number)
        epochs = epochs or training.epochs
        self._steps = epochs * -(-len(bags) // training.batch_size)
        lengths = self._lengths(bags) if self.extractor.pads else None
        for _ in range(epochs):
            for which in shuffled(len(bags), training.batch_size, shuffle, lengths):
                yield self._model.batch(bags.take(which))

    def fit(self, bags: Bags, objective: Objective) -> bool:
        """Train all E epochs of an objective with the extractor's kernels; False if they cannot do it."""
        import torch

        training = self._model.training
        if not self._model.can_fit(objective.head):
            return False
        shuffle = numpy_generator(self._model.seed, "shuffle", self.round, self.number)
        batch = self._model.batch(bags)
        fitted = self.extractor.fit(
            batch,
            [shuffle.permutation(len(bags)) for _ in range(training.epochs)],
            batch_size=training.batch_size,
            lr=training.learning_rate_in(self.round),
            weight_decay=training.weight_decay,
            seed=derive(self._model.seed, "dropout", self.round, self.number),
            objective=objective,
        )
        self._losses += fitted.losses.tolist()
        self._fitted_path = fitted.path
        self.journal.trained(batch, torch.from_numpy(fitted.shares))
        return True

    @cached_property
    def dropout(self) -> torch.Generator:
        """The generator of this site's dropout masks in this round."""
        training = self._model.training
        return torch_generator(self._model.seed, "dropout", self.round, self.number, device=training.device)

    @cached_property
    def _optimiser(self) -> Optimiser:
        from fedrel.extractors.optim.optimiser import optimiser

        return optimiser(self.extractor, self._model.training, self.round, self._steps, self._correction)

    def _lengths(self, bags: Bags) -> Ints:
        """The length of each bag's longest sentence."""
        return np.maximum.reduceat(self._data.inputs.lengths(bags.rows), bags.bounds[:-1])

    def step(self, loss: torch.Tensor) -> None:
        """One optimiser step on this loss."""
        self._losses.append(float(loss.detach()))
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()

    @property
    def path(self) -> float:
        """How far this round's SGD steps move a weight under a constant gradient of 1."""
        from fedrel.extractors.optim.sgd import SGD

        if self._fitted_path is not None:
            return self._fitted_path
        assert isinstance(self._optimiser, SGD)
        return self._optimiser.path

    def update(self, examples: int) -> Update:
        """What the site sends back: its weights, the number of examples they come from, its mean loss."""
        loss = float(np.mean(self._losses))
        if not np.isfinite(loss):
            raise RefusedError(f"{DIVERGED}: the loss is {loss}")
        return Update(self.extractor.update(), examples, loss)
