"""Memory saved in training: intermediate results are computed again for the gradients instead of being kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def frugal(function: Callable[..., Any], *given: Any) -> Any:
    """A function's value; with gradients on, its intermediate results are not kept but computed again for them.

    It must not draw from a generator that others use as well.
    """
    if not torch.is_grad_enabled():
        return function(*given)
    return checkpoint(function, *given, use_reentrant=False, preserve_rng_state=False)
