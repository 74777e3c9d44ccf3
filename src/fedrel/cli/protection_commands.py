"""`fedrel attack`, `leak` and `privacy`: what lies and noise cost, and what leaks, on a config of your own."""

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
    from fedrel.federation.engines.attacks import ATTACKS
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
    from fedrel.studio.privacy_page import write_privacy_page

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
