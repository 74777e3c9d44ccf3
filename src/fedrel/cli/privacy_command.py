"""`fedrel privacy`: what differential privacy costs on a config of your own, by ε."""

from __future__ import annotations

import math
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
from fedrel.errors import UserError


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
    from fedrel.cli.progress import console, saying
    from fedrel.runs.privacy_table import privacy_table
    from fedrel.studio.privacy_page import write_privacy_page

    chosen = read_config(config, settings, plugins)
    folder = out or Path("runs") / f"{Path(config).stem}-privacy"

    numbers = [int(one) if one.isdecimal() else -1 for one in names(seeds)] if seeds else [chosen.seed]
    if min(numbers) < 0:
        raise UserError(f"--seeds {seeds}: expected whole numbers", hint="write them as --seeds 1,2,3")
    table = privacy_table(chosen, folder, _targets(epsilons), numbers, saying(quiet=quiet, as_json=as_json))
    page = write_privacy_page(folder, table)
    if as_json:
        print_json(table)
    else:
        console.print(f"table: {page}", soft_wrap=True)


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
