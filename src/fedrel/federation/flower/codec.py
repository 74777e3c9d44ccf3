"""Why a site did not answer. From a site never a string: a reason crosses as its number, and one more number."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedrel.federation.coordinator import Answer
from fedrel.federation.journal import Entry
from fedrel.federation.messages import Arrays, RefusedError
from fedrel.federation.wire import decode, encode


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


_RUN = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}")  # it names a folder at the site
_PHASE = re.compile(r"[a-z][a-z_]*")
_FORMAT = "safetensors"


@dataclass(frozen=True)
class Question:
    """What is put to one site, as it travels."""

    run: str
    config: str  # JSON
    artefacts: Mapping[str, str]
    site: int
    round: int
    phase: str


def sealed(arrays: Arrays) -> ArrayRecord:
    """Arrays as a record; the same record may go into many envelopes, and Flower then carries it once."""
    block = encode(arrays)
    return ArrayRecord({"body": Array("uint8", (len(block),), _FORMAT, block)})


def question(asked: Question, shared: ArrayRecord, own: ArrayRecord) -> RecordDict:
    """A question's envelope."""
    fields = asdict(asked) | {"artefacts": json.dumps(dict(asked.artefacts))}
    return RecordDict({"question": ConfigRecord(fields), "shared": shared, "own": own})


def open_question(content: RecordDict) -> tuple[Question, bytes, bytes]:
    """A question with its encoded arrays, those for all sites and the site's own; `RefusedError` if it is none."""
    try:
        fields: dict[str, Any] = dict(content["question"])
        fields["artefacts"] = json.loads(fields["artefacts"])
        asked = Question(**fields)
        kinds = {"run": str, "config": str, "artefacts": dict, "site": int, "round": int, "phase": str}
        fits = all(type(getattr(asked, name)) is kind for name, kind in kinds.items())
        shared, own = (_body(content[name]) for name in ("shared", "own"))
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError(f"is not a question: {error}") from error
    if not fits or asked.round < 0 or not _RUN.fullmatch(asked.run) or not _PHASE.fullmatch(asked.phase):
        raise RefusedError("is not a question: a field has another form")
    return asked, shared, own


def answer(arrays: Arrays, journal: Entry | None = None) -> RecordDict:
    """An answer's envelope; the journal goes along in a simulation only."""
    records: dict[str, Any] = {"answer": sealed(arrays)}
    if journal is not None:
        records["journal"] = ConfigRecord({"entry": json.dumps(asdict(journal))})
    return RecordDict(records)


def refusal(reason: Reason) -> RecordDict:
    """The envelope of a site that does not answer."""
    return RecordDict({"refusal": MetricRecord({"why": int(reason.why), "number": reason.number})})


def open_answer(content: RecordDict, *, journal: bool = False) -> Answer:
    """What a site sent back. What does not have an answer's form is a failure, with the reason."""
    try:
        if "refusal" in content:
            return Answer(None, failure=str(_reason(content["refusal"])))
        arrays = decode(_body(content["answer"]))
        entry = _entry(content["journal"]) if journal and "journal" in content else None
    except (KeyError, TypeError, ValueError, RefusedError) as error:
        return Answer(None, failure=f"answered something else than it was asked for: {type(error).__name__}")
    return Answer(arrays, journal=entry)


def _reason(record: Any) -> Reason:
    why, number = record["why"], record["number"]
    if type(why) is not int or type(number) is not int:
        raise TypeError("another kind of number")
    return Reason(Why(why), number)


def _body(record: Any) -> bytes:
    array = record["body"]
    if not isinstance(array, Array) or array.stype != _FORMAT:
        raise ValueError("another format")
    return bytes(array.data)


def _entry(record: Any) -> Entry:
    """A journal's entry again: JSON has made its row numbers strings."""
    fields = json.loads(record["entry"])
    watched = {int(row): weight for row, weight in fields.pop("watched").items()}
    return Entry(**fields, watched=watched)
