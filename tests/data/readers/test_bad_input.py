"""What a reader cannot take is told with its file, its line, what was found there, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedrel.data.readers import reader
from fedrel.errors import UserError
from tests.data.conftest import DOCRED, PUBTATOR, eog_entity, eog_line

Write = Callable[..., Path]


class Case(NamedTuple):
    format: str
    content: str
    line: int
    problem: str
    hint: str


def pubtator(old: str, new: str) -> str:
    assert PUBTATOR.count(old) == 1
    return PUBTATOR.replace(old, new)


def eog(*head: str) -> str:
    """A document after a good one, with one pair; `head` are the columns of its head."""
    tail = eog_entity("D9", "Disease", [("gloom", 2, 3, 0)])
    return "\n".join(["1\tFine .", eog_line("7", "Zorbine eases gloom .", [("1:CID:2", list(head), tail)])])


def docred(change: Callable[[dict[str, Any]], object]) -> str:
    (fields,) = json.loads(DOCRED)
    change(fields)
    return f"[\n\n{json.dumps(fields)}]"


CASES = {
    "a relation of an entity without mentions": [
        Case(
            "pubtator",
            pubtator("CID\tD01\tD91", "CID\tD01\tD99"),
            10,
            "the relation CID names 'D99', which document 11 never mentions",
            "give the entity a mention, or remove the relation",
        ),
        Case(
            "eog",
            eog("D1", "", "Chemical", "", "", ""),
            2,
            "a pair names the entity 'D1', which has no mention",
            "give the entity a mention, or remove the pair",
        ),
        Case(
            "docred",
            docred(lambda fields: fields["vertexSet"].__setitem__(1, [])),
            3,
            "document 1 ('Ada'): the relation P1 names entity 1, which has no mention",
            "give the entity a mention in `vertexSet`, or remove the label",
        ),
    ],
    "offsets that do not match the text": [
        Case(
            "pubtator",
            pubtator("11\t14\t22", "11\t15\t23"),
            4,
            "expected 'glomitis' at [15, 23), found 'lomitis '",
            "it is at [14, 22)",
        ),
        Case(
            "pubtator",
            pubtator("11\t37\t45", "11\t914\t922"),
            5,
            "expected 'hot-head' at [914, 922), found the end of a text of 132 characters",
            "it is at [37, 45)",
        ),
        Case(
            "eog",
            eog(*eog_entity("D1", "Chemical", [("Zorbine", 1, 2, 0)])),
            2,
            "expected 'Zorbine' of D1 at tokens [1, 2), found 'eases'",
            "tokens count from 0 through the whole document, as spaces and | separate them",
        ),
        Case(
            "docred",
            docred(lambda fields: fields["vertexSet"][0][0].update(pos=[1, 2])),
            3,
            "document 1 ('Ada'): expected 'Ada' at tokens [1, 2) of sentence 0, found 'met'",
            "`sent_id` counts sentences from 0, `pos` the tokens of that sentence from 0",
        ),
    ],
    "an annotation before its document": [
        Case(
            "pubtator",
            pubtator("11\t0\t7", "12\t0\t7"),
            3,
            "an annotation of document '12' before its title and abstract, among those of 11",
            "put the lines 12|t|... and 12|a|... above it",
        ),
        Case(
            "pubtator",
            pubtator("12|a|", "13|a|"),
            13,
            "the abstract of 13 comes before its title",
            "put the line 13|t|... right above it",
        ),
    ],
    "an empty document": [
        Case(
            "pubtator",
            pubtator("12|t|Nothing but warbleine here.", "12|t| "),
            12,
            "document 12 is empty",
            "remove it, or give it a text",
        ),
        Case("eog", "1\tFine .\n7\t|", 2, "document 7 is empty", "remove the line, or give it a text"),
        Case(
            "docred",
            docred(lambda fields: fields.update(sents=[[]])),
            3,
            "document 1 ('Ada'): is empty: its `sents` have no word",
            "remove it, or give it a text",
        ),
    ],
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{name} ({case.format})") for name in CASES for case in CASES[name]]
)
def test_bad_input(write: Write, case: Case) -> None:
    path = write(case.content)
    with pytest.raises(UserError) as caught:
        list(reader(case.format).read(path))
    error = caught.value
    assert (error.file, error.line) == (path, case.line)
    assert (error.problem, error.hint) == (case.problem, case.hint)


def test_one_entity_makes_no_pair_and_is_no_mistake(write: Write) -> None:
    lonely = {"title": "one", "sents": [["A", "gene"]], "labels": []}
    lonely["vertexSet"] = [[{"name": "A", "sent_id": 0, "pos": [0, 1], "type": "T"}]]
    files = {
        "pubtator": PUBTATOR[PUBTATOR.index("12|t|") :],
        "eog": "7\tFine .",
        "docred": json.dumps([lonely]),
    }
    for format_, content in files.items():
        (document,) = reader(format_).read(write(content))
        assert len(document.entities) <= 1 and document.pairs.shape == (0, 2)


def test_20000_tokens_are_all_kept(write: Write) -> None:
    words = ["zorbine", *["and"] * 19_998, "gloom"]
    text = " ".join(words)
    last = len(text) - len("gloom")
    lines = ["1|t|" + text, "1|a|", "1\t0\t7\tzorbine\tC\tD1", f"1\t{last}\t{len(text)}\tgloom\tD\tD2"]
    (document,) = reader("pubtator").read(write("\n".join([*lines, "1\tCID\tD1\tD2"])))
    assert sum(map(len, document.sentences)) == 20_000
    assert document.text[slice(*document.sentences[-1][-1])] == "gloom"
    assert document.pairs.tolist() == [[0, 1], [1, 0]] and len(document.facts) == 1
