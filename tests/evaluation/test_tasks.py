from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedrel.data.documents import DocumentCorpus
from fedrel.data.readers.docred import DocRED
from fedrel.data.store import DEV, TRAIN
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


def test_facts_are_known_by_any_two_names(tmp_path: Path) -> None:
    training = record(["Ada", "Countess"], ["Bo"], labels=[(0, 1, "met")])
    later = record(
        ["Lady", "Countess"], ["Bo", "Bob"], ["Cy"], labels=[(0, 1, "met"), (0, 1, "saw"), (0, 2, "met")]
    )
    (tmp_path / "d.json").write_text(json.dumps([training, later]))
    documents = list(DocRED().read(tmp_path / "d.json"))
    rows = zip([TRAIN, DEV], documents, strict=True)
    corpus = DocumentCorpus.build(rows, tmp_path / "corpus", DocumentCorpus.relations_of(documents))
    assert list(corpus.relations) == ["NA", "met", "saw"]
    pairs = corpus.pairs_of(corpus.rows(DEV))
    seen = seen_in_training(corpus, corpus.rows(TRAIN), pairs)
    assert seen.shape == (6, 3)
    assert np.argwhere(seen).tolist() == [[0, 1]]  # (Lady, Bo) met; not saw, not Cy, not the other way round
    assert not seen_in_training(corpus, corpus.rows(DEV)[:0], pairs).any()
