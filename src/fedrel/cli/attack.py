"""`fedrel attack`: what lying sites cost on a config of your own, by attack, number of liars and defence."""

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
from fedrel.errors import UserError

_ALL = "all"


def attack(
    config: ConfigArgument,
    attackers: Annotated[str, typer.Option(help="How many sites lie, separated by commas.")] = "1,4,8,12",
    attacks: Annotated[str, typer.Option(help="Attacks, separated by commas; default: all.")] = _ALL,
    defences: Annotated[str, typer.Option(help="Defences, separated by commas; default: all.")] = _ALL,
    settings: Settings = [],  # noqa: B006 - typer reads the default, nobody writes to it
    out: Annotated[Path | None, typer.Option(help="The folder; default: runs/CONFIG-attacks.")] = None,
    plugins: Plugins = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train with lying sites and without, under several defences; run again, it goes on where it stopped."""
    from fedrel.cli.progress import console, saying
    from fedrel.privacy.attacks import ATTACKS
    from fedrel.runs.attack_table import DEFENCES, attack_table
    from fedrel.studio.attack_page import write_attack_page

    chosen = read_config(config, settings, plugins)
    folder = out or Path("runs") / f"{Path(config).stem}-attacks"

    table = attack_table(
        chosen,
        folder,
        list(ATTACKS) if attacks == _ALL else names(attacks),
        _counts(attackers, chosen.partition.sites),
        list(DEFENCES) if defences == _ALL else names(defences),
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
