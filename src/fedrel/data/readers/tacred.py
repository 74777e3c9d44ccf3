"""TACRED (Zhang et al. 2017), also TACREV and Re-TACRED: a JSON list of tokenised sentences, subjects and objects.

`subj_start` and `subj_end`, `obj_start` and `obj_end` count tokens; the last one is included. `no_relation` is NA.
Brackets are written as in the Penn Treebank (`-LRB-`) and read as brackets.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedrel.data.readers import Reader
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.structured_files import JSONObject, objects
from fedrel.data.text import Span, join_tokens, tokenise, unescaped


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
