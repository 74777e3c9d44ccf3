from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedrel.data.readers.docred import DocRED
from fedrel.data.relations import RelationMap
from fedrel.errors import UserError
from tests.data.conftest import DOCRED

Write = Callable[..., Path]


def test_entities_pairs_facts_and_evidence(write: Write) -> None:
    (document,) = DocRED().read(write(DOCRED))
    assert document.id == "Ada" and document.text == "Ada met Bo . Ada left ."
    assert [entity.id for entity in document.entities] == ["0", "1"]
    assert [(m.start, m.end) for m in document.entities[0].mentions] == [(0, 3), (13, 16)]
    assert document.pairs.tolist() == [[0, 1], [1, 0]]
    assert [(fact.relation, fact.evidence) for fact in document.facts] == [("P1", (0,)), ("P2", (0, 1))]
    assert [len(sentence) for sentence in document.sentences] == [4, 3]


def test_one_document_a_line_and_documents_without_labels(write: Write) -> None:
    (fields,) = json.loads(DOCRED)
    del fields["labels"]
    documents = list(DocRED().read(write("\n".join([json.dumps(fields)] * 3))))
    assert len(documents) == 3 and not documents[2].facts


def test_relations_by_their_names(write: Write) -> None:
    info = write(json.dumps({"P1": "met", "P2": "knows"}), "rel_info.json")
    (document,) = DocRED().read(write(DOCRED), rel_info=info)
    assert [fact.relation for fact in document.facts] == ["met", "knows"]
    with pytest.raises(UserError, match="'P2' is not in rel_info"):
        list(DocRED().read(write(DOCRED), rel_info=write('{"P1": "met"}', "less.json")))
    with pytest.raises(UserError, match="two relations have one name"):
        list(DocRED().read(write(DOCRED), rel_info=write('{"P1": "met", "P2": "met"}', "same.json")))


def test_names_spaced_otherwise_repeated_mentions_and_facts(write: Write) -> None:
    (fields,) = json.loads(DOCRED)
    fields["vertexSet"][1] = [{"name": "7.\nBo", "sent_id": 0, "pos": [2, 3], "type": "ORG"}] * 2
    fields["labels"] += [{"h": 0, "t": 1, "r": "P1", "evidence": [1]}, {"h": 1, "t": 1, "r": "P1"}]
    (document,) = DocRED().read(write(json.dumps([fields])))
    assert document.handled == {
        "names_differ": 2, "repeated_mentions": 1, "repeated_facts": 1, "self_relations": 1,
    }  # fmt: skip
    assert document.facts[0].evidence == (0, 1)


def wrong(change: Callable[[dict[str, Any]], object]) -> str:
    (fields,) = json.loads(DOCRED)
    change(fields)
    return f"[\n\n{json.dumps(fields)}]"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (wrong(lambda d: d["vertexSet"][0][0].update(pos=[1, 2])), r":3: .*'Ada' at .*sentence 0, found 'met'"),
        (wrong(lambda d: d["vertexSet"][0][0].update(pos=[3, 5])), r":3: .*found 4 tokens in it"),
        (wrong(lambda d: d["vertexSet"][0][0].update(sent_id=2)), r":3: .*found 2 sentences"),
        (wrong(lambda d: d["vertexSet"][0][0].pop("pos")), r":3: .*entity 0: expected mentions with"),
        (wrong(lambda d: d["vertexSet"].__setitem__(1, [])), r":3: .*P1 names entity 1, which has no mention"),
        (wrong(lambda d: d["labels"][0].update(t=9)), r":3: .*names entity 9, which has no mention"),
        (wrong(lambda d: d["labels"][0].update(r="P9")), r":3: the relation 'P9' is not in the relation map"),
        (wrong(lambda d: d["labels"][0].update(evidence=[2])), r":3: .*numbers of the 2 sentences, found \[2\]"),
        (wrong(lambda d: d["labels"][0].pop("h")), r":3: .*expected labels with `h`, `t` and `r`"),
        (wrong(lambda d: d.update(sents=[[]])), r":3: document 1 \('Ada'\): is empty"),
        (wrong(lambda d: d.update(sents=["Ada"])), r":3: .*a list of strings"),
        (wrong(lambda d: d.pop("vertexSet")), r":3: .*expected a list `vertexSet`"),
        ("[1]", r":1: expected a list of JSON objects"),
        (DOCRED.replace('"r": "P1"', '"r" "P1"'), r":2: broken JSON in document 1"),
        (DOCRED.replace('"Ada", "left"', '"\\ud800", "left"'), r":2: broken JSON in document 1"),
        (DOCRED[:-1], r": the list of documents has no end"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(write: Write, content: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"corpus\.txt{message}"):
        list(DocRED().read(write(content), relations=RelationMap(["P1", "P2"])))
