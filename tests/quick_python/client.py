"""What stands in for `python`, `fedrel` and `pytest`: `client.py SOCKET PYTHON NAME ARGUMENTS...`.

It runs without site-packages and imports little, for it is started often.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# What is read while Python starts or a library is imported: as the server had it, or a real Python is needed.
AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "NUMBA_", "NUMEXPR_", "TORCH_", "HF_", "MPLBACKEND", "COVERAGE_")
# But a fork can add to its path, and the other, which Ray sets in the process of the tests, is read when used.
LATER = ("PYTHONPATH", "PYTHONBREAKPOINT")


def main() -> None:
    """Have the server run the command, or run it here."""
    where, python, name, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(where)
        answers = server.makefile("r", encoding="utf-8")
        ours = json.loads(answers.readline())
        if not can_be_forked(name, arguments, ours):
            command = [python] if name == "python" else [python, "-m", name]
            os.execv(python, [*command, *arguments])
        waiting: list[int] = []
        for number in PASSED_ON:  # until the child is there, they wait
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: waiting.append(number))
        request = {
            "name": name,
            "python": os.path.join(os.path.dirname(where), "python"),  # noqa: PTH118, PTH120
            "arguments": arguments,
            "environment": dict(os.environ),
            "folder": os.getcwd(),  # noqa: PTH109 - as light as can be
            "ignored": [number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN],
        }
        text = json.dumps(request).encode()
        socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(text)
        pid = json.loads(answers.readline())["pid"]

        def pass_on(number: int, _: object = None) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, pass_on)
        for number in waiting:
            pass_on(number)
        end_as(json.loads(answers.readline())["status"])


def can_be_forked(name: str, arguments: list[str], ours: dict[str, str]) -> bool:
    """Whether the server's fork would do what a new process does. `ours` is the server's environment."""
    if name == "python":
        rest = arguments[1:] if arguments[:1] == ["-P"] else arguments
        if not rest or (rest[0].startswith("-") and rest[0] not in ("-c", "-m", "-")):
            return False
    return at_start(os.environ) == at_start(ours)


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that count when Python starts and when libraries are imported."""
    return {
        name: value
        for name, value in environment.items()
        if value and name.startswith(AT_START) and name not in LATER
    }


def end_as(status: int) -> None:
    """End with the exit code, or by the signal, with which the child ended."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)
    with contextlib.suppress(OSError):  # of SIGKILL
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    main()
