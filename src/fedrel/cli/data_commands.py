"""The commands about data: `data check`, `data list` and `convert`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrel.cli.options import AsJson, ConfigArgument, Plugins, Settings, print_json, read_config

if TYPE_CHECKING:
    from rich.table import Table

    from fedrel.data.data_check import DataCheck

data = typer.Typer(help="About data.", no_args_is_help=True, suggest_commands=False)

Format = Annotated[str, typer.Option(metavar="FORMAT", help="Its format; docs/data.md lists them.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands to fedrel's."""
    app.add_typer(data, name="data")
    app.command()(convert)


@data.command("check")
def check(
    config: ConfigArgument,
    settings: Settings = [],  # noqa: B006
    page: Annotated[Path | None, typer.Option(help="Write a page (HTML) here.")] = None,
    plugins: Plugins = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Check the data of a config: what cannot be read, repeated text, relations, empty sites, unknown words."""
    from fedrel.cli.progress import about_unknown, console
    from fedrel.runs.prepare import prepare
    from fedrel.studio.report import write_data_page

    found = prepare(read_config(config, settings, plugins)).check
    assert found is not None
    if page is not None:
        write_data_page(page, found, config)
    if as_json:
        print_json(asdict(found))
        return
    console.print(_table(found))
    console.print(about_unknown(found), markup=False, highlight=False)
    for what, note in found.notes.items():
        console.print(f"{note['count']:,} {what}", markup=False, highlight=False)
        for example in note["examples"]:
            console.print(f"  {example}", markup=False, highlight=False, soft_wrap=True)
    for warning in found.warnings:
        console.print(warning, style="yellow", markup=False, soft_wrap=True)
    if not found.warnings:
        console.print("nothing odd was found")


@data.command("list")
def list_corpora(as_json: AsJson = False) -> None:
    """List the published corpora that presets use: source, licence, and which files are present."""
    from fedrel.data.corpora import corpora, data_folder

    folder = data_folder()
    listed = [one.described(folder) for one in corpora().values()]
    if as_json:
        print_json(listed)
        return
    for one in listed:
        typer.echo(f"{one['name']}: {one['title']}: {one['state']}")
        typer.echo(f"  licence: {one['licence']}\n  source: {one['source']}")
        for problem in one["problems"]:
            typer.echo(f"  {problem}")
    typer.echo(f"data folder: {folder} ({'FEDREL_DATA' if folder != Path.cwd() else 'set FEDREL_DATA'})")


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The file or folder to read.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file or folder to write.")],
    format: Annotated[str, typer.Option("--from", metavar="FORMAT", help="The format of IN.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="The format of OUT.")],
    columns: Annotated[
        list[str], typer.Option("--column", metavar="ROLE=NAME", help="Of a table: which column has what.")
    ] = [],  # noqa: B006
    options: Annotated[
        list[str],
        typer.Option(
            "--option", metavar="KEY=VALUE", help="Of IN's format: pair_types, directions, id_separator, …"
        ),
    ] = [],  # noqa: B006
    none_label: Annotated[
        str | None, typer.Option(help="What IN calls the relation of unrelated pairs.")
    ] = None,
    lossy: Annotated[
        bool, typer.Option("--lossy", help="Write what OUT can hold, and count the rest.")
    ] = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Convert data between formats. What was written is read again: if anything is lost, it is refused."""
    from fedrel.config.check import parse_value
    from fedrel.config.plugins import load_files
    from fedrel.data.convert import convert as write

    load_files(plugins)
    chosen = {key: parse_value(value) for key, _, value in (one.partition("=") for one in options)}
    if columns:
        chosen["columns"] = dict(one.partition("=")[::2] for one in columns)
    done = write(source, format, target, to, options=chosen, none_label=none_label, lossy=lossy)
    typer.echo(f"{done.rows:,} {done.unit} in {target}")
    for what, count in done.lost.items():
        typer.echo(f"lost: {what}: {count:,}")


def _table(found: DataCheck) -> Table:
    """How often each relation occurs in each part."""
    from rich.table import Table

    table = Table("relation", *found.sizes)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in found.relations["train"]:
        table.add_row(name, *(f"{found.relations[part][name]:,}" for part in found.sizes))
    table.add_section()
    table.add_row(found.unit, *(f"{size:,}" for size in found.sizes.values()))
    table.add_row("also in train", "", *(f"{found.repeated[part]:,}" for part in ("dev", "test")))
    return table
