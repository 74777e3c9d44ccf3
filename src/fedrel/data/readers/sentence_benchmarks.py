"""Three benchmarks of sentences with one pair each: NYT10, TACRED and SemEval-2010 Task 8, read and written.

NYT10 (Riedel et al. 2010) comes in the tab form of Lin et al. 2016. A line is `mid1 mid2 name1 name2 relation
sentence`, and the sentence ends with `###END###`, after a space or as a seventh column. In it an entity's words are
joined by `_`.

TACRED (Zhang et al. 2017), also TACREV and Re-TACRED, is a JSON list of tokenised sentences, subjects and objects.
`subj_start` and `subj_end`, `obj_start` and `obj_end` count tokens; the last one is included. `no_relation` is NA.
Brackets are written as in the Penn Treebank (`-LRB-`) and read as brackets.

SemEval-2010 Task 8 (Hendrickx et al. 2010) has nine relations between nominals, each with a direction, and `Other`.
An example is a line with its number and the sentence in quotes, in which `<e1>` and `<e2>` mark the nominals, a
line with the relation, as `Cause-Effect(e2,e1)`, perhaps a comment, and a blank line.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fedrel.data.mentions import find_pair, unmarked
from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.structured_files import JSONObject, objects
from fedrel.data.text import Span, join_tokens, tokenise, unescaped
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_END = "###END###"
_SENTENCE = re.compile(r'(\d+)\s+"(.*)"')


class NYT10(Reader):
    """NYT10's tab-separated lines."""

    name = "nyt10"
    version = 2

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file; both names must be in the sentence, as whole tokens."""
        for number, line in lines(path):
            if line.strip():
                with self.problems:
                    yield self._instance(line, relations, path, number)

    def write(self, rows: Iterable[Instance], path: Path) -> None:
        """Write six columns a sentence; tabs and line ends in the text become spaces."""
        with path.open("w", encoding="utf-8") as file:
            for row in rows:
                relation = self.none_label if row.relation == NA else row.relation
                cells = [row.head.id, row.tail.id, row.head.name, row.tail.name, relation, row.text]
                file.write("\t".join(" ".join(cell.split()) for cell in cells) + f" {_END}\n")

    def _instance(self, line: str, relations: RelationMap | None, path: Path, number: int) -> Instance:
        columns = line.split("\t")
        if len(columns) < 6:
            problem = f"expected 6 columns (2 ids, 2 names, relation, sentence), found {len(columns)}"
            raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
        head_id, tail_id, head_name, tail_name, relation, sentence = columns[:6]
        text = sentence.strip().removesuffix(_END).rstrip()
        tokens = tokenise(text)
        if not tokens:
            raise UserError("the sentence is empty", file=path, line=number)
        head, tail = find_pair(head_name, tail_name, text, tokens)
        if head is None or tail is None:
            problem = f"the name {head_name if head is None else tail_name!r} is not in the sentence"
            hint = "write it as the sentence does, in whole words"
            raise UserError(problem, file=path, line=number, hint=hint)
        return Instance(
            text,
            Mention(head_id, head_name.replace("_", " "), *head),
            Mention(tail_id, tail_name.replace("_", " "), *tail),
            self.relation(relation, relations, path, number),
            tokens=tuple(tokens),
        )


class TACRED(Reader):
    """TACRED's JSON."""

    name = "tacred"
    none_label = "no_relation"
    version = 2

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file: the subject is the head, its words are its id; `docid` is the source."""
        for record in objects(path, "example"):
            with self.problems:
                text, [tokens] = join_tokens([[unescaped(word) for word in record.strings("token")]])
                head, tail = (_mention(record, part, text, tokens) for part in ("subj", "obj"))
                relation = self.relation(record.get("relation", str), relations, path, record.line)
                source = record.get("docid", str, default="")
                yield Instance(text, head, tail, relation, source, tokens=tuple(tokens))

    def write(self, rows: Iterable[Instance], path: Path) -> None:
        """Write sentences with their tokens; those of running text are found as everywhere."""
        with path.open("w", encoding="utf-8") as file:
            file.write("[")
            for number, row in enumerate(rows):
                tokens = row.tokens or tuple(tokenise(row.text))
                record: dict[str, object] = {
                    "id": str(number),
                    "docid": row.source,
                    "relation": self.none_label if row.relation == NA else row.relation,
                    "token": [row.text[start:end] for start, end in tokens],
                }
                ends = [end for _, end in tokens]
                for part, mention in (("subj", row.head), ("obj", row.tail)):
                    record[f"{part}_start"] = bisect_right(ends, mention.start)
                    record[f"{part}_end"] = bisect_right(ends, mention.end - 1)
                    record[f"{part}_type"] = mention.type
                file.write((",\n" if number else "\n") + json.dumps(record, ensure_ascii=False))
            file.write("\n]\n")


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


def _mention(record: JSONObject, part: str, text: str, tokens: list[Span]) -> Mention:
    first, last = record.get(f"{part}_start", int), record.get(f"{part}_end", int)
    if not 0 <= first <= last < len(tokens):
        problem = f"the tokens {first} to {last} of `{part}` are outside the sentence of {len(tokens)} tokens"
        raise record.error(problem, "tokens count from 0, and the last one is included")
    start, end = tokens[first][0], tokens[last][1]
    name = text[start:end]
    if not name.strip():
        raise record.error(f"`{part}` is nothing but white space")
    return Mention(name, name, start, end, record.get(f"{part}_type", str, default=""))


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
