"""Words from rows that are listed, from rows that moved, and from where filters went."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.leaks.crossings import AttackedRound, View
from fedrel.leaks.word_leaks import FoundWords, Vocabulary, moved_rows, named_words, precision_and_recall
from fedrel.tensors.weights import Rows

SIZE, DIMENSION = 200, 30
TEXTS = {0: [1, 2, 50, 60], **{10 + n: [1, 2, 100 + 2 * n, 101 + 2 * n] for n in range(20)}}  # 0 is real


def vocabulary(vectors=None):
    return Vocabulary(SIZE, vectors, lambda site: np.array(TEXTS[site]))


def attacked(base, view, shadows):
    return AttackedRound(1, base, [view], shadows, shadows, {})


def test_listed_rows_are_the_words():
    base = {"words.weight": np.ones((SIZE, DIMENSION), np.float32)}

    def view(site):
        rows = np.array(TEXTS[site], np.int32)
        update = {"words.weight": Rows(rows, np.zeros((len(rows), DIMENSION), np.float32), 1.0)}
        return View((site,), update, base)

    shadows = [view(site) for site in TEXTS if site]
    (found,) = named_words(attacked(base, view(0), shadows), vocabulary())
    assert (found.named, found.right, found.there) == (2, 2, 2), "1 and 2 are at every site: no news"


def test_in_a_whole_table_rows_that_moved_beyond_decay_are_the_words():
    generator = np.random.default_rng(1)
    base = generator.normal(size=(SIZE, DIMENSION)).astype(np.float32)
    after = base * np.float32(0.9)
    after[[50, 60]] += 0.01
    assert set(np.argsort(-moved_rows(base, after))[:2]) == {50, 60}
    view = View((0,), {"words.weight": after}, {"words.weight": after})
    shadows = [View((site,), view.update, view.weights) for site in TEXTS if site]
    (found,) = named_words(attacked({"words.weight": base}, view, shadows), vocabulary())
    assert (found.named, found.right) == (2, 2)
    noisy = after + generator.normal(0, 0.1, after.shape).astype(np.float32)
    view = View((0,), {"words.weight": noisy}, {"words.weight": noisy})
    (found,) = named_words(attacked({"words.weight": base}, view, shadows), vocabulary())
    assert found.right == 0, "noise hides which rows moved"


@pytest.mark.parametrize("words", [[50, 60], [70, 80, 90]])
def test_filters_go_farther_towards_words_that_occur(words):
    generator = np.random.default_rng(2)
    vectors = generator.normal(size=(SIZE, DIMENSION)).astype(np.float32)
    positions = np.zeros((5, 2), np.float32)
    base = {
        "filters": np.zeros((12, 3 * (DIMENSION + 4)), np.float32),
        "head_positions": positions,
        "tail_positions": positions,
    }

    def view(site, own):
        step = np.zeros((12, 3, DIMENSION + 4), np.float32)
        for word in own:
            step[:, :, :DIMENSION] += generator.normal(size=(12, 3, 1)) * vectors[word]
        step += generator.normal(0, 0.1, step.shape)
        weights = {**base, "filters": step.reshape(12, -1).astype(np.float32)}
        return View((site,), weights, weights)

    shadows = [view(site, TEXTS[site]) for site in TEXTS if site]
    known = Vocabulary(SIZE, vectors, lambda site: np.array(TEXTS[site] if site else [1, 2, *words]))
    (found,) = named_words(attacked(base, view(0, [1, 2, *words]), shadows), known)
    assert found.named == found.right == 2
    (other,) = named_words(attacked(base, view(0, [1, 2]), shadows), known)
    assert other.right == 0


def test_predictions_have_no_words():
    base = {"words.weight": np.ones((SIZE, DIMENSION), np.float32)}
    seen = View((0,), predictions=np.ones((3, 2)) / 2)
    shadows = [View((site,), predictions=np.ones((3, 2)) / 2) for site in TEXTS if site]
    assert named_words(attacked(base, seen, shadows), vocabulary()) is None


def test_precision_and_recall_are_over_all_sites():
    found = [FoundWords(4, 2, 8, 1.0), FoundWords(6, 6, 8, 1.0)]
    assert precision_and_recall(found) == (0.8, 0.5, 0.2)
