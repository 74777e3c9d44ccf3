"""One run: from a config to a run folder with metrics and a model; stopped at any moment, it resumes."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from fedrel.config.schema import Config
from fedrel.data.documents import DocumentCorpus
from fedrel.data.partition import mirrored
from fedrel.data.partition.kinds import BySource
from fedrel.data.sentences import SentenceCorpus
from fedrel.evaluation.document_metrics import THRESHOLD
from fedrel.evaluation.outcome import AtSites, Outcome
from fedrel.evaluation.tasks import Score, task, tuned_threshold
from fedrel.extractors.registry import extractor_kind
from fedrel.extractors.saved import save_model
from fedrel.federation.coordinator import DivergedError, Federation
from fedrel.files import locked, write_tensors
from fedrel.methods.by_name import check_cohort, check_protection, method
from fedrel.runs.case_study import SEARCHED, case_study, evidence, pair_options
from fedrel.runs.checkpoint import Checkpoint, Checkpoints, KeptStates
from fedrel.runs.engines import SimulatedSites, Sites, precision_of
from fedrel.runs.folder import UNITS, MetricsFile, write_config, write_data_check, write_json
from fedrel.runs.own_models import OwnModels
from fedrel.runs.prepare import Ints, Preparation, configured_partition, label_counts, new_extractor
from fedrel.runs.records import Case, Result, Round, Traffic, to_target
from fedrel.runs.resuming import resumed
from fedrel.runs.round_outcome import LostRoundError, Spending, check_weights, round_record
from fedrel.runs.run_end import is_over
from fedrel.runs.run_notes import check_same_data, environment, noted
from fedrel.tensors.compiling import compilation_seconds
from fedrel.tensors.machine import warn_if_emulated
from fedrel.tensors.weights import NoAnswerError, Weights

if TYPE_CHECKING:
    from fedrel.federation.coordinator import Engine

ATTEMPTS = 2  # how often a round is tried with newly drawn sites before the run stops

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watcher:
    """The functions that a run calls as it goes on; by default they do nothing."""

    prepared: Callable[[Preparation], None] = lambda _: None
    reading: Callable[[int], None] = lambda _: None
    round_done: Callable[[Round], None] = lambda _: None
    finished: Callable[[Result], None] = lambda _: None


def run(
    config: Config,
    out: Path,
    *,
    resume: bool = False,
    from_round: int | None = None,
    watcher: Watcher | None = None,
    report: Callable[[Path], object] | None = None,
    sites: Sites | None = None,
) -> Result:
    """Train as the config says and write the run folder `out`; returns what `result.json` holds.

    `from_round`, of a run that is resumed: go on with the model of that round, if its checkpoint is still there.
    `report` is called with the folder when all else is written in it. `sites` says where the data and the engine
    come from; by default all sites are simulated on this machine.
    """
    check_protection(method(config.method, config.methods), config)  # a session does it, too, with data read
    with locked(out):
        watcher = watcher or Watcher()
        result = _run(config, out, resume, from_round, watcher, sites or SimulatedSites())
        if report is not None:
            report(out)
        watcher.finished(result)
        return result


def _run(
    config: Config, out: Path, resume: bool, from_round: int | None, watcher: Watcher, sites: Sites
) -> Result:
    other = () if from_round is None else ("aggregation",)
    checkpoints = Checkpoints(out / "checkpoint", config.shapes_result(), may_differ=other)
    metrics = MetricsFile(out / "metrics.jsonl")
    checkpoint = resumed(config, out, checkpoints, metrics, resume, from_round)
    with noted(out, config) as note:
        head, noised = (
            method(config.method, config.methods).kernel_head(),
            bool(config.privacy.sentence_noise),
        )
        with extractor_kind(config.extractor.kind).compiling(head, noised=noised):
            ready = sites.prepare(config, watcher.reading)
        here = environment(ready.dataset.corpus.fingerprint, precision_of(config))
        if checkpoint is not None:
            check_same_data(out, here)
        warn_if_emulated(here.precision, config.training.device)
        watcher.prepared(ready)
        note("training")
        write_config(out, config)
        write_json(out / "environment.json", here, seal=True)
        if ready.check is not None:
            write_data_check(out, ready.check, ready.dataset.corpus.folder)
        rounds = metrics.keep(checkpoint.round if checkpoint else 0, checkpoint.metrics if checkpoint else "")
        states = KeptStates(out / "sites", rounds, checkpoint.site_states if checkpoint else "")
        if checkpoint is None:
            shutil.rmtree(out / "sites", ignore_errors=True)  # of a run that was killed in its first round
        with sites.engine(config, ready, out, fresh=checkpoint is None) as engine:
            session = Session(config, ready, engine, checkpoint, rounds)
            while not session.finished():
                try:
                    rounds.append(session.next_round())
                except LostRoundError as lost:
                    lost.blame(rounds, session.checkpoint().best_round)
                    rounds.append(session.go_back(lost, checkpoints))
                metrics.append(rounds[-1])
                states.note(rounds[-1])
                kept = replace(session.checkpoint(), metrics=metrics.digest, site_states=states.kept)
                checkpoints.save(kept)
                watcher.round_done(rounds[-1])
            best = checkpoints.best(session.checkpoint())
            outcome = session.evaluate(best, ready.dataset.test, session.threshold(rounds))
            at_sites, models = session.at_sites(best, outcome), session.models(best)
        result = session.result(rounds, outcome, at_sites)
        finish(out, config, ready, models, outcome, rounds, result)
        note("finished")
        return result


class Session:
    """The rounds of a run."""

    def __init__(
        self,
        config: Config,
        ready: Preparation,
        engine: Engine,
        checkpoint: Checkpoint | None,
        done: Sequence[Round] = (),
    ) -> None:
        self._config, self._ready, self._engine = config, ready, engine
        self._spending = Spending(config, done)
        self._method = method(config.method, config.methods)
        active = max(int(config.training.fraction * ready.site_data.partition.sites + 1e-9), 1)
        check_protection(self._method, config)
        check_cohort(self._method, config, active)
        self._task = task(config.evaluation, ready.dataset)
        text, relations = ready.dataset.corpus, len(ready.dataset.corpus.relations)
        if checkpoint is None:
            model = new_extractor(config, ready)
            checkpoint = Checkpoint(0, model.state(), {}, 0, -1.0, 0.0)
        self._fed = Federation(
            engine,
            self._method.check,
            checkpoint.weights,
            sizes=ready.site_data.partition.sizes,
            triples=text.triple_count,
            relations=relations,
            validation=len(ready.site_data.validation),
            state=checkpoint.state,
            fraction=config.training.fraction,
            seed=config.seed,
            min_sites=config.engine.min_sites or 1,
            extra_sites=config.engine.extra_sites,
            aggregation=config.aggregation,
            privacy=config.privacy,
        )
        self._own = OwnModels(config, ready, engine, self._fed) if self._method.own_models else None
        self._at = checkpoint

    def finished(self) -> bool:
        """Whether all rounds are done, or the best round on dev is `evaluation.patience` rounds ago."""
        return is_over(self._config, self._at.round, self._at.best_round)

    def checkpoint(self) -> Checkpoint:
        """The state of the run after the last round."""
        return self._at

    def next_round(self) -> Round:
        """One round and, if it is due, its evaluation on dev."""
        started, compiled = time.monotonic(), compilation_seconds()
        last, evaluation = self._at, self._config.evaluation
        number = last.round + 1
        self._train(number)
        dev = test = threshold = None
        best_round, best_metric = last.best_round, last.best_metric
        if number % evaluation.every == 0 or number == self._config.training.rounds:
            if self._own is not None:
                self._own.choose(self._task, self._method.test_head)
            score, rows = self._score(self._fed.weights), self._ready.dataset.dev
            chosen = self._task.choose(rows, self._method.test_head, score)
            dev, threshold = chosen.metrics(), chosen.threshold
            if dev[evaluation.measure] > best_metric:
                best_round, best_metric = number, dev[evaluation.measure]
            if evaluation.target_on == "test":
                test = self.evaluate(self._fed.weights, self._ready.dataset.test, threshold).metrics()
        seconds = time.monotonic() - started - (compilation_seconds() - compiled)
        self._at = Checkpoint(
            round=number,
            weights=self._fed.weights,
            state=dict(self._fed.state),
            best_round=best_round,
            best_metric=best_metric,
            seconds=last.seconds + seconds,
        )
        epochs = self._config.training.epochs
        spent = self._spending.after(self._fed.notes, self._fed.sizes)
        record = round_record(number, self._fed.notes, dev, seconds, epochs, last.weights_of, spent)
        return record.model_copy(update={"test": test, "threshold": threshold})

    def evaluate(self, weights: Weights, rows: Ints, threshold: float | None = None) -> Outcome:
        """How good these weights are, or the models that the sites keep, at a threshold that was tuned on dev."""
        return self._task.evaluate(rows, self._method.test_head, self._score(weights), threshold)

    def threshold(self, rounds: Sequence[Round]) -> float | None:
        """The threshold of the best round, where it was tuned on dev."""
        return next((one.threshold for one in rounds if one.round == self._at.best_round), None)

    def _score(self, weights: Weights) -> Score:
        return partial(self._engine.score, weights) if self._own is None else self._own.score

    def models(self, weights: Weights) -> dict[str, tuple[Weights, float]]:
        """What the run has trained: these weights, under no name, or the model that each site keeps, by site; with
        the threshold that is best on dev."""

        def tuned(weights: Weights, rows: Ints) -> tuple[Weights, float]:
            corpus, head = self._ready.dataset.corpus, self._method.test_head
            return weights, tuned_threshold(corpus, rows, head, partial(self._engine.score, weights))

        if self._own is None:
            return {"": tuned(weights, self._ready.dataset.dev)}
        names = self._ready.site_data.partition.names
        return {name: tuned(self._own.kept(k), self._own.dev(k)) for k, name in enumerate(names)}

    def at_sites(self, weights: Weights, outcome: Outcome) -> AtSites | None:
        """How good the model is at each site: on its own test part where sites are natural, else on a share of the
        test set that is labelled as its own data are."""
        parts, data = configured_partition(self._config, self._ready), self._ready.dataset
        if parts is None or parts.sites == 1 or not len(parts.order):
            return None
        held = mirrored(self._config.partition, parts, data.corpus, data.test, self._config.seed)
        shares = {name: held.rows(site) for site, name in enumerate(held.names)}
        natural = self._config.partition.kind == BySource.name
        measure = self._config.evaluation.measure
        at = outcome.at_sites(shares, measure)
        if at is None and (natural or self._own):
            values = {
                name: self.evaluate(weights, rows, outcome.threshold).metrics()[measure]
                if data.corpus.fact_count(rows)
                else None
                for name, rows in shares.items()
            }
            at = AtSites.of(measure, values)
        counts = {name: len(rows) for name, rows in shares.items()}
        return at and at.model_copy(update={"rows": counts, "natural": natural})

    def result(self, rounds: Sequence[Round], outcome: Outcome, sites: AtSites | None = None) -> Result:
        """The run in numbers."""
        selected = [one.selection_precision for one in rounds if one.selection_precision is not None]
        evaluation = self._config.evaluation
        target = evaluation.target
        return Result(
            method=self._config.method,
            seed=self._config.seed,
            metrics=outcome.metrics(),
            dev_metric={evaluation.measure: self._at.best_metric},
            threshold=outcome.threshold,
            best_round=self._at.best_round,
            rounds=self._at.round,
            to_target=None
            if target is None
            else to_target(rounds, evaluation.measure, target, evaluation.target_on),
            bytes=Traffic(up=sum(one.bytes.up for one in rounds), down=sum(one.bytes.down for one in rounds)),
            seconds=round(self._at.seconds, 3),
            selection_precision=float(np.mean(selected)) if selected else None,
            sites=sites,
            epsilon=next((one.privacy.epsilon for one in reversed(rounds) if one.privacy), None),
        )

    def go_back(self, lost: LostRoundError, checkpoints: Checkpoints) -> Round:
        """After a round in which the model diverged: go on from the best round's, if sites are to blame.

        `UserError` if that cannot help: there is no evaluated round, the one before was lost as well, or no site's
        update stood out, so that the learning rate is too high for all.
        """
        last = self._at
        if not (lost.diverged and lost.blamed and last.best_round) or last.weights_of is not None:
            raise lost.error(self._config.training.learning_rate) from lost
        best = checkpoints.of_round(last.best_round)
        self._at = replace(last.back_to(best), round=lost.round)
        self._restore()
        _log.warning("%s", lost.error(0).problem)
        _log.warning("going on from the model of round %d", best.round)
        spent, epochs = self._spending.after(lost.notes, self._fed.sizes), self._config.training.epochs
        return round_record(lost.round, lost.notes, None, 0.0, epochs, last.weights_of, spent)

    def _train(self, number: int) -> None:
        suspects: dict[int, float] = {}
        for attempt in range(ATTEMPTS):
            self._fed.draw(number, attempt, without=suspects)
            try:
                self._method.round(self._fed)
                check_weights(self._fed.weights, self._fed.state, self._at)
                return
            except NoAnswerError as error:
                failure, notes = error, self._fed.notes
                self._restore()
            if isinstance(failure, DivergedError):
                suspects |= notes.moves.stood_out()
                notes.refused += [
                    {"site": site, "message": "Update", "reason": f"stood out, {factor:,.0f} times too long"}
                    for site, factor in suspects.items()
                ]
        problem = str(failure) or "no site's answer could be used"
        names = self._ready.site_data.partition.names
        raise LostRoundError(
            number, problem, notes, isinstance(failure, DivergedError), names, suspects
        ) from failure

    def _restore(self) -> None:
        """Forget what a failed round did to the weights and the state."""
        self._fed.weights, self._fed.state = self._at.weights, dict(self._at.state)


def finish(
    out: Path,
    config: Config,
    ready: Preparation,
    models: Mapping[str, tuple[Weights, float]],
    outcome: Outcome,
    rounds: Sequence[Round],
    result: Result,
) -> None:
    """Write all that follows from a finished training, `result.json` last.

    `models` are trained weights and their threshold by site, or under no name if all sites have one model.
    """
    text, pairs = ready.dataset.corpus, None
    if config.data.corpus == "documents":
        pairs = pair_options(config.data, text.require(DocumentCorpus))
    for site, (weights, threshold) in models.items():
        model = new_extractor(config, ready)
        model.load(weights)
        if config.data.corpus == "documents" and not site:
            documents = text.require(DocumentCorpus)
            rows, relations = ready.dataset.test[:SEARCHED], list(text.relations)
            find = extractor_kind(config.extractor.kind).find
            at = THRESHOLD if outcome.threshold is None else outcome.threshold
            found = find(model, ready.site_data.inputs, rows, relations, at)
            write_json(out / "evidence.json", evidence(documents, found, config.case_study))
        save_model(
            out / "model" / quote(site, safe=" "),
            config.extractor,
            model,
            ready.site_data.inputs,
            list(text.relations),
            method=config.method,
            head=method(config.method, config.methods).test_head,
            threshold=threshold,
            pairs=pairs,
        )
    write_tensors(out / UNITS, outcome.units(), {})
    for name, record in outcome.files().items():
        write_json(out / name, record)
    if len(ready.site_data.partition.order):  # of real sites, the coordinator does not know it
        write_json(out / "label_counts.json", label_counts(ready), indent=None)
    watched = ready.site_data.watched
    cases: list[Case] = []
    if text.unit == "sentences":
        cases = case_study(text.require(SentenceCorpus), ready.site_data.partition, watched, rounds)
    write_json(out / "case_study.json", cases)
    write_json(out / "result.json", result, seal=True)
