"""Dropout whose randomness is handed in, so that the same seed drops the same numbers everywhere."""

from __future__ import annotations

import torch
from torch import Tensor


def dropout(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """Set each number to zero with probability `p`, divide the rest by `1 - p`; without a generator, do nothing."""
    if generator is None or p == 0:
        return x
    kept = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device).ge_(p)
    return x * kept.div_(1 - p)
