"""What the site's half of a method works with: the site's own text, the model in training, what was sent to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags, apart, slices
from fedrel.extractors.batches import shuffled
from fedrel.extractors.objective import Correction
from fedrel.federation.messages import Message, ModelTensors, RefusedError, Update
from fedrel.federation.noised_training import NoisedTraining, noised_training
from fedrel.federation.site_memory import Journal
from fedrel.federation.site_sums import SiteSums
from fedrel.federation.site_text import COORDINATOR, Ints, SiteText
from fedrel.seeding import numpy_generator, torch_generator

if TYPE_CHECKING:
    import torch

    from fedrel.config.config_sections import PrivacySection
    from fedrel.extractors.base import Extractor, Fitted
    from fedrel.extractors.batches import Batch
    from fedrel.extractors.heads import Reading
    from fedrel.extractors.objective import Objective
    from fedrel.extractors.optimisers import Optimiser
    from fedrel.federation.resident import ResidentModel, Wait
    from fedrel.tensors.weights import Tensors, Weights


NO_LOSS = 0.0  # what an update says where noise hides its site or examples: no noise covers the loss
DIVERGED = "training diverged"  # how a site's reason begins, if its model was lost to too large steps
_STORED = ModelTensors(rows=True)  # the form in which a site stores tensors of the model's shape

Kind = TypeVar("Kind", bound=Message)


class Site(SiteText):
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
        super().__init__(model, number, round_)
        self.memo: dict[str, Any] = {}  # what a method keeps while it answers
        self.journal = Journal(self._data.text, self._data.truth_known, self._data.watched)
        self._messages = messages
        self._remembered: dict[str, npt.NDArray[np.float32]] = {}
        self._losses: list[float] = []
        self._correction = Correction()
        self._steps = 0
        self._wait = wait
        self._start: Any = None  # weights that the model is not set to yet
        self._postponed: tuple[Bags, Objective] | None = None  # training that is not done yet
        self._apart: tuple[Bags, Objective] | None = None  # training that was done, but not in this model
        self._fitted_path: float | None = None  # of training by kernels

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
        if self._noised is not None:
            if epochs not in (None, training.epochs):
                raise RefusedError(
                    f"the method trains {epochs} epochs, and noise is agreed for {training.epochs}"
                )
            yield from self._noised.batches(bags, self._optimiser_of)
            return
        shuffle = numpy_generator(self._model.seed, "shuffle", self.round, self.number)
        epochs = epochs or training.epochs
        self._steps = epochs * -(-len(bags) // training.batch_size)
        for _ in range(epochs):
            for which in shuffled(len(bags), training.batch_size, shuffle):
                yield self._model.batch(bags.take(which))

    def fit(self, bags: Bags, objective: Objective) -> bool:
        """Train all E epochs of an objective with the extractor's kernels; False if they cannot do it."""
        if self._noised is not None:
            self._take_over()
            if (fitted := self._noised.fit(bags, objective)) is None:
                return False
            self._note(fitted, bags)
            return True
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
    def _noised(self) -> NoisedTraining | None:
        """Noised training, if it is agreed: of what the site holds, nothing else may leave it."""
        return noised_training(self, self._model)

    def units(self, examples: Bags, head: str) -> Bags:
        """The examples that this bag head trains on; where noise hides single examples, what one of them is.

        A head that reads sentences by themselves has no use for bags: then each sentence is one.
        """
        return apart(examples) if self._noised is not None and head == "none" else examples

    @cached_property
    def dropout(self) -> torch.Generator:
        """The generator of this site's dropout masks in this round."""
        training = self._model.training
        return torch_generator(self._model.seed, "dropout", self.round, self.number, device=training.device)

    @cached_property
    def _optimiser(self) -> Optimiser:
        from fedrel.extractors.optimisers import optimiser

        return optimiser(self.extractor, self._model.training, self.round, self._steps, self._correction)

    def _optimiser_of(self, steps: int) -> Optimiser:
        self._steps = steps
        return self._optimiser

    def step(self, loss: torch.Tensor) -> None:
        """One optimiser step on this loss; with noised training, one example's part of a step."""
        self._losses.append(float(loss.detach()))
        if self._noised is not None:
            self._noised.add(loss)
            return
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()

    @property
    def path(self) -> float:
        """How far this round's SGD steps move a weight under a constant gradient of 1."""
        from fedrel.extractors.optimisers import SGD

        if self._postponed is not None:
            self._take_over()
        if self._fitted_path is not None:
            return self._fitted_path
        assert isinstance(self._optimiser, SGD)
        return self._optimiser.path

    def update(self, examples: int) -> Update:
        """What the site sends back: its weights, the number of examples they come from, its mean loss."""
        tensors = self._trained()
        loss = float(np.mean(self._losses)) if self._noised is None else NO_LOSS
        if not np.isfinite(loss):
            raise RefusedError(f"{DIVERGED}: the loss is {loss}")
        rules = self._model.rules
        if (
            rules and self.privacy.secure_sum and examples < rules.examples
        ):  # the gate sees masked numbers only
            raise RefusedError(f"made from {examples} examples, fewer than allow.examples")
        private = self.privacy.dp is not None and self.number != COORDINATOR
        return Update(tensors, examples, NO_LOSS if private else loss)

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
