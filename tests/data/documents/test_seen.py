from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedrel.data.documents import DocumentCorpus
from fedrel.data.readers.docred import read
from fedrel.data.sentences import DEV, TRAIN
from fedrel.data.splits import split_by_document
from fedrel.errors import UserError
from fedrel.evaluation.tasks import seen_in_training


def record(*entities: list[str], labels: list[tuple[int, int, str]]) -> dict[str, object]:
    names = [name for entity in entities for name in entity]
    place = {name: number for number, name in enumerate(names)}
    vertices = [
        [{"name": name, "sent_id": 0, "pos": [place[name], place[name] + 1], "type": "T"} for name in entity]
        for entity in entities
    ]
    facts = [{"h": head, "t": tail, "r": relation, "evidence": []} for head, tail, relation in labels]
    return {"title": "t", "sents": [names], "vertexSet": vertices, "labels": facts}


def test_facts_are_known_by_any_two_names(make: Callable[..., DocumentCorpus], tmp_path: Path) -> None:
    training = record(["Ada", "Countess"], ["Bo"], labels=[(0, 1, "met")])
    later = record(
        ["Lady", "Countess"], ["Bo", "Bob"], ["Cy"], labels=[(0, 1, "met"), (0, 1, "saw"), (0, 2, "met")]
    )
    (tmp_path / "d.json").write_text(json.dumps([training, later]))
    corpus = make(read(tmp_path / "d.json"), [TRAIN, DEV])
    assert list(corpus.relations) == ["NA", "met", "saw"]
    pairs = corpus.pairs_of(corpus.rows(DEV))
    seen = seen_in_training(corpus, corpus.rows(TRAIN), pairs)
    assert seen.shape == (6, 3)
    assert np.argwhere(seen).tolist() == [[0, 1]]  # (Lady, Bo) met; not saw, not Cy, not the other way round
    assert not seen_in_training(corpus, corpus.rows(DEV)[:0], pairs).any()


def test_documents_are_dealt_out_by_fraction() -> None:
    parts = split_by_document(np.arange(100, 200), (0.7, 0.1, 0.2), seed=3)
    assert [len(part) for part in parts] == [70, 10, 20]
    assert sorted(np.concatenate(parts).tolist()) == list(range(100, 200))
    assert all(np.all(np.diff(part) > 0) for part in parts)
    assert parts[0].tolist() == split_by_document(np.arange(100, 200), seed=3)[0].tolist()
    assert parts[0].tolist() != split_by_document(np.arange(100, 200), seed=4)[0].tolist()
    with pytest.raises(UserError, match="fractions that add up to 1"):
        split_by_document(np.arange(3), (0.5, 0.4), seed=1)
