"""Distantly supervised sentences on which people gave a verdict: does this sentence state its label?

`judged-tokens` is a JSON list with `sentence`, `head` and `tail` (`word`, `pos`: first and last token), `relation`
and `is_noise` (520 sentences of NYT10). `judged-lines` has nine columns: two ids, a number, relation, verdict, the
sentence with `[name]1` and `[name]2`, the two names, and the sentence once more (1,377 sentences of NYT10).
`judged-snippets` is Google's relation extraction corpus: JSON lines with `pred`, `sub`, `obj`, `evidences` (`url`,
`snippet` with the object as `((NAM: name))`) and the raters' `judgments`.

The verdict becomes `expresses`; where there is none, or raters are as many on either side, that is not known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from fedrel.data.mentions import find_name
from fedrel.data.readers import Reader
from fedrel.data.relations import RelationMap
from fedrel.data.sentences import Instance, Mention
from fedrel.data.structured_files import JSONObject, objects
from fedrel.data.text import join_tokens, tokenise
from fedrel.data.text_files import lines
from fedrel.errors import UserError

_BRACKETS = re.compile(r"\[([^\[\]]+)\]([12])(?!\w)")
_OBJECT = re.compile(r"\(\(NAM: ?(.+?)\)\)")
_PRONOUNS = ("He", "She", "His", "Her")
_VERDICTS = {"y": True, "n": False, "indirect": False}
_COLUMNS = 9


class JudgedTokens(Reader):
    """Tokenised sentences in a JSON list, with `is_noise`."""

    name = "judged-tokens"

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file; an entity's name is its id."""
        for record in objects(path, "sentence"):
            with self.problems:
                text, [tokens] = join_tokens([record.get("sentence", str).split()])
                mentions = []
                for part in ("head", "tail"):
                    about = JSONObject(record.get(part, dict), path, record.line, record.number)
                    first, last = _places(about, len(tokens))
                    start, end = tokens[first][0], tokens[last][1]
                    mentions.append(Mention(text[start:end], text[start:end], start, end))
                noise = record.fields.get("is_noise")
                if not isinstance(noise, bool):
                    raise record.error("expected `is_noise` to be true or false")
                relation = self.relation(record.get("relation", str), relations, path, record.line)
                head, tail = mentions
                yield Instance(text, head, tail, relation, expresses=not noise, tokens=tuple(tokens))


class JudgedLines(Reader):
    """Lines of nine columns, the fifth of which is the verdict: y, n or indirect, which counts as not stated."""

    name = "judged-lines"

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The instances of a file: `[name]1` is the head, `[name]2` the tail."""
        for number, line in lines(path):
            if line.strip():
                with self.problems:
                    yield self._instance(line.rstrip("\n").split("\t"), relations, path, number)

    def _instance(
        self, columns: list[str], relations: RelationMap | None, path: Path, number: int
    ) -> Instance:
        if len(columns) != _COLUMNS:
            problem = f"expected {_COLUMNS} columns, found {len(columns)}"
            raise UserError(problem, file=path, line=number, hint="separate the columns by tabs")
        ids, relation, verdict, marked = columns[:2], columns[3], columns[4], columns[5].strip().strip('"')
        text, done = "", 0
        places: dict[str, tuple[int, int]] = {}
        for found in _BRACKETS.finditer(marked):
            text += marked[done : found.start()]
            places.setdefault(found[2], (len(text), len(text) + len(found[1])))
            text, done = text + found[1], found.end()
        text += marked[done:]
        if len(places) < 2:
            problem = "the sentence does not have both [name]1 and [name]2"
            raise UserError(problem, file=path, line=number, hint="mark the two names with brackets")
        head, tail = (
            Mention(identity, text[slice(*places[which])], *places[which])
            for identity, which in zip(ids, "12", strict=True)
        )
        relation = self.relation(relation, relations, path, number)
        return Instance(text, head, tail, relation, expresses=_VERDICTS.get(verdict.strip()))


class JudgedSnippets(Reader):
    """Snippets about a subject, whose page names it, and an object; several people's judgments."""

    name = "judged-snippets"

    def read(self, path: Path, *, relations: RelationMap | None = None) -> Iterator[Instance]:
        """The first evidence of each line: the subject is the head, its first name in the snippet or a pronoun."""
        for record in objects(path, "fact"):
            with self.problems:
                evidences, judgments = record.get("evidences", list), record.get("judgments", list)
                if not evidences or not isinstance(evidences[0], dict):
                    raise record.error("expected `evidences` to have an object")
                evidence = JSONObject(evidences[0], path, record.line, record.number)
                text, tail = _object(evidence, record.get("obj", str))
                head = _subject(evidence, record.get("sub", str), text, tail)
                relation = self.relation(record.get("pred", str), relations, path, record.line)
                votes = Counter(one.get("judgment") for one in judgments if isinstance(one, dict))
                verdict = None if votes["yes"] == votes["no"] else votes["yes"] > votes["no"]
                yield Instance(text, head, tail, relation, expresses=verdict)


def _places(about: JSONObject, tokens: int) -> tuple[int, int]:
    found = about.get("pos", list)
    if (
        len(found) != 2
        or not all(type(one) is int for one in found)
        or not 0 <= found[0] <= found[1] < tokens
    ):
        problem = f"expected `pos` to be the first and the last token, of {tokens}, found {found}"
        raise about.error(problem, "tokens count from 0, and the last one is included")
    return found[0], found[1]


def _object(evidence: JSONObject, identity: str) -> tuple[str, Mention]:
    """The snippet without the marks of its objects, and the first of them."""
    snippet = evidence.get("snippet", str)
    found = _OBJECT.search(snippet)
    if found is None:
        raise evidence.error("the snippet has no object", "it is marked as ((NAM: name))")
    name, start = found[1].strip(), len(snippet[: found.start()])
    text = snippet[:start] + name + _OBJECT.sub(r"\1", snippet[found.end() :])
    return text, Mention(identity, name, start, start + len(name))


def _subject(evidence: JSONObject, identity: str, text: str, tail: Mention) -> Mention:
    """The page's title, its last or first word, or else a pronoun, wherever that is in the snippet first."""
    title = re.sub(
        r" \(.*", "", unquote(evidence.get("url", str)).rsplit("/", 1)[-1].replace("_", " ")
    ).strip()
    words = title.split() or [""]
    tokens = tokenise(text)
    for name in (title, words[-1], words[0], *_PRONOUNS):
        place = find_name(name, text, tokens)
        if place is not None and (place[1] <= tail.start or tail.end <= place[0]):
            return Mention(identity, title or name, *place)
    raise evidence.error(f"the snippet does not name {title!r}")
