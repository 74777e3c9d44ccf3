"""Plain stochastic gradient descent, at the cost of what a batch uses."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrel.extractors.base import Extractor
from fedrel.extractors.rows import RowEmbedding


class SGD:
    """`p -= lr * (gradient + weight_decay * p)` for every parameter, word tables by rows."""

    def __init__(self, extractor: Extractor, lr: float, weight_decay: float = 0.0) -> None:
        self.lr = lr
        self.weight_decay = weight_decay
        self._tables = [module for module in extractor.modules() if isinstance(module, RowEmbedding)]
        self._dense = [parameter for parameter in extractor.parameters() if parameter.requires_grad]

    @torch.no_grad()
    def step(self) -> None:
        """Go down the gradients of the last backward pass, and clear them."""
        moving: list[Tensor] = []
        gradients: list[Tensor] = []
        for parameter in self._dense:
            if parameter.grad is not None:
                moving.append(parameter)
                gradients.append(parameter.grad)
        if moving:
            torch._foreach_mul_(moving, 1 - self.lr * self.weight_decay)
            torch._foreach_add_(moving, gradients, alpha=-self.lr)
        for table in self._tables:
            table.descend(self.lr, self.weight_decay)
        self.zero_grad()

    def zero_grad(self) -> None:
        """Drop gradients without using them; a forward pass that waits for its backward pass still counts."""
        for parameter in self._dense:
            parameter.grad = None
        for table in self._tables:
            table.zero_grad()
