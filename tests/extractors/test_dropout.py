from __future__ import annotations

import torch

from fedrel.extractors.dropout import dropout
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
