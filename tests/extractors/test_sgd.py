"""Row-wise tables and SGD against torch.optim.SGD on dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.extractors import rows as rows_module
from fedrel.extractors.batch import Batch
from fedrel.extractors.pcnn import PCNN
from fedrel.extractors.rows import RowEmbedding
from fedrel.extractors.sgd import SGD
from fedrel.seeding import numpy_generator, torch_generator

from . import slow

VOCABULARY, RELATIONS = 40, 4


def random_batch(number: int, sentences: int = 6) -> Batch:
    random = numpy_generator(3, "batch", number)
    drawn = []
    for length in random.integers(1, 15, sentences):
        words = random.integers(1, VOCABULARY // 2, length).tolist()  # the upper half is never used
        drawn.append((words, int(random.integers(length)), int(random.integers(length))))
    return slow.make_batch(drawn, [1] * sentences, random.integers(RELATIONS, size=sentences).tolist())


def small_pcnn() -> PCNN:
    return PCNN(
        VOCABULARY,
        RELATIONS,
        word_dimension=6,
        filters=8,
        max_length=5,
        generator=torch_generator(1, "model"),
    )


@pytest.mark.parametrize("decay", [0.0, 1e-2])
def test_thirty_steps_of_pcnn_equal_torchs_sgd_on_dense_weights(decay: float) -> None:
    ours, reference = small_pcnn(), small_pcnn()
    table = torch.nn.Parameter(reference.words.dense())
    others = [parameter for parameter in reference.parameters() if parameter.requires_grad]
    theirs = torch.optim.SGD([table, *others], lr=0.3, weight_decay=decay)
    mine = SGD(ours, lr=0.3, weight_decay=decay)
    for step in range(30):
        batch = random_batch(step)
        loss, _ = slow.loss_of("none", ours, batch, None)
        mine.zero_grad()
        loss.backward()
        mine.step()

        logits = reference.classifier(slow.encode(reference, batch, table))
        theirs.zero_grad()
        torch.nn.functional.cross_entropy(logits, batch.labels).backward()
        theirs.step()
    expected = reference.state() | {"words.weight": table.detach().numpy()}
    for name, array in ours.state().items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.1, 0.9]),
)
def test_a_table_by_rows_equals_a_dense_one(steps: list[list[int]], decay: float) -> None:
    start = torch.randn((10, 3), generator=torch_generator(1, "table"), dtype=torch.float64)
    start[0] = 0
    by_rows = RowEmbedding(start.clone())
    dense = torch.nn.Embedding(10, 3, padding_idx=0, _weight=start.clone())
    optimiser = torch.optim.SGD(dense.parameters(), lr=0.5, weight_decay=decay)
    for step, numbers in enumerate(steps):
        ids = torch.tensor(numbers)
        wanted = dense(ids)
        found = by_rows(ids)
        torch.testing.assert_close(found, wanted)
        for output in (wanted, found):
            (output * (step + 1)).sin().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        by_rows.descend(0.5, decay)
    torch.testing.assert_close(by_rows.dense(), dense.weight.detach())
    assert (by_rows.weight[0] == 0).all()
    used = sorted({number for numbers in steps for number in numbers})
    changed = by_rows.changed()
    assert changed.index.tolist() == used and changed.index.dtype == np.int32
    assert changed.rest == pytest.approx((1 - 0.5 * decay) ** len(steps))
    untouched = np.setdiff1d(np.arange(10), changed.index)
    np.testing.assert_allclose(by_rows.dense()[untouched], start[untouched] * changed.rest, rtol=1e-6)
    np.testing.assert_array_equal(by_rows.dense()[changed.index], changed.values)


def test_decay_to_almost_nothing_stays_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the running factor gets too small it is folded into the rows, and nothing else changes."""
    monkeypatch.setattr(rows_module, "_SMALLEST_SCALE", 0.3)
    start = torch.ones(4, 2)
    table = RowEmbedding(start.clone())
    for _ in range(5):
        table(torch.tensor([2])).sum().backward()
        table.descend(0.5, 1.0)
    expected = 1.0
    for _ in range(5):
        expected -= 0.5 * (1 + expected)
    torch.testing.assert_close(table.dense()[2], torch.full((2,), expected))
    torch.testing.assert_close(table.dense()[3], torch.full((2,), 0.5**5))
    table.restart(start.numpy(), only_touched=True)
    torch.testing.assert_close(table.dense()[1:], start[1:])


def test_two_passes_before_a_step_add_up() -> None:
    table = RowEmbedding(torch.ones(5, 2))
    (table(torch.tensor([1, 2, 1])).sum() + 2 * table(torch.tensor([2, 3])).sum()).backward()
    table.descend(0.1, 0.0)
    torch.testing.assert_close(table.dense()[:, 0], torch.tensor([0.0, 0.8, 0.7, 0.8, 1.0]))


def test_a_pass_without_gradient_trains_nothing() -> None:
    table = RowEmbedding(torch.ones(5, 2))
    with torch.no_grad():
        assert not table(torch.tensor([1])).requires_grad
    table(torch.tensor([2])).sum().backward()
    table.zero_grad()
    table.descend(0.1, 0.0)
    torch.testing.assert_close(table.dense()[1:], torch.ones(4, 2))
    assert not table.touched.any()


def test_dropped_gradients_do_not_count_and_waiting_ones_do() -> None:
    """`zero_grad` may stand before the forward pass or, as here, between it and the backward pass."""
    model = small_pcnn()
    optimiser = SGD(model, lr=0.1)
    before = model.state()
    slow.loss_of("none", model, random_batch(0), None)[0].backward()
    optimiser.zero_grad()
    optimiser.step()
    assert all((array == before[name]).all() for name, array in model.state().items())
    loss, _ = slow.loss_of("none", model, random_batch(0), None)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    assert all((array != before[name]).any() for name, array in model.state().items())
