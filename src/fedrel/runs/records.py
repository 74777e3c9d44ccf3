"""A run's metrics.jsonl: a line a round, flushed as it is written."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fedrel.errors import UserError
from fedrel.files import append_line, write_text


class MetricsFile:
    """The lines, and those of them that a checkpoint vouches for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, line: dict[str, Any]) -> None:
        """Add a round."""
        append_line(self._path, json.dumps(line))

    def keep(self, rounds: int) -> None:
        """Drop what a killed run wrote after its last checkpoint."""
        write_text(
            self._path, "".join(json.dumps(line) + "\n" for line in self.lines() if line["round"] <= rounds)
        )

    def lines(self) -> list[dict[str, Any]]:
        """All rounds; a line that a kill cut short is left out."""
        if not self._path.exists():
            return []
        whole = self._path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in whole]


T = TypeVar("T")


class Record(BaseModel):
    """What one JSON object of a run folder holds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


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
    reason: str


class Round(Record):
    """A line of `metrics.jsonl`; rounds count from 1."""

    round: int
    loss: float | None = None
    dev: dict[str, float | None] | None = None
    bytes: RoundTraffic = RoundTraffic()
    seconds: float = 0.0
    selection_precision: float | None = None
    active: list[int] = []
    examples: int = 0
    refused: list[Refusal] = []
    class_distances: dict[int, list[float]] | None = None


class Reached(Record):
    """The first round at the target, and the bytes until then."""

    round: int
    up: int
    down: int


class Fairness(Record):
    """A metric over the sites that it could be measured at."""

    mean: float
    spread: float
    worst: float
    worst_site: str


class AtSites(Record):
    """A metric at each site, on its share of the test set; None where there was nothing to measure."""

    metric: str
    values: dict[str, float | None]
    fairness: Fairness | None = None


class Result(Record):
    """`result.json`: the numbers on the test set, and what they cost."""

    method: str
    seed: int
    metrics: dict[str, float]
    rounds: int
    bytes: Traffic
    seconds: float
    dev_metric: dict[str, float] = {}
    best_round: int | None = None
    to_target: Reached | None = None
    selection_precision: float | None = None
    sites: AtSites | None = None

    @property
    def primary(self) -> str:
        """The metric that chose the round, or else the first; empty where there is none."""
        return next(iter({**self.dev_metric, **self.metrics}), "")


class Curve(Record):
    """`pr_curve.json`: precision and recall on the test set, from the surest guess down."""

    precision: list[float]
    recall: list[float]


class ClassScores(Record):
    """How well one relation was told from the others; `support` test sentences have it."""

    relation: str
    precision: float
    recall: float
    f1: float
    support: int


class Confusion(Record):
    """`counts[i][j]` test sentences of relation i were given relation j."""

    relations: list[str]
    counts: list[list[int]]


class Classes(Record):
    """`classes.json`: the relations of a classification, one by one and against each other."""

    per_class: list[ClassScores]
    confusion: Confusion


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

    start: int
    end: int
    share: float


class FoundEntity(Record):
    """An entity of a finding, and the characters of its mentions."""

    id: str
    name: str
    mentions: list[tuple[int, int]]


class FoundRelation(Record):
    """A relation found in a document; `right` if its annotators found it, too, None for one not annotated."""

    h: FoundEntity
    relation: str
    t: FoundEntity
    probability: float
    right: bool | None = None
    evidence: list[FoundToken]


class ReadDocument(Record):
    """A document and what was found in it."""

    document: str
    text: str
    findings: list[FoundRelation]


class SiteTraffic(Record):
    """Bytes of one site in one round, and what encoding added to those it sent."""

    up: float
    down: float
    framing: float


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that the pages show of one run."""

    folder: Path
    result: Result
    rounds: list[Round]
    curve: Curve | None
    classes: Classes | None
    label_counts: LabelCounts | None
    cases: list[Case]
    documents: list[ReadDocument]
    config: str
    target: float | None  # the dev metric that counts as good enough
    environment: dict[str, Any]

    @property
    def per_site_and_round(self) -> SiteTraffic | None:
        """What one active site sends and is sent in a round, on average (FedED, Table 7)."""
        asked = sum(len(one.active) for one in self.rounds)
        if not asked:
            return None
        up, down = (sum(getattr(one.bytes, way) for one in self.rounds) / asked for way in ("up", "down"))
        framing = sum(one.bytes.framing.up for one in self.rounds) / asked
        return SiteTraffic(up=up, down=down, framing=framing)


class SiteScores(Record):
    """A metric over a run's sites."""

    metric: str
    worst: float
    spread: float


class ComparisonRow(Record):
    """One run of `comparison.json`, under the names of its `result.json` where it has them there."""

    method: str
    seed: int
    metrics: dict[str, float]
    rounds: int
    bytes: Traffic
    per_site_and_round: SiteTraffic | None
    seconds: float
    selection_precision: float | None
    target: dict[str, float] | None  # the metric and the value that counts as good enough
    to_target: Reached | None
    sites: SiteScores | None

    @classmethod
    def of(cls, method: str, run: Run) -> ComparisonRow:
        """The row of a run, under the name that the comparison gives its method."""
        result = run.result
        fair = result.sites.fairness if result.sites else None
        return cls(
            method=method,
            seed=result.seed,
            metrics=result.metrics,
            rounds=result.rounds,
            bytes=result.bytes,
            per_site_and_round=run.per_site_and_round,
            seconds=result.seconds,
            selection_precision=result.selection_precision,
            target=None if run.target is None else {result.primary: run.target},
            to_target=result.to_target,
            sites=SiteScores(metric=result.sites.metric, worst=fair.worst, spread=fair.spread)
            if result.sites and fair
            else None,
        )


def read_run(folder: Path) -> Run:
    """Read a run folder; a file that is broken is the user's to know about, with its line."""
    result = folder / "result.json"
    if not result.exists():
        raise UserError("no such file", file=result, hint="the run has not finished: add --resume to go on")
    path = folder / "config.toml"
    config = path.read_text(encoding="utf-8") if path.exists() else ""
    return Run(
        folder=folder,
        result=_parse(Result, result),
        rounds=_lines(folder / "metrics.jsonl"),
        curve=_optional(Curve, folder / "pr_curve.json", None),
        classes=_optional(Classes, folder / "classes.json", None),
        label_counts=_optional(LabelCounts, folder / "label_counts.json", None),
        cases=_optional(list[Case], folder / "case_study.json", []),
        documents=_optional(list[ReadDocument], folder / "evidence.json", []),
        config=config,
        target=_target(path, config),
        environment=_optional(dict[str, Any], folder / "environment.json", {}),
    )


def _target(path: Path, config: str) -> float | None:
    try:
        target = tomllib.loads(config).get("evaluation", {}).get("target")
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"is not TOML: {error}", file=path) from error
    return None if target is None else float(target)


def _lines(path: Path) -> list[Round]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [_parse(Round, path, text, line) for line, text in enumerate(lines, 1) if text.strip()]


def _optional(kind: Any, path: Path, otherwise: T) -> T:
    return _parse(kind, path) if path.exists() else otherwise


def _parse(kind: Any, path: Path, text: str | None = None, line: int | None = None) -> Any:
    """Check JSON against a record: the whole of `path`, or `text`, which is its line `line`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8") if text is None else text)
    except json.JSONDecodeError as error:
        raise UserError(f"broken JSON: {error.msg}", file=path, line=line or error.lineno) from error
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{field}: {first['msg']}" if field else first["msg"], file=path, line=line
        ) from error
