"""`fedrel reproduce`: list the papers' tables and figures, or run one and write its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrel.cli.options import AsJson, Quiet, print_json
from fedrel.errors import UserError

if TYPE_CHECKING:
    from fedrel.runs.reproduce import Plan, Reproduction

_UNITS = {"s": 1, "m": 60, "h": 3600}


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="As feded/table3; without it, all are listed.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, counted from the preset's.")] = 3,
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this column; may be repeated.")
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Stop after this long, as 90m or 2h; run again to go on.")
    ] = "",
    search: Annotated[
        bool, typer.Option(help="Search each method's settings on dev first, where the paper did.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="The page's folder; default: results/PAPER-TABLE.")] = None,
    runs: Annotated[Path, typer.Option(help="Where the runs are kept.")] = Path("runs/reproduce"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a table or figure of a paper, and put our numbers beside the paper's; run again, it goes on."""
    if not name:
        _list(seeds, runs, as_json=as_json)
        return
    from fedrel.cli.progress import console, watching
    from fedrel.runs.reproduce import reproduce as carry_out
    from fedrel.studio.reproduction_page import write_page

    folder = out or _page_folder(name)
    seconds = _seconds(budget) if budget else None
    with watching(quiet=quiet, as_json=as_json) as watch:
        found = carry_out(
            name, folder, runs, seeds=seeds, only=column or [], budget=seconds, search=search, watch=watch
        )
    page = write_page(folder)
    if as_json:
        print_json(found)
        return
    console.print(_summary(found), soft_wrap=True)
    console.print(f"page: {page}", soft_wrap=True)


def _page_folder(name: str) -> Path:
    return Path("results") / name.replace("/", "-")


def _summary(found: Reproduction) -> str:
    here = {column.name for column in found.asked if not column.missing}
    wanted = sum(cell.column in here for cell in found.cells) * found.seeds
    done = sum(len(cell.runs) for cell in found.cells)
    verdicts = [one.verdict for one in found.orderings if one.ours is not None]
    told = ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts))
    lines = [
        f"{done} of {wanted} runs are finished"
        + ("" if done == wanted else "; run the command again to go on")
    ]
    lines += [f"{one.name}: {one.missing}" for one in found.asked if one.missing]
    return "\n".join([*lines, f"orderings of the paper: {told}"] if told else lines)


def _list(seeds: int, runs: Path, *, as_json: bool) -> None:
    from rich.table import Table

    from fedrel.cli.progress import console
    from fedrel.config.papers import papers
    from fedrel.runs.reproduce import Plan

    names = [f"{paper}/{exhibit}" for paper, facts in papers().items() for exhibit in facts.exhibits]
    found = [_about(Plan(name, _page_folder(name), runs, seeds)) for name in names]
    if as_json:
        print_json(found)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("table", "what", "data", "runs", "left"):
        table.add_column(name, no_wrap=name == "table")
    for one in found:
        table.add_row(one["name"], one["about"], one["data"], f"{one['done']} of {one['runs']}", one["left"])
    console.print(table)
    console.print(f"Run one: fedrel reproduce {found[0]['name']} --budget 2h", soft_wrap=True)


def _about(plan: Plan) -> dict[str, Any]:
    """An exhibit in the list: what can be run here, what is finished, and how long the rest takes."""
    from fedrel.studio.formatting import duration

    jobs = list(plan.jobs(plan.chosen()))
    done = [run for run in map(plan.finished, jobs) if run is not None]
    missing = [column for column in plan.columns if column.missing]
    if len(missing) == len(plan.columns):
        data = "missing"
    elif any(column.instead for column in plan.columns):
        data = "in part"
    else:
        data = "some" if missing else "at hand"
    left = "nothing" if len(done) == len(jobs) else "not known before a run"
    if done and len(done) < len(jobs):
        mean = sum(run.result.seconds for run in done) / len(done)
        left = f"about {duration(mean * (len(jobs) - len(done)))}"
    return {
        "name": plan.name,
        "about": plan.exhibit.about,
        "data": data,
        "runs": len(jobs),
        "done": len(done),
        "left": left if jobs else "—",
    }


def _seconds(text: str) -> float:
    if (found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())) is None:
        raise UserError(f"cannot read the time {text!r}", hint="write it as 30s, 90m or 2h")
    return float(found[1]) * _UNITS[found[2]]
