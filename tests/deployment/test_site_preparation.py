"""A site that holds only its own text numbers, batches and trains as if all text were in one corpus.

The same fact has the same number at every site, and any two facts the same order.
"""

from __future__ import annotations

import json
import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.align import KnowledgeBase
from fedrel.data.sentences import Instance, Mention, SentenceCorpus
from fedrel.deployment import site_preparation
from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.site_preparation import prepare_site, published_triples, renumbered
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.messages import Model
from fedrel.federation.site_data import SiteData
from fedrel.runs.engines import new_runner
from tests.conftest import NO_STATES
from tests.deployment.conftest import SITES
from tests.deployment.joint import joint

RELATIONS = ["NA", "treats", "causes"]


@pytest.fixture(scope="module")
def whole(first_federation, tmp_path_factory):
    sites = {name: sorted((first_federation.site(name).path / "text").glob("*.txt")) for name in SITES}
    published = Artefacts(first_federation.coordinator.artefacts)
    return joint(published, published.config, sites, tmp_path_factory.mktemp("joint"))


@pytest.mark.parametrize("name", SITES)
def test_a_site_finds_the_batches_of_the_joint_corpus(first_federation, whole, name):
    folder = first_federation.site(name)
    mine = SiteData.load(folder.site_data, "pcnn")
    number = folder.number
    assert mine.partition.names == tuple(SITES)
    sizes = np.zeros(3, np.int64)
    sizes[number] = whole.partition.sizes[number]
    assert mine.partition.sizes.tolist() == sizes.tolist()
    assert folder.sentences == sizes[number] > 20
    assert mine.inputs.vocabulary_size == whole.inputs.vocabulary_size
    assert list(mine.corpus.relations) == list(whole.corpus.relations)

    rows, same = mine.partition.rows(number), whole.partition.rows(number)
    assert [mine.corpus.text_of(int(r)) for r in rows] == [whole.corpus.text_of(int(r)) for r in same]
    here, there = mine.bags(rows), whole.bags(same)
    assert np.searchsorted(rows, here.rows).tolist() == np.searchsorted(same, there.rows).tolist()
    assert here.bounds.tolist() == there.bounds.tolist()
    assert here.labels.tolist() == there.labels.tolist()
    facts = len(published_triples(Artefacts(folder.artefacts).knowledge_base))
    published = (
        there.keys < facts
    )  # what the knowledge base does not list has a number of its own at each site
    assert here.keys[published].tolist() == there.keys[published].tolist()
    assert 0 < published.sum() < len(published)
    mine_batch, whole_batch = mine.inputs.batch(here), whole.inputs.batch(there)
    for column in ("words", "starts", "head", "tail", "bags", "labels"):
        assert getattr(mine_batch, column).tolist() == getattr(whole_batch, column).tolist(), column
    assert mine_batch.words.max() > 1  # not all unknown

    validation = mine.inputs.batch(mine.bags(mine.validation))
    assert validation.words.tolist() == whole.inputs.batch(whole.bags(whole.validation)).words.tolist()


@pytest.mark.parametrize("phase", ["claim_keyed", "train"])
def test_a_site_gives_the_answers_of_the_joint_corpus(first_federation, whole, phase):
    """To the bit: weights, claims, digests."""
    folder = first_federation.site("south")
    config = folder.published.with_settings(["method=fedavg"]) if phase == "train" else folder.published
    weights = extractor_kind("pcnn").build(config.extractor, whole.inputs, 4, seed=1).state()
    answers = []
    for site_data in (SiteData.load(folder.site_data, "pcnn"), whole):
        place = new_runner(config, site_data, NO_STATES)
        asked = {f"Model.{name}": array for name, array in Model(weights).pack().items()}
        place.open(phase, 1, asked)
        arrays, _ = place.answer(phase, 1, folder.number, {})
        answers.append({name: array.tobytes() for name, array in arrays.items()})
    assert answers[0] == answers[1]


def test_columns_hold_the_sites_own_text_and_what_was_published(first_federation):
    corpus = SiteData.load(first_federation.site("north").site_data, "pcnn").corpus
    texts = {corpus.text_of(row) for row in range(len(corpus))}
    public = {json.loads(line)["text"] for line in (first_federation.folder / "dev.jsonl").open()}
    own = (first_federation.site("north").path / "text").iterdir().__next__().read_text()
    assert all(text in own for text in texts - public)


def test_a_prepared_folder_may_be_moved(federation, tmp_path):
    before = federation.site("north")
    text = SiteData.load(before.site_data, "pcnn").corpus.text_of(3)
    moved = before.path.rename(tmp_path / "moved") / before.site_data.relative_to(before.path)
    assert SiteData.load(moved, "pcnn").corpus.text_of(3) == text


def test_facts_without_a_number_are_left_out_where_numbers_are_sent(federation):
    folder = federation.site("north")
    everything = folder.sentences
    federation.publish(**{"methods__lazy-mil__keyed_triples": False, "shared__na_rate": 0})
    done = prepare_site(federation.site("north"))
    assert 0 < done.held < everything and done.left_out == 0
    jsonl = folder.path / "text" / "own.jsonl"
    line = json.loads((federation.folder / "dev.jsonl").open().readline())
    strange = line | {"h": line["h"] | {"id": "not-in-the-kb"}, "relation": "NA"}
    jsonl.write_text(f"{json.dumps(line)}\n{json.dumps(strange)}\n")
    text = (folder.path / "site.toml").read_text()
    data = 'files = ["text/own.jsonl"]\nformat = "jsonl"'
    listed = text.replace('files = [\n    "text/*.txt",\n]', data)
    (folder.path / "site.toml").write_text(listed)
    done = prepare_site(federation.site("north"))
    assert (done.held, done.left_out) == (1, 1)


def test_preparing_lists_what_the_policy_would_refuse(federation):
    federation.policy("west", methods=["fedavg"], epochs=1, differential_privacy=True)
    assert prepare_site(federation.site("west")).objections == [
        "allow.methods does not name 'lazy-mil'",
        "allow.differential_privacy is demanded, and the experiment has no [privacy.dp]",
        "allow.epochs is 1, the experiment asks for 2",
    ]


def test_a_site_refuses_artefacts_that_are_not_whole(federation):
    (federation.site("west").artefacts / "relations.json").write_text('{"NA": 0}')
    with pytest.raises(UserError, match=r"relations: relations.json is not the file that was published"):
        prepare_site(federation.site("west"))


def test_agreed_sizes_are_published_and_a_site_that_holds_more_says_so_itself(federation):
    table = federation.coordinator.path / "federation.toml"
    held, text = federation.site("west").sentences, table.read_text()
    assert federation.site("west").sizes == []
    table.write_text(f"{text}\n[sizes]\nwest = {held}\n")
    federation.publish()
    assert "sizes" in Artefacts(federation.coordinator.artefacts).fingerprints
    prepare_site(federation.site("west"))
    number = federation.site("west").number
    assert federation.site("west").sizes[number] == held and "sizes" in federation.site("west").prepared_with
    table.write_text(f"{text}\n[sizes]\nwest = {held - 1}\n")
    federation.publish()
    with pytest.raises(UserError, match=rf"holds {held:,} to train on, but at most {held - 1:,} were agreed"):
        prepare_site(federation.site("west"))
    table.write_text(text)
    federation.publish()
    prepare_site(federation.site("west"))
    assert federation.site("west").sizes == []


def test_a_site_that_was_interrupted_is_not_prepared(federation, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(site_preparation, "prepare_site_data", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare_site(federation.site("west"))
    with pytest.raises(UserError, match=r"not prepared(?s:.*)fedrel site prepare"):
        _ = federation.site("west").prepared_with


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"files": []}, "data.files is empty"),
        ({"files": ["notes/*.txt"]}, "nothing is called 'notes/\\*.txt'"),
        ({"files": ["text/*.txt"], "formt": "x"}, "unknown key 'data.formt'\nhint: did you mean 'format'"),
        ({"files": ["text/*.txt"], "format": "jsnl"}, "no reader is called 'jsnl'"),
    ],
)
def test_files_that_site_toml_names_must_exist(federation, data, message):
    import tomli_w

    tree = {"coordinator": "localhost:9092", "data": data}
    (federation.site("west").path / "site.toml").write_text(tomli_w.dumps(tree))
    with pytest.raises(UserError, match=message):
        prepare_site(federation.site("west"))


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
