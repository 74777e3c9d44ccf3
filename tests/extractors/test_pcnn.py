from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrel.errors import UserError
from fedrel.extractors.batches import Batch
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.seeding import torch_generator

from . import slow

VOCABULARY = 12


def model(**options: object) -> PCNN:
    settings_ = {"word_dimension": 4, "position_dimension": 2, "filters": 5, "max_length": 6} | options
    pcnn = PCNN(VOCABULARY, 3, generator=torch_generator(7, "test"), **settings_).double()  # type: ignore[arg-type]
    with torch.no_grad():
        pcnn.filters_bias.copy_(torch.linspace(-0.3, 0.3, len(pcnn.filters)))
    return pcnn


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[int], int, int]:
    words = draw(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=12))
    place = st.integers(0, len(words) - 1)
    return words, draw(place), draw(place)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    drawn = draw(st.lists(sentences(), min_size=1, max_size=6))
    return slow.make_batch(drawn, [1] * len(drawn), [0] * len(drawn))


EDGES = [
    ([5], 0, 0),  # one token
    ([1, 2, 3], 0, 2),  # entities at both ends: the third piece is empty
    ([3, 2, 1, 4], 2, 1),  # adjacent, tail first
    ([3, 3, 3, 3, 3], 2, 2),  # one position for both: the second piece is empty
    (list(range(1, 12)) * 3, 30, 1),  # much longer than max_length
]


@given(batches(), st.sampled_from([1, 3, 5]))
def test_encode_equals_the_slow_version(batch: Batch, window: int) -> None:
    pcnn = model(window=window)
    expected = slow.encode(pcnn, batch)
    torch.testing.assert_close(pcnn.encode(batch), expected)
    with torch.inference_mode():
        torch.testing.assert_close(pcnn.encode(batch), expected)


@given(batches(), st.sampled_from([1, 3, 5]))
def test_gradients_equal_the_slow_versions(batch: Batch, window: int) -> None:
    compare_gradients(model(window=window), batch)


def test_edges() -> None:
    batch = slow.make_batch(EDGES, [1] * len(EDGES), [0] * len(EDGES))
    pcnn = model()
    vectors = pcnn.encode(batch)
    torch.testing.assert_close(vectors, slow.encode(pcnn, batch))
    assert (vectors[1, 10:] == 0).all() and (vectors[3, 5:10] == 0).all()
    compare_gradients(pcnn, batch)


def compare_gradients(pcnn: PCNN, batch: Batch) -> None:
    direction = torch.randn(
        (len(batch.head), 3 * len(pcnn.filters)),
        generator=torch_generator(1, "direction"),
        dtype=torch.float64,
    )
    direction[:, ::3] = 0  # as dropout does
    dense = [parameter for parameter in pcnn.parameters() if parameter.requires_grad]
    dense = [parameter for parameter in dense if parameter.shape[-1] != 3 * len(pcnn.filters)][:4]
    table = pcnn.words.dense().requires_grad_()
    expected = torch.autograd.grad((slow.encode(pcnn, batch, table) * direction).sum(), [table, *dense])
    (pcnn.encode(batch) * direction).sum().backward()
    rows, values = pcnn.words._pending.pop()
    words = torch.zeros_like(table).index_add(0, rows, values.grad)
    found = [words, *(parameter.grad for parameter in dense)]
    for gradient, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, wanted)


def test_of_equal_values_the_earliest_gets_the_gradient() -> None:
    """Far from both entities all distances are clipped, so equal words give exactly equal outputs."""
    pcnn = model(max_length=1)
    batch = slow.make_batch([([2] * 9, 0, 0)], [1], [0])
    pcnn.encode(batch).sum().backward()
    _, once = pcnn.words._pending.pop()
    at_most = pcnn.filters.view(5, 3, -1)[:, :, :4].abs().sum(dim=(0, 1)) * 3
    assert (once.grad.abs() <= at_most).all()
    compare_gradients(model(max_length=1), batch)


def test_initialisation_follows_the_generator_and_the_vectors() -> None:
    vectors = torch.arange(VOCABULARY * 4, dtype=torch.float32).view(VOCABULARY, 4)
    vectors[1] = 0
    first, second, third = model(vectors=vectors), model(vectors=vectors), model()
    for name, array in first.state().items():
        assert (array == second.state()[name]).all()
    table = first.words.dense()
    assert (table[0] == 0).all() and (table[2:] == vectors[2:]).all()
    assert (table[1] == third.words.dense()[1]).all() and (table[1] != 0).all()


def test_mistakes_are_explained() -> None:
    with pytest.raises(UserError, match="window is 4, but must be odd"):
        model(window=4)
    with pytest.raises(UserError, match="expected 4 numbers of 12 words"):
        model(vectors=torch.ones(VOCABULARY, 3))


def test_building_a_model_leaves_torchs_global_generator_alone() -> None:
    before = torch.get_rng_state()
    model()
    assert (torch.get_rng_state() == before).all()
