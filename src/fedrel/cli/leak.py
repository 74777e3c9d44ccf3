"""`fedrel leak`: what an attacker gets out of what crosses, by method and defence, on a config of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    from fedrel.studio.leak_page import write_leak_pages

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
