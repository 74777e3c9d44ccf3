"""`site.toml`: what a site reads, and what it lets anyone ask of it. Whatever it does not name is refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from fedrel.config.check import Section, check, read_toml
from fedrel.config.schema import Config
from fedrel.errors import UserError, nearest
from fedrel.federation.messages import Message
from fedrel.methods.registry import methods

NAME = "site.toml"
TEXT = "text"  # the format of raw text, which is labelled with the published knowledge base


class DataTable(Section):
    """The site's own files; paths and patterns are relative to the site's folder."""

    files: tuple[str, ...] = ()
    """Paths or patterns, as `text/*.txt`."""
    format: str = TEXT
    """`text`: raw text, labelled with the published knowledge base; else one of the readers' formats."""
    source_field: str = "source"
    encoder: str | None = None
    """Where this site keeps the encoder that was published, if not under the published name."""


class Allowed(Section):
    """What the site answers to."""

    methods: tuple[str, ...] = ()
    """Methods by name; of a composed one, every part must be here."""
    may_leave: tuple[str, ...] = ()
    """Messages (`Update`), their fields (`Update.examples`) or tensors (`Update.weights/filters`)."""
    must_stay: tuple[str, ...] = ()
    """Of these, what may not leave all the same."""
    rounds: int = Field(0, ge=0)
    """The last round it answers in."""
    epochs: int = Field(0, ge=0)
    """The most passes over its sentences in a round."""
    repeats: int = Field(3, ge=1)
    """How often it answers the same question of the same round: a coordinator that crashed asks again."""
    examples: int = Field(1, ge=1)
    """The fewest examples that an answer may be made from."""
    differential_privacy: bool = False
    """Refuse methods that do not give any."""

    def lets(self, message: str, name: str) -> bool:
        """Whether an array of a message may leave, by its name (`weights/filters`)."""
        return _covers(self.may_leave, f"{message}.{name}") and not self._keeps(message, name)

    def lets_field(self, message: str, field: str) -> bool:
        """Whether a declared field may leave, or at least a part of it."""
        whole = f"{message}.{field}"
        parts = any(rule.startswith(f"{whole}/") for rule in self.may_leave)
        return (parts or _covers(self.may_leave, whole)) and not self._keeps(message, field)

    def _keeps(self, message: str, name: str) -> bool:
        """Whether a rule keeps it here; one about a message is about all kinds of it, as `ControlledUpdate`."""
        kind = kinds_of_message()[message]
        names = [base.__name__ for base in kind.__mro__ if issubclass(base, Message)]
        return any(_covers(self.must_stay, f"{one}.{name}") for one in names)


class SitePolicy(Section):
    """The whole file."""

    coordinator: str = Field(pattern=r"^\S+:\d+$")
    """Where the coordinator listens, `host:port`."""
    local_port: int = Field(9094, ge=1, le=65535)
    """On this machine, for Flower's own processes to talk to each other; no other machine reaches it."""
    data: DataTable = DataTable()
    allow: Allowed = Allowed()


def read_policy(folder: Path) -> SitePolicy:
    """A site's policy."""
    path = folder / NAME
    return check(SitePolicy, read_toml(path, SitePolicy), path)


def check_names(policy: SitePolicy, folder: Path) -> None:
    """Refuse methods and messages that do not exist: a misspelt rule would protect nothing."""
    known = methods()
    for name in policy.allow.methods:
        if name not in known:
            problem = f"allow.methods: no method is called {name!r}"
            raise UserError(problem, file=folder / NAME, hint=nearest(name, known))
    kinds = kinds_of_message()
    for key in ("may_leave", "must_stay"):
        for rule in getattr(policy.allow, key):
            message, _, rest = rule.partition(".")
            if message not in kinds:
                problem = f"allow.{key}: no message is called {message!r}"
                raise UserError(problem, file=folder / NAME, hint=nearest(message, kinds))
            field = rest.partition("/")[0]
            if field and field not in (fields := kinds[message].declared()):
                problem = f"allow.{key}: {message} has no field {field!r}"
                raise UserError(problem, file=folder / NAME, hint=nearest(field, fields))


def objections(allow: Allowed, config: Config) -> list[str]:
    """What speaks against an experiment as a whole, before anything is asked."""
    found = []
    if refused := refused_parts(allow, config.method):
        found.append(f"allow.methods does not name {', '.join(map(repr, refused))}")
    if allow.differential_privacy and not gives_privacy(config.method):
        found.append(f"allow.differential_privacy is demanded, and {config.method!r} gives none")
    if not any(rule.split(".")[0] == "Holdings" for rule in allow.may_leave):
        found.append("allow.may_leave does not name 'Holdings', with which every run begins")
    if not allow.rounds:
        found.append("allow.rounds is 0")
    if config.training.epochs > allow.epochs:
        found.append(f"allow.epochs is {allow.epochs}, the experiment asks for {config.training.epochs}")
    return found


def refused_parts(allow: Allowed, name: str) -> list[str]:
    """The parts of a composed method that are not allowed."""
    return [part for part in name.split("+") if part not in allow.methods]


def gives_privacy(name: str) -> bool:
    """Whether all that a method lets leave is differentially private: every part of a composed one says so itself.

    A part that does not might send more than the others guard.
    """
    known = methods()
    return all(known[part].differentially_private for part in name.split("+"))


def kinds_of_message() -> dict[str, type[Message]]:
    """Everything that is declared to cross the boundary, by name."""
    methods()
    found: dict[str, type[Message]] = {}
    pending = [Message]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        found[kind.__name__] = kind
    del found["Message"]
    return found


def _covers(rules: Iterable[str], whole: str) -> bool:
    """Whether a rule names the whole, or something that it is a part of."""
    return any(whole == rule or whole.startswith((f"{rule}.", f"{rule}/")) for rule in rules)
