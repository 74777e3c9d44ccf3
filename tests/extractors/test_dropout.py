from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrel.extractors.dropout import drop_units, dropout, step_seeds, units_kept
from fedrel.seeding import torch_generator


def test_keep_rate_and_scale() -> None:
    x = torch.ones(400, 500)
    dropped = dropout(x, 0.3, torch_generator(1, "dropout"))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    assert abs((dropped > 0).float().mean().item() - 0.7) < 0.005  # five standard deviations
    assert abs(dropped.mean().item() - 1) < 0.008


def test_the_generator_decides() -> None:
    x = torch.ones(50, 50)
    first, second = (dropout(x, 0.5, torch_generator(1, "dropout")) for _ in range(2))
    assert (first == second).all()
    torch.manual_seed(0)
    generator = torch_generator(1, "dropout")
    assert (dropout(x, 0.5, generator) == first).all()
    assert (dropout(x, 0.5, generator) != first).any()


def test_without_a_generator_or_a_rate_nothing_is_dropped() -> None:
    x = torch.randn((3, 3), generator=torch_generator(1, "x"))
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, torch_generator(1, "dropout")) is x


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_units_are_kept_at_the_rate_and_independently(rate: float) -> None:
    one, two, three = step_seeds(torch_generator(1, "dropout"), 3).tolist()
    mask = units_kept(one, 2000, 690, rate).numpy()
    spread = np.sqrt(rate * (1 - rate))
    assert abs(mask.mean() - (1 - rate)) <= 5 * spread / np.sqrt(mask.size)
    for axis, many in ((0, 2000), (1, 690)):  # no unit and no sentence is favoured
        assert (abs(mask.mean(axis) - (1 - rate)) <= 6 * spread / np.sqrt(many)).all()
    if rate:
        others = (units_kept(seed, 2000, 690, rate).numpy() for seed in (two, three))
        for other in (*others, np.roll(mask, 1, 0), np.roll(mask, 1, 1)):
            assert abs((mask & other).mean() - (1 - rate) ** 2) <= 5 / np.sqrt(mask.size)
    np.testing.assert_array_equal(mask, units_kept(one, 2000, 690, rate).numpy())


def test_units_follow_from_one_number_a_step() -> None:
    x, steps = torch.randn((6, 50), generator=torch_generator(1, "x")), torch_generator(1, "dropout")
    expected = [
        x * units_kept(seed, 6, 50, 0.5) * 2 for seed in step_seeds(torch_generator(1, "dropout"), 3).tolist()
    ]
    for step in expected:
        torch.testing.assert_close(drop_units(x, 0.5, steps), step)
    assert drop_units(x, 0.5, None) is x
    assert drop_units(x, 0.0, steps) is x
