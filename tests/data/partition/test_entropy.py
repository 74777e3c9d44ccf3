from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.annotations import Document
from fedrel.data.documents import DocumentCorpus
from fedrel.data.partition.entropy import SentenceEdges, by_entropy, degrees, intervals, structural_entropy
from fedrel.data.partition.kinds import iid
from fedrel.data.readers.docred import DocRED
from fedrel.data.store import TRAIN
from fedrel.errors import UserError

Make = Callable[..., DocumentCorpus]


def documents(path: Path, *shapes: list[list[int]]) -> Iterator[Document]:
    """Documents of sentences that mention these entities, in DocRED's form."""
    records = []
    for shape in shapes:
        vertices: dict[int, list[dict[str, object]]] = {}
        for number, sentence in enumerate(shape):
            for place, entity in enumerate(sentence):
                mention = {"name": "x", "sent_id": number, "pos": [place, place + 1], "type": "T"}
                vertices.setdefault(entity, []).append(mention)
        sents = [["x"] * (len(sentence) + 1) for sentence in shape]
        records.append({"title": "t", "sents": sents, "vertexSet": list(vertices.values())})
    path.write_text(json.dumps(records))
    return DocRED().read(path)


def entropy(*counts: int) -> float:
    total = sum(counts)
    return -sum(count / total * log2(count / total) for count in counts)


def test_worked_out_by_hand(make: Make, tmp_path: Path) -> None:
    """Ada is in both sentences, Bo in the first.

    Ada has two mentions and two sentences (4), Bo one of each (2). Ada's first mention and Bo's have each other,
    an entity and a sentence (3 and 3), Ada's second has no neighbour (2). The first sentence has two mentions, two
    entities and the other sentence (5), the second one of each (3).
    """
    corpus = make(documents(tmp_path / "d.json", [[0, 1], [0]]))
    document, degree = degrees(corpus)
    assert document.tolist() == [0] * 7
    assert degree.tolist() == [4, 2, 3, 2, 3, 5, 3]
    assert structural_entropy(corpus) == pytest.approx([entropy(2, 3, 1, 1)])  # of degree 2, 3, 4 and 5


def test_sentences_that_mention_nothing_and_how_sentences_are_linked(make: Make, tmp_path: Path) -> None:
    corpus = make(documents(tmp_path / "d.json", [[0, 1], [0], []]))
    assert degrees(corpus)[1].tolist() == [4, 2, 3, 2, 3, 6, 4, 2]
    assert degrees(corpus, "adjacent")[1].tolist() == [4, 2, 3, 2, 3, 5, 4, 1]
    assert structural_entropy(corpus) == pytest.approx([entropy(3, 2, 2, 1)])  # of degree 2, 3, 4 and 6
    adjacent = structural_entropy(corpus, sentence_edges="adjacent")
    assert adjacent == pytest.approx([entropy(1, 2, 2, 2, 1)])


def test_an_entity_twice_in_one_sentence_meets_it_once(make: Make, tmp_path: Path) -> None:
    corpus = make(documents(tmp_path / "d.json", [[0, 0]]))
    # Two mentions and one sentence; each mention has the other, the entity and the sentence; the sentence has both
    # mentions and the entity: all four nodes have degree 3, and there is nothing to tell them apart by.
    assert degrees(corpus)[1].tolist() == [3, 3, 3, 3]
    assert structural_entropy(corpus).tolist() == [0]


def test_the_authors_own_number(make: Make, tmp_path: Path) -> None:
    """Degrees over the number of nodes, with one degree more for the head of each pair: (0, 1) and (1, 0)."""
    corpus = make(documents(tmp_path / "d.json", [[0, 1], [0]]))
    shares = [degree / 7 for degree in (5, 3, 3, 2, 3, 5, 3)]
    expected = -sum(share * log2(share) for share in shares)
    found = structural_entropy(corpus, sentence_edges="adjacent", measure="released")
    assert found == pytest.approx([expected])


SHAPES = st.lists(
    st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4), min_size=1, max_size=3
)


@given(SHAPES, st.sampled_from(["clique", "adjacent"]))
def test_against_a_graph_drawn_edge_by_edge(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[list[list[int]]], sentence_edges: SentenceEdges
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    read_back = documents(folder / "d.json", *shapes)
    corpus = DocumentCorpus.build(((TRAIN, document) for document in read_back), folder / "corpus", ["NA"])
    expected = []
    for shape in shapes:
        edges: set[frozenset[object]] = set()
        mentions = [(s, place, e) for s, sentence in enumerate(shape) for place, e in enumerate(sentence)]
        nodes = {("S", s) for s in range(len(shape))} | set(mentions) | {("E", e) for _, _, e in mentions}
        edges |= {frozenset([a, b]) for a, b in combinations(mentions, 2) if a[0] == b[0]}
        for mention in mentions:
            sentence, _, entity = mention
            edges |= {frozenset(pair) for pair in combinations([mention, ("S", sentence), ("E", entity)], 2)}
        for a, b in combinations(range(len(shape)), 2):
            if sentence_edges == "clique" or b == a + 1:
                edges.add(frozenset([("S", a), ("S", b)]))
        degree = Counter(sum(node in edge for edge in edges) for node in nodes)
        expected.append(entropy(*degree.values()))
    assert structural_entropy(corpus, sentence_edges=sentence_edges) == pytest.approx(expected)


def test_each_interval_is_a_site(caplog: pytest.LogCaptureFixture) -> None:
    rows = np.array([4, 5, 6, 7, 8])
    values = np.array([2.0, 0.0, 0.5, 1.0, 1.01])
    assert intervals(values, 4).tolist() == [0, 0.5, 1, 1.5, 2]
    with caplog.at_level(logging.WARNING):
        partition = by_entropy(rows, values, 4)
    assert [partition.rows(site).tolist() for site in range(4)] == [[5, 6], [7], [8], [4]]
    assert partition.names == ("site-0", "site-1", "site-2", "site-3")
    assert not caplog.text


def test_empty_intervals_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        partition = by_entropy(np.arange(4), np.array([0.0, 3.0, 0.1, 2.9]), 3)
    assert partition.sizes.tolist() == [2, 0, 2]
    assert "no document's entropy falls to site-1: 1 of 3 sites" in caplog.text
    assert by_entropy(np.arange(3), np.ones(3), 2).sizes.tolist() == [3, 0]


def test_more_sites_than_documents_are_refused() -> None:
    with pytest.raises(UserError, match="over 3 sites"):
        by_entropy(np.arange(2), np.array([0.0, 1.0]), 3)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.integers(1, 10))
def test_every_document_is_in_its_interval(values: list[float], sites: int) -> None:
    sites = min(sites, len(values))
    entropies = np.array(values)
    partition, edges = by_entropy(np.arange(len(values)), entropies, sites), intervals(entropies, sites)
    assert sorted(partition.order.tolist()) == list(range(len(values)))
    for site in range(sites):
        held = entropies[partition.rows(site)]
        assert np.all((edges[site] <= held) & (held <= edges[site + 1]))


def test_iid_by_document() -> None:
    partition = iid(np.arange(10, 20), 3, seed=1)
    assert sorted(partition.order.tolist()) == list(range(10, 20))
    assert partition.sizes.tolist() == [3, 3, 4]
