"""Who may talk to the studio: by token, by the name that the browser used, and from which page.

On this machine alone (loopback) no token is needed. `Host` must be a name of this server, or an address: a page
from elsewhere whose name was made to point here (DNS rebinding) carries its own name. `Origin`, where a browser
sends it, must be the studio itself.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from fedrel.errors import UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "fedrel-studio"  # followed by the port: a machine may have several
LARGEST_BODY = 2_000_000  # bytes of a request

HEADERS = {
    "Content-Security-Policy": "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # plotly places its labels by style attributes
            "img-src 'self' data: blob:",  # saving a plot as a picture
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ]
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True)
class Address:
    """Where the studio listens."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The address to open, with the token if there is one."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def address(host: str, port: int, token: str | None = None) -> Address:
    """Where to listen; any address that other machines can reach gets a token, a new one if none is given."""
    if token is not None and len(token) < 16:
        raise UserError("the token is too short to be a secret", hint="leave it out: the studio makes one")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    return Address(host, port, token)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets through only what may talk to the studio, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self._app, self._token = app, address.token
        self._cookie = f"{COOKIE}-{address.port}"
        own = {"localhost", address.host.lower()}
        if not is_loopback(address.host):
            own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request; answer it, or say why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.lower().encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.lower().encode() not in named
                    ),
                ]
            await send(message)

        refused = next(self._refusals(scope["method"], headers, query), None)
        if refused is not None:
            await _answer(guarded, *refused)
        elif self._token and "token" in query:
            await _answer(guarded, 303, "", self._signed_in(scope["path"], query))
        else:
            await self._app(scope, receive, guarded)

    def _refusals(
        self, method: str, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> Iterator[tuple[int, str]]:
        """Every reason not to answer, as status and text."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_own(host):
            yield 421, "This server does not go by that name. Open the address that `fedrel studio` printed."
        if origin is not None and origin != f"http://{host}":
            yield 403, "A page from elsewhere may not ask this server."
        if method not in ("GET", "HEAD", "POST"):
            yield 405, "Not allowed."
        if method == "POST":
            size = headers.get("content-length", "")
            if origin is None:
                yield 403, "Without an Origin it cannot be told where this comes from."
            fits = size.isascii() and size.isdigit() and int(size) <= LARGEST_BODY
            if not fits or "transfer-encoding" in headers:
                yield 413, f"What is sent must have a length, of at most {LARGEST_BODY:,} bytes."
        if self._token is not None:
            given = query.get("token") or self._given(headers.get("cookie", ""))
            if not secrets.compare_digest(given.encode(), self._token.encode()):
                yield 401, "The token is missing or wrong. Open the address that `fedrel studio` printed."

    def _is_own(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower()
        if name in self._own:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # no name that could be made to point elsewhere

    def _given(self, header: str) -> str:
        """The token in the cookies, if it is there."""
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == self._cookie:
                return value
        return ""

    def _signed_in(self, path: str, query: Mapping[str, str]) -> dict[str, str]:
        """The token goes into a cookie that scripts cannot read, and out of the address."""
        rest = urlencode({name: value for name, value in query.items() if name != "token"})
        own = "/" + quote(path.lstrip("/\\"))  # never the name of another host
        return {
            "location": f"{own}{f'?{rest}' if rest else ''}",
            "set-cookie": f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/",
        }


async def _answer(send: Send, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
    sent = {"content-type": "text/plain; charset=utf-8", **(headers or {})}
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": text.encode()})
