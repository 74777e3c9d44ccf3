"""What the site's half of a method works with: the site's own text, the model in training, what was sent to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, singles, slices
from fedrel.extractors.batches import shuffled
from fedrel.extractors.objective import Correction
from fedrel.federation.messages import Message, ModelTensors, RefusedError, Update
from fedrel.federation.outside_names import OutsideNames
from fedrel.federation.site_memory import Journal
from fedrel.federation.site_sums import SiteSums
from fedrel.privacy.keyed import digests
from fedrel.seeding import numpy_generator, torch_generator

if TYPE_CHECKING:
    import torch

    from fedrel.config.privacy_sections import PrivacySection
    from fedrel.extractors.base import Extractor, Fitted
    from fedrel.extractors.batches import Batch
    from fedrel.extractors.heads import Reading
    from fedrel.extractors.objective import Objective
    from fedrel.extractors.optim.optimiser import Optimiser
    from fedrel.federation.resident import ResidentModel
    from fedrel.federation.side_by_side import Wait
    from fedrel.tensors.weights import Tensors, Weights


DIVERGED = "training diverged"  # how a site's reason begins, if its model was lost to too large steps
COORDINATOR = -1  # the site number of the coordinator itself, for work on its own labelled sentences
_STORED = ModelTensors(rows=True)  # the form in which a site stores tensors of the model's shape

Ints = npt.NDArray[np.int64]
Kind = TypeVar("Kind", bound=Message)


class Site:
    """One site in one round. `received` gives what it was sent, `update` makes what it sends back.

    With `wait`, other sites run side by side with this one and share its model. So the model is set to this site's
    weights only when it is used (`extractor`), and the site runs to its end from then on. Until then it can wait
    for the others, to be scored or trained together with them.
    """

    def __init__(
        self,
        model: ResidentModel,
        number: int,
        round_: int,
        messages: Mapping[type[Message], Message],
        wait: Wait | None = None,
    ) -> None:
        self.number, self.round = number, round_
        self.memo: dict[str, Any] = {}  # what a method keeps while it answers
        data = model.site_data
        self.journal = Journal(data.text, data.truth_known, data.watched)
        self._model, self._data, self._messages = model, data, messages
        self._remembered: dict[str, npt.NDArray[np.float32]] = {}
        self._losses: list[float] = []
        self._correction = Correction()
        self._steps = 0
        self._wait = wait
        self._start: Any = None  # weights that the model is not set to yet
        self._postponed: tuple[Bags, Objective] | None = None  # training that is not done yet
        self._apart: tuple[Bags, Objective] | None = None  # training that was done, but not in this model
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
    def examples(self) -> Bags:
        """What local batches are drawn from: the bags, or each sentence by itself, as the config says."""
        return self.bags if self._model.training.batches_of == "bags" else self.singles(self.rows)

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
        rules = self._model.rules
        key = rules.round_key(self.round) if rules else None
        return digests(key or numpy_generator(self._model.seed, "triple-key").bytes(32), names)

    @cached_property
    def outside(self) -> OutsideNames:
        """What the site's sentences are called outside."""
        model = self._model
        return OutsideNames(model.rules, model.states, model.seed, self.number, self.round)

    def received(self, kind: type[Kind]) -> Kind:
        """The message of this kind that came with the request."""
        message = self._messages.get(kind)
        if not isinstance(message, kind):
            raise RefusedError(f"the request lacks {kind.__name__}")
        return message

    # For secure sums.

    @cached_property
    def sums(self) -> SiteSums:
        """Its secrets, the keys by which it knows the others, and what it has answered."""
        return SiteSums(self._model, self.number, self.round)

    @property
    def privacy(self) -> PrivacySection:
        """The section of this name in the site's own copy of the config."""
        return self._model.privacy

    @property
    def rounding(self) -> np.random.Generator:
        """The generator of this site's stochastic rounding in this round."""
        return numpy_generator(self._model.seed, "rounding", self.round, self.number)

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
        return _STORED.unpack(kept, self._model.extractor.shapes()) if kept else {}

    def remember_model(self, owner: str, tensors: Tensors) -> None:
        """Store tensors of the model's shape for a method; of row-sparse ones only the rows they have."""
        self.remember({f"{owner}.{key}": array for key, array in _STORED.pack(tensors).items()})

    # Scoring and training.

    @property
    def extractor(self) -> Extractor:
        """The model in training. From here on, no other site runs before this one ends."""
        self._take_over()
        return self._model.extractor

    def _take_over(self) -> None:
        """Bring the model to where this site is."""
        self._wait = None
        if self._start is not None:
            self._model.extractor.begin(self._start)
            self._start = None
        if self._postponed is not None:
            bags, objective = self._postponed
            self._postponed = None
            self._note(self._train(bags, objective), bags)
        if self._apart is not None:
            self._train(*self._apart)
            self._apart = None

    def begin(self, weights: Any) -> None:
        """Start from these weights."""
        if self._postponed is not None:
            self._take_over()
        self._apart = None
        if self._wait is None:
            self.extractor.begin(weights)
        else:
            self._start = weights

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
        self._wait = None  # other sites would use it too
        return self._model.other(role)

    def probabilities(self, bags: Bags) -> npt.NDArray[np.float64]:
        """p(r|s) of every sentence, [S, R], in order, without dropout."""
        return self._scored(bags).astype(np.float64)

    def _scored(self, bags: Bags) -> npt.NDArray[np.float32]:
        wait, start = self._may_wait(), self._start
        if wait and 0 < len(bags.rows) <= self._data.inputs.at_once:
            work = partial(self._model.several_sentence_probabilities, start)
            return wait(("score", id(start)), work, bags)
        self._take_over()
        return self._model.sentence_probabilities(bags)

    def _may_wait(self) -> Wait | None:
        """How to wait for other sites; None if this one has to go on by itself."""
        import torch

        plain = (
            torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        )  # they would affect the others
        as_begun = self._start is not None and self._postponed is None and self._apart is None
        return self._wait if plain and as_begun else None

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
        self.journal.trained(batch.rows, reading.weights)
        return reading

    def batches(self, bags: Bags, epochs: int | None = None) -> Iterator[Batch]:
        """E epochs of batches of B bags, shuffled by the site's generator for this round."""
        training = self._model.training
        shuffle = numpy_generator(self._model.seed, "shuffle", self.round, self.number)
        epochs = epochs or training.epochs
        self._steps = epochs * -(-len(bags) // training.batch_size)
        for _ in range(epochs):
            for which in shuffled(len(bags), training.batch_size, shuffle):
                yield self._model.batch(bags.take(which))

    def fit(self, bags: Bags, objective: Objective) -> bool:
        """Train all E epochs of an objective with the extractor's kernels; False if they cannot do it."""
        if objective.is_plain and self._may_wait() and self._model.can_fit(objective.head):
            self._postponed = bags, objective
            return True
        self._take_over()
        if not self._model.can_fit(objective.head):
            return False
        self._note(self._train(bags, objective), bags)
        return True

    def _train(self, bags: Bags, objective: Objective) -> Fitted:
        return self._model.fit(objective, self.round, self.number, bags)

    def _note(self, fitted: Fitted, bags: Bags) -> None:
        import torch

        self._losses += fitted.losses.tolist()
        self._fitted_path = fitted.path
        self.journal.trained(bags.rows, torch.from_numpy(fitted.shares))

    @cached_property
    def dropout(self) -> torch.Generator:
        """The generator of this site's dropout masks in this round."""
        training = self._model.training
        return torch_generator(self._model.seed, "dropout", self.round, self.number, device=training.device)

    @cached_property
    def _optimiser(self) -> Optimiser:
        from fedrel.extractors.optim.optimiser import optimiser

        return optimiser(self.extractor, self._model.training, self.round, self._steps, self._correction)

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

        if self._postponed is not None:
            self._take_over()
        if self._fitted_path is not None:
            return self._fitted_path
        assert isinstance(self._optimiser, SGD)
        return self._optimiser.path

    def update(self, examples: int) -> Update:
        """What the site sends back: its weights, the number of examples they come from, its mean loss."""
        tensors = self._trained()
        loss = float(np.mean(self._losses))
        if not np.isfinite(loss):
            raise RefusedError(f"{DIVERGED}: the loss is {loss}")
        rules = self._model.rules
        if (
            rules and self.privacy.secure_sum and examples < rules.examples
        ):  # the gate sees masked numbers only
            raise RefusedError(f"made from {examples} examples, fewer than allow.examples")
        private = self.privacy.dp is not None and self.number != COORDINATOR
        return Update(tensors, examples, 0.0 if private else loss)  # no noise covers the loss

    def _trained(self) -> Tensors:
        """The weights after training."""
        postponed, self._postponed = self._postponed, None
        if postponed is not None and (wait := self._may_wait()):
            (bags, objective), self._apart = postponed, postponed
            work = partial(self._model.fit_several, self._start, objective, self.round)
            fitted, tensors = wait(("train", id(self._start), objective.head), work, (self.number, bags))
            self._note(fitted, bags)
            return tensors
        self._postponed = postponed
        return self.extractor.update()
