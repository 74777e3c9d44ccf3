"""The coordinator's side of a round: draw sites, ask them, check and count what they send back."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fedrel.config.config_sections import PrivacySection
from fedrel.config.schema import AggregationSection
from fedrel.evaluation.heterogeneity import class_distances
from fedrel.federation.earned import Earned
from fedrel.federation.messages import Arrays, Message, Model, RefusedError, Update, payload
from fedrel.federation.rounds import Draw, RoundNotes, draw
from fedrel.federation.site_memory import Entry
from fedrel.federation.site_text import COORDINATOR
from fedrel.privacy.differential_privacy import Normal, system_normal
from fedrel.privacy.robust_rules import Agreeing
from fedrel.privacy.secret_keys import Registered, SimulatedSecrets
from fedrel.privacy.trust import Norms, Standing, bound_factors, capped, new_sum, shortened
from fedrel.privacy.update_blocks import UpdateStore
from fedrel.seeding import numpy_generator
from fedrel.tensors.weights import NoAnswerError, Sum, Tensors, Weights, dense

if TYPE_CHECKING:
    from fedrel.data.bags import Bags
    from fedrel.federation.site import Site
    from fedrel.tensors.weights import Shapes


Reply = TypeVar("Reply", bound=Message)
Trained = TypeVar("Trained", bound=Update)

OWN = "own"  # in the coordinator's state: the sites' own models
CLASSIFIER, BIAS = "classifier.weight", "classifier.bias"


class Federation:
    """What the coordinator's half of a method works with: the weights, the active sites, and `ask`.

    A round may have a reserve and a quorum. `extra_sites` more sites than drawn are asked at the same time; their
    answers replace those of drawn sites that fail. With fewer than `min_sites` usable answers the round fails.
    `check` is the method's own check of an answer (`Method.check`).
    """

    def __init__(
        self,
        engine: Engine,
        check: Callable[[Federation, int, Message], None],
        weights: Mapping[str, npt.NDArray[np.float32]],
        *,
        sizes: npt.NDArray[np.int64],
        triples: int,
        relations: int,
        validation: int = 0,
        state: Mapping[str, npt.NDArray[np.float32]] | None = None,
        fraction: float,
        seed: int,
        min_sites: int = 1,
        extra_sites: int = 0,
        aggregation: AggregationSection | None = None,
        privacy: PrivacySection | None = None,
    ) -> None:
        self.weights = weights
        self.state = dict(state or {})  # what a method keeps at the coordinator; checkpoints save it
        self.memo: dict[str, Any] = {}  # what a method keeps within a round
        self.round, self.attempt = 0, 0
        self.sizes = sizes  # [K], how many sentences each site holds
        self.triples = triples  # how many triples the knowledge base has
        self.relations = relations  # how many relations the model tells apart
        self.validation = validation  # how many labelled sentences the coordinator holds (D_v)
        self.notes = RoundNotes()
        self.aggregation = aggregation or AggregationSection()
        self.privacy = privacy or PrivacySection()
        self.registered: Registered = engine.registered() or SimulatedSecrets(seed)
        self._engine, self._check = engine, check
        self._shapes: Shapes = {name: tensor.shape for name, tensor in weights.items()}
        self._fraction, self._seed = fraction, seed
        self._min_sites, self._extra_sites = min_sites, extra_sites
        self.drawn = Draw([], [])
        self._sum: Sum | None = None  # the last one that `new_sum` gave
        self._reserve: list[int] = []
        self._model, self._norms = Model(weights), Norms(weights)
        self._sent: dict[tuple[int, int], Message] = {}  # in this round, by site and the message's id

    @property
    def model(self) -> Model:
        """The weights as a message: the same object until they change, so that it is sent once a round."""
        if self._model.weights is not self.weights:
            self._model = Model(self.weights)
        return self._model

    def draw(self, round_: int, attempt: int = 0, without: Collection[int] = ()) -> None:
        """Begin a round: draw its sites from those that have data, and a reserve (`fedrel.federation.rounds`).

        A second attempt at the same round draws other sites, none of them in `without`; the bytes and refusals of
        the first attempt stay in the notes. Where noise hides sites, real ones are drawn by the operating system's
        randomness: ε counts on it that others do not know who was drawn, and the seed is published.
        """
        if (reported := self._engine.holdings()) is not None:
            self.sizes, self.triples = reported.sizes, reported.triples
        dp = self.privacy.site_noise
        excluded = Standing(self.state, len(self.sizes)).excluded(self.aggregation.exclude_after)
        self.drawn = draw(
            self.sizes,
            self._fraction,
            secrets.randbits(62) if dp and self._engine.reaches_real_sites else self._seed,
            round_,
            attempt,
            without={*without, *excluded},
            reserve=self._extra_sites,
            sampling=dp.sampling if dp else "fixed",
        )
        self._reserve = self.drawn.reserve
        if not attempt:
            self._sent = {}
        before = self.notes if attempt else RoundNotes()
        self.round, self.attempt, self.memo = round_, attempt, {}
        self.notes = RoundNotes(
            list(self.drawn.sites), before.traffic, before.refused, sent=before.sent, rates=before.rates
        )
        self.notes.excluded = excluded

    def ask(
        self, phase: Callable[[Site], Reply], *sent: Message | Mapping[int, Message]
    ) -> Iterator[tuple[int, Reply]]:
        """Ask the active sites; yield the answers that pass all checks, in the order of the sites.

        A message goes to all sites. A mapping sends each site its own message, and only the sites in it are asked.
        A site keeps a message to all until the round ends, so it is sent once, however many requests need it.
        A refused answer is noted with the site and the reason, and the round goes on without it.

        The first request of a round goes to the reserve too. Its answers come last: by then it is known how many
        are missing. A site that replaces another stays active for the rest of the round; what the other reserve
        sites sent is counted but not used. `NoAnswerError` if fewer than `min_sites` answers could be used.
        """
        active, reserve, self._reserve = self.notes.active, self._reserve, []
        self.notes.active = [*active, *reserve]
        refused_before = len(self.notes.refused)

        def failed() -> set[int]:
            return {one["site"] for one in self.notes.refused[refused_before:]}.intersection(active)

        used: list[int] = []
        replaced = 0
        for site, reply in self._checked_answers(phase, sent):
            if site in reserve:
                if replaced == len(failed()):
                    continue
                replaced += 1
            used.append(site)
            if isinstance(reply, Update):
                self._note_class_distances(site, reply)
            yield site, reply
        self.notes.active = sorted({*active, *used} - failed()) if reserve else active
        asked = len(used) - replaced + len(failed())  # of the active sites; a mapping may leave some out
        if len(used) < min(self._min_sites, asked):
            few = f"{len(used)} answers could be used, and engine.min_sites is {self._min_sites}"
            raise NoAnswerError(few if used else "")

    def work(self, phase: Callable[[Site], Reply], *given: Message) -> Reply:
        """Run an `at_coordinator` function here, on the coordinator's own labelled sentences: nothing is sent."""
        arrays = _flat({type(message).__name__: message.pack() for message in given})
        ((_, answer),) = self._engine.ask(phase.__name__, self.round, {}, {COORDINATOR: arrays})
        if answer.arrays is None:
            raise NoAnswerError(answer.failure)
        reply: Reply = phase.gives.unpack(answer.arrays, self._shapes)  # type: ignore[attr-defined]
        return reply

    def model_of(self, site: int, kept: str = OWN) -> Weights:
        """A site's own model, for methods that give each site one; before it has one, the common weights."""
        own = {name: self.state.get(f"{kept}/{site}/{name}") for name in self.weights}
        return {name: self.weights[name] if tensor is None else tensor for name, tensor in own.items()}

    def keep_model(self, site: int, weights: Weights, kept: str = OWN) -> None:
        """Keep a site's own model in the coordinator's state."""
        self.state |= {f"{kept}/{site}/{name}": tensor for name, tensor in weights.items()}

    def generator(self, *purpose: int | str) -> np.random.Generator:
        """The coordinator's own randomness for one purpose in this round."""
        return numpy_generator(self._seed, *purpose, self.round)

    def normal(self, *purpose: int | str) -> Normal:
        """Where this round's noise for one purpose comes from: the seed in a simulation, where it protects nobody,
        else the operating system."""
        return system_normal if self._engine.reaches_real_sites else self.generator(*purpose).standard_normal

    def new_sum(self) -> Sum:
        """What turns a round's updates into one model, as `[aggregation]` says: by default a weighted mean."""
        self._sum = new_sum(self.aggregation, self.weights)
        return self._sum

    def trusted(self, updates: Iterable[tuple[int, Trained]]) -> Iterator[tuple[int, Trained]]:
        """Updates that were trained from the global weights, as far as `[aggregation]` trusts each.

        By default they are passed on as they come. A norm bound and a cap wait for all of them.
        """
        section, moves = self.aggregation, self.notes.moves
        waiting: dict[int, Trained] = {}
        store = UpdateStore()
        for site, update in updates:
            moves.add(site, self._norm(update.weights), update.examples)
            if section.is_plain:
                yield site, update
            else:
                waiting[site] = replace(update, weights=store.keep(update.weights))
        if waiting and section.share_cap:
            most = capped([update.examples for update in waiting.values()], section.share_cap)
            for site, examples in zip(waiting, most, strict=True):
                waiting[site] = replace(waiting[site], examples=examples)
        factors = bound_factors(moves.norms, section.norm_bound) if waiting and section.norm_bound else {}
        self.notes.shortened = factors
        for site, update in waiting.items():
            weights = shortened(self.weights, update.weights, factors.get(site, 1.0))
            yield site, replace(update, weights=weights)

    def checked_mean(self, mean: Weights) -> Weights:
        """A mean of the round's updates; `DivergedError` if it moved further than honest updates explain."""
        norm = self._norm(mean)
        if not np.isfinite(norm) or self.notes.moves.diverges(norm):
            raise DivergedError("the mean of the updates would ruin the model")
        return mean

    def go_on_with(self, weights: Weights, counts: Mapping[int, float]) -> None:
        """Take new global weights; keep who was left out, or, where sites vouch, how much each counts in them."""
        self.weights = weights
        if self.aggregation.exclude_after and isinstance(self._sum, Agreeing):
            sites = list(counts)
            self.notes.left_out = [sites[place] for place in self._sum.left_out]
            self.state |= Standing(self.state, len(self.sizes)).with_round(sites, self.notes.left_out)
        if self.privacy.vouched:
            whole, factors = sum(counts.values()), self.notes.shortened
            shares = {site: count * factors.get(site, 1.0) / whole for site, count in counts.items()}
            earned = Earned.kept_in(self.state).with_round(self.round, shares, self.notes.vouches)
            self.state |= earned.for_state()

    def learned(self, update: Update) -> None:
        """Note the examples and the loss of an update that went into the average."""
        self.notes.examples += update.examples
        self.notes.loss += (update.loss - self.notes.loss) * update.examples / max(self.notes.examples, 1)

    def _checked_answers(
        self, phase: Callable[[Site], Reply], sent: Sequence[Message | Mapping[int, Message]]
    ) -> Iterator[tuple[int, Reply]]:
        """Send a request to the sites in `notes.active`; yield the answers that pass all checks."""
        if self.privacy.vouched and any(one is self.model for one in sent):
            sent = (*sent, self._earned())
        shared, own = self._requests(sent)
        kind = phase.gives  # type: ignore[attr-defined]
        for site, answer in self._engine.ask(phase.__name__, self.round, shared, own):
            if answer.journal is not None:
                self.notes.journals[site] = answer.journal
            try:
                if answer.lost:  # the site may not have received what was sent to it
                    self._sent = {key: message for key, message in self._sent.items() if key[0] != site}
                if answer.arrays is None:
                    raise RefusedError(answer.failure)
                self.notes.traffic.record("up", kind.__name__, answer.arrays)
                self.notes.sent[site] = self.notes.sent.get(site, 0) + payload(answer.arrays)
                reply = kind.unpack(answer.arrays, self._shapes)
                self._check(self, site, reply)
                if self.privacy.vouched and isinstance(reply, Update) and not answer.vouch:
                    raise RefusedError("does not vouch for its update")
            except RefusedError as refusal:
                self.notes.refused.append({"site": site, "message": kind.__name__, "reason": str(refusal)})
            else:
                if isinstance(reply, Update):
                    self.notes.losses[site] = reply.loss
                    self.notes.vouches[site] = answer.vouch
                yield site, reply

    def _requests(
        self, sent: Sequence[Message | Mapping[int, Message]]
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[int, dict[str, npt.NDArray[Any]]]]:
        """The arrays for all sites, and by site its own; what is sent is counted."""
        each = [one for one in sent if not isinstance(one, Message)]
        own = {
            site: {type(one[site]).__name__: one[site].pack() for one in each}
            for site in self.notes.active
            if all(site in one for one in each)
        }
        shared: dict[str, Arrays] = {}
        for message in (one for one in sent if isinstance(one, Message)):
            new = {(site, id(message)): message for site in own if (site, id(message)) not in self._sent}
            self._sent |= new
            if new:
                name = type(message).__name__
                shared[name] = message.pack()
                self.notes.traffic.record("down", name, shared[name], len(new))
        for parts in own.values():
            for name, part in parts.items():
                self.notes.traffic.record("down", name, part)
        return _flat(shared), {site: _flat(parts) for site, parts in own.items()}

    def _earned(self) -> Earned:
        """What the weights are made of: the same object within a round, so that it is sent once."""
        found: Earned = self.memo.setdefault("earned", Earned.kept_in(self.state))
        return found

    def _norm(self, tensors: Tensors) -> float:
        """How far tensors are from the global weights."""
        if self._norms.base is not self.weights:
            self._norms = Norms(self.weights)
        return self._norms.of(tensors)

    def _note_class_distances(self, site: int, update: Update) -> None:
        if (vectors := class_vectors(self.weights, update.weights)) is not None:
            self.notes.class_distances[site] = class_distances(vectors)


class DivergedError(NoAnswerError):
    """The answers of a round lead to weights that nobody should go on with."""


class Engine(ABC):
    """Carries requests to the sites and their answers back, and scores with the coordinator's own model."""

    reaches_real_sites: ClassVar[bool] = False
    """Whether the sites are others' machines, so that randomness that protects them must not follow from a seed."""

    @abstractmethod
    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Send one request to the sites in `own`; yield their answers in that order.

        `shared` goes to every site, `own[site]` to one. `phase` is the name of the method's `at_site` function.
        """

    @abstractmethod
    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag, [B, R], under the given weights."""

    def holdings(self) -> Reported | None:
        """What the sites have reported that they hold; None in a simulation, where the partition says it."""
        return None

    def registered(self) -> Registered | None:
        """The keys that real sites sign with, of this run; None in a simulation, which makes them up."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027 - engines that start nothing have nothing to stop
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what the engine started; by default nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine brings back from a site: arrays or a failure, and in a simulation the site's journal."""

    arrays: Arrays | None
    failure: str = ""
    journal: Entry | None = None
    lost: bool = False
    """Of a failure: the request or the answer was lost on the way; the site itself did not refuse."""
    chain: str = ""
    """Of a real site: the last chain value of its record, which the coordinator keeps."""
    vouch: bytes = b""
    """Of a real site's update, where sites vouch for theirs: what shows others that it is part of the weights."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What the sites have reported: how many sentences each holds (0: not yet reported)."""

    sizes: npt.NDArray[np.int64]
    triples: int
    """How many triples have a number that all sites agreed on."""


def class_vectors(base: Weights, tensors: Tensors) -> npt.NDArray[np.float32] | None:
    """The rows of a classifier without a bias, [R, d]: they alone tell its classes apart. With a bias: None.

    `base` are the weights that the tensors were trained from.
    """
    if CLASSIFIER not in tensors or BIAS in tensors:
        return None
    return dense({CLASSIFIER: base[CLASSIFIER]}, {CLASSIFIER: tensors[CLASSIFIER]})[CLASSIFIER]


def _flat(messages: Mapping[str, Arrays]) -> dict[str, npt.NDArray[Any]]:
    """Several messages' arrays in one dict, named `Kind.field`."""
    return {f"{kind}.{name}": array for kind, part in messages.items() for name, array in part.items()}
