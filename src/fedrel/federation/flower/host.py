"""What a site is asked, who decides whether it answers, and where it answers: the parts that need no Flower.

A `Host` is where a client process answers: a real site's own folder, or a process of a simulation. Its `Gate`
decides for the site, before an answer is computed and again before it leaves. A site never sends text: a
refusal travels as the number of its reason and one more number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedrel.federation.messages import UNVOUCHED, Arrays
from fedrel.files import atomic_file

if TYPE_CHECKING:
    from fedrel.federation.method import Method
    from fedrel.federation.runner import Runner


@dataclass(frozen=True)
class Request:
    """What a coordinator asks a site for."""

    run: str  # a name for the run: the config's digest and a random number
    config: Mapping[str, Any]  # the experiment as JSON: a site compares it with its own, and uses its own
    artefacts: Mapping[str, str]  # the fingerprints of what was published, by name
    site: int
    round: int  # 0 for the question what the site holds
    phase: str  # the name of the method's `at_site` function, or `HOLDINGS`
    gives: str = ""  # the kind of message that would leave, as the site's own code says


class RefusalCode(IntEnum):
    """Every reason for which a site may refuse. Numbers travel between versions: add new ones, never change one."""

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
    INITIAL = 30
    WEIGHTS = 31
    WINNERS = 32
    LEVELS = 33
    VOUCHED = 34
    LEFT_OUT = 35
    SIZES = 36
    TAGS = 37
    SECURE_SUM = 40
    COHORT = 41
    PEER = 42
    BUDGET = 50


_TEXTS = {
    RefusalCode.UNFIT: "refused the request: it does not fit its declaration (the site's log says how)",
    RefusalCode.WRONG_SITE: "refused the request: it is site number {}",
    RefusalCode.FAILED: "failed while it answered (the site's log says why)",
    RefusalCode.METHOD: "refused the request: its site.toml does not allow the method",
    RefusalCode.MESSAGE: "refused the request: its site.toml does not allow the message",
    RefusalCode.FIELD: "refused the request: its site.toml does not let a field of the message leave",
    RefusalCode.ROUNDS: "refused the request: its site.toml allows at most {} rounds",
    RefusalCode.EPOCHS: "refused the request: its site.toml allows at most {} epochs",
    RefusalCode.EXAMPLES: "refused the request: its site.toml demands at least {} examples",
    RefusalCode.PRIVACY: "refused the request: its site.toml demands differential privacy",
    RefusalCode.REPEATS: "refused the request: it answers at most {} different questions of a kind in a round",
    RefusalCode.SIMULATION: "refused the request: the method is for simulations only",
    RefusalCode.TRIPLE_KEY: (
        "refused the request: facts are sent as keyed digests, and its triple.key is missing or not 32 bytes"
    ),
    RefusalCode.ARTEFACTS: "refused the request: its artefacts are not those that were published",
    RefusalCode.CONFIG: "refused the request: its config is not the one that was published",
    RefusalCode.RELATIONS: "refused the request: its relation map is not the one that was published",
    RefusalCode.VOCABULARY: "refused the request: its vocabulary is not the one that was published",
    RefusalCode.ENCODER: "refused the request: its encoder is not the one that was published",
    RefusalCode.KNOWLEDGE_BASE: "refused the request: its knowledge base is not the one that was published",
    RefusalCode.VALIDATION: "refused the request: its validation set is not the one that was published",
    RefusalCode.INITIAL: "refused the request: round 1's weights are not those of the published seed",
    RefusalCode.WEIGHTS: (
        "refused the request: the global weights moved otherwise than training explains (its record says how)"
    ),
    RefusalCode.WINNERS: "refused the request: the winners are not sentences that it claimed in this round",
    RefusalCode.LEVELS: "refused the request: its site.toml lets claims have at most {} levels",
    RefusalCode.VOUCHED: "refused the request: its site.toml demands updates that sites vouch for",
    RefusalCode.LEFT_OUT: (
        "refused the request: its own last updates are not in the global weights (its record says of which rounds)"
    ),
    RefusalCode.SIZES: (
        "refused the request: a site counts for more examples than were agreed for it (its record says which)"
    ),
    RefusalCode.TAGS: f"refused the request: {UNVOUCHED} (its record says how far off)",
    RefusalCode.SECURE_SUM: "refused the request: its site.toml demands secure sums",
    RefusalCode.COHORT: "refused the request: a secure sum with it must be over at least {} sites",
    RefusalCode.PEER: (
        "refused the request: what it was told of site number {} is not what that site signed (its record says how)"
    ),
    RefusalCode.BUDGET: "refused the request: another answer would exceed max_epsilon of its site.toml",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for a refusal, and the number that its text may contain."""

    code: RefusalCode
    number: int = 0

    def __str__(self) -> str:
        return _TEXTS[self.code].format(self.number)


class Gate(Protocol):
    """Decides for a site what it answers, and records what leaves."""

    chain: bytes | None
    """The last chain value of the site's record, which goes with every answer; None without a record."""
    vouch: bytes | None
    """What goes with the update that was recorded last, where sites vouch for updates (`privacy.vouching`)."""

    def allow(self, request: Request) -> Refusal | None:
        """Before anything is computed: why the request is refused, or None."""

    def receive(self, request: Request, arrays: Arrays, runner: Runner) -> Refusal | None:
        """Before anything is computed from what came in this round: why it is not used, or None."""

    def earlier_answer(self, request: Request) -> Arrays | None:
        """What left when the same was asked before in this round, if it can be sent again."""

    def record(self, request: Request, arrays: Arrays, runner: Runner | None = None) -> Refusal | None:
        """Before the answer leaves: record it, or say why it must not leave; `runner` has computed it just now."""

    def refuse(self, request: Request | None, refusal: Refusal, note: str = "") -> Refusal:
        """Record a refusal that is not the gate's own; the note is for the site only.

        `request` is None if what came could not be read as one.
        """


class OpenGate:
    """Allows everything: for simulations."""

    chain: bytes | None = None
    vouch: bytes | None = None

    def allow(self, request: Request) -> Refusal | None:
        """Refuse nothing."""
        return None

    def receive(self, request: Request, arrays: Arrays, runner: Runner) -> Refusal | None:
        """Refuse nothing."""
        return None

    def earlier_answer(self, request: Request) -> Arrays | None:
        """Keep nothing."""
        return None

    def record(self, request: Request, arrays: Arrays, runner: Runner | None = None) -> Refusal | None:
        """Record nothing."""
        return None

    def refuse(self, request: Request | None, refusal: Refusal, note: str = "") -> Refusal:
        """Record nothing: the log has it."""
        return refusal


class Host(Protocol):
    """Where a client process answers. Building the runner loads torch; nothing else here does."""

    sends_journal: bool
    """Whether the coordinator may read the journal."""

    @property
    def gate(self) -> Gate:
        """Who decides for the site."""

    def refusal_for(self, site: int) -> Refusal | None:
        """Why a request for this site cannot be answered here, or None."""

    def method(self) -> Method:
        """The method of the experiment."""

    def sentences(self, site: int) -> int:
        """How many sentences the site holds."""

    def begin_run(self, run: str) -> None:
        """A run asks for the first time: remove what is left of old ones."""

    def stored_messages(self, run: str, site: int) -> StoredMessages:
        """Where messages are stored until the round ends."""

    def runner(self, run: str) -> Runner:
        """What computes the answer."""


class StoredMessages:
    """The messages of one round as files: a client process may end after each request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, round_: int, phase: str, block: bytes) -> None:
        """Store what came with a request, and remove other rounds' files.

        A repeated request begins the round anew: it replaces the one before, and what came after that.
        """
        repeated = False
        for file in self._files():
            repeated |= file.stem.endswith(f"-{phase}") and file.stat().st_size == len(block)
            if repeated or _round(file) != round_:
                file.unlink(missing_ok=True)
        number = 1 + max((_number(file) for file in self._files()), default=0)
        with atomic_file(self._folder / f"{round_:05}-{number:03}-{phase}.safetensors") as part:
            part.write_bytes(block)

    def of_round(self, round_: int) -> Iterator[tuple[str, bytes]]:
        """What was stored in this round, in order: the request's phase and the encoded messages."""
        for file in self._files():
            if _round(file) == round_:
                yield file.stem.split("-", 2)[2], file.read_bytes()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.safetensors"))


def _round(file: Path) -> int:
    return int(file.stem.split("-")[0])


def _number(file: Path) -> int:
    return int(file.stem.split("-")[1])
