"""A worker process of a run: `python -m fedrel.runs.worker FOLDER` answers for sites through its pipes."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from fedrel.errors import UserError
from fedrel.federation.engines.processes import serve
from fedrel.federation.wire import encode, write_block
from fedrel.runs.engines import open_runner


def main(folder: Path) -> None:
    """Build a runner over what the run saved in the folder; serve requests from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    with suppress(EOFError, BrokenPipeError):
        try:
            serve(open_runner(folder), sys.stdin.buffer, answers)
        except UserError as mistake:  # to be raised again in the process that started the run
            write_block(answers, {"mistake": mistake.to_json()}, encode({}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
