"""Asks the process that reads text: one request at a time, each with a limit."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fedrel.errors import UserError

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
                *(sys.executable, "-P", "-m", "fedrel.studio.live.prediction_worker"),
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
