"""Serves the studio until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from fedrel.errors import UserError
from fedrel.studio.live.access import address, is_loopback
from fedrel.studio.live.federation_facts import Describe
from fedrel.studio.live.studio_app import studio_app


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
