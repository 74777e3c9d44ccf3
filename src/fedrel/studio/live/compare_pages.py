"""The comparison of any finished runs, by the functions of the reports; its table for spreadsheets and papers.

With it come differences: between methods, paired over seeds and with an interval, the best against each other one;
and between two runs, in all that they say: their settings, environments and results.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from fedrel.errors import UserError
from fedrel.evaluation.bootstrap import Interval, UnlikeUnitsError
from fedrel.runs.compare import answers_of_run, difference_if_known
from fedrel.runs.folder import UNITS, Run, read_comparison, read_run
from fedrel.studio import formatting as fmt
from fedrel.studio.comparison_page import comparison_page
from fedrel.studio.formatting import Spread
from fedrel.studio.live.page_maker import Addresses, PageMaker
from fedrel.studio.live.run_index import Row
from fedrel.studio.tables import comparison_csv, comparison_latex, summarise

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


MOST = 120  # runs that are compared at once

Chosen = dict[str, list[Run]]
"""Runs by the name of their method, in the order of their seeds."""


class ComparePages:
    """The pages about several runs."""

    def __init__(self, maker: PageMaker) -> None:
        self._maker = maker
        self._one_at_a_time = Lock()
        self._known: dict[tuple[tuple[str, float], ...], list[Difference]] = {}

    def addresses(self) -> Addresses:
        """What is answered here."""
        return [
            ("GET", "/compare", self.compare_page),
            ("GET", "/compare/differences", self.differences_part),
            ("GET", "/compare.csv", self.csv_file),
            ("GET", "/compare.tex", self.latex_file),
        ]

    async def compare_page(self, request: Request) -> Response:
        """Several runs; without any, which there are to choose from."""
        asked = request.query_params.getlist("id")
        if not asked:
            rows = await asyncio.to_thread(self._maker.scanned)
            values = {
                "title": "Compare",
                "setting": "",
                "comparisons": [row for row in rows if row.kind == "comparison" and row.state == "finished"],
                "finished": sum(row.kind == "run" and row.state == "finished" for row in rows),
            }
            return await self._maker.page("choose.html", values, here="/compare")
        values = await asyncio.to_thread(self._values, asked)
        comparison = len(asked) == 1 and self._maker.find(asked[0]).kind == "comparison"
        query = urlencode([("id", one) for one in asked])
        return await self._maker.page(
            "comparison.html", values, here="/compare", query=query, comparison=comparison
        )

    async def differences_part(self, request: Request) -> Response:
        """The paired differences, which take a while."""
        asked = request.query_params.getlist("id")
        found = await asyncio.to_thread(self._differences, asked)
        return await self._maker.page("differences.html", {"differences": found})

    async def csv_file(self, request: Request) -> Response:
        """A line a run."""
        asked = request.query_params.getlist("id")

        def text() -> str:
            return comparison_csv([run.row(name) for name, own in self._runs(asked).items() for run in own])

        return _file("comparison.csv", "text/csv", await asyncio.to_thread(text))

    async def latex_file(self, request: Request) -> Response:
        """The table of means over seeds."""
        asked = request.query_params.getlist("id")

        def text() -> str:
            rows = [run.row(name) for name, own in self._runs(asked).items() for run in own]
            return comparison_latex(summarise(rows))

        return _file("comparison.tex", "application/x-tex", await asyncio.to_thread(text))

    def _values(self, asked: list[str]) -> dict[str, Any]:
        root = self._maker.index.root

        def link(run: Run) -> str:
            return f"/run?id={quote(run.folder.relative_to(root).as_posix())}"

        return comparison_page(self._runs(asked), link)

    def _differences(self, asked: list[str]) -> list[Difference]:
        rows = self._rows(asked)
        key = tuple((row.id, row.changed) for row in rows)
        with self._one_at_a_time:  # it computes for seconds
            if key not in self._known:
                if len(self._known) > 50:
                    self._known.clear()
                self._known[key] = differences(self._runs(asked))
            return self._known[key]

    def _rows(self, asked: list[str]) -> list[Row]:
        """The runs that are meant: of a comparison, all of its own."""
        found: dict[str, Row] = {}
        for identity in asked:
            row = self._maker.find(identity)
            if row.kind == "run":
                found[row.id] = row
                continue
            for one in read_comparison(self._maker.index.folder(row.id)):
                inside = (PurePosixPath(row.id) / one.method / f"seed-{one.seed}").as_posix()
                found[inside] = self._maker.find(inside)
        rows = list(found.values())
        if len(rows) > MOST:
            raise UserError(f"{len(rows)} runs are too many to compare", hint=f"Choose at most {MOST}.")
        unfinished = [row.id for row in rows if row.state != "finished"]
        if unfinished:
            problem = f"the run {unfinished[0]} is not finished"
            raise UserError(problem, hint="Only finished runs can be compared: the others have no test.")
        return rows

    def _runs(self, asked: list[str]) -> Chosen:
        rows = self._rows(asked)
        names = method_names(rows)
        found: Chosen = {}
        for row in sorted(rows, key=lambda one: one.seed or 0):
            found.setdefault(names[row.id], []).append(read_run(self._maker.index.folder(row.id)))
        order = list(dict.fromkeys(names[row.id] for row in rows))
        return {name: found[name] for name in order}


def method_names(rows: list[Row]) -> dict[str, str]:
    """By run, the name of its line in the table: its method and, where a seed comes twice, its folder.

    Two runs of one method with the same seed differ in something else, as their settings.
    """
    times = Counter((row.method, row.seed) for row in rows)
    unclear = {method for (method, _), number in times.items() if number > 1}
    return {
        row.id: f"{row.method} ({_without_seed(row.id)})" if row.method in unclear else row.method
        for row in rows
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better one method is than another, over the seeds that both have."""

    better: str
    worse: str
    metric: str
    seeds: list[int]
    spread: Spread | None  # of the differences, seed by seed
    interval: Interval | None
    why: str = ""  # there is no interval

    @property
    def verdict(self) -> str:
        """Whether it can be told from chance."""
        if self.interval is None:
            return self.why
        return "clear" if self.interval.sign else "cannot be told from chance"


def differences(runs: Mapping[str, Sequence[Run]]) -> list[Difference]:
    """The method with the best mean against every other one; none where there is only one."""
    first = next((run for own in runs.values() for run in own), None)
    if first is None or len(runs) < 2:
        return []
    metric = first.result.primary
    means = {name: Spread.of([run.result.metrics.get(metric) for run in own]) for name, own in runs.items()}
    known = {name: spread.mean for name, spread in means.items() if spread is not None}
    best = max(known, key=lambda name: known[name], default=None)
    if best is None:
        return []
    order = sorted((name for name in known if name != best), key=lambda name: -known[name])
    return [_difference(best, other, metric, runs[best], runs[other]) for other in order]


def _difference(
    better: str, worse: str, metric: str, ours: Sequence[Run], theirs: Sequence[Run]
) -> Difference:
    mine, others = ({run.result.seed: run for run in own} for own in (ours, theirs))
    seeds = sorted(mine.keys() & others.keys())
    paired = [mine[seed] for seed in seeds], [others[seed] for seed in seeds]
    values = [
        (one.result.metrics.get(metric), other.result.metrics.get(metric))
        for one, other in zip(*paired, strict=True)
    ]
    spread = Spread.of([a - b for a, b in values if a is not None and b is not None])
    found, why = _interval(paired, metric)
    return Difference(better, worse, metric, seeds, spread, found, why)


def _interval(paired: tuple[list[Run], list[Run]], metric: str) -> tuple[Interval | None, str]:
    if not paired[0]:
        return None, "they have no seed in common"
    if not all((run.folder / UNITS).exists() for own in paired for run in own):
        return None, f"a run has no {UNITS}"
    try:
        first, second = ([answers_of_run(run) for run in own] for own in paired)
        found = difference_if_known(first, second, metric)
    except UnlikeUnitsError:
        return None, "they were not tested on the same data"
    return found, "" if found else "this metric cannot be resampled"


@dataclass(frozen=True, slots=True)
class Line:
    """What one run says and what the other says."""

    name: str
    first: str
    second: str


def run_difference(first: tuple[Row, Run], second: tuple[Row, Run]) -> dict[str, Any]:
    """The values of `difference.html`."""
    rows, runs = (first[0], second[0]), (first[1], second[1])
    configs = [fmt.flatten(_config(run)) for run in runs]
    environments = [fmt.flatten(run.environment) for run in runs]
    results = [_result(run) for run in runs]
    return {
        "title": "Two runs, side by side",
        "setting": "",
        "rows": rows,
        "results": _lines(*results, alike=True),
        "settings": _lines(*configs),
        "environment": _lines(*environments),
    }


def _without_seed(identity: str) -> str:
    path = PurePosixPath(identity)
    return (path.parent if path.name.startswith("seed-") else path).as_posix()


def _file(name: str, kind: str, text: str) -> Response:
    from starlette.responses import Response

    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(text, media_type=kind, headers=headers)


def _config(run: Run) -> dict[str, Any]:
    try:
        return tomllib.loads(run.config)
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"config.toml is not TOML: {error}", hint="The other runs can be looked at."
        ) from error


def _result(run: Run) -> dict[str, str]:
    result = run.result
    return {
        **{fmt.label(name): fmt.share(value) for name, value in result.metrics.items()},
        **{f"Best {fmt.label(name)} on dev": fmt.share(value) for name, value in result.dev_metric.items()},
        "Best round": fmt.count(result.best_round),
        "Rounds": fmt.count(result.rounds),
        "Sent by sites": fmt.size(result.bytes.up),
        "Sent to sites": fmt.size(result.bytes.down),
        "Time": fmt.duration(result.seconds),
    }


def _lines(first: dict[str, str], second: dict[str, str], *, alike: bool = False) -> list[Line]:
    """What is not the same in both; or everything, in the order of the first."""
    names = dict.fromkeys([*first, *second])
    lines = [Line(name, first.get(name, fmt.NOTHING), second.get(name, fmt.NOTHING)) for name in names]
    return [line for line in lines if alike or line.first != line.second]
