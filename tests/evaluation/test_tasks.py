"""Tasks by hand, and the threshold with the best F1 against trying every one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.documents import DocumentCorpus
from fedrel.data.readers.docred import DocRED
from fedrel.data.relations import NA, RelationMap
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.data.store import DEV, TRAIN
from fedrel.errors import UserError
from fedrel.evaluation.tasks import UNTUNED, Documents, Sentences, best_threshold, seen_in_training


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


def sentences(tmp_path: Path, labels: str, relations: str = "r") -> SentenceCorpus:
    """A sentence for each letter: a relation, or `-` for none."""
    said = [
        Instance("a b", Mention(f"h{n}", "a", 0, 1), Mention(f"t{n}", "b", 2, 3), NA if one == "-" else one)
        for n, one in enumerate(labels)
    ]
    return SentenceCorpus.build(((TRAIN, one) for one in said), tmp_path / "corpus", RelationMap(relations))


def test_one_relation_is_found_from_the_threshold_of_dev_on(tmp_path: Path) -> None:
    corpus = sentences(tmp_path, "r-r-r-")
    rows, asked = corpus.rows(TRAIN), np.array([0.4, 0.3, 0.2, 0.1, 0.35, 0.3])
    dev, test = rows[:4], rows[4:]
    scores = np.stack([1 - asked, asked], 1)
    task = Sentences(corpus, tune=True)
    chosen = task.choose(dev, "none", lambda _, bags: scores[bags.rows])
    # From .4 on: P 1, R 1/2, F1 2/3; from .2 on: P 2/3, R 1, F1 4/5, which is best; half-way to .1.
    assert chosen.threshold == pytest.approx(0.15) and chosen.metrics()["f1"] == pytest.approx(0.8)
    found = task.evaluate(test, "none", lambda _, bags: scores[bags.rows], chosen.threshold)
    assert found.metrics()["precision"] == 0.5 and found.metrics()["recall"] == 1  # both are found
    untuned = Sentences(corpus).choose(dev, "none", lambda _, bags: scores[bags.rows])
    assert untuned.threshold is None and untuned.metrics()["f1"] == 0
    with pytest.raises(UserError, match="one relation beside NA, these data have 3"):
        Sentences(sentences(tmp_path / "more", "rs", "rs"), tune=True)


def test_documents_are_measured_at_the_threshold_of_dev(tmp_path: Path) -> None:
    one = record(["A"], ["B"], labels=[(0, 1, "met")])
    (tmp_path / "d.json").write_text(json.dumps([one, one]))
    documents = list(DocRED().read(tmp_path / "d.json"))
    rows = zip([DEV, TRAIN], documents, strict=True)
    corpus = DocumentCorpus.build(rows, tmp_path / "corpus", DocumentCorpus.relations_of(documents))
    scores = {0: np.array([[0.3], [0.1]]), 1: np.array([[0.15], [0.25]])}  # (A, B), (B, A)
    task = Documents(corpus, corpus.rows(TRAIN), tune=True)
    chosen = task.choose(corpus.rows(DEV), "none", lambda _, bags: scores[int(bags.rows[0])])
    assert chosen.threshold == pytest.approx(0.2) and chosen.metrics()["f1"] == 1
    test = task.evaluate(
        corpus.rows(TRAIN), "none", lambda _, bags: scores[int(bags.rows[0])], chosen.threshold
    )
    assert (
        test.metrics()["f1"] == 0 and test.guesses.sum() == 1
    )  # (B, A), wrongly; at its own best it had F1 2/3
    assert (
        Documents(corpus, corpus.rows(TRAIN))
        .choose(corpus.rows(DEV), "none", lambda _, bags: scores[int(bags.rows[0])])
        .metrics()["f1"]
        == 0
    )


def f1(probabilities: np.ndarray, facts: np.ndarray, threshold: float) -> float:
    guessed = probabilities >= threshold
    return 2 * (guessed & facts).sum() / max(guessed.sum() + facts.sum(), 1)


NEAR = [1e-7, 3e-7, 0.3 + 1e-8, 0.9999998, 0.9999999]


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.9, 1.0, *NEAR]), st.booleans()), min_size=1
    ),
    st.sampled_from([np.float32, np.float64]),
)
def test_no_other_threshold_is_better(answers: list[tuple[float, bool]], dtype: type) -> None:
    probabilities = np.array([[value for value, _ in answers]], dtype)
    facts = np.array([[right for _, right in answers]])
    found = best_threshold(probabilities, facts)
    if not facts.any():
        assert found == UNTUNED
        return
    tried = [f1(probabilities, facts, at) for at in (*probabilities[0].tolist(), 2.0)]
    assert f1(probabilities, facts, found) == max(tried)
    assert 0 <= found <= 1


def test_it_lies_half_way_to_the_next_lower_probability() -> None:
    probabilities = np.array([[0.9, 0.2], [0.6, 0.1]])
    assert best_threshold(probabilities, np.array([[True, False], [True, False]])) == 0.4
    assert best_threshold(np.array([[0.5]]), np.array([[True]])) == 0.25
