"""The ClientApp of a real site: it passes a message to the site's runner, and the runner's answer back.

Flower starts a process for every message. This one decides nothing and computes nothing: the runner asks the
site's rules, computes, records, and only then answers (`site_runner`). If the runner is killed before it has
answered, it is asked again as soon as it is back.

Messages pass through a socket that only the user whom the site's folder belongs to can use. It is in the folder
`runner` of the site's folder. The folder's mode is 0700 and the socket's 0600, and each end asks the kernel which
user is at the other. Whoever listens holds the folder's lock, so that there is one runner a site; a socket that a
killed runner left is replaced. This module needs little of fedrel, so that such a process starts fast.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Encoded

from fedrel.errors import UserError
from fedrel.files import locked

ATTEMPTS = 3  # a request that ends the runner so often is given up
PATIENCE = 180.0  # seconds for a runner to listen: torch takes long to import on a busy machine
PAUSE = 0.1  # seconds between two attempts to connect

_log = logging.getLogger(__name__)

app = ClientApp()

FOLDER, SOCKET = "runner", "socket"
LONGEST = 100  # bytes of a socket's path: 103 or 107 on the systems we know
_LENGTH = struct.Struct("!Q")
_CREDENTIALS = struct.Struct("3i")  # process, user, group


@app.query()
def query(message: Message, context: Context) -> Message:
    """Any request."""
    folder = Path(str(context.node_config["site"]))
    return Message(pass_on(folder, message.content), reply_to=message)


def pass_on(folder: Path, content: RecordDict) -> RecordDict:
    """What the runner of the site in this folder answers."""
    request, asked = to_bytes(content), 0
    until = time.monotonic() + PATIENCE
    while asked < ATTEMPTS and time.monotonic() < until:
        try:
            with connected(folder) as connection:
                asked += 1
                send(connection, request)
                return from_bytes(receive(connection))
        except OtherUserError as error:
            _log.error("%s", error)
            break
        except OSError:  # it is about to start, or was killed
            until = max(until, time.monotonic() + PATIENCE) if asked else until
            time.sleep(PAUSE)
    return _no_answer(folder)


class OtherUserError(Exception):
    """Another user's process is at the other end."""


@contextmanager
def listening(site: Path) -> Iterator[socket.socket]:
    """Listen for a site; `UserError` if another process does."""
    folder = site / FOLDER
    try:
        with locked(folder):
            folder.chmod(0o700)
            (folder / SOCKET).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as server, _short(folder) as path:
                before = os.umask(0o177)
                try:
                    server.bind(path)
                finally:
                    os.umask(before)
                server.listen()
                try:
                    yield server
                finally:
                    (folder / SOCKET).unlink(missing_ok=True)
    except UserError as error:
        if error.file != folder:
            raise
        hint = "stop the other one: a site has one"
        raise UserError("a runner of this site is running already", file=folder, hint=hint) from error


def remove_socket(site: Path) -> None:
    """Remove what listening has made, for the process that listens and ends at once."""
    (site / FOLDER / SOCKET).unlink(missing_ok=True)
    (site / FOLDER).rmdir()


def accept(server: socket.socket) -> socket.socket:
    """The next connection; `OtherUserError` if it is another user's."""
    connection, _ = server.accept()
    try:
        _check_user(connection)
    except OtherUserError:
        connection.close()
        raise
    return connection


@contextmanager
def connected(site: Path) -> Iterator[socket.socket]:
    """A connection to a site's runner; `OSError` if none listens, `OtherUserError` if it is another user's."""
    with socket.socket(socket.AF_UNIX) as connection:
        with _short(site / FOLDER) as path:
            connection.connect(path)
        _check_user(connection)
        yield connection


def send(connection: socket.socket, data: bytes) -> None:
    """Send some bytes as a whole."""
    connection.sendall(_LENGTH.pack(len(data)))
    connection.sendall(data)


def receive(connection: socket.socket) -> bytes:
    """What the other end sent as a whole; `ConnectionError` if it ended before."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def to_bytes(content: RecordDict) -> bytes:
    """The bytes of a request or an answer."""
    return bytes(recorddict_to_proto(content).SerializeToString())


def from_bytes(block: bytes) -> RecordDict:
    """The records that `to_bytes` encoded."""
    return recorddict_from_proto(Encoded.FromString(block))


def _no_answer(folder: Path) -> RecordDict:
    """The refusal of a site whose runner does not answer; it is recorded like every other."""
    from fedrel.deployment.folders import SiteFolder
    from fedrel.deployment.site_gate import SiteGate
    from fedrel.federation.flower.codec import encode_refusal
    from fedrel.federation.flower.host import Refusal, RefusalCode

    refusal = Refusal(RefusalCode.FAILED)
    try:
        SiteGate(SiteFolder(folder)).refuse(None, refusal, "the site's runner does not answer")
    except Exception:  # the site's folder, its site.toml or its audit record is damaged
        _log.exception("cannot answer, nor record that")
    return encode_refusal(refusal)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray(length)
    rest = memoryview(data)
    while rest:
        size = connection.recv_into(rest)
        if not size:
            raise ConnectionError("the other end is gone")
        rest = rest[size:]
    return bytes(data)


def _check_user(connection: socket.socket) -> None:
    """Fail if another user is at the other end. Where the kernel does not tell, the modes must do."""
    if sys.platform == "linux":
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(told)
        if user != os.geteuid():
            raise OtherUserError(f"user {user} is at the other end, expected {os.geteuid()}")


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """The socket's path. A path may be longer than sockets allow: then it goes through the open folder."""
    path = str(folder / SOCKET)
    if len(os.fsencode(path)) <= LONGEST:
        yield path
        return
    if sys.platform != "linux":
        raise UserError("is too long a path for a socket", file=folder, hint="move the site's folder")
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)
