"""Why a site did not answer. From a site never a string: a reason crosses as its number, and one more number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Why(IntEnum):
    """Every reason a site may give. Numbers travel between versions: new reasons come last, none is renumbered."""

    UNFIT = 1
    WRONG_SITE = 2
    FAILED = 3
    METHOD = 10
    MESSAGE = 11
    FIELD = 12
    ROUNDS = 13
    EPOCHS = 14
    EXAMPLES = 15
    PRIVACY = 16
    REPEATS = 17
    SIMULATION = 18
    TRIPLE_KEY = 19
    ARTEFACTS = 20
    CONFIG = 21
    RELATIONS = 22
    VOCABULARY = 23
    ENCODER = 24
    KNOWLEDGE_BASE = 25
    VALIDATION = 26


_PHRASES = {
    Why.UNFIT: "refused the request: it does not fit its declaration (the site's log says how)",
    Why.WRONG_SITE: "refused the request: it is site number {}",
    Why.FAILED: "failed while it answered (the site's log says why)",
    Why.METHOD: "refused the request: its site.toml does not allow the method",
    Why.MESSAGE: "refused the request: its site.toml does not allow the message",
    Why.FIELD: "refused the request: its site.toml does not let a field of the message leave",
    Why.ROUNDS: "refused the request: its site.toml allows at most {} rounds",
    Why.EPOCHS: "refused the request: its site.toml allows at most {} epochs",
    Why.EXAMPLES: "refused the request: its site.toml demands at least {} examples",
    Why.PRIVACY: "refused the request: its site.toml demands differential privacy",
    Why.REPEATS: "refused the request: it answers one round at most {} times",
    Why.SIMULATION: "refused the request: the method is for simulations only",
    Why.TRIPLE_KEY: "refused the request: facts go by keyed names, and its triple.key is missing or not 32 bytes",
    Why.ARTEFACTS: "refused the request: its artefacts are not those that were published",
    Why.CONFIG: "refused the request: its config is not the one that was published",
    Why.RELATIONS: "refused the request: its relation map is not the one that was published",
    Why.VOCABULARY: "refused the request: its vocabulary is not the one that was published",
    Why.ENCODER: "refused the request: its encoder is not the one that was published",
    Why.KNOWLEDGE_BASE: "refused the request: its knowledge base is not the one that was published",
    Why.VALIDATION: "refused the request: its validation set is not the one that was published",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason and the number its phrase may hold."""

    why: Why
    number: int = 0

    def __str__(self) -> str:
        return _PHRASES[self.why].format(self.number)
