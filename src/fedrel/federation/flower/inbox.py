"""What a site keeps of a round's messages: Flower starts a process for every question, and none of them remembers.

A message to all sites crosses once a round, however many questions it belongs to (`Federation.ask`). So a site
puts it in a file of its own until the next round begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedrel.files import atomic_file


class Inbox:
    """A folder of encoded messages, of one round at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, round_: int, phase: str, block: bytes) -> None:
        """Keep what came with a question; other rounds' files go, and those of the same question asked before."""
        for file in self._files():
            again = file.stem.endswith(f"-{phase}") and file.stat().st_size == len(block)
            if again or _round(file) != round_:
                file.unlink(missing_ok=True)
        number = 1 + max((_number(file) for file in self._files()), default=0)
        with atomic_file(self._folder / f"{round_:05}-{number:03}-{phase}.safetensors") as part:
            part.write_bytes(block)

    def kept(self, round_: int) -> Iterator[tuple[str, bytes]]:
        """What was kept in this round, in order: the question's phase and the encoded messages."""
        for file in self._files():
            if _round(file) == round_:
                yield file.stem.split("-", 2)[2], file.read_bytes()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.safetensors"))


def _round(file: Path) -> int:
    return int(file.stem.split("-")[0])


def _number(file: Path) -> int:
    return int(file.stem.split("-")[1])
