"""The commands that only show something: `presets`, `methods`, `partition`, `config show` and `studio`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrel.cli.options import AsJson, ConfigArgument, Plugins, Settings, print_json, read_config
from fedrel.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.table import Table

    from fedrel.data.partition import Partition
    from fedrel.methods.by_name import MethodDescription

config = typer.Typer(help="About configs.", no_args_is_help=True, suggest_commands=False)

HOST, PORT = "127.0.0.1", 8420  # of the studio
MANY = 20  # sites; of more, a table shows the first and the last


def add_to(app: typer.Typer) -> None:
    """Add these commands to fedrel's."""
    app.command()(partition)
    app.command()(presets)
    app.command()(methods)
    app.add_typer(config, name="config")


def presets(as_json: AsJson = False) -> None:
    """List the experiments that come with fedrel."""
    from fedrel.config.sources import presets as known

    if as_json:
        print_json([{"name": name, "about": about} for name, about in known().items()])
        return
    width = max(map(len, known()), default=0)
    for name, about in known().items():
        typer.echo(f"{name:{width}}  {about}")


def methods(
    name: Annotated[str, typer.Argument(help="A method, or several joined by `+`; default: all.")] = "",
    plugins: Plugins = [],  # noqa: B006 - typer reads the default, nobody writes to it
    as_json: AsJson = False,
) -> None:
    """List the methods: paper, options, what leaves a site, and whether PCNN's kernels or PyTorch's graph train.

    With a name, one method in detail.
    """
    from fedrel.config.plugins import load_files
    from fedrel.methods.by_name import describe
    from fedrel.methods.by_name import methods as known

    load_files(plugins)
    described = [describe(one) for one in ([name] if name else known())]
    if as_json:
        print_json([asdict(one) for one in described])
    else:
        typer.echo("\n".join(map(_in_detail if name else _in_short, described)))


def partition(
    config: ConfigArgument,
    settings: Settings = [],  # noqa: B006
    plot: Annotated[Path, typer.Option(help="Where to draw it.")] = Path("partition.png"),
    plugins: Plugins = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Show what each site would hold: a table, and a plot of relations, or of documents' entropies, by site."""
    from fedrel.cli.progress import about_empty, console
    from fedrel.data.load import dataset
    from fedrel.data.partition import divide
    from fedrel.studio.partition_plots import partition_plot, plot_entropy

    chosen = read_config(config, settings, plugins)
    data = dataset(chosen.data)
    parts = divide(chosen.partition, data.corpus, data.train, chosen.seed)
    counts, relations = parts.label_counts(data.corpus), list(data.corpus.relations)
    if chosen.partition.kind == "entropy":
        plot_entropy(chosen.partition, parts, data.corpus, plot)
    else:
        partition_plot(counts, relations, parts.names, plot)
    if as_json:
        print_json(_partition_json(parts, counts, relations, data.corpus.unit, plot))
        return
    console.print(_partition_table(parts, counts, relations, data.corpus.unit))
    if empty := about_empty(parts):
        console.print(empty, style="yellow", markup=False)
    console.print(f"plot: {plot}", soft_wrap=True)


@config.command("show")
def show_config(
    config: ConfigArgument,
    settings: Settings = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Print a config with every key, its value and what it means, as TOML that can be run."""
    from fedrel.config.check import documented_toml

    typer.echo(documented_toml(read_config(config, settings, plugins)), nl=False)


def _in_short(one: MethodDescription) -> str:
    """A method in a few lines, as wide as the terminal."""
    options = ", ".join(f"{option.name}={option.default}" for option in one.options)
    leaves = ", ".join(message.name for message in one.leaves_site)
    facts = {
        "paper": one.paper,
        "options": options or "none",
        "leaves a site": leaves or "nothing",
        "trained by": one.trained_by,
    }
    width = shutil.get_terminal_size().columns
    lines = [textwrap.fill(f"{one.name}: {one.summary}", width, subsequent_indent="  ")]
    for name, fact in facts.items():
        text = f"{name}: {fact}"
        lines.append(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    "))
    return "\n".join(lines)


def _in_detail(one: MethodDescription) -> str:
    lines = [f"{one.name}: {one.summary}", f"paper: {one.paper}", f"trained by: {one.trained_by}"]
    if one.simulation_only:
        lines.append(f"for simulation only: {one.simulation_only}")
    lines.append("options:" if one.options else "options: none")
    lines += [f"  {option.name} = {option.default} ({option.type}): {option.about}" for option in one.options]
    lines.append("leaves a site:" if one.leaves_site else "leaves a site: nothing")
    for message in one.leaves_site:
        lines.append(f"  {message.name}: {message.about}")
        lines += [f"    {field.name} ({field.type}): {field.about}" for field in message.fields]
    return "\n".join(line.rstrip(": ") if line.endswith(": ") else line for line in lines)


def _partition_table(
    parts: Partition, counts: npt.NDArray[np.int64], relations: Sequence[str], unit: str
) -> Table:
    """What each site holds, how far its labels are from the whole, and the means; of many, the first and last."""
    import numpy as np
    from rich.table import Table

    from fedrel.evaluation.heterogeneity import label_distances

    distances = label_distances(counts)
    table = Table("site", unit, "relations", "distance", "commonest")
    for column in table.columns[1:4]:
        column.justify = "right"
    few = parts.sites <= MANY
    for site in range(parts.sites) if few else [*range(10), -1, *range(parts.sites - 9, parts.sites)]:
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


def _partition_json(
    parts: Partition, counts: npt.NDArray[np.int64], relations: Sequence[str], unit: str, plot: Path
) -> dict[str, Any]:
    """The same for programs, with all sites and all counts; a site without data has no distance."""
    from fedrel.evaluation.heterogeneity import label_distances

    distances = label_distances(counts)
    sites = [
        {
            "name": name,
            unit: int(parts.sizes[site]),
            "distance": float(distances[site]) if parts.sizes[site] else None,
            "counts": counts[site].tolist(),
        }
        for site, name in enumerate(parts.names)
    ]
    return {"relations": list(relations), "sites": sites, "plot": str(plot)}


def studio(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of runs.")] = Path("runs"),
    host: Annotated[
        str, typer.Option(help="The address to listen at; any but this machine's own needs a token.")
    ] = HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = PORT,
    token: Annotated[
        str | None, typer.Option(envvar="FEDREL_STUDIO_TOKEN", help="Default: a new one, if one is needed.")
    ] = None,
) -> None:
    """Watch runs, compare them and try their models in a browser."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError("the studio is not installed", hint="pip install 'fedrel[studio]'") from error
    from fedrel.deployment.studio_facts import describe_federation
    from fedrel.studio.live.studio_app import serve

    if not folder.exists() and folder == Path("runs"):
        folder.mkdir()  # where runs go by default
    if not folder.is_dir():
        raise UserError("no such folder", file=folder, hint="name a folder of runs: fedrel studio FOLDER")
    serve(folder, host, port, token, describe=describe_federation, say=typer.echo)
