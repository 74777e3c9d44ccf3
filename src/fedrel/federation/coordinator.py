"""The coordinator's side: draws sites, asks them, checks and counts what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedrel.evaluation.heterogeneity import class_distances
from fedrel.federation.journal import Entry
from fedrel.federation.messages import Arrays, Message, Model, RefusedError, Update, payload
from fedrel.federation.site import COORDINATOR
from fedrel.federation.wire import framing
from fedrel.seeding import numpy_generator
from fedrel.tensors.weights import NoAnswerError, Tensors, Weights, dense

if TYPE_CHECKING:
    from fedrel.federation.method import Method
    from fedrel.federation.site import Site
    from fedrel.tensors.weights import Shapes


Reply = TypeVar("Reply", bound=Message)

CLASSIFIER, BIAS = "classifier.weight", "classifier.bias"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine brings back from a site: arrays, or why there are none, and the journal if it may see it."""

    arrays: Arrays | None
    failure: str = ""
    journal: Entry | None = None
    lost: bool = False
    """Of a failure: whether it happened on the way, so that the site itself has not said no."""


class Engine(Protocol):
    """Carries questions to sites and answers back, in the order of the sites."""

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Put one question to the sites in `own`: `shared` goes to all, own[site] to each."""


@dataclass
class Traffic:
    """Bytes that crossed the boundary, by direction and kind of message: payloads, as `payload` counts them.

    What encoding adds to them is counted beside: it is the same for every engine too.
    """

    up: dict[str, int] = field(default_factory=dict)
    down: dict[str, int] = field(default_factory=dict)
    framing: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})

    def record(self, direction: str, kind: str, arrays: Arrays, times: int = 1) -> None:
        """Add a message, or the same one to several sites."""
        counts: dict[str, int] = getattr(self, direction)
        counts[kind] = counts.get(kind, 0) + times * payload(arrays)
        self.framing[direction] += times * framing(arrays)

    def summary(self) -> dict[str, Any]:
        """Totals, and the split by kind."""
        kinds = sorted({*self.up, *self.down})
        return {
            "up": sum(self.up.values()),
            "down": sum(self.down.values()),
            "framing": self.framing,
            "by_kind": {k: {"up": self.up.get(k, 0), "down": self.down.get(k, 0)} for k in kinds},
        }


@dataclass
class RoundNotes:
    """What is worth knowing about a round besides the weights."""

    active: list[int] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    refused: list[dict[str, Any]] = field(default_factory=list)
    examples: int = 0
    loss: float = 0.0
    journals: dict[int, Entry] = field(default_factory=dict)
    class_distances: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Of each update, d(k,c) of FedCMC's Definition 1; of none where the classifier has a bias."""


class Federation:
    """What a method's coordinator half works with: the weights, the active sites, and `ask`."""

    def __init__(
        self,
        engine: Engine,
        method: Method,
        weights: Mapping[str, npt.NDArray[np.float32]],
        *,
        sizes: npt.NDArray[np.int64],
        triples: int,
        relations: int,
        validation: int = 0,
        state: Mapping[str, npt.NDArray[np.float32]] | None = None,
        fraction: float,
        seed: int,
    ) -> None:
        self.weights = weights
        self.state = dict(state or {})  # what a method remembers at the coordinator; checkpoints keep it
        self.memo: dict[str, Any] = {}  # what it notes within a round
        self.round = 0
        self.sizes = sizes  # [K], how many sentences each site holds
        self.triples = triples  # how many triples the knowledge base has
        self.relations = relations  # how many relations the model tells apart
        self.validation = validation  # how many labelled sentences the coordinator holds (D_v)
        self.notes = RoundNotes()
        self._engine, self._method = engine, method
        self._shapes: Shapes = {name: tensor.shape for name, tensor in weights.items()}
        self._fraction, self._seed = fraction, seed
        self._model = Model(weights)
        self._sent: dict[tuple[int, int], Message] = {}  # in this round, by site and the message's id

    @property
    def model(self) -> Model:
        """The weights as a message: the same one until they change, so that it crosses once a round."""
        if self._model.weights is not self.weights:
            self._model = Model(self.weights)
        return self._model

    def draw(self, round_: int, attempt: int = 0) -> None:
        """Begin a round with max(int(C*K), 1) sites drawn without replacement among those that have data.

        A further attempt at the same round draws others; what crossed in the one before stays counted.
        """
        able = np.flatnonzero(self.sizes)
        wanted = max(int(self._fraction * len(self.sizes) + 1e-9), 1)  # 0.29 * 100 is 28.999… in floats
        generator = numpy_generator(self._seed, "draw", round_, attempt)
        drawn = generator.choice(able, size=min(wanted, len(able)), replace=False)
        if not attempt:
            self._sent = {}
        before = self.notes if attempt else RoundNotes()
        self.round, self.memo = round_, {}
        self.notes = RoundNotes(np.sort(drawn).tolist(), before.traffic, before.refused)

    def ask(
        self, phase: Callable[[Site], Reply], *sent: Message | Mapping[int, Message]
    ) -> Iterator[tuple[int, Reply]]:
        """Ask the active sites; yield the answers that pass all checks, in the order of the sites.

        A message goes to all; a mapping sends each site its own, and only the sites in it are asked. A site
        keeps a message to all until the round ends, so it crosses once, however many questions it comes with.
        An answer that is refused is noted with the site and the reason, and the round goes on without it.
        """
        each = [one for one in sent if not isinstance(one, Message)]
        own = {
            site: {type(one[site]).__name__: one[site].pack() for one in each}
            for site in self.notes.active
            if all(site in one for one in each)
        }
        common: dict[str, Arrays] = {}
        for message in (one for one in sent if isinstance(one, Message)):
            fresh = {(site, id(message)): message for site in own if (site, id(message)) not in self._sent}
            self._sent |= fresh
            if fresh:
                name = type(message).__name__
                common[name] = message.pack()
                self.notes.traffic.record("down", name, common[name], len(fresh))
        for parts in own.values():
            for name, part in parts.items():
                self.notes.traffic.record("down", name, part)
        requests = {site: _flat(parts) for site, parts in own.items()}
        kind = phase.gives  # type: ignore[attr-defined]
        for site, answer in self._engine.ask(phase.__name__, self.round, _flat(common), requests):
            if answer.journal is not None:
                self.notes.journals[site] = answer.journal
            try:
                if answer.lost:  # what was sent to it may not have come
                    self._sent = {key: message for key, message in self._sent.items() if key[0] != site}
                if answer.arrays is None:
                    raise RefusedError(answer.failure)
                self.notes.traffic.record("up", kind.__name__, answer.arrays)
                reply = kind.unpack(answer.arrays, self._shapes)
                self._method.check(self, site, reply)
            except RefusedError as refusal:
                self.notes.refused.append({"site": site, "message": kind.__name__, "reason": str(refusal)})
            else:
                if isinstance(reply, Update):
                    self._note_classes(site, reply)
                yield site, reply

    def work(self, phase: Callable[[Site], Reply], *given: Message) -> Reply:
        """Do something at the coordinator's own desk, with its own labelled sentences: nothing crosses."""
        arrays = _flat({type(message).__name__: message.pack() for message in given})
        ((_, answer),) = self._engine.ask(phase.__name__, self.round, {}, {COORDINATOR: arrays})
        if answer.arrays is None:
            raise NoAnswerError(answer.failure)
        reply: Reply = phase.gives.unpack(answer.arrays, self._shapes)  # type: ignore[attr-defined]
        return reply

    def generator(self, *purpose: int | str) -> np.random.Generator:
        """The coordinator's own randomness for one purpose in this round."""
        return numpy_generator(self._seed, *purpose, self.round)

    def learned(self, update: Update) -> None:
        """Note an update that went into the average."""
        before = self.notes.examples
        self.notes.examples += update.examples
        self.notes.loss += (update.loss - self.notes.loss) * update.examples / (before + update.examples)

    def _note_classes(self, site: int, update: Update) -> None:
        if (vectors := class_vectors(self.weights, update.weights)) is not None:
            self.notes.class_distances[site] = class_distances(vectors)


def class_vectors(base: Weights, tensors: Tensors) -> npt.NDArray[np.float32] | None:
    """The rows of a classifier without a bias, [R, d]: they alone tell its classes apart. With a bias: None.

    `base` are the weights that the tensors were trained from.
    """
    if CLASSIFIER not in tensors or BIAS in tensors:
        return None
    return dense({CLASSIFIER: base[CLASSIFIER]}, {CLASSIFIER: tensors[CLASSIFIER]})[CLASSIFIER]


def _flat(messages: Mapping[str, Arrays]) -> dict[str, npt.NDArray[Any]]:
    """Several messages' arrays under one roof, named `Kind.field`."""
    return {f"{kind}.{name}": array for kind, part in messages.items() for name, array in part.items()}


@runtime_checkable
class Surveys(Protocol):
    """An engine whose sites say for themselves what they hold."""

    triples: int
    """How many facts have a number that all agreed on."""

    def sizes(self) -> npt.NDArray[np.int64]:
        """How many sentences each site holds; none where it has not said so yet."""


class SturdyFederation(Federation):
    """A federation with a reserve and a quorum."""

    def __init__(self, *given: Any, min_sites: int = 1, extra_sites: int = 0, **named: Any) -> None:
        super().__init__(*given, **named)
        self._min_sites, self._extra_sites = min_sites, extra_sites
        self._reserve: list[int] = []

    def draw(self, round_: int, attempt: int = 0) -> None:
        """Draw the active sites as ever, and some others into the reserve, in the order they would step in."""
        if isinstance(self._engine, Surveys):
            self.sizes, self.triples = self._engine.sizes(), self._engine.triples
        super().draw(round_, attempt)
        others = np.setdiff1d(np.flatnonzero(self.sizes), self.notes.active)
        order = numpy_generator(self._seed, "reserve", round_, attempt).permutation(others)
        self._reserve = order[: self._extra_sites].tolist()

    def ask(
        self, phase: Callable[[Site], Reply], *sent: Message | Mapping[int, Message]
    ) -> Iterator[tuple[int, Reply]]:
        """Ask the active sites and the reserve; yield as many answers as there are active sites, if so many come.

        The reserve comes last, so that it is known by then how many are missing; those who step in stay active for
        the rest of the round. What the others of the reserve sent is counted, and not used.
        """
        active, reserve, self._reserve = self.notes.active, self._reserve, []
        self.notes.active = [*active, *reserve]
        before = len(self.notes.refused)
        used: list[int] = []
        stood_in = 0
        for site, reply in super().ask(phase, *sent):
            if site in reserve:
                if stood_in == len(self._failed(active, before)):
                    self.notes.class_distances.pop(site, None)
                    continue
                stood_in += 1
            used.append(site)
            yield site, reply
        failed = self._failed(active, before)
        if reserve:
            self.notes.active = sorted({*active, *used} - failed)
        else:
            self.notes.active = active
        if len(used) < min(self._min_sites, len(used) - stood_in + len(failed)):
            few = f"{len(used)} answers could be used, and engine.min_sites is {self._min_sites}"
            raise NoAnswerError(few if used else "")

    def _failed(self, active: Sequence[int], before: int) -> set[int]:
        """The active sites that this question's refusals name."""
        return {one["site"] for one in self.notes.refused[before:]}.intersection(active)
