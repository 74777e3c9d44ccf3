"""Raw documents of the built-in world: given sentences in running prose, with others between them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import numpy as np

from fedrel.data.world.entities import Entity
from fedrel.data.world.grammar import Grammar
from fedrel.data.world.sentences import Writer

_CHATTER_LENGTH = 12
_PARAGRAPH_END = 0.2  # chance after each sentence


class Scribe(AbstractContextManager["Scribe"]):
    """Writes one document in one style, sentence by sentence; a blank line ends a paragraph."""

    def __init__(self, path: Path, grammar: Grammar, style: int, generator: np.random.Generator) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._writer, self._style, self._generator = Writer(grammar, generator), style, generator
        self._separator = ""

    def write(self, sentence: str, subject: Entity) -> None:
        """Add a sentence, and up to two others that mention no pair; one may go on about `subject`."""
        self._put(sentence)
        for chance in self._generator.random(2):
            if chance < 0.6:
                about = subject if chance < 0.2 else None
                self._put(self._writer.chatter(self._style, _CHATTER_LENGTH, about))

    def _put(self, sentence: str) -> None:
        self._file.write(self._separator + sentence)
        self._separator = "\n\n" if self._generator.random() < _PARAGRAPH_END else " "

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.write("\n")
        self._file.close()
