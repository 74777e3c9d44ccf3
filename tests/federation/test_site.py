"""What a site's code works with: rows by site and index, and the journal's watched rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrel.federation.messages import RefusedError
from fedrel.federation.site import Site
from fedrel.federation.site_memory import Journal
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from tests.conftest import NO_STATES, tiny

numbers = st.lists(st.integers(0, 60), unique=True)


@pytest.fixture(scope="module")
def site() -> Site:
    config = tiny()
    return Site(new_runner(config, prepare(config).site_data, NO_STATES).model, 1, 1, {})


def test_batches_are_of_bags_or_of_sentences(site):
    config = tiny(training__batches_of="sentences", training__batch_size=4)
    other = Site(new_runner(config, prepare(config).site_data, NO_STATES).model, 1, 1, {})
    assert len(site.examples) == len(site.bags) < len(site.rows)
    assert other.examples.rows.tolist() == other.rows.tolist() == site.rows.tolist()
    read = [batch.rows.tolist() for batch in other.batches(other.examples, epochs=1)]
    assert {len(rows) for rows in read[:-1]} == {4}  # sentences; a bag of several would make it more
    assert sorted(row for rows in read for row in rows) == sorted(site.rows.tolist())
    labels = site._data.corpus.relation[other.examples.rows]
    assert other.examples.labels.tolist() == labels.tolist()


def test_other_sites_rows_are_found_by_site_and_index(site):
    partition = site._data.partition
    sites, index = np.array([3, 0, 3], np.int32), np.array([0, 5, 2], np.int32)
    expected = [partition.rows(3)[0], partition.rows(0)[5], partition.rows(3)[2]]
    assert site.rows_elsewhere(sites, index).tolist() == expected


@pytest.mark.parametrize(("number", "beyond"), [(6, 0), (2, None)])
def test_a_sentence_that_no_site_holds_is_refused(site, number, beyond):
    index = site._data.partition.sizes[number] if beyond is None else beyond
    with pytest.raises(RefusedError, match="does not hold"):
        site.rows_elsewhere(np.array([number], np.int32), np.array([index], np.int32))


def test_selection_precision_is_of_the_judged_sentences_about_related_pairs():
    corpus = SimpleNamespace(
        relation=np.array([1, 1, 2, 0, 1], np.int32),
        expresses=np.array([1, 0, -1, 1, 1], np.int8),
        has_na=True,
    )
    journal = Journal(corpus, True, np.zeros(0, np.int64))
    journal.trained(np.arange(5), torch.tensor([1.0, 2.0, 4.0, 8.0, 0.5]))
    assert (journal.entry.expressing, journal.entry.weight) == (1.5, 3.5)  # not the third, nor the `NA` pair


@given(rows=numbers, watched=numbers.map(sorted), seed=st.integers(0, 99))
def test_the_journal_follows_exactly_the_watched_rows(rows, watched, seed):
    weights = np.random.default_rng(seed).random(len(rows)).astype(np.float32)
    corpus = SimpleNamespace(relation=np.ones(61, np.int32), has_na=True)
    journal = Journal(corpus, False, np.array(watched, dtype=np.int64))
    for _ in range(2):
        journal.trained(np.array(rows, dtype=np.int64), torch.from_numpy(weights))
    expected = {row: 2 * float(weight) for row, weight in zip(rows, weights, strict=True) if row in watched}
    assert journal.entry.watched == pytest.approx(expected)
