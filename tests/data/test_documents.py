from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.annotations import Document, Entity, Fact, Mention
from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import open_corpus
from fedrel.data.readers.docred import DocRED
from fedrel.data.readers.pubtator import PubTator
from fedrel.data.store import DEV, TEST, TRAIN
from fedrel.data.text import join_tokens
from fedrel.errors import UserError
from tests.data.conftest import DOCRED, PUBTATOR

Make = Callable[..., DocumentCorpus]
Write = Callable[..., Path]


@pytest.fixture
def corpus(make: Make, write: Write) -> DocumentCorpus:
    """Two PubTator documents, then DocRED's."""
    path = write(PUBTATOR)
    documents = [
        *PubTator().read(path, pair_types=[["Chemical", "Disease"]]),
        *DocRED().read(write(DOCRED, "d.json")),
    ]
    return make(documents, [TRAIN, DEV, TEST])


def test_a_document_by_itself(corpus: DocumentCorpus) -> None:
    view = corpus.view(0)
    assert view.id == "11" and view.text.startswith("Zorbine eases")
    assert view.entity_ids == ["D01", "D90", "D91", "D92"]
    assert view.entity_types == ["Chemical", "Disease", "Disease", "Disease"]
    assert view.mentions.tolist() == [0, 2, 4, 6, 7]
    assert view.mention_entity.tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert view.mention_sentence.tolist() == [0, 1, 0, 2, 0, 3, 3]
    words = view.words
    joined = ["".join(words[first:after]) for first, after in view.mention_tokens.tolist()]
    assert joined[3:] == ["glomitis", "hot-head", "Hot-headandblueears", "Hot-headandblueears"]
    assert [view.text[start:end] for start, end in view.mention_chars.tolist()][:2] == ["Zorbine", "zorbine"]
    assert view.pairs.tolist() == [[0, 1], [0, 2], [0, 3]]
    assert view.labels.astype(int).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    assert not view.left_out.any()
    assert corpus.intra[view.pair_numbers].tolist() == [1, 1, 0]


def test_documents_that_follow_count_from_their_own_beginning(corpus: DocumentCorpus) -> None:
    assert list(corpus.relations) == ["NA", "CID", "P1", "P2"]
    view = corpus.view(2)
    assert view.words == ["Ada", "met", "Bo", ".", "Ada", "left", "."]
    assert view.sentences.tolist() == [0, 4, 7]
    assert view.mention_tokens.tolist() == [[0, 1], [4, 5], [2, 3]]
    assert view.pair_numbers.tolist() == [3, 4]
    assert view.labels.astype(int).tolist() == [[0, 0, 1, 1], [1, 0, 0, 0]]
    facts = slice(*corpus.fact_starts[[3, 4]])
    assert corpus.fact_relation[facts].tolist() == [2, 3]
    evidence = [corpus.evidence[a:b].tolist() for a, b in pairwise(corpus.evidence_starts[1:].tolist())]
    assert evidence == [[0], [0, 1]]
    assert corpus.view(1).pairs.shape == (0, 2)


def test_the_corpus_as_a_whole(corpus: DocumentCorpus) -> None:
    assert [corpus.rows(split).tolist() for split in (TRAIN, DEV, TEST)] == [[0], [1], [2]]
    assert corpus.pairs_of(np.array([2, 0])).tolist() == [3, 4, 0, 1, 2]
    assert corpus.pairs_of(np.array([1])).tolist() == []
    assert corpus.counts()["unlinked_mentions"] == 1 and corpus.counts()["self_relations"] == 0
    assert corpus.view(2).mention_names == ["Ada", "Ada", "Bo"]


def test_opened_again(corpus: DocumentCorpus) -> None:
    for again in (open_corpus(corpus.folder), DocumentCorpus.open(corpus.folder)):
        assert again.fingerprint == corpus.fingerprint
        assert again.view(2).words == corpus.view(2).words
    with pytest.raises(ValueError, match="read-only"):
        corpus.pairs[0, 0] = 1


def test_fingerprints_tell_corpora_apart(make: Make, write: Write, corpus: DocumentCorpus) -> None:
    path = write(PUBTATOR, "same.txt")
    assert make(PubTator().read(path)).fingerprint == make(PubTator().read(path)).fingerprint
    assert make(PubTator().read(path)).fingerprint != corpus.fingerprint


def test_a_damaged_corpus_is_refused(corpus: DocumentCorpus) -> None:
    (corpus.folder / "pairs.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"damaged one: pairs\.bin has 0 bytes"):
        open_corpus(corpus.folder)


def one(**changes: object) -> Document:
    entities = [
        Entity(name, "T", (Mention(name, start, end),)) for name, start, end in (("Ada", 0, 3), ("Bo", 4, 6))
    ]
    pairs = np.array([[0, 1]], np.int32)
    document = Document("x", "Ada Bo", [[(0, 3), (4, 6)]], entities, pairs, np.zeros(1, np.bool_), [])
    return replace(document, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (one(sentences=[[(0, 2), (2, 6)]]), "'Ada' at .* is not whole tokens of one sentence"),
        (one(sentences=[[(0, 2)], [(2, 3), (4, 6)]]), "'Ada' at .* is not whole tokens of one sentence"),
        (one(text="", sentences=[]), "'Ada' at .* of 0 characters"),
        (one(facts=[Fact(1, 0, "r")]), "a fact of 'r' is about no pair"),
        (one(facts=[Fact(0, 1, "r")], left_out=np.ones(1, np.bool_)), "a fact of 'r' is about no pair"),
        (one(facts=[Fact(0, 1, "s")]), "the relation 's' is not in the map"),
    ],
)
def test_what_readers_let_slip_is_refused(tmp_path: Path, document: Document, message: str) -> None:
    with pytest.raises(UserError, match=message):
        DocumentCorpus.build([(TRAIN, document)], tmp_path / "corpus", ["NA", "r"])
    assert not (tmp_path / "corpus").exists()


def test_na_must_be_the_first_relation(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the first relation must be 'NA'"):
        DocumentCorpus.build([], tmp_path / "corpus", ["r"])


def test_progress_and_no_documents(tmp_path: Path) -> None:
    told: list[int] = []
    corpus = DocumentCorpus.build(
        ((TRAIN, one()) for _ in range(300)), tmp_path / "many", ["NA"], told.append
    )
    assert told == [256, 300] and len(corpus) == 300
    assert corpus.view(299).words == ["Ada", "Bo"]
    assert len(DocumentCorpus.build([], tmp_path / "none", ["NA"])) == 0


@given(
    st.lists(
        st.lists(st.lists(st.sampled_from(["a", "bé", "語"]), max_size=3), min_size=1, max_size=3), max_size=4
    )
)
def test_any_shape_comes_back(
    tmp_path_factory: pytest.TempPathFactory, documents: Sequence[Sequence[Sequence[str]]]
) -> None:
    """Each word a mention of the entity of its name; what is read is what was written."""
    from fedrel.data.annotations import Draft

    written = []
    for words in documents:
        text, sentences = join_tokens(words)
        draft = Draft()
        for start, end in (token for sentence in sentences for token in sentence):
            draft.mention(text[start:end], "T", Mention(text[start:end], start, end))
        written.append(draft.document("x", text, sentences))
    folder = tmp_path_factory.mktemp("any") / "corpus"
    corpus = DocumentCorpus.build([(TRAIN, document) for document in written], folder, ["NA"])
    for row, words in enumerate(documents):
        view = corpus.view(row)
        flat = [word for sentence in words for word in sentence]
        assert view.words == flat
        assert np.diff(view.sentences).tolist() == [len(sentence) for sentence in words]
        assert view.entity_ids == list(dict.fromkeys(flat))
        for mention, (entity, (first, after)) in enumerate(
            zip(view.mention_entity.tolist(), view.mention_tokens.tolist(), strict=True)
        ):
            assert flat[first:after] == [view.entity_ids[entity]]
            home = view.mention_sentence[mention]
            assert view.sentences[home] <= first < after <= view.sentences[home + 1]
        together = [
            any(head in sentence and tail in sentence for sentence in words)
            for head, tail in ((view.entity_ids[h], view.entity_ids[t]) for h, t in view.pairs.tolist())
        ]
        assert corpus.intra[view.pair_numbers].astype(bool).tolist() == together
