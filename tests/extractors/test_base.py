from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrel.errors import UserError
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.seeding import torch_generator
from fedrel.tensors.weights import Rows

from .slow import loss_of
from .test_row_tables import VOCABULARY, random_batch, small_pcnn


def train(model: PCNN, steps: range) -> None:
    optimiser = SGD(model, lr=0.3, weight_decay=1e-3)
    dropout = torch_generator(5, "dropout")
    for step in steps:
        loss_of("none", model, random_batch(step), dropout)[0].backward()
        optimiser.step()


def test_state_goes_round_and_is_a_copy() -> None:
    model, other = small_pcnn(), small_pcnn()
    train(model, range(3))
    state = model.state()
    assert {name: array.shape for name, array in state.items()} == model.shapes()
    assert all(array.dtype == np.float32 for array in state.values())
    other.load(state)
    train(model, range(1))
    for name, array in other.state().items():
        np.testing.assert_array_equal(array, state[name])
    assert (model.state()["filters"] != state["filters"]).any()


def test_an_update_is_the_trained_state() -> None:
    model = small_pcnn()
    base = model.state()
    model.begin(base)
    train(model, range(4))
    update = model.update()
    state = model.state()
    assert update.keys() == state.keys()
    words = update["words.weight"]
    assert isinstance(words, Rows) and 0 < len(words.index) < VOCABULARY
    assert (np.diff(words.index) > 0).all() and 0 not in words.index
    dense = base["words.weight"] * np.float32(words.rest)
    dense[words.index] = words.values
    np.testing.assert_allclose(dense, state["words.weight"], rtol=1e-6)
    for name, array in update.items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(array, state[name])


def test_sites_in_turn_leave_nothing_behind() -> None:
    """A site's update is the same in a fresh model and in one that has just worked for another site."""
    fresh, resident = small_pcnn(), small_pcnn()
    base = fresh.state()
    for array in base.values():
        array.flags.writeable = False
    fresh.begin(base)
    train(fresh, range(10, 14))
    expected = fresh.update()
    for previous in (range(0), range(3), range(4, 6)):
        resident.begin(base)
        train(resident, previous)
        resident.encode(random_batch(99))  # a pass that no step followed
        resident.begin(base)
        train(resident, range(10, 14))
        assert_equal_updates(resident.update(), expected)
    resident.begin(dict(base))  # another object of the same values
    train(resident, range(10, 14))
    assert_equal_updates(resident.update(), expected)


def test_loading_in_between_is_noticed() -> None:
    model = small_pcnn()
    base = model.state()
    model.begin(base)
    model.load({name: array + 1 for name, array in base.items()})
    model.begin(base)
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, base[name])


def test_weights_of_another_model_are_refused() -> None:
    model = small_pcnn()
    state = model.state()
    with pytest.raises(UserError, match=r"'filters' has shape \(8, 1\), this extractor needs \(8, 48\)"):
        model.load(state | {"filters": state["filters"][:, :1]})
    with pytest.raises(UserError, match="extra"):
        model.begin(state | {"extra": state["filters"]})
    del state["filters"]
    with pytest.raises(UserError, match="filters"):
        model.load(state)


def assert_equal_updates(found: dict[str, np.ndarray | Rows], expected: dict[str, np.ndarray | Rows]) -> None:
    for name, wanted in expected.items():
        got = found[name]
        if isinstance(wanted, Rows):
            assert isinstance(got, Rows) and got.rest == wanted.rest
            np.testing.assert_array_equal(got.index, wanted.index)
            np.testing.assert_array_equal(got.values, wanted.values)
        else:
            np.testing.assert_array_equal(got, wanted)


def test_a_model_has_no_gradient_left_when_a_site_begins() -> None:
    model = small_pcnn()
    base = model.state()
    model.begin(base)
    loss_of("none", model, random_batch(0), None)[0].backward()
    model.begin(base)
    SGD(model, lr=1.0).step()
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, base[name])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()
