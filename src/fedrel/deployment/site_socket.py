"""The socket by which requests reach a site's runner: only the user whom the site's folder belongs to can use it.

It is in the folder `runner` of the site's folder. The folder's mode is 0700 and the socket's 0600, and each end
asks the kernel which user is at the other. Whoever listens holds the folder's lock, so that there is one runner a
site; a socket that a killed runner left is replaced.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrel.errors import UserError
from fedrel.files import locked

FOLDER, SOCKET = "runner", "socket"
LONGEST = 100  # bytes of a socket's path: 103 or 107 on the systems we know
_LENGTH = struct.Struct("!Q")
_CREDENTIALS = struct.Struct("3i")  # process, user, group


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
