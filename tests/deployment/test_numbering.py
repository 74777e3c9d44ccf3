"""The same fact has the same number at every site, and any two facts the same order."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.align import KnowledgeBase
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.deployment.numbering import published_triples, renumbered

RELATIONS = ["NA", "treats", "causes"]


def corpus(folder: Path, triples: list[tuple[str, str, str]]) -> SentenceCorpus:
    rows = (
        (
            0,
            Instance(
                f"{h} {t} {n}", Mention(h, h, 0, len(h)), Mention(t, t, len(h) + 1, len(h) + 1 + len(t)), r
            ),
        )
        for n, (h, r, t) in enumerate(triples)
    )
    return SentenceCorpus.build(rows, folder, RELATIONS)


def knowledge_base(triples: list[tuple[str, str, str]]) -> KnowledgeBase:
    kb = KnowledgeBase()
    for head, relation, tail in triples:
        kb.add(head, [f"name of {head}"], relation, tail, [f"name of {tail}"])
    return kb


def named(found: SentenceCorpus, triple: int) -> tuple[str, str, str]:
    pair, relation = found.triples[triple]
    head, tail = found.pairs[pair]
    return found.entities[int(head)], found.relations[int(relation)], found.entities[int(tail)]


def test_by_hand(tmp_path):
    kb = knowledge_base([("q", "treats", "p"), ("a", "causes", "q")])
    before = corpus(
        tmp_path / "before", [("z", "NA", "a"), ("a", "causes", "q"), ("b", "NA", "p"), ("z", "NA", "a")]
    )
    after = renumbered(before, kb, tmp_path / "after")
    assert list(after.entities) == ["q", "p", "a", "b", "z"]  # published first, then sorted
    assert list(after.names) == ["name of q", "name of p", "name of a", "b", "z"]
    assert [named(after, n) for n in range(len(after.triples))] == [
        ("q", "treats", "p"),  # published, though this corpus has no sentence about it
        ("a", "causes", "q"),
        ("b", "NA", "p"),
        ("z", "NA", "a"),
    ]
    assert after.triple.tolist() == [3, 1, 2, 3]
    assert after.pair.tolist() == [3, 1, 2, 3]
    assert [after.text_of(row) for row in range(4)] == [before.text_of(row) for row in range(4)]
    assert after.tokens.tolist() == before.tokens.tolist()
    assert after.fingerprint != before.fingerprint


names = st.sampled_from("abcdef")
triples = st.lists(st.tuples(names, st.sampled_from(RELATIONS), names), min_size=1, max_size=8)


@given(published=triples, sites=st.lists(triples, min_size=2, max_size=3))
def test_sites_agree_without_seeing_each_other(published, sites):
    kb = knowledge_base([triple for triple in published if triple[1] != "NA"])
    known = published_triples(kb)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = renumbered(corpus(folder / "all", [*chain.from_iterable(sites)]), kb, folder / "all-numbered")
        for number, own in enumerate(sites):
            alone = renumbered(corpus(folder / f"{number}", own), kb, folder / f"{number}-numbered")
            assert [named(alone, n) for n in range(len(known))] == known
            assert [named(alone, int(n)) for n in alone.triple] == own
            start = sum(map(len, sites[:number]))
            in_whole = whole.triple[start : start + len(own)]
            published_there = in_whole < len(known)
            assert (alone.triple[published_there] == in_whole[published_there]).all()
            order = np.argsort(alone.triple, kind="stable")
            assert (order == np.argsort(in_whole, kind="stable")).all()


def test_without_a_knowledge_base_facts_are_sorted(tmp_path):
    after = renumbered(corpus(tmp_path / "x", [("b", "NA", "a"), ("a", "treats", "b")]), None, tmp_path / "y")
    assert [named(after, n) for n in range(2)] == [("a", "treats", "b"), ("b", "NA", "a")]
