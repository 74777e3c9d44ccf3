"""What a site allows: the rules in its `site.toml`, and the gate that applies them. What no rule names is refused.

Every request passes the gate before anything is computed, every answer before it leaves. What is refused, and
why, is written to the site's record. The coordinator gets a number that stands for the reason, and nothing of
the site beyond what `site.toml` itself says.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedrel.config.check import Section, check, read_toml
from fedrel.config.schema import Config
from fedrel.deployment.artefacts import agreed_part, differences
from fedrel.deployment.audit import append, check_unbroken, describe
from fedrel.deployment.folders import SiteFolder
from fedrel.errors import UserError, nearest
from fedrel.federation.flower.host import Refusal, RefusalCode
from fedrel.federation.messages import Message
from fedrel.files import locked_in_turn
from fedrel.methods.by_name import methods

if TYPE_CHECKING:
    from fedrel.federation.flower.host import Request
    from fedrel.federation.messages import Arrays

SITE_TOML = "site.toml"
TEXT = "text"  # the format of raw text, which is labelled with the published knowledge base
REFUSAL = "Refusal"  # what the record calls a reason that left instead of an answer


class OwnFiles(Section):
    """The site's own files; paths and patterns are relative to the site's folder."""

    files: tuple[str, ...] = ()
    """Paths or patterns, as `text/*.txt`."""
    format: str = TEXT
    """`text`: raw text, labelled with the published knowledge base; else one of the readers' formats."""
    source_field: str = "source"
    encoder: str | None = None
    """Where this site keeps the encoder that was published, if not under the published name."""


class Allowed(Section):
    """What the site answers."""

    methods: tuple[str, ...] = ()
    """Methods by name; of a composed one, every part must be here."""
    may_leave: tuple[str, ...] = ()
    """Messages (`Update`), their fields (`Update.examples`) or tensors (`Update.weights/filters`)."""
    must_stay: tuple[str, ...] = ()
    """Exceptions to `may_leave`."""
    rounds: int = Field(0, ge=0)
    """The last round in which it answers."""
    epochs: int = Field(0, ge=0)
    """The most passes over its sentences in a round."""
    repeats: int = Field(3, ge=1)
    """How often it answers the same request of the same round: a coordinator that crashed asks again."""
    examples: int = Field(1, ge=1)
    """The fewest examples that an answer may be made from."""
    differential_privacy: bool = False
    """Refuse methods that are not differentially private."""

    def lets(self, message: str, name: str) -> bool:
        """Whether an array of a message may leave, by its name (`weights/filters`)."""
        return _covers(self.may_leave, f"{message}.{name}") and not self._keeps(message, name)

    def lets_field(self, message: str, field: str) -> bool:
        """Whether a declared field may leave, or at least a part of it."""
        whole = f"{message}.{field}"
        parts = any(rule.startswith(f"{whole}/") for rule in self.may_leave)
        return (parts or _covers(self.may_leave, whole)) and not self._keeps(message, field)

    def _keeps(self, message: str, name: str) -> bool:
        """Whether a rule keeps it here. A rule about a message covers its subclasses, as `ControlledUpdate`."""
        kind = kinds_of_message()[message]
        names = [base.__name__ for base in kind.__mro__ if issubclass(base, Message)]
        return any(_covers(self.must_stay, f"{one}.{name}") for one in names)


class SitePolicy(Section):
    """The whole file."""

    coordinator: str = Field(pattern=r"^\S+:\d+$")
    """Where the coordinator listens, `host:port`."""
    local_port: int = Field(9094, ge=1, le=65535)
    """On this machine, for Flower's own processes to talk to each other; no other machine reaches it."""
    data: OwnFiles = OwnFiles()
    allow: Allowed = Allowed()


def read_policy(folder: Path) -> SitePolicy:
    """A site's policy."""
    path = folder / SITE_TOML
    return check(SitePolicy, read_toml(path, SitePolicy), path)


def check_names(policy: SitePolicy, folder: Path) -> None:
    """Fail on names of methods and messages that do not exist: a misspelt rule would protect nothing."""
    known = methods()
    for name in policy.allow.methods:
        if name not in known:
            problem = f"allow.methods: no method is called {name!r}"
            raise UserError(problem, file=folder / SITE_TOML, hint=nearest(name, known))
    kinds = kinds_of_message()
    for key in ("may_leave", "must_stay"):
        for rule in getattr(policy.allow, key):
            message, _, rest = rule.partition(".")
            if message not in kinds:
                problem = f"allow.{key}: no message is called {message!r}"
                raise UserError(problem, file=folder / SITE_TOML, hint=nearest(message, kinds))
            field = rest.partition("/")[0]
            if field and field not in (fields := kinds[message].declared()):
                problem = f"allow.{key}: {message} has no field {field!r}"
                raise UserError(problem, file=folder / SITE_TOML, hint=nearest(field, fields))


def objections(allow: Allowed, config: Config) -> list[str]:
    """The rules for which the site would refuse every request of an experiment."""
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
    """Whether all answers of a method are differentially private: every part of a composed one must say so.

    A part that does not might send more than the others protect.
    """
    known = methods()
    return all(known[part].differentially_private for part in name.split("+"))


def kinds_of_message() -> dict[str, type[Message]]:
    """Every declared kind of message, by name."""
    methods()
    found: dict[str, type[Message]] = {}
    pending = [Message]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        found[kind.__name__] = kind
    del found["Message"]
    return found


class SiteGate:
    """Decides for a site by its `site.toml` and by what it was prepared with, and writes its record."""

    def __init__(self, folder: SiteFolder) -> None:
        self._folder = folder
        self._allow = read_policy(folder.path).allow

    def allow(self, request: Request) -> Refusal | None:
        """Why a request is refused before anything is computed for it, or None."""
        for rule in (self._agreement, self._method, self._message, self._limits):
            if found := rule(request):
                refusal, note = found
                return self.refuse(request, refusal, note)
        return None

    def record(self, request: Request, arrays: Arrays) -> Refusal | None:
        """Record what is about to leave, or say why it must not leave."""
        kept = [name for name in sorted(arrays) if not self._allow.lets(request.gives, name)]
        if kept:
            note = f"allow.may_leave does not cover {request.gives}.{kept[0]}"
            return self.refuse(request, Refusal(RefusalCode.FIELD), note)
        if "examples" in arrays and (made_from := int(arrays["examples"])) < self._allow.examples:
            note = f"made from {made_from} examples, fewer than allow.examples"
            return self.refuse(request, Refusal(RefusalCode.EXAMPLES, self._allow.examples), note)
        with locked_in_turn(self._folder.path):  # the same request may have come more than once at a time
            if self._is_repeated(request):
                refusal = Refusal(RefusalCode.REPEATS, self._allow.repeats)
                return self.refuse(request, refusal, "asked several times at once")
            self._write(request, request.gives, arrays)
        return None

    def refuse(self, request: Request | None, refusal: Refusal, note: str = "") -> Refusal:
        """Record that a refusal leaves instead of an answer; the note is for the site only."""
        numbers = {"why": np.asarray(refusal.code, np.int64), "number": np.asarray(refusal.number, np.int64)}
        self._write(request, REFUSAL, numbers, f"{refusal}{f' ({note})' if note else ''}")
        return refusal

    # The rules. Each gives a refusal, and what the site's own record says about it.

    def _agreement(self, request: Request) -> tuple[Refusal, str] | None:
        """The request must be for the experiment that was published, with the artefacts that this site has."""
        mine, asked = self._folder.prepared_with, request.artefacts
        if different := differences(mine, asked):
            name = different[0]
            note = f"{name}: prepared with {mine.get(name)}, asked with {asked.get(name)}"
            return Refusal(_DIFFERS.get(name, RefusalCode.ARTEFACTS)), note
        if request.config.get("plugins"):
            return Refusal(
                RefusalCode.CONFIG
            ), "asked to load plug-in files; a site uses only what is installed"
        wanted, published = agreed_part(request.config), agreed_part(self._folder.published)
        if keys := [key for key in published if wanted[key] != published[key]]:
            return Refusal(RefusalCode.CONFIG), f"asked for another {', '.join(keys)} than was published"
        return None

    def _method(self, request: Request) -> tuple[Refusal, str] | None:
        name = self._folder.published.method  # that of the request is the same
        if refused := refused_parts(self._allow, name):
            return Refusal(RefusalCode.METHOD), f"allow.methods does not name {refused[0]!r}"
        if self._allow.differential_privacy and not gives_privacy(name):
            return Refusal(RefusalCode.PRIVACY), f"{name!r} gives no differential privacy"
        return None

    def _message(self, request: Request) -> tuple[Refusal, str] | None:
        """Refuse before computing what could not leave afterwards."""
        kind = kinds_of_message().get(request.gives)
        if kind is None or not any(rule.split(".")[0] == request.gives for rule in self._allow.may_leave):
            return Refusal(RefusalCode.MESSAGE), f"allow.may_leave does not name {request.gives!r}"
        for field in kind.declared():
            if not self._allow.lets_field(request.gives, field):
                return Refusal(RefusalCode.FIELD), f"allow.may_leave does not cover {request.gives}.{field}"
        return None

    def _limits(self, request: Request) -> tuple[Refusal, str] | None:
        allow, epochs = self._allow, self._folder.published.training.epochs
        if request.round > allow.rounds:
            return Refusal(RefusalCode.ROUNDS, allow.rounds), f"asked for round {request.round}"
        if epochs > allow.epochs:
            return Refusal(RefusalCode.EPOCHS, allow.epochs), f"asked for {epochs} epochs"
        if self._folder.sentences < allow.examples:
            note = f"holds {self._folder.sentences} sentences, fewer than allow.examples"
            return Refusal(RefusalCode.EXAMPLES, allow.examples), note
        if self._is_repeated(request):
            return Refusal(RefusalCode.REPEATS, allow.repeats), "the coordinator asks again and again"
        return None

    def _is_repeated(self, request: Request) -> bool:
        """Whether this request of this round was answered as often as allowed; what a site holds is always told.

        The whole record is read for that: a site with a broken record answers nothing.
        """
        run = self._folder.fingerprint
        before = (line.entry for line in check_unbroken(self._folder.audit).lines)
        asked = (run, request.round, request.phase, request.gives)
        answered = sum((entry.run, entry.round, entry.phase, entry.message) == asked for entry in before)
        return request.round > 0 and answered >= self._allow.repeats

    def _write(self, request: Request | None, message: str, arrays: Arrays, note: str = "") -> None:
        round_, phase = (request.round, request.phase) if request else (0, "unreadable")
        run = self._folder.fingerprint if self._folder.seal.exists() else "not prepared"
        append(self._folder.audit, describe(run, round_, phase, message, arrays, note))


_DIFFERS = {
    "config": RefusalCode.CONFIG,
    "relations": RefusalCode.RELATIONS,
    "vocabulary": RefusalCode.VOCABULARY,
    "encoder": RefusalCode.ENCODER,
    "knowledge_base": RefusalCode.KNOWLEDGE_BASE,
    "validation": RefusalCode.VALIDATION,
}


def _covers(rules: Iterable[str], whole: str) -> bool:
    """Whether a rule names the whole, or something that it is a part of."""
    return any(whole == rule or whole.startswith((f"{rule}.", f"{rule}/")) for rule in rules)
