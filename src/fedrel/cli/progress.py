"""What a run shows while it goes on: bars in a terminal, elsewhere (a file, a log) a line in some seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedrel.api import text_progress
from fedrel.config.schema import Config
from fedrel.errors import some_of
from fedrel.runs.compare import Watch
from fedrel.runs.records import Result, Round
from fedrel.runs.train import Watcher
from fedrel.studio.formatting import about_round

if TYPE_CHECKING:
    from fedrel.data.data_check import DataCheck
    from fedrel.data.partition import Partition
    from fedrel.runs.prepare import Preparation

console = Console()

EVERY = 20.0  # seconds between two lines where output is not a terminal

Item = TypeVar("Item")


@contextmanager
def watching(*, quiet: bool = False, as_json: bool = False) -> Iterator[Watch]:
    """A display of how runs go on, which makes the watcher of each; with JSON, it leaves standard output alone."""
    to = Console(stderr=True) if as_json else console
    if quiet:
        yield lambda _, __: Watcher()
    elif to.is_terminal:
        with _bars(to) as watch:
            yield _with_warnings(watch, to)
    else:
        yield _with_warnings(text_progress(saying(quiet=quiet, as_json=as_json), every=EVERY), to)


def saying(*, quiet: bool, as_json: bool) -> Callable[[str], None]:
    """Prints a line for each thing that is done; with JSON on standard output, on standard error."""
    to = Console(stderr=True) if as_json else console

    def say(line: str) -> None:
        if not quiet:
            to.print(line, markup=False, highlight=False, soft_wrap=True)

    return say


@contextmanager
def counting(name: str, *, quiet: bool = False) -> Iterator[Callable[[Iterable[Item]], Iterator[Item]]]:
    """A display that counts what flows through an iterator."""
    with Progress(
        TextColumn(f"[bold]{name}"),
        TextColumn("{task.completed:,.0f} instances"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet,
    ) as progress:
        task = progress.add_task(name, total=None)

        def count(items: Iterable[Item]) -> Iterator[Item]:
            for item in items:
                progress.advance(task)
                yield item

        yield count


def about_unknown(found: DataCheck) -> str:
    """How much of the training text the vocabulary does not know."""
    share = "not known" if found.unknown_tokens is None else f"{found.unknown_tokens:.1%}"
    return f"training tokens out of vocabulary: {share}"


def about_empty(parts: Partition) -> str:
    """A warning that names the sites without data; nothing if all have some."""
    empty = [parts.names[site] for site in np.flatnonzero(parts.sizes == 0)]
    if not empty:
        return ""
    return f"{len(empty):,} of {parts.sites:,} sites have no data and are never drawn: {some_of(empty, 20)}"


@contextmanager
def _bars(to: Console) -> Iterator[Watch]:
    """A bar for each run, with loss, dev metric, bytes and the time left."""
    with Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[about]}"),
        TimeRemainingColumn(compact=True),
        console=to,
    ) as progress:

        def watch(name: str, config: Config) -> Watcher:
            task = progress.add_task(name, total=None, about="reading")

            def reading(count: int) -> None:
                progress.update(task, about=f"reading, {count:,} {config.data.unit}")

            def prepared(ready: Preparation) -> None:
                about = f"{len(ready.dataset.train):,} {config.data.unit}"
                sites = ready.site_data.partition.sites
                progress.update(task, total=config.training.rounds, about=f"{about} at {sites:,} sites")

            def round_done(one: Round) -> None:
                about = about_round(one, config.evaluation.measure)
                progress.update(task, completed=one.round, about=about)

            def finished(result: Result) -> None:
                progress.update(task, total=result.rounds, completed=result.rounds)

            return Watcher(prepared=prepared, reading=reading, round_done=round_done, finished=finished)

        yield watch


def _with_warnings(watch: Watch, to: Console) -> Watch:
    """Also print what is odd about the data, and which messages were refused."""
    printed: set[str] = set()  # the runs of a comparison have the same data: once is enough

    def warn(text: str) -> None:
        to.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def warned(name: str, config: Config) -> Watcher:
        inner = watch(name, config)

        def prepared(ready: Preparation) -> None:
            inner.prepared(ready)
            if ready.check is None:
                return
            for text in ready.check.warnings:
                if text not in printed:
                    warn(text)
            printed.update(ready.check.warnings)
            if (known := about_unknown(ready.check)) not in printed:
                printed.add(known)
                to.print(known, markup=False, highlight=False, soft_wrap=True)

        def round_done(one: Round) -> None:
            inner.round_done(one)
            for refusal in one.refused:
                warn(f"round {one.round}: refused {refusal.message} of site {refusal.site}: {refusal.reason}")

        return replace(inner, prepared=prepared, round_done=round_done)

    return warned
