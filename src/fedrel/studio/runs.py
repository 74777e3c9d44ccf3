"""A finished run as people look at it: its folder read back into typed records.

`result.json` must be there; every other file may be missing and then what it would show is left out.
Fields that a record does not name are ignored, so a newer run still opens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fedrel.errors import UserError

T = TypeVar("T")


class Record(BaseModel):
    """What one JSON object of a run folder holds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Traffic(Record):
    """Bytes from the sites to the coordinator (`up`) and back (`down`)."""

    up: int = 0
    down: int = 0


class RoundTraffic(Traffic):
    """The bytes of one round, in all and for each kind of message."""

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


class Result(Record):
    """`result.json`: the numbers on the test set, and what they cost."""

    method: str
    seed: int
    metrics: dict[str, float]
    rounds: int
    bytes: Traffic
    seconds: float
    best_round: int | None = None
    selection_precision: float | None = None


class Curve(Record):
    """`pr_curve.json`: precision and recall on the test set, from the surest guess down."""

    precision: list[float]
    recall: list[float]


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


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that the pages show of one run."""

    folder: Path
    result: Result
    rounds: list[Round]
    curve: Curve | None
    cases: list[Case]
    config: str
    environment: dict[str, Any]


def read_run(folder: Path) -> Run:
    """Read a run folder; a file that is broken is the user's to know about, with its line."""
    result = folder / "result.json"
    if not result.exists():
        raise UserError("no such file", file=result, remedy="the run has not finished: add --resume to go on")
    config = folder / "config.toml"
    return Run(
        folder=folder,
        result=_parse(Result, result),
        rounds=_lines(folder / "metrics.jsonl"),
        curve=_optional(Curve, folder / "pr_curve.json", None),
        cases=_optional(list[Case], folder / "case_study.json", []),
        config=config.read_text(encoding="utf-8") if config.exists() else "",
        environment=_optional(dict[str, Any], folder / "environment.json", {}),
    )


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
