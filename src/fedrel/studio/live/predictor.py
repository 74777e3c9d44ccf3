"""The studio reads text in a process of its own, which keeps the last model and can be ended if it takes too long.

A request is a line of JSON on that process's standard input, its answer a line of JSON on its standard output.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError

if TYPE_CHECKING:
    from fedrel.inference.model import DocumentModel, Model
from pathlib import Path

SECONDS = 60.0  # for a text; the first one also loads the model
WAITING = 4  # requests that may wait for their turn
LONGEST_ANSWER = 64 * 1024 * 1024  # bytes


class Predictor:
    """Starts the process at the first request, and again after it was ended."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._turn, self._waiting = seconds, asyncio.Lock(), 0
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer; `UserError` for a mistake in the request, and if it takes too long."""
        if self._waiting >= WAITING:
            raise UserError("others are waiting for their text to be read", hint="Try again in a minute.")
        self._waiting += 1
        try:
            async with self._turn:
                answer = await self._answer(request)
        finally:
            self._waiting -= 1
        if "problem" in answer:
            raise UserError(answer["problem"], hint=str(answer.get("hint", "")))
        return answer

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "fedrel.studio.live.predictor"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LONGEST_ANSWER,
            )
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None and answers is not None
        try:
            given.write(json.dumps(request).encode() + b"\n")
            await given.drain()
            line = await asyncio.wait_for(answers.readline(), self._seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            await self.stop()  # it may be in the middle of an answer that nobody waits for
            if isinstance(error, asyncio.CancelledError):
                raise
            problem = f"the text was not read within {self._seconds:g} seconds"
            raise UserError(problem, hint="Try a shorter one, or `fedrel predict`.") from error
        except (ConnectionError, ValueError):
            line = b""
        if not line:
            await self.stop()
            raise UserError("the process that reads text has ended", hint="Is there enough memory?")
        return dict(json.loads(line))


def main() -> None:
    """In that process: answer until the input ends."""
    from fedrel.inference.model import load_model

    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else may print between the answers
    known: dict[str, Model | DocumentModel] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            folder = asked["model"]
            if folder not in known:
                known.clear()
                known[folder] = load_model(folder)
            answer = _answer(known[folder], asked)
        except UserError as error:
            answer = {"problem": error.problem, "hint": error.hint or ""}
        except Exception as error:  # whatever a text or a model's files bring about: the studio goes on
            answer = {"problem": f"the model failed: {type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(model: Model | DocumentModel, asked: dict[str, Any]) -> dict[str, Any]:
    from fedrel.data.align import KnowledgeBase, read_kb
    from fedrel.inference.predict import predict_text

    kb = read_kb(Path(asked["kb"])) if asked["kb"] else None
    if asked["names"]:
        kb = kb or KnowledgeBase()
        kb.names.update({name: {name: None} for name in asked["names"]})
    marks = [(start, end, kind) for start, end, kind in asked["marks"]]
    threshold = asked["threshold"]
    found = predict_text(model, asked["text"], marks=marks, kb=kb, threshold=threshold)
    return {
        "lines": found.lines,
        "documents": found.documents,
        "asked": found.asked,
        "unit": found.unit,
        "threshold": model.threshold if threshold is None else threshold,
        "tuned": model.tuned and threshold is None,
    }


if __name__ == "__main__":
    main()
