"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrel.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedrel.config.schema import Config


ConfigArgument = Annotated[str, typer.Argument(metavar="CONFIG", help="A TOML file, or a preset's name.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a config value; may be repeated.")
]
Plugins = Annotated[
    list[Path],
    typer.Option("--plugin", metavar="FILE", help="A Python file with methods or the like; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")]


def read_config(name: str, settings: Sequence[str], plugins: Sequence[Path] = ()) -> Config:
    """The config that a command names, with its settings and plug-ins."""
    from fedrel.config.sources import load_config

    return load_config(name, settings, plugins)


def names(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def print_json(value: object) -> None:
    """Print a value, or a record or a list of them, as JSON."""
    import json

    from pydantic_core import to_jsonable_python

    typer.echo(json.dumps(to_jsonable_python(value), ensure_ascii=False, indent=1))


FromRound = Annotated[
    int | None,
    typer.Option(
        "--from", min=1, metavar="ROUND", help="With --resume: go on with that round's model, if it is kept."
    ),
]


def check_from(from_round: int | None, resume: bool) -> None:
    """`--from` says where to resume."""
    if from_round is not None and not resume:
        raise UserError("--from needs --resume", hint="add --resume to go on with the run in that folder")
