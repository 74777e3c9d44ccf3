"""The papers' tables and figures as `fedrel reproduce` lists them: data, finished runs, and the time for the rest.

The time is estimated from rounds that were trained: those of finished runs of the same preset, in any exhibit, and
those in the folders of stopped runs. So training a new preset for a minute is enough for an estimate.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from fedrel.config.papers import papers
from fedrel.config.schema import Config
from fedrel.evaluation.outcome import Record
from fedrel.runs.folder import MetricsFile
from fedrel.runs.kept_runs import KeptRun
from fedrel.runs.plan import Job, Plan, page_folder
from fedrel.runs.reproduce import seeds_for, shown_on
from fedrel.runs.reproduction_record import Reproduction, Verdict
from fedrel.runs.searches import Search


class ListedExhibit(Record):
    """An exhibit in the list."""

    name: str
    about: str
    data: Literal["at hand", "some", "in part", "missing"]
    """`some`: not for all columns; `in part`: another corpus stands in for a column's own."""
    missing: list[str]
    """The corpora that it lacks, and where to get each."""
    seeds: int
    folds: int
    """Of a cross-validation, of which each seed has one; 0 if there is none."""
    runs: int
    done: int
    """Finished, or diverged."""
    seconds_left: float | None
    """With the searches that are left, but without what is `unknown`; None where nothing is known."""
    unknown: int
    """Unfinished runs and searches of presets that were never trained: their time is not known."""
    orderings: dict[Verdict, int] = {}
    """The page's verdicts on the paper's orderings, of those that were run."""


def listed_exhibits(pages: Path, runs: Path, seeds: int | None = None) -> list[ListedExhibit]:
    """All exhibits of all papers; `pages` has the folders of their pages, `runs` those of runs.

    Without `seeds`, each has as many as `reproduce` would take.
    """
    names = [f"{paper}/{exhibit}" for paper, facts in papers().items() for exhibit in facts.exhibits]
    shown = {name: shown_on(pages / page_folder(name)) for name in names}
    plans = [Plan(name, pages / page_folder(name), runs, seeds or seeds_for(shown[name])) for name in names]
    jobs = {plan.name: [_Begun.of(job, plan.finished(job)) for job in plan.distinct_jobs()] for plan in plans}
    known = [one for own in jobs.values() for one in own if one.rounds]
    searched = {
        metrics.parent: _search_job(one)
        for plan in plans
        for one in plan.searches.all
        for point in one.folders
        for metrics in sorted(point.rglob("metrics.jsonl"))
    }  # two exhibits may have the same search
    known += [_Begun.in_folder(job, folder) for folder, job in searched.items()]
    return [_listed(plan, jobs[plan.name], known, shown[plan.name]) for plan in plans]


class _Begun(NamedTuple):
    """A run that an exhibit needs, as far as it was trained."""

    job: Job
    rounds: int
    seconds: float
    finished: bool

    @classmethod
    def of(cls, job: Job, found: KeptRun | None) -> _Begun:
        if found is not None:
            return cls(job, found.result.rounds, found.result.seconds, finished=True)
        return cls.in_folder(job, job.folder) if job.settled else cls(job, 0, 0.0, finished=False)

    @classmethod
    def in_folder(cls, job: Job, folder: Path) -> _Begun:
        rounds = MetricsFile(folder / "metrics.jsonl").rounds()
        return cls(job, len(rounds), sum(one.seconds for one in rounds), finished=False)

    def seconds_left(self, known: list[_Begun]) -> float | None:
        """How long the rest takes. A run that may end early has as many rounds as finished ones had."""
        same, config = self._like(known), self.job.config
        rounds = [one.rounds for one in same if one.finished] if config.evaluation.patience else []
        expected = min(config.training.rounds, fmean(rounds or [config.training.rounds]))
        pace = self.pace(known)
        return None if pace is None else max(pace * (expected - self.rounds), 0.0)

    def pace(self, known: list[_Begun]) -> float | None:
        """The seconds of a round, as others of its preset took; fewer active sites or epochs take less."""
        same = self._like(known)
        if not any(one.rounds for one in same):
            return None
        seconds = sum(one.seconds for one in same) / sum(one.rounds * _work(one.job.config) for one in same)
        return seconds * _work(self.job.config)

    def _like(self, known: list[_Begun]) -> list[_Begun]:
        """The runs of its preset; only its own method's, if there are some."""
        same = [one for one in known if one.job.preset == self.job.preset]
        return [one for one in same if one.job.config.method == self.job.config.method] or same


def _work(config: Config) -> float:
    """How much is trained in a round, up to a factor that all runs of a preset have in common."""
    return config.training.epochs * config.training.fraction


def _listed(plan: Plan, jobs: list[_Begun], known: list[_Begun], shown: Reproduction | None) -> ListedExhibit:
    lacks = [column for column in plan.columns if column.missing]
    data: Literal["at hand", "some", "in part", "missing"] = "some" if lacks else "at hand"
    if len(lacks) == len(plan.columns):
        data = "missing"
    elif any(column.instead for column in plan.columns):
        data = "in part"
    diverged = sum(plan.diverged(one.job) for one in jobs)
    left = [one.seconds_left(known) for one in jobs if not (one.finished or plan.diverged(one.job))]
    left += [_search_seconds(one, known) for one in plan.searches.left()]
    return ListedExhibit(
        name=plan.name,
        about=plan.exhibit.about,
        data=data,
        missing=plan.missing(),
        seeds=plan.seeds,
        folds=max(column.folds for column in plan.exhibit.columns),
        runs=len(jobs),
        done=sum(one.finished for one in jobs) + diverged,
        seconds_left=sum(one or 0.0 for one in left) if jobs and {*left} != {None} else None,
        unknown=left.count(None),
        orderings={} if shown is None else Counter(one.verdict for one in shown.orderings if one.seeds),
    )


def _search_job(search: Search) -> Job:
    """A search as a job, whose folder has those of the runs that it trains."""
    return Job(search.row, "", 0, search.preset, search.config, search.folder, settled=False)


def _search_seconds(search: Search, known: list[_Begun]) -> float | None:
    """How long a row's search takes at most, but for the run of it that is a run of the table, too."""
    job = _search_job(search)
    trained = sum(one.rounds for one in known if one.job == job)
    pace = _Begun(job, 0, 0.0, finished=False).pace(known)
    return None if pace is None else max(pace * (search.rounds - job.config.training.rounds - trained), 0.0)
