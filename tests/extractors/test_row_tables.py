"""Row-wise tables and SGD against torch.optim.SGD on dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrel.extractors import row_tables as rows_module
from fedrel.extractors.batches import Batch
from fedrel.extractors.objective import Correction, Course
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.seeding import numpy_generator, torch_generator
from fedrel.tensors.weights import Rows

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


@pytest.mark.parametrize("pull", [0.0, 0.5])
def test_a_running_factor_that_gets_too_small_is_folded_in(
    pull: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is folded into the rows that have gradients, and nothing else changes, nor is another row listed."""
    monkeypatch.setattr(rows_module, "_SMALLEST_SCALE", 0.3)
    start = torch.ones(4, 2)
    table = RowEmbedding(start.clone())
    table.restart(start.numpy(), only_touched=False)
    if pull:
        table.correct(pull, None, None)
    trained, other = 1.0, 1.0
    for _ in range(5):
        table(torch.tensor([2])).sum().backward()
        table.descend(0.5, 1.0)
        trained -= 0.5 * (1 + trained + pull * (trained - 1))
        other -= 0.5 * (other + pull * (other - 1))
    torch.testing.assert_close(table.dense()[2], torch.full((2,), trained))
    torch.testing.assert_close(table.dense()[3], torch.full((2,), other), atol=1e-6, rtol=0)
    changed = table.changed()
    assert changed.index.tolist() == [2] and changed.rest == pytest.approx(other)
    table.restart(start.numpy(), only_touched=True)
    torch.testing.assert_close(table.dense()[1:], start[1:])


PULLS = st.sampled_from([0.0, 0.3, 1.0])
STEPS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=8)


@given(STEPS, st.sampled_from([0.0, 0.2]), PULLS, st.sampled_from([[], [2], [1, 4, 9]]), st.booleans())
def test_a_corrected_table_equals_a_dense_one(
    steps: list[list[int]], decay: float, pull: float, forced: list[int], shared: bool
) -> None:
    """`p -= rate * (gradient + decay * p + pull * (p - base) + own + common)`, written out on all rows."""
    random = numpy_generator(2, "corrected table")
    base = random.normal(size=(10, 3)).astype(np.float32)
    base[0] = 0
    own = Rows(np.array(forced, np.int32), random.normal(size=(len(forced), 3)).astype(np.float32), 0.0)
    common = random.normal(size=(10, 3)).astype(np.float32) if shared else None
    force = np.zeros((10, 3)) if common is None else common.astype(np.float64)
    force[forced] += own.values
    force[0] = 0  # nothing moves the gap, even where a force has something there
    table = RowEmbedding(torch.zeros(10, 3, dtype=torch.float64))
    table.restart(base, only_touched=False)
    table.correct(pull, own, common)
    dense = torch.tensor(base, dtype=torch.float64)
    for numbers in steps:
        dense.requires_grad_()
        for read in (dense[torch.tensor(numbers)], table(torch.tensor(numbers))):
            read.sin().sum().backward()
        gradient = dense.grad + decay * dense + pull * (dense - torch.tensor(base)) + torch.tensor(force)
        dense = (dense - 0.5 * gradient).detach()
        table.descend(0.5, decay)
    torch.testing.assert_close(table.dense(), dense, atol=1e-6, rtol=1e-6)
    changed = table.changed()
    assert changed.index.tolist() == sorted({*forced, *(number for numbers in steps for number in numbers)})
    assert 0 <= changed.rest <= 1
    course = Course()
    for _ in steps:
        course.step(0.5, decay, pull)
    others = np.setdiff1d(np.arange(1, 10), changed.index)
    np.testing.assert_allclose(
        dense[others], changed.rest * base[others] + course.drift * force[others], atol=1e-6
    )
    table.restart(base, only_touched=True)  # nothing is left of the correction
    np.testing.assert_array_equal(table.dense(), base)


@given(st.floats(1e-4, 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 300))
def test_what_is_left_of_a_row_stays_a_share(rate: float, decay: float, pull: float, steps: int) -> None:
    """A receiver refuses a `rest` beyond 0 to 1: no rounding may lead there. Without decay nothing is lost."""
    course, undecayed = Course(), Course()
    for _ in range(steps):
        course.step(rate, decay, pull)
        undecayed.step(rate, 0.0, pull)
        assert 0 <= course.rest <= 1
    assert undecayed.rest == 1.0


def test_a_corrected_pcnn_equals_torchs_sgd_with_the_terms_in_its_loss() -> None:
    ours, reference = small_pcnn(), small_pcnn()
    base = ours.state()
    random = numpy_generator(5, "forces")
    common = {name: 0.1 * random.normal(size=a.shape).astype(np.float32) for name, a in base.items()}
    own: dict[str, np.ndarray | Rows] = {"filters": common["filters"] * 2}
    own["words.weight"] = Rows(np.array([3, 30], np.int32), np.ones((2, 6), np.float32), 0.0)
    forces = {name: torch.tensor(force) for name, force in common.items()}
    forces["words.weight"][0] = 0
    forces["words.weight"][[3, 30]] += 1
    forces["filters"] *= 3
    start = {name: torch.tensor(array) for name, array in base.items()}
    table = torch.nn.Parameter(reference.words.dense())
    weights = {name: p for name, p in reference.named_parameters() if p.requires_grad} | {
        "words.weight": table
    }
    theirs = torch.optim.SGD(weights.values(), lr=0.1, weight_decay=1e-3)
    ours.begin(base)
    mine = SGD(ours, lr=0.1, weight_decay=1e-3, correction=Correction(0.4, own, common))
    for step in range(20):
        batch = random_batch(step)
        slow.loss_of("none", ours, batch, None)[0].backward()
        mine.step()

        logits = reference.classifier(slow.encode(reference, batch, table))
        loss = torch.nn.functional.cross_entropy(logits, batch.labels)
        for name, weight in weights.items():
            loss = loss + 0.2 * (weight - start[name]).square().sum() + (forces[name] * weight).sum()
        theirs.zero_grad()
        loss.backward()
        theirs.step()
    for name, array in ours.state().items():
        np.testing.assert_allclose(array, weights[name].detach(), atol=2e-5, err_msg=name)


def test_corrections_add_up() -> None:
    rows = Rows(np.array([1, 4], np.int32), np.ones((2, 2), np.float32), 0.0)
    more = Rows(np.array([4, 7], np.int32), np.full((2, 2), 3, np.float32), 0.0)
    bias = np.ones(3, np.float32)
    both = Correction(0.1, {"table": rows}, {"bias": bias}) + Correction(0.2, {"table": more, "bias": bias})
    assert both.pull == pytest.approx(0.3)
    table = both.own["table"]
    assert isinstance(table, Rows) and table.index.tolist() == [1, 4, 7]
    assert table.values[:, 0].tolist() == [1, 4, 3]
    np.testing.assert_array_equal((both + both).common["bias"], 2 * bias)
    np.testing.assert_array_equal(both.own["bias"], bias)
    assert both and not Correction() and not Correction() + Correction()


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
