"""Engines around another engine, which watch or change what crosses, and what an update's arrays stand for."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from fedrel.federation.coordinator import Engine
from fedrel.federation.messages import Arrays, ModelTensors
from fedrel.tensors.weights import Tensors, Weights

if TYPE_CHECKING:
    from fedrel.data.bags import Bags

WEIGHTS = "weights/"  # how the arrays of an update's weights are called


class EngineAround(Engine):
    """Starts, stops and scores as the engine in it does; what is asked and answered is the subclass's business."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the other engine."""
        self._inner.__exit__(kind, error, trace)

    def score(self, weights: Weights, head: str, bags: Bags) -> npt.NDArray[np.float32]:
        """Each relation's probability for each bag; the coordinator scores by itself."""
        return self._inner.score(weights, head, bags)


def update_in(arrays: Arrays, base: Weights) -> Tensors | None:
    """The weights of an update that was trained from `base`; None of any other answer."""
    flat = {name.removeprefix(WEIGHTS): one for name, one in arrays.items() if name.startswith(WEIGHTS)}
    shapes = {name: tensor.shape for name, tensor in base.items()}
    return ModelTensors(rows=True).unpack(flat, shapes) if flat else None
