"""What a run leaves in a folder so that other processes of its machine can sit down and answer for its sites."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fedrel.data.bags import Bags
from fedrel.errors import UserError
from fedrel.federation.engines.local import answered
from fedrel.federation.messages import Arrays
from fedrel.federation.runner import Desk
from fedrel.federation.site_data import Materials
from fedrel.federation.wire import encode, read_block, write_block

if TYPE_CHECKING:
    pass


def take_over(folder: Path) -> Desk:
    """A desk with what `hand_over` left, on one thread: more would change the order of sums."""
    import torch

    from fedrel.config.schema import Config
    from fedrel.runs.engines import desk

    torch.set_num_threads(1)
    config = Config.model_validate_json((folder / "config.json").read_bytes())
    states = Path((folder / "states.txt").read_text(encoding="utf-8"))
    return desk(config, Materials.load(folder), states)


def main(folder: Path) -> None:
    """Sit down at a desk and serve it through standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    with suppress(EOFError, BrokenPipeError):
        try:
            serve(take_over(folder), sys.stdin.buffer, answers)
        except UserError as mistake:  # for whoever started the run, not for this process's log
            write_block(answers, {"mistake": mistake.to_json()}, encode({}))


def serve(desk: Desk, questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer question after question; one that opens a phase or brings weights for scoring has no answer."""
    phase = ""
    weights: Arrays = {}
    while True:
        note, arrays = read_block(questions)
        match note["verb"]:
            case "open":
                phase = note["phase"]
                desk.open(phase, note["round"], arrays)
            case "weights":
                weights = arrays
            case "answer":
                answer = answered(desk, phase, note["round"], note["site"], arrays)
                journal = asdict(answer.journal) if answer.journal else None
                note = {"failure": answer.failure, "journal": journal}
                write_block(answers, note, encode(answer.arrays or {}))
            case "score":
                scores = desk.score(weights, note["head"], Bags(**arrays))
                write_block(answers, {}, encode({"scores": scores}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
