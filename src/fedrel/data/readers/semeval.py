"""SemEval-2010 Task 8 (Hendrickx et al. 2010): nine relations between nominals, each with a direction, and `Other`.

An example is a line with its number and the sentence in quotes, in which `<e1>` and `<e2>` mark the nominals, a
line with the relation, as `Cause-Effect(e2,e1)`, perhaps a comment, and a blank line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fedrel.data.mentions import unmarked
from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_SENTENCE = re.compile(r'(\d+)\s+"(.*)"')


class SemEval(Reader):
    """SemEval-2010 Task 8."""

    name = "semeval"
    none_label = "Other"

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file; `<e1>` is the head.

        The direction stays in the relation's name: were the head taken from it, the label could be told from the
        order of the entities.
        """
        for block in _blocks(path):
            with self.problems:
                yield self._instance(block, relations, path)

    def _instance(self, block: list[tuple[int, str]], relations: RelationMap | None, path: Path) -> Instance:
        (number, first), *rest = block
        sentence = _SENTENCE.fullmatch(first.strip())
        if sentence is None:
            problem = f"expected a number and a sentence in quotes, found {first!r}"
            raise UserError(problem, file=path, line=number, hint="a blank line ends an example")
        if not rest or rest[0][1].startswith("Comment:"):
            problem = f"example {sentence[1]} has no relation"
            raise UserError(problem, file=path, line=number, hint="the line below the sentence names it")
        try:
            found = unmarked(sentence[2])
        except UserError as error:
            raise UserError(error.problem, file=path, line=number, hint=error.hint) from error
        line, label = rest[0]
        other = next((one for one in rest[1:] if not one[1].startswith("Comment:")), None)
        if _SENTENCE.fullmatch(label.strip()) or other is not None:
            line, label = rest[0] if other is None else other
            problem = f"expected one relation for example {sentence[1]}, found {label!r}"
            hint = "a blank line ends an example; a file without relations cannot be trained on"
            raise UserError(problem, file=path, line=line, hint=hint)
        return replace(found, relation=self.relation(label.strip(), relations, path, line))

    def write(self, rows: Iterable[Instance], path: Path) -> None:
        """Write sentences as numbered examples."""
        with path.open("w", encoding="utf-8") as file:
            for number, row in enumerate(rows, 1):
                text = row.text
                ends = [(row.head, "e1"), (row.tail, "e2")]
                # From right to left, so that places stay right; where two tags meet, the closing one comes first.
                tags = [(one.start, 1, f"<{tag}>") for one, tag in ends]
                tags += [(one.end, 0, f"</{tag}>") for one, tag in ends]
                for place, _, tag in sorted(tags, reverse=True):
                    text = text[:place] + tag + text[place:]
                relation = self.none_label if row.relation == NA else row.relation
                file.write(f'{number}\t"{text}"\n{relation}\nComment:\n\n')


def _blocks(path: Path) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines between blank lines."""
    held: list[tuple[int, str]] = []
    for number, line in lines(path):
        if line.strip():
            held.append((number, line))
        elif held:
            yield held
            held = []
    if held:
        yield held
