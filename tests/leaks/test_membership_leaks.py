"""RMIA's ratios by hand, and on likelihoods of which members' are raised; areas and hits against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.leaks.membership_leaks import Setting, auc, expected, hits_at, membership_scores

scored = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: 0 < sum(member for _, member in rows) < len(rows)
)


def test_the_likelihood_under_any_model_is_that_outside_and_a_part():
    assert expected(np.array([0.3, 0.5]), 0.9) == pytest.approx(
        [(1.9 * 0.3 + 0.1) / 2, (1.9 * 0.5 + 0.1) / 2]
    )


def test_a_score_is_the_share_of_others_that_are_relatively_less_likely():
    outside, others = np.full(3, 0.5), np.array([0.3, 0.5, 0.7, 0.9])
    target = np.array([0.2, 0.5, 0.8])
    scores = membership_scores(target, outside, others, np.full(4, 0.5), Setting(0.9, 1.0))
    assert scores == pytest.approx([0.0, 0.5, 0.75], abs=1e-5)
    scores = membership_scores(target, outside, others, np.full(4, 0.5), Setting(0.9, 1.5))
    assert scores == pytest.approx([0.0, 0.25, 0.5], abs=1e-5)


def test_hard_sentences_count_by_how_much_likelier_they_became():
    """A likelihood alone would take the easy outsiders for members."""
    generator = np.random.default_rng(1)
    usual = generator.uniform(0.05, 0.95, 400)
    member = np.arange(400) < 200
    seen = np.clip(usual * np.where(member, 1.2, 1.0) * generator.normal(1, 0.05, 400), 0, 1)
    references = np.clip(usual * generator.normal(1, 0.05, (8, 400)), 0, 1)
    others = generator.uniform(0.05, 0.95, 300)
    now = np.clip(others * generator.normal(1, 0.05, 300), 0, 1)
    scores = membership_scores(seen, references.mean(0), now, others, Setting(0.9, 1.0))
    assert auc(scores, member) > 0.85
    assert auc(seen, member) < 0.65


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


def test_one_group_alone_has_no_area():
    assert np.isnan(auc(np.ones(3), np.ones(3, bool)))
    assert np.isnan(hits_at(np.ones(3), np.zeros(3, bool), 0.1))
