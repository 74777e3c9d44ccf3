"""What a method is: its options, the coordinator's half and the site's half, in one class.

The coordinator's half is `round`, ordinary code that asks sites for things (`fed.ask`). The site's half are the
functions marked `at_site`. The engine decides how requests and answers travel.

A method holds no state: the coordinator's is in `fed`, a site's in `site`. So classes compose by name:
`att+fedprox` inherits from both, and neither file knows of the other. In a composed method each class's code
sees its own options: `self.mu` in MOON's file is MOON's, also in `fedprox+moon`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr

from fedrel.config.plugins import Listed
from fedrel.federation.messages import Message

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Federation


Answer = TypeVar("Answer", bound=Callable[..., Message])
Function = TypeVar("Function", bound=Callable[..., Any])
Part = TypeVar("Part", bound="Method")


def at_site(*, takes: tuple[type[Message], ...], gives: type[Message]) -> Callable[[Answer], Answer]:
    """Mark a function that runs at a site: the kinds of message it needs, and the kind that it answers with."""
    return _marked(takes, gives, leaves_site=True)


def at_coordinator(*, takes: tuple[type[Message], ...], gives: type[Message]) -> Callable[[Answer], Answer]:
    """Mark a function that runs at the coordinator, on its own labelled sentences (`Federation.work`)."""
    return _marked(takes, gives, leaves_site=False)


def adds_up(function: Function) -> Function:
    """Mark a function that several parts of a composed method may extend, in any order.

    Each calls `super()` and adds to what that returns. A function without this mark may be changed by one part
    only.
    """
    function.adds_up = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True, slots=True)
class OwnStep:
    """What a site knows when it judges how far the global weights went in a round, for one tensor."""

    length: float  # how far the sites' mean may have gone, by the site's own training
    size: int  # how many numbers the tensor has
    rounds: int  # of the run so far
    effort: float = 0.0  # the coordinator's own training steps, where it trains, for each step of the site's


class Method(Listed, BaseModel):
    """The base of all methods; its pydantic fields are the method's options under `[methods.NAME]`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: ClassVar[str] = ""
    """What a config calls the method."""
    paper: ClassVar[str] = ""
    """Where the method comes from: authors, year, title."""
    reads: ClassVar[tuple[str, ...]] = ("sentences", "documents")
    """The kinds of corpora that its sites can train on."""
    carries: ClassVar[tuple[type[Message], ...]] = ()
    """Kinds of message that this class adds to the training request."""
    test_head: ClassVar[str] = "none"
    """The bag head that pools a pair's sentences at test time."""
    pools_data: ClassVar[bool] = False
    """True for a method that puts all sites' text in one place: a baseline, for simulation only."""
    single_answers: ClassVar[str] = ""
    """What its coordinator does with single sites' answers, so that their sum is not enough; or nothing."""
    several_sites: ClassVar[bool] = True
    """False if only one place trains, so that there is nothing to compare it with."""
    own_models: ClassVar[bool] = False
    """True if every site ends with a model of its own, which is tested on the site's own part of the test set."""
    unprotected: ClassVar[str] = ""
    """What its sites send, or learn of each other, that no noise of `[privacy.dp]` covers; or nothing."""

    beyond_examples: ClassVar[str] = ""
    """How a site's training uses more of its text than one example at a time, so that noise on examples
    (`privacy.dp.level = "sentence"`) does not cover it; or nothing. A method from elsewhere must say so itself."""

    _parts: dict[type[Method], Method] = PrivateAttr(default_factory=dict)

    def round(self, fed: Federation) -> None:
        """One communication round: ask the active sites, set `fed.weights`."""
        raise TypeError(f"{type(self).__name__} does not say what a round is")

    @adds_up
    def check(self, fed: Federation, site: int, answer: Message) -> None:
        """Raise `RefusedError` for an answer that fits its declaration but cannot be true; nothing by default."""

    @adds_up
    def reach(self, own: OwnStep) -> float:
        """How far the global weights may go in a round at most, if the mean of the sites' goes `own.length`.

        A site refuses weights that went farther. A method whose coordinator goes beyond the mean adds how far.
        """
        return own.length

    @adds_up
    def simulation_only(self) -> str | None:
        """Why this method may not run between real sites, or None."""
        return "it trains on all sites' text in one place" if self.pools_data else None

    def kernel_head(self) -> str | None:
        """The bag head that sites train, if an `Objective` says all of it, so that kernels may do it; else None."""
        return None

    @classmethod
    def unsuited(cls) -> str | None:
        """Why one part of the composed class `cls` cannot work with the others, or None."""
        return None

    @classmethod
    def no_updates(cls) -> str | None:
        """Why `[aggregation]` has nothing to act on: the method averages no updates. None if it does."""
        return "it does not say that it averages updates"

    @classmethod
    def only_mean(cls) -> str | None:
        """Why no other rule than the mean can combine the updates, or None."""
        return cls.no_updates()

    @classmethod
    def carried(cls) -> tuple[type[Message], ...]:
        """What all composed classes add to the training request."""
        return tuple(kind for part in cls.__mro__ for kind in part.__dict__.get("carries", ()))

    @classmethod
    def with_parts(cls, whole: Mapping[str, Any], parts: Mapping[type[Method], Mapping[str, Any]]) -> Method:
        """A composed method with the options `whole`; each class that it is composed of has its own in `parts`."""
        made = cls._with(whole)
        views = {kind: cls._with(options) for kind, options in parts.items()}
        for one in (made, *views.values()):
            one._parts.update(views)
        return made

    def part(self, kind: type[Part]) -> Part:
        """The method with the options of one class that it is composed of; itself if it is not composed."""
        return cast(Part, self._parts.get(kind, self))

    @classmethod
    def _with(cls, options: Mapping[str, Any]) -> Method:
        """A method that has just these options, which were checked before."""
        made = cls.model_construct()
        made.__dict__.clear()
        made.__dict__.update(options)
        return made

    @classmethod
    def __pydantic_init_subclass__(cls, **given: Any) -> None:
        """Let the functions of a class see the options of that class, whatever it is composed with."""
        super().__pydantic_init_subclass__(**given)
        for name, function in list(vars(cls).items()):
            if isinstance(function, FunctionType) and not hasattr(BaseModel, name):
                setattr(cls, name, _with_options_of(cls, function))


def _with_options_of(kind: type[Method], function: FunctionType) -> Callable[..., Any]:
    """The function with `self` replaced by the part of the composed method that `kind` is."""

    @wraps(function)
    def call(self: Method, *given: Any, **named: Any) -> Any:
        return function(self.part(kind), *given, **named)

    return call


def _marked(
    takes: tuple[type[Message], ...], gives: type[Message], *, leaves_site: bool
) -> Callable[[Answer], Answer]:
    def mark(answer: Answer) -> Answer:
        answer.takes, answer.gives, answer.leaves_site = takes, gives, leaves_site  # type: ignore[attr-defined]
        return answer

    return mark
