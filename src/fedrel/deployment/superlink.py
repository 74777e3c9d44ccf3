"""Flower's superlink, run as `python -m fedrel.deployment.superlink`, with its doors closed that sites do not need.

The superlink answers three kinds of caller on one port: sites (`/v1/fleet`, which asks for a registered key), the
`flwr` command (`/v1/control`) and the processes it starts itself (`/v1/runtime`). The second kind may register keys
and start runs, that is, execute code here, and is not asked who it is. So both others are answered on this machine
only. A proxy on the same machine would make everybody look local: let sites connect directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any

FOR_SITES = "/v1/fleet/"

App = Callable[[Any, Any, Any], Awaitable[None]]


class OnlySitesFromOutside:
    """Answers 403 to any caller from another machine who asks for something else than a site does."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """One request, or the server's own start and end."""
        if scope["type"] == "lifespan" or scope.get("path", "").startswith(FOR_SITES) or _local(scope):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send(
                {"type": "http.response.body", "body": b"answered on the coordinator's machine only\n"}
            )


def _local(scope: dict[str, Any]) -> bool:
    try:
        return ip_address(scope["client"][0]).is_loopback
    except (KeyError, TypeError, ValueError):
        return False


def main() -> None:
    """Run `flower-superlink` with this guard around it."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    if not callable(getattr(extensions, "get_middleware", None)):
        raise SystemExit("this version of Flower has no place for the guard: its control API would be open")
    extensions.get_middleware = lambda: (Middleware(OnlySitesFromOutside),)
    flower_superlink()


if __name__ == "__main__":
    main()
