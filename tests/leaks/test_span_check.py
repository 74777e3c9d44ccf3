"""DAGER's span check: on made gradients, and on the update of a tiny transformer."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.leaks.span_check import NEAR, distances, rouge, span, token_f1

INPUTS = np.random.default_rng(1).normal(size=(300, 40))  # of a vocabulary


def gradient(tokens, seed=2):
    """Of a layer of 30 outputs for these tokens."""
    return np.random.default_rng(seed).normal(size=(30, len(tokens))) @ INPUTS[tokens]


def test_the_tokens_of_a_batch_are_those_in_the_span():
    tokens = [3, 50, 77, 120, 299]
    basis = span([gradient(tokens), gradient(tokens, 3)], 1.0)
    assert len(basis) == 5
    assert np.flatnonzero(distances(basis, INPUTS) < NEAR).tolist() == tokens


def test_a_batch_of_more_tokens_than_inputs_spans_everything():
    assert span([gradient(np.arange(60)), gradient(np.arange(60), 3)], 1.0) is None


def test_noise_spans_everything():
    noise = np.random.default_rng(4).normal(0, 1e-3, (60, 40))
    assert span([np.concatenate([gradient([3, 5]), gradient([3, 5], 3)]) + noise], 1.0) is None


def test_rounding_does_not():
    """A step of float32 weights is off by their rounding, which goes in all directions."""
    weights = np.random.default_rng(5).normal(size=(30, 40)).astype(np.float32)
    after = (weights + 0.1 * gradient([3, 5])).astype(np.float32)
    basis = span([after.astype(float) - weights], float(np.abs(weights).max()))
    assert np.flatnonzero(distances(basis, INPUTS) < NEAR).tolist() == [3, 5]


def test_scores():
    assert token_f1({1, 2}, {1, 3, 4}) == pytest.approx(2 / 5)
    assert rouge(1, [1, 2, 3], [3, 2, 1]) == 1.0
    assert rouge(2, [1, 2, 3], [3, 2, 1]) == 0.0
