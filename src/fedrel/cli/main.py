"""The `fedrel` command. Heavy things are imported inside the commands, so that help answers at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedrel.cli.federation import add_to
from fedrel.errors import UserError

if TYPE_CHECKING:
    from fedrel.config.schema import Config


app = typer.Typer(
    help="Relation extraction across institutions that may not share text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

INTERRUPTED = 130  # what typer makes of Ctrl-C

ConfigArgument = Annotated[str, typer.Argument(metavar="CONFIG", help="A TOML file, or a preset's name.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a config value; may be repeated.")
]
Methods = Annotated[str, typer.Option("--methods", help="Methods, separated by commas.")]


def main() -> None:
    """Run the command; a user's mistake ends with its message and exit code 2, Ctrl-C with 130."""
    try:
        code = app(standalone_mode=False)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    if code == INTERRUPTED:
        print(
            "stopped; every whole round is kept. Go on with the same command (run: with --resume)",
            file=sys.stderr,
        )
    sys.exit(code)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put the runs.")] = Path("runs/demo"),
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody writes to it
) -> None:
    """Train six denoising methods on the built-in world, compare them, and find new facts."""
    from fedrel.cli.demo import demo as show

    show(out, settings)


@app.command()
def run(
    config: ConfigArgument,
    settings: Settings = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(help="The run folder; default: runs/CONFIG-METHOD-seed-N.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    engine: Annotated[
        str, typer.Option(metavar="KIND", help="local, workers, flower-simulation or flower.")
    ] = "",
) -> None:
    """Train one method and write a run folder."""
    from fedrel.api import run as train
    from fedrel.cli.progress import console, watching

    chosen = _config(config, [*settings, *([f'engine.kind="{engine}"'] if engine else [])])
    folder = out or Path("runs") / f"{Path(config).stem}-{chosen.method}-seed-{chosen.seed}"
    with watching() as watch:
        result = train(chosen, folder, resume=resume, watch=watch)
    for name, value in result.metrics.items():
        console.print(f"{name:10} {value:.4f}")
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


@app.command()
def compare(
    config: ConfigArgument,
    methods: Methods,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, counted from the config's.")] = 1,
    settings: Settings = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="The folder; default: runs/CONFIG.")] = None,
    best: Annotated[
        Path | None, typer.Option(help="A sweep's folder: take each method's best settings from there.")
    ] = None,
) -> None:
    """Train several methods and seeds and compare them; run again, it goes on where it stopped."""
    from fedrel.api import compare as train_all
    from fedrel.cli.progress import console, watching
    from fedrel.runs.compare import best_of
    from fedrel.studio.tables import comparison_table

    chosen = _config(config, settings)
    folder = out or Path("runs") / Path(config).stem
    with watching() as watch:
        found = train_all(
            chosen, _names(methods), folder, seeds=seeds, best=best_of(best) if best else None, watch=watch
        )
    console.print(comparison_table(found.rows))
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


@app.command()
def sweep(
    config: ConfigArgument,
    grid: Annotated[
        list[str], typer.Option("--grid", metavar="KEY=V1,V2", help="Values to try; may be repeated.")
    ] = [],  # noqa: B006
    methods: Annotated[str, typer.Option("--methods", help="Methods; default: the config's.")] = "",
    settings: Settings = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="The folder; default: runs/CONFIG-sweep.")] = None,
) -> None:
    """Search a grid of settings for the best dev metric; run again, it goes on where it stopped."""
    from fedrel.cli.progress import console, watching
    from fedrel.config.check import parse_value
    from fedrel.runs.compare import sweep as search
    from fedrel.studio.report import write_run_report

    chosen = _config(config, settings)
    values: dict[str, list[Any]] = dict(chosen.sweep)
    for setting in grid:
        key, _, listed = setting.partition("=")
        parsed = parse_value(f"[{listed}]")
        if not isinstance(parsed, list):
            raise UserError(f"cannot read the grid {setting!r}", hint="write it as key=0.05,0.1")
        values[key] = parsed
    folder = out or Path("runs") / f"{Path(config).stem}-sweep"
    with watching() as watch:
        found = search(
            chosen, folder, values, _names(methods) or [chosen.method], watch=watch, report=write_run_report
        )
    for method, settings_found in found.best.items():
        console.print(f"{method}: {', '.join(f'{key}={value}' for key, value in settings_found.items())}")
    console.print(f"use them: fedrel compare {config} --methods … --best {folder}", soft_wrap=True)


@app.command()
def align(
    texts: Annotated[list[Path], typer.Argument(help="Raw text files.")],
    kb: Annotated[
        Path,
        typer.Option(
            help="TSV: head id, head names, relation, tail id, tail names; types, if any, in two more."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The JSON lines to write.")],
    na_rate: Annotated[float, typer.Option(min=0, max=1, help="Share of unrelated pairs kept as NA.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Chooses which unrelated pairs are kept.")] = 0,
) -> None:
    """Label raw text with a knowledge base: distant supervision."""
    from fedrel.cli.progress import console, counting
    from fedrel.data.align import align as label
    from fedrel.data.align import write_jsonl
    from fedrel.data.kb import read_kb

    with counting("aligning") as count:
        written = write_jsonl(count(label(texts, read_kb(kb), na_rate=na_rate, seed=seed)), out)
    console.print(f"{written:,} instances in {out}", soft_wrap=True)


@app.command()
def partition(
    config: ConfigArgument,
    settings: Settings = [],  # noqa: B006
    plot: Annotated[Path, typer.Option(help="Where to draw it.")] = Path("partition.png"),
) -> None:
    """Show what each site would hold: a table, and a plot of relations, or of documents' entropies, by site."""
    from fedrel.cli.progress import about_empty, console, partition_table
    from fedrel.data.load import dataset
    from fedrel.data.partition import divide
    from fedrel.studio.partition_plots import partition_plot, plot_entropy

    chosen = _config(config, settings)
    data = dataset(chosen.data)
    parts = divide(chosen.partition, data.corpus, data.train, chosen.seed)
    counts, relations = parts.label_counts(data.corpus), list(data.corpus.relations)
    console.print(partition_table(parts, counts, relations, data.corpus.unit))
    if empty := about_empty(parts):
        console.print(empty, style="yellow", markup=False)
    if chosen.partition.kind == "entropy":
        plot_entropy(chosen.partition, parts, data.corpus, plot)
    else:
        partition_plot(counts, relations, parts.names, plot)
    console.print(f"plot: {plot}", soft_wrap=True)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model folder, as a run leaves it.")],
    texts: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT",
            help="JSON lines with h and t, or raw text; for a model of documents, PubTator or DocRED's JSON.",
        ),
    ],
    kb: Annotated[Path | None, typer.Option(help="For raw text: a KB whose names to look for.")] = None,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="The least probability to report.")] = 0.5,
    out: Annotated[Path | None, typer.Option(help="Write JSON lines here instead of the terminal.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Of documents: a page (HTML) with what was found, marked in the text.")
    ] = None,
) -> None:
    """Extract relations from new text. Sentences about the same pair are pooled; documents are read one by one."""
    from fedrel.inference.predict import write_predictions

    write_predictions(model, texts, kb, threshold, out, report)


@app.command()
def presets() -> None:
    """List the experiments that come with fedrel."""
    from rich.console import Console

    from fedrel.config.presets import presets as known

    width = max(map(len, known()), default=0)
    for name, about in known().items():
        Console().print(f"{name:{width}}  {about}", markup=False, highlight=False, soft_wrap=True)


add_to(app)


def _config(name: str, settings: Sequence[str]) -> Config:
    from fedrel.config.load import load_config

    return load_config(name, settings)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
