"""The studio: groups of pages, behind the guard, served until stopped. It changes nothing but remarks.

What can be asked for is what was found: a run is named by its path in the list, which is looked up and never opened
as a path.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fedrel.errors import UserError
from fedrel.studio.live.access import Address, Guard, address, is_loopback
from fedrel.studio.live.compare_pages import ComparePages
from fedrel.studio.live.federation_pages import Describe, FederationPages
from fedrel.studio.live.page_maker import PageMaker, TooManyError
from fedrel.studio.live.predictor import Predictor
from fedrel.studio.live.run_pages import RunPages
from fedrel.studio.live.try_pages import TryPages
from fedrel.studio.report import SCRIPTS, STYLE, plotly_script, source

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_KINDS = {STYLE: "text/css", **dict.fromkeys((*SCRIPTS, "plotly.min.js"), "text/javascript")}


def serve(
    folder: Path,
    host: str,
    port: int,
    token: str | None = None,
    *,
    describe: Describe,
    say: Callable[[str], None] = print,
) -> None:
    """Listen, say where, and answer until Ctrl-C. `describe` looks at the folder of a federation."""
    import uvicorn

    with _listening(host, port) as listener:
        where = address(host, listener.getsockname()[1], token)
        config = uvicorn.Config(
            studio_app(folder, where, describe),
            log_level="warning",
            access_log=False,  # addresses may hold the token
            server_header=False,
            timeout_graceful_shutdown=1,  # open pages do not hold up the end
            lifespan="on",
        )
        say(f"{folder} at {where.url}")
        if not is_loopback(host):
            say("whoever has this address can read the folder; it travels without encryption")
        say("stop with Ctrl-C")
        uvicorn.Server(config).run(sockets=[listener])


def studio_app(root: Path, address: Address, describe: Describe = lambda _: None) -> Starlette:
    """The pages of a folder, for those who may see them; `describe` looks at the folder of a federation."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    maker, predictor, federation = PageMaker(root), Predictor(), describe(root)
    maker.links = [("Runs", "/"), ("Compare", "/compare"), ("Try it", "/try")]
    addresses = [
        *RunPages(maker).addresses(),
        *ComparePages(maker).addresses(),
        *TryPages(maker, predictor).addresses(),
        ("GET", "/static/{name}", _static),
    ]

    if federation is not None:
        maker.links.insert(0, ("Federation", "/federation"))
        addresses += FederationPages(maker, federation).addresses()

    async def problem(request: Request, error: Exception) -> Response:
        return await _problem(maker, request, error)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await predictor.stop()

    return Starlette(
        lifespan=lifespan,
        routes=[Route(path, answer, methods=[method]) for method, path, answer in addresses],
        middleware=[Middleware(Guard, address=address)],
        exception_handlers={UserError: problem, TooManyError: _too_many},
    )


async def _static(request: Request) -> Response:
    """Style and scripts of this package: a fixed set, no path is opened."""
    from starlette.responses import PlainTextResponse, Response

    name = request.path_params["name"]
    if name not in _KINDS:
        return PlainTextResponse("Not found.", 404)
    headers = {"Cache-Control": "max-age=3600" if name.startswith("plotly") else "no-cache"}
    return Response(_content(name), media_type=_KINDS[name], headers=headers)


@cache
def _content(name: str) -> bytes:
    return (plotly_script() if name == "plotly.min.js" else source(name)).encode()


async def _problem(maker: PageMaker, request: Request, error: Exception) -> Response:
    """A mistake as a page or, for a script, as JSON."""
    from starlette.responses import JSONResponse

    assert isinstance(error, UserError)
    if request.method == "POST":
        return JSONResponse({"problem": error.problem, "hint": error.hint or ""}, 400)
    values = {
        "title": "That did not work",
        "setting": "",
        "kind": "a problem",
        "problem": f"{error.problem[:1].upper()}{error.problem[1:]}.",
        "hint": error.hint or "",
    }
    return await maker.page("problem.html", values, status=404)


async def _too_many(request: Request, error: Exception) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse("Too many pages are open.", 503, headers={"Retry-After": "30"})


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen()  # before the address is printed: whoever opens it at once waits a moment
    except OSError as error:
        hint = "choose another with --port, or --port 0 for any that is free"
        raise UserError(f"cannot listen at {host}, port {port}: {error.strerror}", hint=hint) from error
    return listener
