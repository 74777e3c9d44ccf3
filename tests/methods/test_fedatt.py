"""FedAtt: attention over the sites by hand, and against a version that holds all models at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrel.federation.messages import Update
from fedrel.methods.denoising import AtLeastOne
from fedrel.methods.fedatt import AttentiveSum, FedAtt
from fedrel.methods.fedavg import FedAvg
from fedrel.tensors.weights import NoAnswerError, Rows, dense


def test_a_tensor_moves_by_attention_to_its_distances():
    attentive = AttentiveSum({"w": np.array([1.0, 2.0], np.float32)}, step=0.5)
    attentive.add({"w": np.array([1.0, 2.0], np.float32)}, 1.0)  # distance 0
    attentive.add({"w": np.array([1.0, 2.0 + math.log(3)], np.float32)}, 1.0)  # distance ln 3
    # Attention 1/4 and 3/4; w - 0.5 * 3/4 * (0, -ln 3).
    assert attentive.result()["w"].tolist() == pytest.approx([1.0, 2.0 + 0.375 * math.log(3)])


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_the_running_sum_equals_all_models_at_once(seed, sites):
    draw = np.random.default_rng(seed)
    base = {
        "table": draw.normal(size=(7, 3)).astype(np.float32),
        "bias": draw.normal(size=4).astype(np.float32),
    }
    updates = []
    for _ in range(sites):
        index = np.sort(draw.choice(7, size=draw.integers(0, 8), replace=False)).astype(np.int32)
        rows = Rows(index, draw.normal(size=(len(index), 3)).astype(np.float32), float(draw.uniform(0.5, 1)))
        updates.append({"table": rows, "bias": (30 * draw.normal(size=4)).astype(np.float32)})
    attentive = AttentiveSum(base, step=1.2)
    for update in updates:
        attentive.add(update, 1.0)
    found = attentive.result()
    models = [dense(base, update) for update in updates]
    for name, w in base.items():
        apart = np.stack([w.astype(np.float64) - model[name] for model in models])
        distance = np.sqrt((apart**2).reshape(sites, -1).sum(1))
        attention = np.exp(distance - distance.max())
        attention /= attention.sum()
        expected = w - 1.2 * np.tensordot(attention, apart, 1)
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


def test_without_an_answer_there_is_no_model():
    with pytest.raises(NoAnswerError):
        AttentiveSum({"w": np.zeros(2, np.float32)}, step=1.2).result()


def test_only_attention_decides_how_much_an_update_counts():
    class ByLoss(FedAvg):
        def update_weight(self, update):
            return update.loss

    class AttentionByLoss(ByLoss, FedAtt):
        pass

    class OneWithAttention(AtLeastOne, FedAtt):
        pass

    few, many = Update({}, 1, 0.5), Update({}, 1000, 0.1)
    assert FedAtt().update_weight(few) == FedAtt().update_weight(many) == 1.0
    assert AttentionByLoss.unsuited().startswith("attention alone decides")
    assert FedAtt.unsuited() is None
    assert OneWithAttention.unsuited() is None
