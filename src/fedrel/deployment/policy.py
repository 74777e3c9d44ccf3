"""What a site allows: the rules in its `site.toml`. What no rule names is refused (`site_gate` applies them)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from pydantic import Field

from fedrel.config.check import Section, check, read_toml
from fedrel.config.schema import Config
from fedrel.errors import UserError, nearest
from fedrel.federation.messages import Message, ModelTensors
from fedrel.methods.by_name import import_methods, method, methods

SITE_TOML = "site.toml"
REFUSAL = "Refusal"  # what the record calls a reason that left instead of an answer
TEXT = "text"  # the format of raw text, which is labelled with the published knowledge base


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
    rounds: int | None = Field(None, ge=0)
    """The last round in which it answers; without it, as many as were published."""
    epochs: int = Field(0, ge=0)
    """The most passes over its sentences in a round."""
    repeats: int = Field(1, ge=1)
    """How many different requests of one kind it answers in a round; the same one again is the same answer."""
    examples: int = Field(1, ge=1)
    """The fewest examples that an answer may be made from."""
    alone: int = Field(3, ge=1)
    """In how many rounds a sentence may win with few others, fewer than twice `examples` and half of the claims."""
    step: float = Field(5, gt=0)
    """How many times as far as its own training the sites' mean may move a tensor, or a row of one, in a round."""
    against: float = Field(3, ge=0)
    """How many times its own update the global weights may go against it in a round in which it took part."""
    vouched: bool = False
    """Refuse experiments in which sites do not vouch for the updates that global weights are made of."""
    toward: float | None = Field(None, ge=0, le=1)
    """How many times its own update a mean must have gone its way, in a round in which it took part; None: any."""
    missing: int = Field(1, ge=0)
    """Where sites vouch for updates: how many of its own in a row may be missing in the global weights."""
    differential_privacy: bool = False
    """Refuse experiments whose answers are not differentially private when they leave."""

    def lets(self, message: str, name: str) -> bool:
        """Whether an array of a message may leave, by its name (`weights/filters`)."""
        return _covers(self.may_leave, f"{message}.{name}") and not self.keeps(message, name)

    def lets_field(self, message: str, field: str) -> bool:
        """Whether a declared field may leave, or at least a part of it."""
        whole = f"{message}.{field}"
        parts = any(rule.startswith(f"{whole}/") for rule in self.may_leave)
        return (parts or _covers(self.may_leave, whole)) and not self.keeps(message, field)

    def keeps(self, message: str, name: str) -> bool:
        """Whether a rule keeps it here. A rule about a message covers its subclasses, as `ControlledUpdate`."""
        rules = [rule for rule in self.must_stay if _covers([rule], f"{rule.split('.')[0]}.{name}")]
        if not rules:  # as of most: kinds need not be looked up
            return False
        kind = kinds_of_message()[message]
        names = [base.__name__ for base in kind.__mro__ if issubclass(base, Message)]
        return any(_covers(rules, f"{one}.{name}") for one in names)


class Privacy(Section):
    """How much its answers tell."""

    levels: int = Field(16, ge=0)
    """The most levels that a claim's value may be told in; 0: any number, the exact probability too."""
    decoys: float = Field(0.0, ge=0, le=10)
    """How many claims about nothing it adds to Lazy MIL's, for each of its own; claims must be keyed."""
    max_epsilon: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The most that all its answers together may cost, as ε; then it answers no more. None: no limit."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """The δ for which that ε is computed."""
    require_secure_sum: bool = False
    """Refuse experiments in which the coordinator sees its update or predictions by themselves."""
    min_cohort: int = Field(3, ge=3)
    """The fewest sites that a secure sum with its numbers may be over."""


class SitePolicy(Section):
    """The whole file."""

    coordinator: str = Field(pattern=r"^\S+:\d+$")
    """Where the coordinator listens, `host:port`."""
    local_port: int = Field(9094, ge=1, le=65535)
    """On this machine, for Flower's own processes to talk to each other; no other machine reaches it."""
    data: OwnFiles = OwnFiles()
    allow: Allowed = Allowed()
    privacy: Privacy = Privacy()


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


def check_tensors(policy: SitePolicy, known: Collection[str], folder: Path) -> None:
    """Fail on rules about tensors that the experiment's model does not have: a misspelt rule protects nothing."""
    kinds = kinds_of_message()
    sent = [*known, *(f"{name}/{part}" for name in known for part in ("index", "values", "rest"))]
    for key in ("may_leave", "must_stay"):
        for rule in getattr(policy.allow, key):
            message, _, rest = rule.partition(".")
            field, _, named = rest.partition("/")
            of_model = bool(named) and isinstance(kinds[message].declared()[field], ModelTensors)
            if of_model and named not in sent:
                problem = f"allow.{key}: the model has no tensor {named!r}"
                raise UserError(problem, file=folder / SITE_TOML, hint=nearest(named, known))


def objections(policy: SitePolicy, config: Config) -> list[str]:
    """The rules for which the site would refuse every request of an experiment."""
    allow, found = policy.allow, []
    if refused := refused_parts(allow, config.method):
        found.append(f"allow.methods does not name {', '.join(map(repr, refused))}")
    if allow.differential_privacy and (reason := not_private(config)):
        found.append(f"allow.differential_privacy is demanded, and {reason}")
    if policy.privacy.max_epsilon is not None and (reason := not_counted(config)):
        found.append(f"privacy.max_epsilon is set, and {reason}")
    if policy.privacy.require_secure_sum and not config.privacy.secure_sum:
        found.append("privacy.require_secure_sum is demanded, and the experiment has no secure sums")
    if not any(rule.split(".")[0] == "Holdings" for rule in allow.may_leave):
        found.append("allow.may_leave does not name 'Holdings', with which every run begins")
    if allow.rounds == 0:
        found.append("allow.rounds is 0")
    if config.training.epochs > allow.epochs:
        found.append(f"allow.epochs is {allow.epochs}, the experiment asks for {config.training.epochs}")
    if fine := too_fine(policy.privacy, config):
        found.append(fine)
    return found


def too_fine(privacy: Privacy, config: Config) -> str | None:
    """Why claims or predictions of an experiment would tell more than the site lets them, or None."""
    chosen = method(config.method, config.methods)
    levels = getattr(chosen, "levels", None)
    if privacy.levels and levels is not None and not 0 < levels <= privacy.levels:
        return f"privacy.levels is {privacy.levels}, the experiment's is {levels or 'exact'}"
    if privacy.decoys and getattr(chosen, "keyed_triples", None) is False:
        return "privacy.decoys needs keyed_triples: a fact's number is always a fact"
    return None


def refused_parts(allow: Allowed, name: str) -> list[str]:
    """The parts of a composed method that are not allowed."""
    return [part for part in name.split("+") if part not in allow.methods]


def not_private(config: Config) -> str | None:
    """Why an experiment's answers are not differentially private when they leave the site, or None if they are."""
    if config.privacy.site_noise and not config.privacy.secure_sum:
        return "the coordinator, which adds the noise, sees the answers without it"
    return not_counted(config)


def not_counted(config: Config) -> str | None:
    """Why no ε covers all that a site would tell in an experiment, or None if one does."""
    if config.privacy.dp is None:
        return "the experiment has no [privacy.dp]"
    told = method(config.method, config.methods).unprotected
    return f"noise does not cover {told}" if told else None


def kinds_of_message() -> dict[str, type[Message]]:
    """Every declared kind of message, by name.

    A dataclass with slots is made from a first class that may stay in memory: the last of a name is the one in use.
    """
    import_methods()
    found: dict[str, type[Message]] = {}
    pending = [Message]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        found.setdefault(kind.__name__, kind)
    del found["Message"]
    return found


def _covers(rules: Iterable[str], whole: str) -> bool:
    """Whether a rule names the whole, or something that it is a part of."""
    return any(whole == rule or whole.startswith((f"{rule}.", f"{rule}/")) for rule in rules)
