"""An encoder's own dropout as a function of a generator that is handed in.

Hugging Face's encoders call `torch.nn.functional.dropout`, which draws from a state that the whole process
shares. In here such a call draws from the caller's generator instead, whatever the architecture, and nothing
else notices. On a CPU the masks come from numpy's SFC64, 16 bits a number: a fifth of the time of torch's own,
which is a tenth of a training step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedrel.extractors.dropout import dropout

_LEVELS = 1 << 16


class DrawnDropout(TorchFunctionMode):
    """While entered: every dropout in training draws from what one number of `generator` begins."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator
        seed = torch.randint(1 << 62, (), generator=generator, device=generator.device)
        self._bits = np.random.SFC64(int(seed))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.dropout:
            return self._dropout(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        if not x.is_cpu:
            return dropout(x, p, self._generator)
        count = x.numel()
        drawn = self._bits.random_raw(-(-count // 4)).view(np.uint16)[:count]
        mask = np.multiply(drawn >= round(p * _LEVELS), np.float32(1 / (1 - p)))
        return x * torch.from_numpy(mask).view(x.shape)
