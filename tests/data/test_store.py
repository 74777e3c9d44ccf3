"""What corpora of sentences and of documents have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import open_corpus
from fedrel.data.readers.docred import DocRED
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import DEV, TRAIN, layout_of
from fedrel.errors import UserError
from tests.data.conftest import DOCRED


@pytest.fixture
def sentences(
    make_corpus: Callable[..., SentenceCorpus], make_instance: Callable[..., Instance]
) -> SentenceCorpus:
    texts = [("Ada left Bo", "left"), ("Ada met Bo", "NA"), ("Ada left Bo", "left"), ("Bo saw Ada", "left")]
    return make_corpus(
        [make_instance(text, *text.split()[::2], relation) for text, relation in texts],
        [TRAIN, TRAIN, TRAIN, DEV],
    )


@pytest.fixture
def documents(make: Callable[..., DocumentCorpus], write: Callable[..., Path]) -> DocumentCorpus:
    path = write(DOCRED)
    return make([*DocRED().read(path), *DocRED().read(path)], [TRAIN, DEV])


def test_questions_about_sentences(sentences: SentenceCorpus) -> None:
    rows = np.arange(4)
    assert sentences.unit == "sentences" and len(sentences) == 4
    assert sentences.bags(rows).bounds.tolist() == [0, 2, 3, 4]
    assert sentences.label_counts(rows).tolist() == [1, 3]
    assert sentences.label_of(rows).tolist() == [1, 0, 1, 1]
    assert sentences.without_duplicates(rows).tolist() == [0, 1, 3]
    assert len(set(sentences.groups(rows).tolist())) == 1  # Ada and Bo, either way round
    assert sentences.triple_count == 3
    assert not sentences.truth_known(rows)
    assert sentences.relations_of([]) == ("NA",)


def test_questions_about_documents(documents: DocumentCorpus) -> None:
    rows = np.arange(2)
    assert documents.unit == "documents" and len(documents) == 2
    assert documents.bags(rows).bounds.tolist() == [0, 1, 2]
    assert documents.label_counts(rows).tolist() == [2, 2, 2]  # (Bo, Ada) has none, (Ada, Bo) two
    assert documents.label_of(rows) is None
    assert documents.without_duplicates(rows).tolist() == [0, 1]
    assert documents.groups(rows).tolist() == [0, 1]
    assert documents.triple_count == 0
    assert not documents.truth_known(rows)


def test_a_folder_says_which_kind_it_has(sentences: SentenceCorpus, documents: DocumentCorpus) -> None:
    for corpus in (sentences, documents):
        again = open_corpus(corpus.folder)
        assert type(again) is type(corpus) and again.fingerprint == corpus.fingerprint
    with pytest.raises(UserError, match="is not a corpus, or is damaged"):
        SentenceCorpus.open(documents.folder)


def test_the_kind_that_is_needed(sentences: SentenceCorpus, documents: DocumentCorpus) -> None:
    assert sentences.require(SentenceCorpus) is sentences
    with pytest.raises(UserError, match="this needs sentences, but the data are documents"):
        documents.require(SentenceCorpus)
    with pytest.raises(UserError, match="this needs documents, but the data are sentences"):
        sentences.require(DocumentCorpus)


def test_a_copy_with_changes(sentences: SentenceCorpus, tmp_path: Path) -> None:
    same = sentences.copy(tmp_path / "same", {})
    assert same.fingerprint == sentences.fingerprint and same.folder == tmp_path / "same"
    other = sentences.copy(tmp_path / "other", {"split": np.full(4, DEV), "names": ["Eve", "İvo"]})
    assert other.rows(DEV).tolist() == [0, 1, 2, 3] and other.split.dtype == np.int8
    assert list(other.names) == ["Eve", "İvo"] and list(other.entities) == list(sentences.entities)
    assert other.fingerprint != sentences.fingerprint


@pytest.mark.parametrize("kind", [SentenceCorpus, DocumentCorpus])
def test_every_column_has_a_file_and_every_file_a_column(
    kind: type, sentences: SentenceCorpus, documents: DocumentCorpus
) -> None:
    corpus = sentences if kind is SentenceCorpus else documents
    files = {path.stem for path in corpus.folder.glob("*.bin")}
    assert files == set(layout_of(kind).columns)
