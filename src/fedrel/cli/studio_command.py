"""`fedrel studio`: the pages of a folder of runs, served until stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrel.errors import UserError

HOST, PORT = "127.0.0.1", 8420


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
    from fedrel.studio.live.serving import serve

    if not folder.exists() and folder == Path("runs"):
        folder.mkdir()  # where runs go by default
    if not folder.is_dir():
        raise UserError("no such folder", file=folder, hint="name a folder of runs: fedrel studio FOLDER")
    serve(folder, host, port, token, describe=describe_federation, say=typer.echo)
