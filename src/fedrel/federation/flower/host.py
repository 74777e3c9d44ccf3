"""The site's say in what it is asked: a gate before every answer is made, and again before it leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedrel.federation.flower.codec import Reason
from fedrel.federation.messages import Arrays
from fedrel.files import atomic_file

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.federation.method import Method
    from fedrel.federation.runner import Desk


@dataclass(frozen=True)
class Request:
    """What a coordinator asks a site for."""

    run: str  # a name for the run: the config's digest and a number of its own
    config: Config  # the experiment; its data, partition and engine mean nothing at a site
    artefacts: Mapping[str, str]  # the fingerprints of what was published, by name
    site: int
    round: int  # 0 for the census
    phase: str  # the name of the method's `at_site` function, or "census"
    brings: tuple[str, ...]  # the kinds of message that came with it
    gives: str  # the kind of message that would leave


class Gate(Protocol):
    """Decides for a site, and keeps its record."""

    def allow(self, request: Request) -> Reason | None:
        """Before anything is computed: why the request is refused, or None."""

    def record(self, request: Request, arrays: Arrays) -> Reason | None:
        """Before the answer leaves: write down what leaves, or say why it must not."""

    def refuse(self, request: Request | None, reason: Reason, note: str = "") -> Reason:
        """Write down a refusal that is not the gate's own; the note is for the site alone.

        There is no request where what came could not be read as one.
        """


class OpenGate:
    """Lets everything through: for simulations, where no site has anything to guard."""

    def allow(self, request: Request) -> Reason | None:
        """Nothing is refused."""
        return None

    def record(self, request: Request, arrays: Arrays) -> Reason | None:
        """Nothing is written down."""
        return None

    def refuse(self, request: Request | None, reason: Reason, note: str = "") -> Reason:
        """The simulation's log is enough."""
        return reason


class Inbox:
    """A folder of encoded messages, of one round at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, round_: int, phase: str, block: bytes) -> None:
        """Keep what came with a question; other rounds' files go, and those of the same question asked before."""
        for file in self._files():
            again = file.stem.endswith(f"-{phase}") and file.stat().st_size == len(block)
            if again or _round(file) != round_:
                file.unlink(missing_ok=True)
        number = 1 + max((_number(file) for file in self._files()), default=0)
        with atomic_file(self._folder / f"{round_:05}-{number:03}-{phase}.safetensors") as part:
            part.write_bytes(block)

    def kept(self, round_: int) -> Iterator[tuple[str, bytes]]:
        """What was kept in this round, in order: the question's phase and the encoded messages."""
        for file in self._files():
            if _round(file) == round_:
                yield file.stem.split("-", 2)[2], file.read_bytes()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.safetensors"))


def _round(file: Path) -> int:
    return int(file.stem.split("-")[0])


def _number(file: Path) -> int:
    return int(file.stem.split("-")[1])


class Place(Protocol):
    """What answering a question takes. Opening a desk loads torch; nothing else here does."""

    tells: bool
    """Whether the coordinator may read the journal."""

    @property
    def gate(self) -> Gate:
        """Who decides for the site."""

    def stranger(self, site: int) -> Reason | None:
        """Why a question for this site cannot be answered here, or None."""

    def method(self) -> Method:
        """The method that is run."""

    def sentences(self, site: int) -> int:
        """How many sentences the site holds."""

    def welcome(self, run: str) -> None:
        """A run's census: from now on it is this one that the site works for."""

    def inbox(self, run: str, site: int) -> Inbox:
        """Where messages wait until the round ends."""

    def desk(self, run: str) -> Desk:
        """Where the answer is made."""


class Simulated:
    """A table of a simulation, in what `hand_over` left: any of the run's sites may be asked for here."""

    tells = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.gate: Gate = OpenGate()

    def stranger(self, site: int) -> Reason | None:
        """All sites are at home here."""
        return None

    def method(self) -> Method:
        """The run's."""
        return self.desk("").method

    def sentences(self, site: int) -> int:
        """As the partition says."""
        return int(self.desk("").materials.partition.sizes[site])

    def welcome(self, run: str) -> None:
        """There is one run only."""

    def inbox(self, run: str, site: int) -> Inbox:
        """Each site has its own."""
        return Inbox(self._folder / "inbox" / f"{site:06}")

    def desk(self, run: str) -> Desk:
        """One for each process, which lives as long as the simulation."""
        return _resident(self._folder)


@cache
def _resident(folder: Path) -> Desk:
    from fedrel.runs.worker import take_over

    return take_over(folder)
