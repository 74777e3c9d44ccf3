"""The commands that train many runs and write a table as a page: `attack`, `leak`, `privacy` and `reproduce`.

The first three say what lies and noise cost, and what leaks, on a config of your own. `reproduce` lists the papers'
tables and figures, or runs one.
"""

from __future__ import annotations

import math
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrel.cli.options import (
    AsJson,
    ConfigArgument,
    Plugins,
    Quiet,
    Settings,
    names,
    print_json,
    read_config,
)
from fedrel.errors import UserError

if TYPE_CHECKING:
    from fedrel.runs.exhibits import ListedExhibit
    from fedrel.runs.reproduction_record import Reproduction


RESULTS = Path("results")

_ALL = "all"

_UNITS = {"s": 1, "m": 60, "h": 3600}


def attack(
    config: ConfigArgument,
    attackers: Annotated[str, typer.Option(help="How many sites lie, separated by commas.")] = "1,4,8,12",
    attacks: Annotated[str, typer.Option(help="Attacks, separated by commas; default: all.")] = _ALL,
    defences: Annotated[
        str, typer.Option(help="Defences, separated by commas; default: all that fit the config.")
    ] = _ALL,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody writes to it
    out: Annotated[Path | None, typer.Option(help="The folder; default: runs/CONFIG-attacks.")] = None,
    plugins: Plugins = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train with lying sites and without, under several defences; run again, it goes on where it stopped."""
    from fedrel.cli.progress import console, saying
    from fedrel.federation.engines.attacks import ATTACKS
    from fedrel.runs.attack_table import DEFENCES, attack_table, fitting
    from fedrel.studio.protection_pages import write_attack_page

    chosen = read_config(config, settings, plugins)
    folder = out or Path("runs") / f"{Path(config).stem}-attacks"

    table = attack_table(
        chosen,
        folder,
        list(ATTACKS) if attacks == _ALL else names(attacks),
        _counts(attackers, chosen.partition.sites),
        fitting(chosen) if defences == _ALL else names(defences),
        saying(quiet=quiet, as_json=as_json),
    )
    page = write_attack_page(folder, table, {name: one.about for name, one in DEFENCES.items()})
    if as_json:
        print_json(table)
    else:
        console.print(f"table: {page}", soft_wrap=True)


def _counts(given: str, sites: int) -> list[int]:
    counts = [int(one) if one.isdecimal() else -1 for one in names(given)]
    if any(not 0 <= count < sites for count in counts):
        raise UserError(
            f"--attackers {given}: expected numbers from 0 to {sites - 1}, as there are {sites} sites",
            hint="write them as --attackers 1,4,8",
        )
    return sorted(set(counts))


def leak(
    config: ConfigArgument,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; default: the config's own.")
    ] = "",
    defences: Annotated[
        str, typer.Option(help="Defences, separated by commas; default: all that fit the config.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds to train and attack.")] = 10,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody writes to it
    out: Annotated[Path | None, typer.Option(help="The folder; default: runs/CONFIG-leaks.")] = None,
    plugins: Plugins = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Attack what crosses in some rounds, under several defences; run again, it goes on where it stopped."""
    from fedrel.cli.progress import console, saying
    from fedrel.leaks.leak_defences import fitting
    from fedrel.leaks.leak_table import leak_table
    from fedrel.studio.protection_pages import write_leak_pages

    chosen = read_config(config, settings, plugins)
    folder = out or Path("runs") / f"{Path(config).stem}-leaks"
    cells = leak_table(
        chosen,
        folder,
        names(methods) or [chosen.method],
        names(defences) or fitting(chosen),
        rounds,
        saying(quiet=quiet, as_json=as_json),
    )
    page = write_leak_pages(folder)
    if as_json:
        print_json(cells)
    else:
        console.print(f"page: {page}", soft_wrap=True)


def privacy(
    config: ConfigArgument,
    epsilons: Annotated[
        str, typer.Option(help="The values of ε, separated by commas; inf: without noise.")
    ] = "0.5,1,2,4,8,inf",
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas; default: the config's.")] = "",
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody writes to it
    out: Annotated[Path | None, typer.Option(help="The folder; default: runs/CONFIG-privacy.")] = None,
    plugins: Plugins = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train with the noise that each ε takes, and without: the metric against ε. Run again, it goes on."""
    from fedrel.cli.progress import console, watching
    from fedrel.runs.privacy_table import privacy_table
    from fedrel.studio.protection_pages import write_privacy_page

    chosen = read_config(config, settings, plugins)
    folder = out or Path("runs") / f"{Path(config).stem}-privacy"

    numbers = [int(one) if one.isdecimal() else -1 for one in names(seeds)] if seeds else [chosen.seed]
    if min(numbers) < 0:
        raise UserError(f"--seeds {seeds}: expected whole numbers", hint="write them as --seeds 1,2,3")
    with watching(quiet=quiet, as_json=as_json) as watch:
        table = privacy_table(chosen, folder, _targets(epsilons), numbers, watch)
    page = write_privacy_page(folder, table)
    if as_json:
        print_json(table)
    else:
        console.print(f"table: {page}", soft_wrap=True)


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="As feded/table3; without it, all are listed.")
    ] = "",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many seeds, counted from the preset's; default: those of the page, or 3."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Train only this column, which brings those of the same runs; may be repeated.",
        ),
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Train only this row; may be repeated.")
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Begin no round after this long, as 90m or 2h; run again to go on."
        ),
    ] = "",
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes that share the runs, each with its part of the cores.")
    ] = 1,
    search: Annotated[
        bool, typer.Option(help="Search each method's settings on dev first, where the paper did.")
    ] = True,
    settings: Settings = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="The page's folder; default: results/PAPER-TABLE.")] = None,
    runs: Annotated[Path, typer.Option(help="Where the runs are kept.")] = Path("runs/reproduce"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a table or figure of a paper, and put our numbers beside the paper's; run again, it goes on."""
    if not name:
        _list(seeds, runs, as_json=as_json)
        return
    from fedrel.cli.progress import console, saying, watching
    from fedrel.cli.shared_runs import run_in_processes
    from fedrel.runs.plan import page_folder
    from fedrel.runs.reproduce import reproduce as carry_out
    from fedrel.studio.reproduction_page import write_page

    if settings and not out:
        raise UserError("with --set it is another table than the page has", hint="give it a folder by --out")
    folder = out or RESULTS / page_folder(name)
    seconds = _seconds(budget) if budget else None
    asked = partial(
        carry_out,
        name,
        folder,
        runs,
        seeds=seeds,
        only=column or [],
        rows=row or [],
        search=search,
        settings=settings,
    )
    if jobs > 1:
        asked(budget=0.0)  # says once what is wrong with the command
        say = saying(quiet=quiet, as_json=as_json)
        given = sys.argv[1:]
        end = given.index("--") if "--" in given else len(given)
        code = run_in_processes(jobs, [*given[:end], "--jobs", "1", "--json", *given[end:]], say)
        if code:
            raise typer.Exit(code)
        if budget:
            seconds = 0.0  # the processes have used the time
    with watching(quiet=quiet, as_json=as_json) as watch:
        found = asked(budget=seconds, watch=watch)
    page = write_page(folder)
    if as_json:
        print_json(found)
        return
    console.print(_summary(found), soft_wrap=True)
    console.print(f"page: {page}", soft_wrap=True)


def _targets(given: str) -> list[float | None]:
    """The numbers; None for inf."""
    try:
        numbers = [float(one) for one in names(given)]
    except ValueError:
        numbers = [-1.0]
    if not all(number > 0 for number in numbers):
        raise UserError(
            f"--epsilons {given}: expected numbers above 0", hint="write them as --epsilons 0.5,1,inf"
        )
    return [None if math.isinf(number) else number for number in numbers]


def _summary(found: Reproduction) -> str:
    from fedrel.studio.reproduction_page import counted

    here = {column.name: column.runs_key for column in found.asked if not column.missing}
    cells = {(cell.row, here[cell.column]): cell for cell in found.cells if cell.column in here}
    wanted, done = len(cells) * found.seeds, len(found.runs)
    verdicts = [one.verdict for one in found.orderings if one.ours is not None]
    told = ", ".join(counted(verdicts))
    diverged = sum(len(cell.diverged) for cell in cells.values())
    lines = [
        f"{done} of {wanted} runs are finished"
        + (f", {diverged} diverged" if diverged else "")
        + ("" if done + diverged == wanted else "; run the command again to go on")
    ]
    lines += [f"{one.name}: {one.missing}" for one in found.asked if one.missing]
    return "\n".join([*lines, f"orderings of the paper: {told}"] if told else lines)


def _list(seeds: int | None, runs: Path, *, as_json: bool) -> None:
    from fedrel.cli.progress import console
    from fedrel.runs.exhibits import listed_exhibits

    found = listed_exhibits(RESULTS, runs, seeds)
    if as_json:
        print_json(found)
        return
    head = ("table", "data", "runs", "time left", "hold/fail/open", "what")
    rows = [head, *map(_listed, found)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if console.is_terminal and len(line) > console.width:
            line = f"{line[: console.width - 1]}…"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(
        "(data: `some`: of some columns only; `in part`: another corpus stands in; orderings: how many of the "
        "paper's hold, fail, or cannot be told from the runs of the page)",
        soft_wrap=True,
    )
    for corpus in dict.fromkeys(corpus for one in found for corpus in one.missing):
        console.print(f"not at hand: {corpus}", soft_wrap=True)
    unknown = next((one.name for one in found if one.unknown and one.runs), None)
    if unknown is not None:
        console.print(
            f"To know how long one takes, train a little: fedrel reproduce {unknown} --budget 2m",
            soft_wrap=True,
        )
    console.print(f"Run one: fedrel reproduce {found[0].name} --budget 2h", soft_wrap=True)


def _listed(one: ListedExhibit) -> tuple[str, ...]:
    """The cells of an exhibit in the list."""
    from fedrel.studio.formatting import duration

    left = "not known" if one.done < one.runs else "nothing" if one.runs else "—"
    if one.done < one.runs and one.seconds_left is not None:
        left = f"{'more than' if one.unknown else 'about'} {duration(one.seconds_left)}"
    told = [one.orderings.get(verdict, 0) for verdict in ("holds", "fails", "cannot be told")]
    verdicts = "/".join(map(str, told)) if any(told) else "—"
    folds = f", {one.seeds} of {one.folds} folds" if one.seeds < one.folds and one.runs else ""
    return one.name, one.data, f"{one.done} of {one.runs}{folds}", left, verdicts, one.about


def _seconds(text: str) -> float:
    if (found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())) is None:
        raise UserError(f"cannot read the time {text!r}", hint="write it as 30s, 90m or 2h")
    return float(found[1]) * _UNITS[found[2]]
