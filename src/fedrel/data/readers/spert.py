"""SpERT's JSON (Eberts and Ulges 2020) for entities and relations together: CoNLL04, SciERC and ADE come in it.

A list of sentences with `tokens`, `entities` (`type`, `start`, `end`: tokens [start, end)) and `relations` (`type`,
`head`, `tail`: numbers of entities).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedrel.data.readers.marked import Marked, MarkedSentences, MarkedText, Relation
from fedrel.data.relations import RelationMap
from fedrel.data.structured_files import JSONObject, objects, shown
from fedrel.data.text import join_tokens


class SpERT(MarkedSentences):
    """SpERT's JSON."""

    name = "spert"

    def texts(self, path: Path, relations: RelationMap | None) -> Iterator[MarkedText]:
        """The sentences of a file."""
        for record in objects(path, "sentence"):
            with self.problems:
                yield self._marked(record, relations)

    def _marked(self, record: JSONObject, relations: RelationMap | None) -> MarkedText:
        text, sentences = join_tokens([record.strings("tokens")])
        [tokens] = sentences
        identity = str(record.fields.get("orig_id", record.number))
        marked = MarkedText(identity, text, record.file, sentences=sentences)
        for number, entity in enumerate(record.get("entities", list)):
            with self.problems:
                match entity:
                    case {"type": str(kind), "start": int(first), "end": int(after)}:
                        pass
                    case _:
                        raise record.error(
                            f"expected entities with type, start and end, found {shown(entity)}"
                        )
                if not 0 <= first < after <= len(tokens):
                    problem = f"the tokens [{first}, {after}) of entity {number} are outside the sentence"
                    raise record.error(f"{problem} of {len(tokens)} tokens", "tokens count from 0")
                start, end = tokens[first][0], tokens[after - 1][1]
                marked.mark(str(number), Marked(text[start:end], kind, start, end), record.line)
        for relation in record.get("relations", list):
            with self.problems:
                match relation:
                    case {"type": str(name), "head": int(head), "tail": int(tail)}:
                        name = self.relation(name, relations, record.file, record.line)
                        marked.relate(Relation(name, str(head), str(tail)), record.line)
                    case _:
                        found = shown(relation)
                        raise record.error(f"expected relations with type, head and tail, found {found}")
        return marked
