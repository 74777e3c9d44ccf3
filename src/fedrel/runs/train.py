"""One run: from a config to a run folder with metrics, a model and a report; stopped at any moment, it resumes."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrel.config.schema import Config, DocumentData
from fedrel.data.divide import held_back, partition
from fedrel.data.divide import label_counts as counted
from fedrel.data.documents import DocumentCorpus
from fedrel.data.mirror import mirrored, mirrored_documents
from fedrel.data.partition import Partition
from fedrel.data.sentences import Corpus
from fedrel.errors import UserError
from fedrel.evaluation.classification import Classification
from fedrel.evaluation.document_metrics import Findings
from fedrel.evaluation.fairness import AtSites, at_sites
from fedrel.evaluation.ranking import Ranking
from fedrel.evaluation.tasks import Outcome, task, to_target
from fedrel.extractors.registry import extractor
from fedrel.federation.coordinator import Federation, RoundNotes
from fedrel.files import ELSEWHERE, alone_in, write_text
from fedrel.inference.document_model import pair_options
from fedrel.methods.registry import method
from fedrel.runs.case_study import case_study
from fedrel.runs.checkpoint import Checkpoint, Checkpoints
from fedrel.runs.engines import SimulatedSites, Sites
from fedrel.runs.environment import environment
from fedrel.runs.prepare import Ints, Preparation, with_words
from fedrel.runs.records import MetricsFile
from fedrel.tensors.weights import NoAnswerError, Weights

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Engine

ATTEMPTS = 2  # how often a round is tried with newly drawn sites before the run stops
SHOWN = 10  # sites that are named when a round fails


@dataclass(frozen=True)
class Watcher:
    """What a run tells whoever watches; each call is optional to listen to."""

    prepared: Callable[[Preparation], None] = lambda _: None
    reading: Callable[[int], None] = lambda _: None
    round_done: Callable[[dict[str, Any]], None] = lambda _: None


def run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    watcher: Watcher | None = None,
    sites: Sites | None = None,
) -> dict[str, Any]:
    """Train as the config says and leave everything in `out`; returns what `result.json` holds.

    `sites` says where the data and the engine come from; by default all sites are simulated on this machine.
    """
    with alone_in(out):
        return _run(config, out, resume, watcher or Watcher(), sites or SimulatedSites())


def _run(config: Config, out: Path, resume: bool, watcher: Watcher, sites: Sites) -> dict[str, Any]:
    checkpoints = Checkpoints(out / "checkpoint", config.shapes_result())
    checkpoint = checkpoints.latest()
    if checkpoint is not None and not resume:
        raise UserError(
            "there is a run in this folder already",
            file=out,
            hint=f"go on with it by --resume, or {ELSEWHERE}",
        )
    if checkpoint is not None and checkpoint.round > config.training.rounds:
        problem = f"has {checkpoint.round} rounds already, but training.rounds is {config.training.rounds}"
        raise UserError(problem, file=out, hint=f"ask for at least as many rounds, or {ELSEWHERE}")
    ready = sites.prepare(config, watcher.reading)
    if checkpoint is not None:
        same_data(out, ready.dataset.text.fingerprint)
    watcher.prepared(ready)
    write_text(out / "config.toml", config.to_toml())
    write_text(out / "environment.json", json.dumps(environment(ready.dataset.text.fingerprint), indent=2))
    metrics = MetricsFile(out / "metrics.jsonl")
    metrics.keep(checkpoint.round if checkpoint else 0)
    if checkpoint is None:
        shutil.rmtree(
            out / "sites", ignore_errors=True
        )  # states from a run that was killed in its first round
    with sites.engine(config, ready, out, fresh=checkpoint is None) as engine:
        session = Session(config, ready, engine, checkpoint)
        while not session.finished():
            line = session.next_round()
            metrics.append(line)
            checkpoints.save(session.checkpoint())
            watcher.round_done(line)
        best = checkpoints.best(session.checkpoint())
        outcome = session.evaluate(best, ready.dataset.test)
    lines = metrics.lines()
    result = session.result(lines, outcome)
    finish(out, config, ready, best, outcome, lines, result)
    return result


def same_data(out: Path, fingerprint: str) -> None:
    """Refuse to go on with a run whose data have changed since."""
    before = json.loads((out / "environment.json").read_text(encoding="utf-8"))["data_fingerprint"]
    if before != fingerprint:
        problem = "the data are not those that this run began with"
        raise UserError(problem, file=out, hint=f"restore the data files, or {ELSEWHERE}")


class Session:
    """The rounds of a run."""

    def __init__(
        self,
        config: Config,
        ready: Preparation,
        engine: Engine,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._config, self._ready, self._engine = config, ready, engine
        self._method = method(config.method, config.methods)
        self._task = task(config.evaluation, ready.dataset)
        text, relations = ready.dataset.text, len(ready.dataset.text.relations)
        if checkpoint is None:
            size = ready.site_data.vocabulary_size
            first = None if ready.vectors is None else ready.vectors.table()
            model = extractor(config.extractor, size, relations, config.seed, first)
            checkpoint = Checkpoint(0, model.state(), {}, 0, -1.0, 0, 0.0)
        self._fed = Federation(
            engine,
            self._method.check,
            checkpoint.weights,
            sizes=ready.site_data.partition.sizes,
            triples=len(text.triples) if isinstance(text, Corpus) else 0,
            relations=relations,
            validation=len(ready.site_data.validation),
            state=checkpoint.state,
            fraction=config.training.fraction,
            seed=config.seed,
            min_sites=config.engine.min_sites or 1,
            extra_sites=config.engine.extra_sites,
        )
        self._at = checkpoint

    def finished(self) -> bool:
        """All rounds done, or no better model for longer than the patience allows."""
        patience = self._config.evaluation.patience
        return self._at.round >= self._config.training.rounds or (
            patience is not None and self._at.rounds_since_best >= patience
        )

    def checkpoint(self) -> Checkpoint:
        """Where the run stands."""
        return self._at

    def next_round(self) -> dict[str, Any]:
        """One round and, if it is due, its evaluation on dev; returns the line for metrics.jsonl."""
        started = time.monotonic()
        number = self._at.round + 1
        self._train(number)
        dev = None
        if number % self._config.evaluation.every == 0 or number == self._config.training.rounds:
            dev = self.evaluate(self._fed.weights, self._ready.dataset.dev).metrics()
        best_round, best_metric, since = self._at.best_round, self._at.best_metric, self._at.rounds_since_best
        if dev is not None:
            better = dev[self._config.evaluation.measure] > best_metric
            best_round, best_metric, since = (
                (number, dev[self._config.evaluation.measure], 0)
                if better
                else (best_round, best_metric, since + 1)
            )
        seconds = time.monotonic() - started
        self._at = Checkpoint(
            number,
            self._fed.weights,
            self._fed.state,
            best_round,
            best_metric,
            since,
            self._at.seconds + seconds,
        )
        return metrics_line(number, self._fed.notes, dev, seconds, self._config.training.epochs)

    def evaluate(self, weights: Weights, rows: Ints) -> Outcome:
        """How good these weights are on the given rows."""
        return self._task.evaluate(rows, self._method.test_head, partial(self._engine.score, weights))

    def result(self, lines: list[dict[str, Any]], outcome: Outcome) -> dict[str, Any]:
        """The run in numbers."""
        selected = [line["selection_precision"] for line in lines if line["selection_precision"] is not None]
        evaluation = self._config.evaluation
        reached = evaluation.target and to_target(lines, evaluation.measure, evaluation.target)
        return {
            "method": self._config.method,
            "seed": self._config.seed,
            "metrics": outcome.metrics(),
            "dev_metric": {evaluation.measure: self._at.best_metric},
            "best_round": self._at.best_round,
            "rounds": self._at.round,
            "to_target": reached._asdict() if reached else None,
            "bytes": {way: sum(line["bytes"][way] for line in lines) for way in ("up", "down")},
            "seconds": round(self._at.seconds, 3),
            "selection_precision": float(np.mean(selected)) if selected else None,
            "sites": by_site(self._config, self._ready, outcome),
        }

    def _train(self, number: int) -> None:
        for attempt in range(ATTEMPTS):
            self._fed.draw(number, attempt)
            try:
                self._method.round(self._fed)
                return
            except NoAnswerError as error:
                names = self._ready.site_data.partition.names
                reasons = {names[one["site"]]: one["reason"] for one in self._fed.notes.refused}
                problem = str(error) or "no site's answer could be used"
        said = [f"{name}: {reason}" for name, reason in reasons.items()]
        more = [f"and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
        raise UserError(
            f"round {number}: {problem} ({'; '.join(said[:SHOWN] + more) or 'no site answered'})",
            hint=f"the checkpoint of round {number - 1} is kept: mend the sites and go on with --resume",
        )


def metrics_line(
    number: int, notes: RoundNotes, dev: dict[str, float] | None, seconds: float, epochs: int
) -> dict[str, Any]:
    """A round as metrics.jsonl keeps it."""
    weight = sum(entry.weight for entry in notes.journals.values())
    expressing = sum(entry.expressing for entry in notes.journals.values())
    watched: Counter[int] = Counter()  # of floats
    for entry in notes.journals.values():
        watched.update(entry.watched)
    return {
        "round": number,
        "loss": notes.loss,
        "dev": dev,
        "bytes": notes.traffic.summary(),
        "seconds": round(seconds, 3),
        "selection_precision": expressing / weight if weight else None,
        "active": notes.active,
        "examples": notes.examples,
        "refused": notes.refused,
        "watched": {str(row): round(w / epochs, 4) for row, w in watched.items()},
        "class_distances": {str(k): d.round(4).tolist() for k, d in notes.class_distances.items()} or None,
    }


def by_site(config: Config, ready: Preparation, outcome: Outcome) -> AtSites | None:
    """How good the model is at each site, on a share of the test set that is labelled as its own data are."""
    parts = described(config, ready)
    if isinstance(outcome, Ranking) or parts is None or parts.sites == 1 or not len(parts.order):
        return None
    rows = ready.dataset.test
    if isinstance(ready.dataset.text, DocumentCorpus):
        assert isinstance(outcome, Findings)
        held = mirrored_documents(config.partition, parts, ready.dataset.text, rows, config.seed)
        documents = {name: held.rows(site) for site, name in enumerate(held.names)}
        return outcome.at_sites(documents, config.evaluation.measure)
    assert isinstance(outcome, Classification)
    shares = mirrored(parts, ready.dataset.corpus, rows, config.seed)
    order = np.argsort(rows)
    places = {
        name: order[np.searchsorted(rows, shares.rows(site), sorter=order)]
        for site, name in enumerate(shares.names)
    }
    return at_sites(outcome, places, config.evaluation.measure)


def described(config: Config, ready: Preparation) -> Partition | None:
    """Who holds what as the config says, even if the method pools it: so it is compared at the same sites.

    None where pooled data cannot be divided so: then nobody needs them to be.
    """
    if not method(config.method, config.methods).pools_data:
        return ready.site_data.partition
    rows, _ = held_back(ready.dataset.train, config.partition.coordinator, config.seed)
    try:
        return partition(config.partition, replace(ready.dataset, train=rows), config.seed)
    except UserError:
        return None


def finish(
    out: Path,
    config: Config,
    ready: Preparation,
    best: Weights,
    outcome: Outcome,
    lines: list[dict[str, Any]],
    result: dict[str, Any],
) -> None:
    """Write what a finished run leaves behind; `result.json` and the report that shows it last."""
    from fedrel.extractors.saved import save_model
    from fedrel.studio.report import write_run_report

    text, pairs = ready.dataset.text, None
    if isinstance(config.data, DocumentData) and isinstance(text, DocumentCorpus):
        pairs = pair_options(config.data, text)
        shown = json.dumps(found_and_where(config, ready, best), ensure_ascii=False, indent=1)
        write_text(out / "evidence.json", shown)
    whole = with_words(config, ready, best)
    save_model(out / "model", config, whole, ready.vocabulary, list(text.relations), pairs)
    if isinstance(outcome, Ranking):
        write_text(out / "pr_curve.json", json.dumps(outcome.curve()))
    else:
        classes = {"per_class": outcome.per_class(), "confusion": outcome.confusion()}
        write_text(out / "classes.json", json.dumps(classes, ensure_ascii=False, indent=1))
    if len(ready.site_data.partition.order):  # real sites do not tell
        write_text(out / "label_counts.json", json.dumps(label_counts(ready), ensure_ascii=False))
    watched = ready.site_data.watched
    cases = case_study(text, ready.site_data.partition, watched, lines) if isinstance(text, Corpus) else []
    write_text(out / "case_study.json", json.dumps(cases, ensure_ascii=False, indent=1))
    write_text(out / "result.json", json.dumps(result, indent=2))
    write_run_report(out)


def found_and_where(config: Config, ready: Preparation, weights: Weights) -> list[dict[str, Any]]:
    """What the model finds in a few test documents, and the tokens it looks at."""
    from fedrel.extractors.document.marked_pieces import DocumentInputs
    from fedrel.extractors.document.network import DocumentTransformer
    from fedrel.runs.case_study import evidence

    model = extractor(config.extractor, 0, len(ready.dataset.text.relations), config.seed)
    model.load(weights)
    assert isinstance(model, DocumentTransformer) and isinstance(ready.site_data.inputs, DocumentInputs)
    return evidence(model, ready.site_data.inputs, ready.dataset.test, config.case_study)


def label_counts(ready: Preparation) -> dict[str, Any]:
    """n(k,c): how many training sentences, or pairs, of each relation each site holds."""
    text, parts = ready.dataset.text, ready.site_data.partition
    return {
        "sites": list(parts.names),
        "relations": list(text.relations),
        "counts": counted(parts, text).tolist(),
    }
