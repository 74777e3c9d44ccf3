"""The records of a run folder: what `train` and `compare` write is what the reports and the Python API read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field

from fedrel.evaluation.outcome import AtSites, Record


class RunState(Record):
    """`state.json`: what a run does, or what ended it. Whether it still runs is told by the folder's lock."""

    phase: Literal["reading", "training", "finished", "failed"]
    method: str
    seed: int
    rounds: int
    metric: str
    message: str = ""


class Environment(Record):
    """`environment.json`: what someone needs to know who wants the same numbers."""

    versions: dict[str, str]
    platform: str
    processor: str = ""
    precision: str = ""
    commit: str | None = None
    data_fingerprint: str


class Traffic(Record):
    """Bytes from the sites to the coordinator (`up`) and back (`down`)."""

    up: int = 0
    down: int = 0


class RoundTraffic(Traffic):
    """The bytes of one round, in all and for each kind of message, and what encoding added to them."""

    framing: Traffic = Traffic()
    by_kind: dict[str, Traffic] = {}


class Refusal(Record):
    """A message that did not fit what was asked for, and why the coordinator left it out."""

    site: int
    message: str = ""
    reason: str


class SiteRound(Record):
    """What the coordinator knows of a site in one round: the loss that it reported, the bytes that it sent."""

    loss: float | None = None
    up: int


class Spent(Record):
    """What a run with differential privacy has told: ε of all rounds so far, for the config's δ."""

    epsilon: float
    rates: list[float] = Field([], exclude_if=lambda rates: not rates)
    """At site level, the probability with which a site was drawn, for each of the round's noised sums."""
    clip: float | None = Field(None, exclude_if=lambda clip: clip is None)
    """At site level, the norm that the round's updates were clipped to."""
    extra: float = Field(0.0, exclude_if=lambda extra: not extra)
    """Of noise in shares under secure sums, what the round costs beyond Gaussian noise, as a Rényi divergence."""


class Round(Record):
    """A line of `metrics.jsonl`; rounds count from 1."""

    round: int
    loss: float | None = None
    dev: dict[str, float | None] | None = None
    test: dict[str, float | None] | None = Field(None, exclude_if=lambda test: test is None)
    threshold: float | None = Field(None, exclude_if=lambda threshold: threshold is None)
    """From which probability on relations were found, where that was tuned on dev."""
    bytes: RoundTraffic = RoundTraffic()
    seconds: float = 0.0
    selection_precision: float | None = None
    active: list[int] = []
    examples: int = 0
    refused: list[Refusal] = []
    at_sites: dict[int, SiteRound] = {}
    watched: dict[int, float] = {}
    class_distances: dict[int, list[float]] | None = None
    clipped: int = Field(0, exclude_if=lambda found: not found)
    stood_out: dict[int, float] = Field({}, exclude_if=lambda found: not found)
    left_out: list[int] = Field([], exclude_if=lambda found: not found)
    excluded: list[int] = Field([], exclude_if=lambda found: not found)
    began_from: int | None = Field(None, exclude_if=lambda found: found is None)
    privacy: Spent | None = Field(None, exclude_if=lambda found: found is None)


class Reached(Record):
    """The first round whose metric is at the target, and the bytes until then, that round's included."""

    round: int
    up: int
    down: int


def to_target(
    rounds: Iterable[Round], metric: str, target: float, split: Literal["dev", "test"] = "dev"
) -> Reached | None:
    """When a run reached `target` on dev or test; None if it never did.

    Rounds without an evaluation count as rounds all the same.

    >>> traffic = RoundTraffic(up=10, down=30)
    >>> rounds = [Round(round=n, dev={"f1": n / 4}, bytes=traffic) for n in (1, 2, 3)]
    >>> to_target(rounds, "f1", 0.5)
    Reached(round=2, up=20, down=60)
    """
    up = down = 0
    for one in rounds:
        up, down = up + one.bytes.up, down + one.bytes.down
        found: dict[str, float | None] = getattr(one, split) or {}
        value = found.get(metric)
        if value is not None and value >= target:
            return Reached(round=one.round, up=up, down=down)
    return None


class AttackCell(Record):
    """One run with lying sites: the metric on test, or why the run could not go on."""

    attack: str
    liars: int
    defence: str
    value: float | None
    stopped: str | None = None


class AttackTable(Record):
    """`attacks.json`: what lying sites cost, by attack, number of liars and defence."""

    metric: str
    config: str
    cells: list[AttackCell] = []

    def value(self, attack: str, liars: int, defence: str) -> float | None:
        """The metric of a cell; None if it is missing or its run was stopped."""
        cell = self.cell(attack, liars, defence)
        return cell.value if cell else None

    def cell(self, attack: str, liars: int, defence: str) -> AttackCell | None:
        """A cell; None if it was not made."""
        wanted = (attack, liars, defence)
        return next((one for one in self.cells if (one.attack, one.liars, one.defence) == wanted), None)


class PrivacyRow(Record):
    """One run of a table of ε: the metric on test, or why the run could not go on."""

    target: float | None
    """The wanted ε; None: without noise."""
    seed: int
    noise: float | None = None
    """The noise multiplier that it takes."""
    epsilon: float | None = None
    """What the run came to."""
    value: float | None = None
    dev: float | None = None
    """The metric on dev of the same round, by which settings are chosen."""
    settings: dict[str, Any] = {}
    """Those of the config's `[sweep]`."""
    stopped: str | None = None


class PrivacyTable(Record):
    """`privacy.json` of `fedrel privacy`: what ε costs, in the metric on test."""

    metric: str
    config: str
    method: str
    level: str
    delta: float
    clip: float
    rows: list[PrivacyRow] = []

    def best(self, target: float | None) -> dict[str, Any]:
        """Of the settings that were tried with the first seed, those with the highest metric on dev."""
        own = [one for one in self.rows if one.target == target]
        tried = [one for one in own if one.seed == own[0].seed]
        nothing = PrivacyRow(target=target, seed=0)
        return max(tried, key=lambda one: -1.0 if one.dev is None else one.dev, default=nothing).settings

    def has(self, target: float | None, seed: int, settings: dict[str, Any]) -> bool:
        """Whether a run is done."""
        return any((one.target, one.seed, one.settings) == (target, seed, settings) for one in self.rows)

    def chosen(self, target: float | None) -> list[PrivacyRow]:
        """The run of each seed, with the best settings."""
        best = self.best(target)
        return [one for one in self.rows if one.target == target and one.settings == best]

    def values(self, target: float | None) -> list[float]:
        """The metric of each seed."""
        return [one.value for one in self.chosen(target) if one.value is not None]


class Result(Record):
    """`result.json`: the numbers on the test set, and what they cost."""

    method: str
    seed: int
    metrics: dict[str, float]
    dev_metric: dict[str, float] = {}
    threshold: float | None = Field(None, exclude_if=lambda threshold: threshold is None)
    """That of the best round, where it was tuned on dev; `metrics` are measured at it."""
    best_round: int | None = None
    rounds: int
    to_target: Reached | None = None
    bytes: Traffic
    seconds: float
    selection_precision: float | None = None
    sites: AtSites | None = None
    epsilon: float | None = Field(None, exclude_if=lambda found: found is None)
    """With differential privacy: ε of the whole run, for the config's δ."""

    @property
    def primary(self) -> str:
        """The metric that chose the round, or else the first; empty where there is none."""
        return next(iter({**self.dev_metric, **self.metrics}), "")


class LabelCounts(Record):
    """`label_counts.json`: `counts[site][relation]` training sentences of a relation at a site."""

    sites: list[str]
    relations: list[str]
    counts: list[list[int]]


class Sentence(Record):
    """One sentence of a case study and how much a method trained on it.

    Spans are characters [start, end) of `text`. `seen` counts the rounds in which the sentence's site was
    active; `weight` is its mean training weight over those rounds, 0 to 1.
    """

    row: int
    site: int
    text: str
    head_span: tuple[int, int]
    tail_span: tuple[int, int]
    expresses: bool | None = None
    seen: int
    weight: float


class Case(Record):
    """A triple and all the training sentences that mention its pair."""

    head: str
    relation: str
    tail: str
    sentences: list[Sentence]


class FoundToken(Record):
    """A token that a finding's two entities attend to: the characters [start, end), and its share."""

    text: str = ""
    start: int
    end: int
    share: float


class FoundEntity(Record):
    """An entity of a finding, and the characters of its mentions."""

    id: str
    name: str
    type: str = ""
    mentions: list[tuple[int, int]]


class FoundRelation(Record):
    """A relation found in a document or a sentence.

    `right` if its annotators found it, too, None for one not annotated; `sentences` is how many it was found from.
    """

    document: str = ""
    h: FoundEntity
    relation: str
    t: FoundEntity
    probability: float
    evidence: list[FoundToken]
    right: bool | None = None
    sentences: int = 1


class ReadDocument(Record):
    """A document and what was found in it."""

    document: str
    text: str
    findings: list[FoundRelation]


class SiteTraffic(Record):
    """Bytes of one active site in one round, on average, and what encoding added to those it sent."""

    up: float
    down: float
    framing: float


class SiteScores(Record):
    """The worst value of a metric over a run's sites, and how much they differ."""

    metric: str
    worst: float
    spread: float


class ComparisonRow(Record):
    """A run in `comparison.json`, under the names of its `result.json` where it has them there."""

    method: str
    seed: int
    metrics: dict[str, float]
    rounds: int
    bytes: Traffic
    per_site_and_round: SiteTraffic | None = None
    seconds: float
    selection_precision: float | None = None
    target: dict[str, float] | None = None
    to_target: Reached | None = None
    sites: SiteScores | None = None


class ComparisonRows(Record):
    """`comparison.json`: one row a run."""

    rows: list[ComparisonRow]


class Trial(Record):
    """A run of a sweep: its settings, and the best value of the metric that chose its round, on dev."""

    method: str
    settings: dict[str, Any]
    metric: str
    dev: float
    """The mean over the seeds."""
    seeds: list[float] = []
    """The value of each."""
    reached: list[Reached | None] = []
    """When each reached `evaluation.target`; None: never."""
    rounds: int | None = None
    """Of successive halving: how many rounds it had been trained for."""


def last_of_each(trials: Sequence[Trial]) -> list[Trial]:
    """Of each combination of settings the trial that went furthest, in the order in which they were first tried."""
    found: dict[str, Trial] = {}
    for one in trials:
        other = found.setdefault(str(one.settings), one)
        if (one.rounds or 0) > (other.rounds or 0):
            found[str(one.settings)] = one
    return list(found.values())


class Sweep(Record):
    """`sweep.json`: one row a combination of settings, and the settings of each method's best."""

    rows: list[Trial]
    best: dict[str, dict[str, Any]]
