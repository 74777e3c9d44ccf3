"""One command in several processes, each with its share of the cores: for tables of many small runs.

A run of a small model leaves a core idle at times: its rounds are short, and its evaluation is one process's work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from fedrel.errors import UserError


def run_in_processes(count: int, arguments: Sequence[str], say: Callable[[str], None]) -> int:
    """Run `fedrel` with these arguments `count` times at once; `say` gets the lines of their standard error.

    Returns the highest exit code; that of a killed process is 128 and the signal. Ctrl-C reaches the processes too:
    they stop, and this waits for them.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if cores and count > len(cores):
        hint = "leave --jobs out, or ask for no more processes than cores"
        raise UserError(f"--jobs {count}: this process may use {len(cores)} cores", hint=hint)
    out, into = os.pipe()
    command = [sys.executable, "-P", "-m", "fedrel", *arguments]
    started = []
    for number in range(count):
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=into))
        if cores:
            os.sched_setaffinity(started[-1].pid, cores[number::count])
    os.close(into)
    try:
        with os.fdopen(out, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                say(line.rstrip("\n"))
    finally:
        codes = [process.wait() for process in started]
    for code in codes:
        if code < 0:
            say(f"one of {count} processes was killed by {signal.Signals(-code).name}")
    return max(code if code >= 0 else 128 - code for code in codes)
