"""Documents as pieces: markers, windows, and what a batch holds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.data.bags import singles
from fedrel.data.documents import DocumentCorpus
from fedrel.data.load import load_files
from fedrel.errors import UserError
from fedrel.extractors.document.document_pieces import DocumentInputs, Frame, tokenise, windows
from fedrel.extractors.registry import extractor_kind
from tests.documents import documents, write_documents

PUBTATOR = """\
7|t|Zor[SEP]bine, beats glom.
7|a|The  big glom won.
7	0	12	Zor[SEP]bine	Chemical	C1|C2
7	20	24	glom	Disease	D1
7	31	39	big glom	Disease	D2
7	35	39	glom	Disease	D1
7	CID	C1	D1
"""


def mention(name: str, sentence: int, first: int, after: int) -> dict[str, Any]:
    return {"name": name, "sent_id": sentence, "pos": [first, after], "type": "T"}


@pytest.fixture
def inputs(tmp_path: Path, tiny_bert: str) -> DocumentInputs:
    path = tmp_path / "corpus.txt"
    path.write_text(PUBTATOR)
    corpus = load_files([(0, path)], "pubtator", options={"pair_types": [("Chemical", "Disease")]})
    return tokenise(corpus, tiny_bert, folder=tmp_path / "pieces")


def test_markers_stand_around_mentions_and_text_stays_text(inputs: DocumentInputs, tiny_bert: str) -> None:
    from transformers import AutoTokenizer

    tokeniser = AutoTokenizer.from_pretrained(tiny_bert)
    pieces = tokeniser.convert_ids_to_tokens(inputs.pieces.tolist())
    name = ["Z", "##o", "##r", "[", "S", "##E", "##P", "]", "b", "##i", "##n", "##e"]
    beats, glom = ["b", "##e", "##a", "##t", "##s"], ["g", "##l", "##o", "##m"]
    title = ["*", *name, "*", ",", *beats, "*", *glom, "*", "."]
    abstract = ["T", "##h", "##e", "*", "b", "##i", "##g", "*", *glom, "*", "*", "w", "##o", "##n", "."]
    assert pieces == ["[CLS]", *title, *abstract, "[SEP]"]


def test_places_are_the_opening_markers(inputs: DocumentInputs) -> None:
    view = inputs.corpus.view(0)
    places = dict(zip(map(tuple, view.mention_chars.tolist()), inputs.places.tolist(), strict=False))
    # C1 and C2 share a place; the nested mention of D1 opens after D2's.
    assert [place for (start, _), place in places.items() if start == 0] == [1]
    assert places[31, 39] < places[35, 39]
    words = inputs.words.tolist()
    for span, place in places.items():
        inside = next(word for word in words[place:] if word >= 0)
        assert view.tokens[inside][0] == span[0] and words[place] == -1


def test_a_batch_has_the_pairs_and_labels_of_its_documents(tmp_path: Path, tiny_bert: str) -> None:
    corpus = load_files([(0, write_documents(tmp_path / "made.json", documents(6)))], "docred")
    inputs = tokenise(corpus, tiny_bert, folder=tmp_path / "pieces")
    rows = np.array([4, 1, 3])
    batch = inputs.batch(singles(rows, rows, rows))
    bounds, first = batch.bags.tolist(), batch.entities
    for at, row in enumerate(rows.tolist()):
        view, own = corpus.view(row), slice(bounds[at], bounds[at + 1])
        pairs = np.stack([batch.head[own], batch.tail[own]], axis=1) - first[at]
        np.testing.assert_array_equal(pairs, view.pairs)
        np.testing.assert_array_equal(batch.labels[own], view.labels[:, 1:])
        np.testing.assert_array_equal(batch.pairs[own], view.pair_numbers)
        mentions = slice(batch.mentions[at], batch.mentions[at + 1])
        np.testing.assert_array_equal(batch.entity[mentions] - first[at], view.mention_entity)


def test_pairs_left_out_are_not_asked_about(tmp_path: Path, tiny_bert: str) -> None:
    path, tree = tmp_path / "corpus.txt", tmp_path / "tree.tsv"
    path.write_text(PUBTATOR.replace("D1", "D000001").replace("D2", "D000002"))
    tree.write_text("D000001\tC01.100\nD000002\tC01\n")
    options = {"pair_types": [("Chemical", "Disease")]}
    corpus = load_files([(0, path)], "pubtator", options=options, mesh=tree)
    inputs = tokenise(corpus, tiny_bert, folder=tmp_path / "pieces")
    rows = np.array([0])
    batch = inputs.batch(singles(rows, rows, rows))
    assert corpus.left_out.sum() == 1 and len(batch.pairs) == len(corpus.pairs) - 1


def test_pieces_are_kept_and_found_by_other_processes(tmp_path: Path, tiny_bert: str) -> None:
    corpus = load_files([(0, write_documents(tmp_path / "made.json", documents(3)))], "docred")
    seen: list[int] = []
    first = tokenise(corpus, tiny_bert, 32, seen.append)
    again = tokenise(corpus, tiny_bert, 32, seen.append)
    assert seen == [3] and again.folder == first.folder
    first.save(tmp_path)
    opened = extractor_kind("document").open_inputs(tmp_path, corpus, {})
    assert isinstance(opened, DocumentInputs) and opened.limit == 32
    np.testing.assert_array_equal(opened.pieces, first.pieces)
    (first.folder / "starts.npy").unlink()
    assert len(tokenise(corpus, tiny_bert, 32, seen.append).starts) == 4 and seen == [3, 3]


def test_pieces_of_another_corpus_are_refused(tmp_path: Path, tiny_bert: str) -> None:
    def corpus(count: int) -> DocumentCorpus:
        return load_files([(0, write_documents(tmp_path / f"{count}.json", documents(count)))], "docred")

    inputs = tokenise(corpus(2), tiny_bert, folder=tmp_path / "pieces")
    inputs.save(tmp_path)
    with pytest.raises(UserError, match="do not fit the corpus"):
        extractor_kind("document").open_inputs(tmp_path, corpus(3), {})


@given(
    length=st.integers(3, 3000),
    limit=st.integers(16, 100),
    prefix=st.integers(0, 2),
    suffix=st.integers(0, 2),
)
def test_windows_cover_a_document_and_overlap(length: int, limit: int, prefix: int, suffix: int) -> None:
    found = windows(length, Frame((1,) * prefix, (2,) * suffix), limit)
    assert found[0].first == 0 and found[-1].end == length
    for number, window in enumerate(found):
        after = suffix if number < len(found) - 1 else 0
        assert window.end - window.first + window.front + after <= limit
        assert window.front == (prefix if number else 0)
    room = limit - prefix - suffix
    for one, following in pairwise(found):
        assert one.first < following.first < one.end < following.end
        assert one.end - following.first >= room // 4 - 1
    assert len(found) == 1 if length <= limit else len(found) > 1
