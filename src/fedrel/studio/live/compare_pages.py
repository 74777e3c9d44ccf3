"""The comparison of any finished runs, by the functions of the reports; its table for spreadsheets and papers."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from fedrel.errors import UserError
from fedrel.runs.folder import Run, read_comparison, read_run
from fedrel.studio.comparison_files import comparison_csv, comparison_latex
from fedrel.studio.comparison_page import comparison_page
from fedrel.studio.live.differences import Difference, differences
from fedrel.studio.live.page_maker import Addresses, PageMaker
from fedrel.studio.live.run_index import Row
from fedrel.studio.tables import summarise

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


def _without_seed(identity: str) -> str:
    path = PurePosixPath(identity)
    return (path.parent if path.name.startswith("seed-") else path).as_posix()


def _file(name: str, kind: str, text: str) -> Response:
    from starlette.responses import Response

    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(text, media_type=kind, headers=headers)
