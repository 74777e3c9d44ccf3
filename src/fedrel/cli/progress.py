"""What a run shows in the terminal: reading, then rounds with loss, dev metric, bytes and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedrel.config.schema import Config
from fedrel.evaluation.heterogeneity import label_distances
from fedrel.runs.records import Round
from fedrel.runs.train import Watcher
from fedrel.studio.formatting import about_round

if TYPE_CHECKING:
    from fedrel.data.partition import Partition
    from fedrel.runs.prepare import Preparation


console = Console()


@contextmanager
def watching() -> Iterator[Callable[[str, Config], Watcher]]:
    """A progress display; the callable gives a new line in it for each run."""
    with Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[about]}"),
        TimeRemainingColumn(compact=True),
        console=console,
    ) as progress:
        said: set[str] = set()  # the runs of a comparison have the same sites: once is enough

        def watch(name: str, config: Config) -> Watcher:
            task = progress.add_task(name, total=None, about="reading")
            what = "documents" if config.data.corpus == "documents" else "sentences"

            def reading(count: int) -> None:
                progress.update(task, about=f"reading, {count:,} {what}")

            def prepared(ready: Preparation) -> None:
                data, sites = ready.dataset, ready.site_data.partition
                progress.update(
                    task,
                    total=config.training.rounds,
                    about=f"{len(data.train):,} {what} at {sites.sites:,} sites",
                )
                if (empty := about_empty(sites)) and empty not in said:
                    said.add(empty)
                    console.print(empty, style="yellow", markup=False)

            def round_done(one: Round) -> None:
                about = about_round(one, config.evaluation.measure)
                progress.update(task, completed=one.round, about=about)
                for refusal in one.refused:
                    console.print(
                        f"round {one.round}: refused {refusal.message} of site {refusal.site}: {refusal.reason}",
                        style="yellow",
                        markup=False,
                    )

            return Watcher(prepared=prepared, reading=reading, round_done=round_done)

        yield watch


@contextmanager
def counting(name: str) -> Iterator[Callable[[Iterator[Any]], Iterator[Any]]]:
    """A display that counts what flows through an iterator."""
    with Progress(
        TextColumn(f"[bold]{name}"),
        TextColumn("{task.completed:,.0f} instances"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(name, total=None)

        def count(items: Iterator[Any]) -> Iterator[Any]:
            for item in items:
                progress.advance(task)
                yield item

        yield count


def partition_table(
    parts: Partition, counts: npt.NDArray[np.int64], relations: Sequence[str], what: str = "sentences"
) -> Table:
    """What each site holds, how far its labels are from the whole, and the means; of many, the first and last."""
    distances = label_distances(counts)
    table = Table("site", what, "relations", "distance", "commonest")
    for column in table.columns[1:4]:
        column.justify = "right"
    shown = (
        range(parts.sites) if parts.sites <= 20 else [*range(10), -1, *range(parts.sites - 9, parts.sites)]
    )
    for site in shown:
        if site < 0:
            table.add_row("…", f"{parts.sites - 19:,} more", "", "", "")
            continue
        top = counts[site].argsort(kind="stable")[::-1][:3]
        commonest = ", ".join(f"{relations[r]} {counts[site, r]:,}" for r in top if counts[site, r])
        distance = f"{distances[site]:.2f}" if parts.sizes[site] else "—"
        present = str((counts[site] > 0).sum())
        table.add_row(parts.names[site], f"{parts.sizes[site]:,}", present, distance, commonest)
    table.add_section()
    held = f"{(counts > 0).sum(axis=1).mean():.1f}"
    table.add_row("mean", f"{parts.sizes.mean():,.1f}", held, f"{np.nanmean(distances):.2f}", "")
    table.caption = "distance: earth mover's, to the relations of all (0 alike, 2 nothing shared)"
    table.caption_justify = "left"
    return table


def about_empty(parts: Partition) -> str:
    """Which sites have no data, for the user to know; nothing if all have some."""
    empty = [parts.names[site] for site in np.flatnonzero(parts.sizes == 0)]
    if not empty:
        return ""
    named = ", ".join(empty[:20]) + (f" and {len(empty) - 20:,} more" if len(empty) > 20 else "")
    return f"{len(empty):,} of {parts.sites:,} sites have no data and are never drawn: {named}"
