"""A proxy that passes on everything in both directions, and keeps a copy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Recorder:
    """What went through, by connection and direction."""

    def __init__(self) -> None:
        self._streams: list[bytearray] = []

    def stream(self) -> bytearray:
        self._streams.append(bytearray())
        return self._streams[-1]

    def captured(self) -> list[bytes]:
        return [bytes(stream) for stream in self._streams]


@contextmanager
def recording(port: int) -> Iterator[tuple[int, Recorder]]:
    """A port of its own in front of this one, and what goes through it."""
    recorder = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=_open, args=(door, port, recorder), daemon=True).start()
        yield door.getsockname()[1], recorder


def _open(door: socket.socket, port: int, recorder: Recorder) -> None:
    with suppress(OSError):
        while True:
            caller, _ = door.accept()
            try:
                called = socket.create_connection(("127.0.0.1", port))
            except OSError:
                caller.close()
                continue
            for here, there in ((caller, called), (called, caller)):
                threading.Thread(target=_pass_on, args=(here, there, recorder.stream()), daemon=True).start()


def _pass_on(here: socket.socket, there: socket.socket, copy: bytearray) -> None:
    with suppress(OSError):
        while block := here.recv(1 << 16):
            copy += block
            there.sendall(block)
    for end in (here, there):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
