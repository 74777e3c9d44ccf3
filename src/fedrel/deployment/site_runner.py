"""A site's runner: the process that keeps the model and the columns, decides by the site's rules, and records.

    python -m fedrel.deployment.site_runner FOLDER

Requests come through the site's socket, as bytes that another process got from Flower. Whatever asks, the answer
passes the gate here, before anything is computed and again before it leaves, and is recorded here: nobody else has
it. The rules, the experiment and the record are read anew for each request; only what is costly stays in memory.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flwr.app import RecordDict

from fedrel.deployment.client_app import SiteHost
from fedrel.deployment.site_socket import OtherUserError, accept, listening, receive, remove_socket, send
from fedrel.errors import UserError
from fedrel.federation.flower.client import respond
from fedrel.federation.flower.record_bytes import from_bytes, to_bytes
from fedrel.tensors.machine import available, cores

if TYPE_CHECKING:
    import socket

    from fedrel.federation.runner import Runner

SLOW = 60.0  # seconds without a byte after which a connection is given up

_log = logging.getLogger(__name__)


class ResidentSite:
    """Answers for a site, with a runner that stays until the run or the site's data are others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made_from: object = None
        self._runner: Runner | None = None

    def answer(self, request: bytes) -> bytes:
        """The answer to a request, or the refusal. A site has its machine to itself, so it may use all cores."""
        try:
            content = from_bytes(request)
        except Exception:  # whatever protobuf raises
            content = RecordDict()  # which is no request either: refused, and recorded
        with cores(available()):
            return to_bytes(respond(lambda: ResidentHost(self._folder, self), content))

    def runner(self, host: ResidentHost, run: str) -> Runner:
        """The runner of a run, made if what it is made from has changed."""
        made_from = host.made_from(run)
        if self._runner is None or made_from != self._made_from:
            self._runner = None  # before the next one needs the memory
            self._runner, self._made_from = host.new_runner(run), made_from
        return self._runner


class ResidentHost(SiteHost):
    """The site's folder as it is now, for one request."""

    def __init__(self, folder: Path, site: ResidentSite) -> None:
        super().__init__(folder)
        self._site = site

    def runner(self, run: str) -> Runner:
        """The one that stays in memory."""
        return self._site.runner(self, run)

    def new_runner(self, run: str) -> Runner:
        """Another one."""
        return super().runner(run)

    def made_from(self, run: str) -> tuple[Any, ...]:
        """All that a runner is made from: the run, the experiment, the site's rules, and the files of its data."""
        folder = self._folder
        files = (folder.seal, *sorted(path for path in folder.site_data.rglob("*") if path.is_file()))
        facts = [(path, (about := path.stat()).st_mtime_ns, about.st_ino, about.st_size) for path in files]
        return run, folder.published.model_dump_json(), self.rules(run), facts


def serve(folder: Path) -> None:
    """Answer what comes through the site's socket, one request after the other, until this process is ended."""
    with listening(folder) as server:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, partial(_leave, folder))
        import torch  # noqa: F401 - so that the first request need not wait for it

        import fedrel.runs.engines  # noqa: F401

        site = ResidentSite(folder)
        while True:
            try:
                with accept(server) as connection:
                    _serve_one(site, connection)
            except (OtherUserError, OSError, MemoryError) as error:
                _log.warning("a connection was closed: %s", error)


def _serve_one(site: ResidentSite, connection: socket.socket) -> None:
    connection.settimeout(SLOW)
    send(connection, site.answer(receive(connection)))


def _leave(folder: Path, *_: object) -> NoReturn:
    """End at once. An exception could be lost in whatever is under way, such as a compiler's own handlers.

    What is written is whole or not there, as it must be for a runner that is killed.
    """
    with suppress(OSError):
        remove_socket(folder)
    os._exit(0)


def main() -> None:
    """Run until a signal ends it."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    try:
        serve(Path(sys.argv[1]).absolute())
    except UserError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
