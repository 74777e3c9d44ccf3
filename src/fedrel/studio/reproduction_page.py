"""The page of a reproduced table: ours beside the paper's numbers, and which of the paper's orderings hold.

Everything on it comes from `reproduction.json`, but for what `reading.md` says, which is written by hand: its first
paragraph is what to read out of the numbers, at the top; what follows it are notes, at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from pathlib import Path

from fedrel.errors import UserError
from fedrel.evaluation.bootstrap import Interval
from fedrel.files import write_text
from fedrel.runs.folder import read_json
from fedrel.runs.records import Trial, last_of_each
from fedrel.runs.reproduction_record import (
    Cell,
    ColumnNote,
    Difference,
    Ordering,
    Reproduction,
    Verdict,
    first_of_each,
)
from fedrel.runs.sweep import DIVERGED
from fedrel.studio.formatting import NOTHING, Spread, duration, label, markdown_table, median, several
from fedrel.studio.svg import write_svg
from fedrel.studio.tables import ENOUGH

NOT_CONVERGED = "†"
CURVES = "curves.svg"

# By the place that a verdict has in the table; what is said of several.
_VERDICTS: dict[Verdict, str] = {
    "fails": "fail",
    "cannot be told": "cannot be told",
    "holds": "hold",
    "diverged": "diverged",
    "not run": "have not been run",
}
_SHOWN = 40  # orderings; of more, the first of them by verdict


def write_page(folder: Path) -> Path:
    """Write `README.md` and the curves of a folder that has a `reproduction.json`."""
    found: Reproduction = read_json(Reproduction, folder / "reproduction.json")
    reading = folder / "reading.md"
    if any(cell.runs for cell in found.cells):
        draw(found, folder / CURVES)
    page = folder / "README.md"
    try:
        read = reading.read_text(encoding="utf-8") if reading.exists() else ""
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8: {error}", file=reading, hint="save it as UTF-8") from error
    write_text(page, page_text(found, read))
    return page


def page_text(found: Reproduction, reading: str = "") -> str:
    """The page as Markdown."""
    read, _, notes = reading.strip().partition("\n\n")
    parts = [
        f"# {found.name}: {found.about}",
        found.title + ".",
        read,
        _about_columns(found),
        _table(found),
        _notes(found),
        "## Orderings" if found.orderings else "",
        _verdicts(found),
        _orderings(found),
        _differences(found),
        f"## Curves\n\n![{_drawn(found)}]({CURVES})" if found.dev_metric else "",
        f"## Notes\n\n{notes}" if notes else "",
        _how(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def counted(verdicts: Iterable[Verdict]) -> list[str]:
    """How many of each verdict there are, in words: "3 hold", "1 fails"."""
    counts = Counter(verdicts)
    return [
        f"{counts[verdict]} {plural if counts[verdict] > 1 else verdict}"
        for verdict, plural in _VERDICTS.items()
        if counts[verdict]
    ]


def _about_columns(found: Reproduction) -> str:
    return "\n".join(f"- **{column.name}**{_about_column(found, column)}" for column in found.asked)


def _about_column(found: Reproduction, column: ColumnNote) -> str:
    if column.missing:
        return f" was not run: {column.missing} (preset `{column.preset}`)."
    settings = "".join(f", `{key} = {value}`" for key, value in column.set.items())
    stand_in = "not the paper's corpus but what is at hand, " if column.instead else ""
    said = f": {stand_in}preset `{column.preset}`{settings}."
    if column.paper_metric:
        said += f" The paper's numbers are {label(column.paper_metric)}, ours {label(column.metric)}."
    if column.target is not None:
        said += f" The paper's numbers are rounds to {found.target:g}, ours to {column.target:g}."
    return said


def _table(found: Reproduction) -> str:
    """A row a method; ours with its spread over seeds, the paper's number in brackets."""
    cells = {(cell.row, cell.column): cell for cell in found.cells}
    rows = [
        [row, *(_cell_text(found, cells.get((row, column.name))) for column in found.asked)]
        for row in found.rows
    ]
    return markdown_table(["", *(column.name for column in found.asked)], rows)


def _cell_text(found: Reproduction, cell: Cell | None) -> str:
    if cell is None:
        return ""
    number = partial(_number, small=3 if found.target is None else 1)  # rounds to a target are whole
    paper = f" [{number(cell.paper)}]" if cell.paper is not None else ""
    values = _values(found, cell)
    spread = Spread.of(values)
    fewer = f", n = {len(values)}" if 0 < len(values) < len(_seeds(found)) else ""
    diverged = f", {len(cell.diverged)} diverged" if cell.diverged else ""
    if spread is None:
        return (NOTHING if not cell.runs else "never") + fewer + diverged + paper
    late = sum(not run.converged for run in cell.runs)
    mark = f" {NOT_CONVERGED}{late}/{len(cell.runs)}" if late and len(cell.runs) > 1 else NOT_CONVERGED * late
    middle = _median(found, cell)
    half = f", median {number(middle)}" if middle is not None else ""
    rest = spread.after_mean(partial(number, beside=spread.mean), len(values), mark=mark)
    return f"{number(spread.mean)}{rest}{half}{fewer}{diverged}{paper}"


def _values(found: Reproduction, cell: Cell) -> list[float | None]:
    return [None if run.value is None else run.value * found.scale for run in cell.runs]


def _median(found: Reproduction, cell: Cell) -> float | None:
    """The median that a cell shows, if it does."""
    return median(_values(found, cell)) if len(cell.runs) >= ENOUGH else None


def _seeds(found: Reproduction) -> list[int]:
    """The seeds of the page; a cell with fewer of them says so."""
    return sorted({run.seed for cell in found.cells for run in cell.runs})


def _number(value: float, beside: float | None = None, *, small: int = 3) -> str:
    """With as many digits as the number that it stands beside; `small` of them behind the point below two."""
    size = abs(value if beside is None else beside)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 2 else f"{value:.{small}f}"


def _notes(found: Reproduction) -> str:
    seeds = _seeds(found)
    if not seeds:
        return "Nothing has been run yet."
    metrics = several(sorted({label(column.metric) for column in found.asked if not column.missing}))
    medians = any(_median(found, cell) is not None for cell in found.cells)
    fewer = any(0 < len(cell.runs) < len(seeds) for cell in found.cells)
    beside = "; in brackets the paper's number" if any(cell.paper is not None for cell in found.cells) else ""
    over = f"mean ± standard deviation over seeds {several(seeds)}" if len(seeds) > 1 else f"seed {seeds[0]}"
    said = [
        f"{metrics}, {over}"
        f"{' (fewer where a cell gives n)' if fewer else ''}"
        f"{', and their median' if medians else ''}{beside}."
    ]
    if any(not run.converged for cell in found.cells for run in cell.runs):
        said.append(
            f"{NOT_CONVERGED} The best round is in the run's last tenth, so that more rounds might help "
            f"({NOT_CONVERGED}2/5: in two runs of five)."
        )
    return " ".join(said)


def _verdicts(found: Reproduction) -> str:
    if not found.orderings:
        return ""
    counts = several(counted(one.verdict for one in found.orderings))
    return (
        f"Of {len(found.orderings)} pairs that the paper orders: {counts}. "
        "An ordering holds, or fails, if the 95 % interval of our difference (paired bootstrap over test units and "
        "the seeds that both have, of rounds over seeds alone; bytes are counted and have none) lies on one side "
        "of zero. Intervals are not widened for the number of pairs."
    ) + _few_seeds(found, found.orderings)


def _few_seeds(found: Reproduction, shown: Sequence[Ordering] | Sequence[Difference]) -> str:
    """What to beware of where rows are told apart over so few seeds; nothing from five on, or of counted bytes."""
    estimated = [
        one
        for one in shown
        if (isinstance(one, Difference) and one.metric) or found.column(one.column).metric != "bytes"
    ]
    told = {one.seeds for one in estimated if one.ours is not None and one.ours.sign}
    if 1 in told:
        return " **Over one seed they say what holds for that run, not for the method.**"
    if 2 in told:
        return " **Over two seeds they say what holds for those runs, and little of the method.**"
    if {3, 4} & told:
        return (
            " **Over three or four seeds intervals are too narrow: they tell equal methods apart too often.**"
        )
    return ""


def _orderings(found: Reproduction) -> str:
    if not found.orderings:
        return ""
    rank = list(_VERDICTS)
    shown = sorted(found.orderings, key=lambda one: rank.index(one.verdict))[:_SHOWN]
    rows = [
        [
            one.column,
            f"{one.better} ahead of {one.worse}",
            f"{one.paper:+.3g}",
            NOTHING if one.ours is None else _interval(one.ours, found.scale),
            str(one.seeds),
            one.verdict,
        ]
        for one in shown
    ]
    head = ["column", "the paper's order", "its difference", "ours", "seeds", ""]
    table = markdown_table(head, rows, "|---|---|---:|---:|---:|---|")
    more = len(found.orderings) - len(shown)
    return table + (f"\n\n({more} more are in `reproduction.json`.)" if more else "")


def _differences(found: Reproduction) -> str:
    if not found.differences:
        return ""
    rows = [
        [
            one.column,
            f"{one.row} \N{MINUS SIGN} {one.other}" + (f", {label(one.metric)}" if one.metric else ""),
            _interval(one.ours, found.scale),
            str(one.seeds),
        ]
        for one in found.differences
    ]
    return (
        "## Further differences\n\n"
        "Beside the paper's orderings, with 95 % intervals (paired bootstrap over test units and seeds)."
        f"{_few_seeds(found, found.differences)}\n\n"
    ) + markdown_table(["column", "difference", "ours", "seeds"], rows, "|---|---|---:|---:|")


def _interval(value: Interval, scale: float) -> str:
    # what is left of a difference of equal means in floating point is nothing, and has no sign
    mean, low, high = (round(number * scale, 9) + 0.0 for number in (value.mean, value.low, value.high))
    return f"{mean:+.3g}" + (f" [{low:+.3g}, {high:+.3g}]" if low < high else "")


def _how(found: Reproduction) -> str:
    """Command, settings, time, commit, precision and versions."""
    lines = ["## How", "", "```sh", found.command, "```", ""]
    searched = {(cell.row, found.column(cell.column).preset): cell for cell in found.cells if cell.settings}
    several_presets = len({preset for _, preset in searched}) > 1
    for (row, preset), cell in searched.items():
        settings = ", ".join(f"`{key} = {value}`" for key, value in cell.settings.items())
        points = prod(len(values) for values in cell.grid.values())
        among = f" from {points} combinations" if points > 1 else ""
        where = f" with `{preset}`" if several_presets else ""
        lines.append(f"- {row}{where}: {settings}, chosen on dev{among}")
        if cell.trials:
            lines.append(f"  - tried: {'; '.join(map(_tried, last_of_each(cell.trials)))}")
    if runs := found.runs:
        lines.append(f"- {len(runs)} runs, {duration(sum(run.seconds for run in runs))} of training in all")
    made = []
    for one in found.environments:
        versions = ", ".join(
            f"{name} {version}" for name, version in one.versions.items() if version != "not installed"
        )
        precision = f", {one.precision}" if one.precision else ""
        commit = (one.commit or "unknown").replace("+", " with changes")
        made.append(f"- commit {commit}, {one.platform}{precision}; {versions}")
    return "\n".join([*lines, *dict.fromkeys(made)])  # columns with other data have the same versions


def _tried(one: Trial) -> str:
    """A combination of settings and what it had on dev."""
    settings = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in one.settings.items())
    return f"{settings}: {'diverged' if one.dev == DIVERGED else f'{one.dev:.3f}'} by round {one.rounds}"


def _drawn(found: Reproduction) -> str:
    """What the curves are."""
    return (
        "precision by recall on the test set"
        if _ranked(found)
        else f"{label(found.dev_metric)} on the development set by round"
    )


def _ranked(found: Reproduction) -> bool:
    """Whether precision by recall is drawn."""
    return any(run.precision for cell in found.cells for run in cell.runs)


def draw(found: Reproduction, path: Path) -> None:
    """A panel a column, a colour a row, a line a seed: the dev metric by round, or precision by recall."""
    from matplotlib.figure import Figure

    columns = first_of_each([column for column in found.asked if not column.missing])
    key_of = {column.name: column.runs_key for column in found.columns}
    across = min(len(columns), 3)
    down = -(-len(columns) // across)
    figure = Figure(figsize=(4.2 * across, 3.2 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    across_name, up_name = (
        ("recall", "precision") if _ranked(found) else ("round", f"{label(found.dev_metric)} on dev")
    )
    for axis, column in zip(axes, columns, strict=False):
        for number, row in enumerate(found.rows):
            same = [
                run
                for one in found.cells
                if (one.row, key_of[one.column]) == (row, column.runs_key)
                for run in one.runs
            ]
            lines: list[Sequence[tuple[float, float]]] = [run.precision or run.dev for run in same]
            for place, points in enumerate(line for line in lines if line):
                x, y = zip(*points, strict=True)
                axis.plot(x, y, color=f"C{number}", lw=1.2, alpha=0.8, label=row if place == 0 else None)
        axis.set(title=column.name, xlabel=across_name, ylabel=up_name)
        axis.grid(alpha=0.3)
    for axis in axes[len(columns) :]:
        axis.remove()
    known = {
        name: handle
        for axis in axes[: len(columns)]
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    names = [row for row in found.rows if row in known]
    figure.legend(
        [known[row] for row in names],
        names,
        loc="outside lower center",
        ncols=min(len(names), 3 * across) or 1,
        frameon=False,
    )
    write_svg(figure, path, found.name)
