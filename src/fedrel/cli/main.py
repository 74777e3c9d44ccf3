"""The `fedrel` command. Heavy modules are imported inside the commands, so that `--help` is quick."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache, partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated

import click
import typer

from fedrel.cli import data_commands, federation, show
from fedrel.cli.options import (
    AsJson,
    ConfigArgument,
    FromRound,
    Plugins,
    Quiet,
    Settings,
    check_from,
    names,
    print_json,
    read_config,
)
from fedrel.cli.table_commands import attack, leak, privacy, reproduce
from fedrel.errors import UserError

if TYPE_CHECKING:
    from fedrel.config.schema import Config
    from fedrel.inference.model import Prediction

app = typer.Typer(
    help="Relation extraction across institutions that may not share text.",
    no_args_is_help=True,
    suggest_commands=False,  # click does
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

INTERRUPTED = 130  # what typer makes of Ctrl-C
DEMO_METHODS = ("none", "one", "ave", "att", "att-ra", "lazy-mil")
SHOWN = 3  # new facts of the demo

Methods = Annotated[str, typer.Option("--methods", help="Methods, separated by commas.")]


def main() -> None:
    """Run the command; a user's mistake ends with its message and exit code 2, Ctrl-C with 130."""
    try:
        code = _command()(standalone_mode=False)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    if code == INTERRUPTED:
        print("stopped; every finished round is kept", file=sys.stderr)
        print("hint: go on with the same command (for `run`, add --resume)", file=sys.stderr)
    sys.exit(code)


@cache
def _command() -> click.Command:
    """All commands as click has them: made once, for those who call `main` often in one process."""
    return typer.main.get_command(app)


def _version(asked: bool) -> None:
    if asked:
        import fedrel

        typer.echo(f"fedrel {fedrel.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Relation extraction across institutions that may not share text."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put the runs.")] = Path("runs/demo"),
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody writes to it
    quiet: Quiet = False,
) -> None:
    """Train six denoising methods on the built-in world, compare them, and find new facts."""
    from rich.markup import escape

    from fedrel.api import compare
    from fedrel.cli.progress import console, watching
    from fedrel.config.sources import load_config
    from fedrel.studio.tables import comparison_table

    config = load_config("demo", settings)
    with watching(quiet=quiet) as watch:
        found = compare(config, DEMO_METHODS, out, watch=watch)
    console.print(comparison_table(found.rows))
    console.print(f"report: {out / 'report.html'}\n", soft_wrap=True)
    facts = _new_facts(config, out)
    console.print(f"{len(facts)} facts in fresh text that the training KB does not have; the most probable:")
    for fact in facts[:SHOWN]:
        best = fact.sentences[0]
        sentences = "1 sentence" if len(fact.sentences) == 1 else f"{len(fact.sentences)} sentences"
        console.print(
            f"  [bold]{escape(fact.head_name)}[/] — {escape(fact.relation)} — [bold]{escape(fact.tail_name)}[/]"
            f"  ({fact.probability:.2f}, {sentences})\n    “{escape(best.text)}”"
        )


@app.command()
def run(
    config: ConfigArgument,
    settings: Settings = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(help="The run folder; default: runs/CONFIG-METHOD-seed-N.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that folder.")] = False,
    from_round: FromRound = None,
    engine: Annotated[
        str, typer.Option(metavar="KIND", help="local, workers, flower-simulation or flower.")
    ] = "",
    plugins: Plugins = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train one method and write a run folder."""
    from fedrel.api import run as train
    from fedrel.cli.progress import console, watching

    check_from(from_round, resume)
    chosen = read_config(config, settings, plugins)
    folder = out or Path("runs") / f"{Path(config).stem}-{chosen.method}-seed-{chosen.seed}"
    with watching(quiet=quiet, as_json=as_json) as watch:
        found = train(
            chosen, folder, resume=resume, from_round=from_round, engine=engine or None, watch=watch
        )
    if as_json:
        print_json(found.result)
        return
    for name, value in found.metrics.items():
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
    plugins: Plugins = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train several methods and seeds and compare them; run again, it goes on where it stopped."""
    from fedrel.api import compare as train_all
    from fedrel.cli.progress import console, watching
    from fedrel.runs.sweep import best_of
    from fedrel.studio.tables import comparison_table

    chosen, asked = read_config(config, settings, plugins), names(methods)
    folder = out or Path("runs") / Path(config).stem
    searched = best_of(best, asked) if best else None
    with watching(quiet=quiet, as_json=as_json) as watch:
        found = train_all(chosen, asked, folder, seeds=seeds, best=searched, watch=watch)
    if as_json:
        print_json({"rows": found.rows})
        return
    console.print(comparison_table(found.rows))
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


@app.command()
def sweep(
    config: ConfigArgument,
    grid: Annotated[
        list[str], typer.Option("--grid", metavar="KEY=V1,V2", help="Values to try; may be repeated.")
    ] = [],  # noqa: B006
    methods: Annotated[str, typer.Option("--methods", help="Methods; default: the config's.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, counted from the config's.")] = 1,
    halving: Annotated[
        bool, typer.Option("--halving", help="Train all a little, the better half on, and so on.")
    ] = False,
    settings: Settings = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="The folder; default: runs/CONFIG-sweep.")] = None,
    plugins: Plugins = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search a grid of settings for the best dev metric; run again, it goes on where it stopped."""
    from fedrel.cli.progress import console, watching
    from fedrel.config.check import parse_value
    from fedrel.runs.sweep import halving as halve
    from fedrel.runs.sweep import sweep as search
    from fedrel.studio.report import write_run_report
    from fedrel.studio.sweep_page import sweep_table, write_sweep_page

    chosen = read_config(config, settings, plugins)
    values = dict(chosen.sweep)
    for setting in grid:
        key, equals, listed = setting.partition("=")
        parsed = parse_value(f"[{listed}]") if equals else None
        if not isinstance(parsed, list) or not parsed:
            raise UserError(f"cannot read the grid {setting!r}", hint="write it as key=0.05,0.1")
        values[key] = parsed
    folder = out or Path("runs") / f"{Path(config).stem}-sweep"
    tried = names(methods) or [chosen.method]
    with watching(quiet=quiet, as_json=as_json) as watch:
        if halving:
            found = halve(chosen, folder, values, tried, seeds=seeds, watch=watch)
        else:
            report = partial(write_run_report, shared=folder)
            found = search(chosen, folder, values, tried, seeds=seeds, watch=watch, report=report)
    page = write_sweep_page(folder)
    if as_json:
        print_json(found)
        return
    console.print(sweep_table(found))
    console.print(f"page: {page}", soft_wrap=True)
    console.print(f"use them: fedrel compare {config} --methods … --best {folder}", soft_wrap=True)


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a run, a comparison or a sweep.")
    ],
    standalone: Annotated[
        bool, typer.Option("--standalone", help="One file that needs no other, for mailing: 5 MB larger.")
    ] = False,
) -> None:
    """Write the report of a finished run, of a comparison or of a sweep anew."""
    from fedrel.api import write_report

    typer.echo(f"report: {write_report(folder, standalone=standalone)}")


@app.command()
def align(
    texts: Annotated[list[Path], typer.Argument(help="Raw text files.")],
    kb: Annotated[
        Path,
        typer.Option(
            help="TSV: head id, head names, relation, tail id, tail names; types, if any, in two more; or names."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The JSON lines to write.")],
    na_rate: Annotated[float, typer.Option(min=0, max=1, help="Share of unrelated pairs kept as NA.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Chooses which unrelated pairs are kept.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Label raw text with a knowledge base: distant supervision."""
    from fedrel.cli.progress import console, counting
    from fedrel.data.align import align as label
    from fedrel.data.align import read_kb, why_nothing, write_jsonl

    known, counts = read_kb(kb), Counter[str]()
    with counting("aligning", quiet=quiet) as count:
        written = write_jsonl(count(label(texts, known, na_rate=na_rate, seed=seed, counts=counts)), out)
    console.print(f"{written:,} instances in {out}", soft_wrap=True)
    if not written:
        console.print(why_nothing(known, counts), style="yellow", markup=False, soft_wrap=True)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a run, or of its model.")],
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files, folders, patterns, or - for standard input: JSON lines with h and t, sentences with <e1>"
            " and <e2>, PubTator, DocRED's JSON, or raw text.",
        ),
    ],
    kb: Annotated[Path | None, typer.Option(help="For raw text: a KB whose names to look for.")] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="The least probability to report; default: the model's, tuned on dev."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write JSON lines here instead of the terminal.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page (HTML) with what was found, marked in the text.")
    ] = None,
    plugins: Plugins = [],  # noqa: B006
    quiet: Quiet = False,
) -> None:
    """Extract relations from new text. Sentences about the same pair are pooled; documents are read one by one."""
    from fedrel.cli.progress import counting
    from fedrel.config.plugins import load_files
    from fedrel.inference.predict import predict as find
    from fedrel.studio.report import write_findings_report

    load_files(plugins)
    with counting("reading", quiet=quiet) as count:
        found = find(model, texts, kb=kb, threshold=threshold, count=count)
    if report is not None:
        write_findings_report(report, **found.for_report(texts))
    found.write(out)
    typer.echo(found.summary(out), err=True)


app.command()(reproduce)
app.command()(attack)
app.command()(leak)
app.command()(privacy)
app.command()(show.studio)
show.add_to(app)
data_commands.add_to(app)
federation.add_to(app)


def _new_facts(config: Config, out: Path) -> list[Prediction]:
    """What the model finds in the test part's documents and the training knowledge base does not have."""
    from fedrel.data.align import KnowledgeBase, align
    from fedrel.data.load import world_config
    from fedrel.data.world import World
    from fedrel.extractors.saved import open_saved
    from fedrel.inference.model import Model

    assert config.data.corpus == "world"
    world = World(world_config(config.data))
    texts = out / "fresh-text"
    rmtree(texts, ignore_errors=True)
    world.documents(texts, split="test")
    known = KnowledgeBase()
    for head, relation, tail in world.facts("train"):
        known.add(head.id, list(head.names), relation, tail.id, list(tail.names))
    dictionary = KnowledgeBase()  # names to look for, with nothing said about them
    for split in ("train", "test"):
        for head, _, tail in world.facts(split):
            dictionary.add(head.id, list(head.names), "NA", tail.id, list(tail.names))
    model = Model(open_saved(out / "lazy-mil" / f"seed-{config.seed}" / "model"))
    found = model.predict(align(sorted(texts.glob("*.txt")), dictionary, na_rate=1.0, seed=0))
    return [fact for fact in found if (fact.head, fact.relation, fact.tail) not in known.triples]
