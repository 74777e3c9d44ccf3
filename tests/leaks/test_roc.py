"""Areas, hits at few false alarms and correlations, against scikit-learn, scipy's definition and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.leaks.roc import auc, correlation, hits_at

scored = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: 0 < sum(member for _, member in rows) < len(rows)
)


@given(scored)
def test_the_area_is_scikit_learns(rows):
    from sklearn.metrics import roc_auc_score

    scores, member = np.array([s for s, _ in rows], float), np.array([m for _, m in rows])
    assert auc(scores, member) == pytest.approx(roc_auc_score(member, scores))


@given(scored, st.sampled_from([0.001, 0.01, 0.1, 0.25, 0.5]))
def test_hits_are_the_highest_point_of_the_curve_with_so_few_alarms(rows, alarms):
    from sklearn.metrics import roc_curve

    scores, member = np.array([s for s, _ in rows], float), np.array([m for _, m in rows])
    false, true, _ = roc_curve(member, scores, drop_intermediate=False)
    assert hits_at(scores, member, alarms) == pytest.approx(true[false <= alarms + 1e-9].max())


def test_correlation():
    found, true = np.array([1.0, 2.0, 4.0]), np.array([2.0, 1.0, 5.0])
    assert correlation(found, true) == pytest.approx(np.corrcoef(found, true)[0, 1])
    assert correlation(np.ones(3), true) == 0.0


def test_one_group_alone_has_no_area():
    assert np.isnan(auc(np.ones(3), np.ones(3, bool)))
    assert np.isnan(hits_at(np.ones(3), np.zeros(3, bool), 0.1))
