"""A run folder on disk: its JSON files are written from records and read back as the same records."""

from __future__ import annotations

import hashlib
import json
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedrel.config.schema import Config
from fedrel.data.data_check import DataCheck
from fedrel.data.problems import SKIPPED
from fedrel.errors import UserError
from fedrel.evaluation.outcome import Classes, Curve, Record
from fedrel.files import append_line, locked, sealed, without_seal, write_text
from fedrel.runs.records import (
    Case,
    ComparisonRow,
    ComparisonRows,
    LabelCounts,
    ReadDocument,
    Result,
    Round,
    RunState,
    SiteScores,
    SiteTraffic,
    Traffic,
)

T = TypeVar("T")

REPAIR = "restore the file from a copy, or run the experiment again in another folder"
CONFIG = "config.toml"
_SUM_LINE = "# SHA-256 of the lines above: "
UNITS = "test_units.safetensors"  # a run's answers on the test set, unit by unit


def write_json(
    path: Path, record: Record | Sequence[Record], *, indent: int | None = 1, seal: bool = False
) -> None:
    """Write a record, or a list of them, as one JSON file.

    With `seal`, for a record that later work relies on, the file has its SHA-256, which `read_json` compares.
    """
    plain = _plain(record)
    if seal:
        plain = sealed(json.loads(json.dumps(plain)))  # with keys that are strings, as when it is read
    write_text(path, json.dumps(plain, ensure_ascii=False, indent=indent))


def write_config(folder: Path, config: Config) -> None:
    """Write `config.toml`, with the SHA-256 of its lines in the last one, a comment."""
    text = config.to_toml()
    write_text(folder / CONFIG, f"{text}{_SUM_LINE}{hashlib.sha256(text.encode()).hexdigest()}\n")


def read_config(folder: Path) -> str:
    """The text of `config.toml`, empty without the file; a `UserError` if it is damaged.

    One of an earlier version has no SHA-256.
    """
    path = folder / CONFIG
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except UnicodeDecodeError as error:
        raise UserError(f"is damaged: {error}", file=path, hint=REPAIR) from error
    lines, found, stated = text.rpartition(_SUM_LINE)
    if not found:
        return text
    if hashlib.sha256(lines.encode()).hexdigest() != stated.strip():
        problem = "is damaged: its lines have another SHA-256 than the last one says"
        raise UserError(problem, file=path, hint=f"{REPAIR}; a config for other runs belongs elsewhere")
    return lines


def write_data_check(folder: Path, found: DataCheck, corpus: Path) -> None:
    """Write `data_check.json` and, if records were left out in reading the corpus, the list of them."""
    write_text(folder / "data_check.json", json.dumps(asdict(found), ensure_ascii=False, indent=1))
    if (corpus / SKIPPED).exists():
        write_text(folder / SKIPPED, (corpus / SKIPPED).read_text(encoding="utf-8"))


def remove_run(folder: Path) -> None:
    """Remove a run's folder, if there is one; `InUseError` if another process works in it."""
    if folder.exists():
        with locked(folder):
            shutil.rmtree(folder, ignore_errors=True)


class MetricsFile:
    """`metrics.jsonl`: a line a round, flushed as it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The SHA-256 of the lines that were kept and added."""
        return self._digest.hexdigest()

    def append(self, line: Round) -> None:
        """Add a round."""
        text = json.dumps(_plain(line))
        append_line(self._path, text)
        self._digest.update(f"{text}\n".encode())

    def rounds(self, *, finished: bool = False) -> list[Round]:
        """All rounds so far; none if there is no file yet. In a run that is not finished, a kill may have cut the
        last line short: it does not count."""
        lines = enumerate(self._text().split("\n")[: None if finished else -1], 1)
        return [read_json(Round, self._path, line, number) for number, line in lines if line.strip()]

    def keep(self, rounds: int, digest: str = "") -> list[Round]:
        """Drop what a killed run wrote after its last checkpoint, of round `rounds`; returns what is left."""
        kept = self.until(rounds, digest)
        text = "".join(json.dumps(_plain(line)) + "\n" for line in kept)
        write_text(self._path, text)
        self._digest = hashlib.sha256(text.encode())
        return kept

    def until(self, rounds: int, digest: str = "") -> list[Round]:
        """The rounds until a checkpoint, of round `rounds`.

        All must be there, as they were written: `digest` is their SHA-256, empty for checkpoints of version 0.1.
        """
        kept = [line for line in self.rounds() if line.round <= rounds]
        if [line.round for line in kept] != list(range(1, rounds + 1)):
            problem = f"has {len(kept)} of the {rounds} rounds that the checkpoint has seen"
            raise UserError(problem, file=self._path, hint=REPAIR)
        written = "".join(f"{line}\n" for line in self._text().split("\n")[:rounds])
        if digest and hashlib.sha256(written.encode()).hexdigest() != digest:
            problem = "is damaged: its lines are not those that were written, by the checkpoint's SHA-256"
            raise UserError(problem, file=self._path, hint=REPAIR)
        return kept

    def _text(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        except UnicodeDecodeError as error:
            raise UserError(f"is damaged: {error}", file=self._path, hint=REPAIR) from error


@dataclass(frozen=True, slots=True)
class Run:
    """A run as its folder has it: a finished one, or what there is so far of one that is not."""

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
    data_check: dict[str, Any] = field(default_factory=dict)
    planned: int | None = None  # of a run that is not finished, its rounds

    @property
    def finished(self) -> bool:
        """Whether training and testing are done."""
        return self.planned is None

    @property
    def per_site_and_round(self) -> SiteTraffic | None:
        """What one active site sends and is sent in a round, on average (FedED, Table 7)."""
        asked = sum(len(one.active) for one in self.rounds)
        if not asked:
            return None
        up, down = (sum(getattr(one.bytes, way) for one in self.rounds) / asked for way in ("up", "down"))
        framing = sum(one.bytes.framing.up for one in self.rounds) / asked
        return SiteTraffic(up=up, down=down, framing=framing)

    def row(self, method: str = "") -> ComparisonRow:
        """The run in a comparison, under the name that the comparison gives its method."""
        result, sites = self.result, self.result.sites
        fair = None if sites is None else sites.fairness
        return ComparisonRow(
            method=method or result.method,
            seed=result.seed,
            metrics=result.metrics,
            rounds=result.rounds,
            bytes=result.bytes,
            per_site_and_round=self.per_site_and_round,
            seconds=result.seconds,
            selection_precision=result.selection_precision,
            target=None if self.target is None else {result.primary: self.target},
            to_target=result.to_target,
            sites=None
            if sites is None or fair is None
            else SiteScores(metric=sites.metric, worst=fair.worst, spread=fair.spread),
        )


def read_run(folder: Path) -> Run:
    """Read the folder of a finished run."""
    result = folder / "result.json"
    if not result.exists():
        raise UserError("no such file", file=result, hint="the run has not finished: add --resume to go on")
    rounds = MetricsFile(folder / "metrics.jsonl").rounds(finished=True)
    return _run_of(folder, read_json(Result, result), rounds)


def run_so_far(folder: Path, state: RunState, rounds: list[Round]) -> Run:
    """A run that is not finished: what is in its folder, and its rounds summed up as its result, without a test."""
    dev = {one.round: value for one in rounds if (value := (one.dev or {}).get(state.metric)) is not None}
    best = max(dev, key=lambda number: dev[number], default=None)
    result = Result(
        method=state.method,
        seed=state.seed,
        metrics={},
        dev_metric={} if best is None else {state.metric: dev[best]},
        best_round=best,
        rounds=rounds[-1].round if rounds else 0,
        bytes=Traffic(up=sum(one.bytes.up for one in rounds), down=sum(one.bytes.down for one in rounds)),
        seconds=sum(one.seconds for one in rounds),
    )
    return replace(_run_of(folder, result, rounds), planned=state.rounds)


def _run_of(folder: Path, result: Result, rounds: list[Round]) -> Run:
    config = read_config(folder)
    return Run(
        folder=folder,
        result=result,
        rounds=rounds,
        curve=_optional(Curve, folder / "pr_curve.json", None),
        classes=_optional(Classes, folder / "classes.json", None),
        label_counts=_optional(LabelCounts, folder / "label_counts.json", None),
        cases=_optional(list[Case], folder / "case_study.json", []),
        documents=_optional(list[ReadDocument], folder / "evidence.json", []),
        config=config,
        target=_target(folder / CONFIG, config),
        environment=_optional(dict[str, Any], folder / "environment.json", {}),
        data_check=_optional(dict[str, Any], folder / "data_check.json", {}),
    )


def read_comparison(folder: Path) -> list[ComparisonRow]:
    """The rows of a comparison's folder."""
    comparison: ComparisonRows = read_json(ComparisonRows, folder / "comparison.json")
    return comparison.rows


def _target(path: Path, config: str) -> float | None:
    try:
        target = tomllib.loads(config).get("evaluation", {}).get("target")
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"is not TOML: {error}", file=path, hint=REPAIR) from error
    return None if target is None else float(target)


def _optional(kind: Any, path: Path, otherwise: T) -> T:
    return read_json(kind, path) if path.exists() else otherwise


def read_json(
    kind: Any, path: Path, text: str | None = None, line: int | None = None, *, hint: str = REPAIR
) -> Any:
    """Read a JSON file as a record, or `text`, which is its line `line`; what is broken is named.

    `hint` says what to do then.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8") if text is None else text)
    except OSError as error:
        readable = "check the path, and that you may read the file"
        raise UserError(f"cannot read: {error.strerror}", file=path, hint=readable) from error
    except json.JSONDecodeError as error:
        problem = f"broken JSON: {error.msg}"
        raise UserError(problem, file=path, line=line or error.lineno, hint=hint) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, or nested without end
        raise UserError(f"broken JSON: {error}", file=path, line=line, hint=hint) from error
    if isinstance(value, dict):
        value = without_seal(value, path, "a record", hint)
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        problem = f"{field}: {first['msg']}" if field else first["msg"]
        raise UserError(problem, file=path, line=line, hint=hint) from error


def _plain(record: Record | Sequence[Record]) -> Any:
    """What `json` can write."""
    if isinstance(record, Record):
        return record.model_dump(mode="json")
    return [one.model_dump(mode="json") for one in record]
