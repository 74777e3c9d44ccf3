"""A Python that starts quickly, for tests that run commands and worker processes.

To start Python and import torch takes two to five seconds of a processor. Here a server imports them once for the
whole suite, and forks for each command. A small client stands in for `python`, `fedrel` and `pytest`: it sends its
arguments, environment, folder and standard streams to the server, passes signals on, and ends as the command ends,
with its exit code or signal. Where a fork would not do the same as a new process, for example with other options or
with variables that libraries read when they are imported, the client becomes a real Python instead.

In tests, `sys.executable` and the `PATH` lead to the client; the fixture `real_python` leads back to the real one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent


class QuickPython:
    """The server's process, and a folder with the programs that use it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quick-")
        self.bin = Path(self._folder.name)
        socket = self.bin / "socket"
        command = [sys.executable, FOLDER / "server.py", socket]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"
        for name in ("python", "fedrel", "pytest"):
            program = self.bin / name
            client = f'exec "{sys.executable}" -IS "{FOLDER / "client.py"}" "{socket}" "{sys.executable}"'
            program.write_text(f'#!/bin/sh\n{client} {name} "$@"\n', encoding="utf-8")
            program.chmod(0o755)

    def stop(self) -> None:
        """End the server, and with it whatever it still runs."""
        self._server.communicate()
        self._folder.cleanup()
