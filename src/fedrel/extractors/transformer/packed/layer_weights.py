"""A layer's weights as matrix products read them, and their gradients in the order of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

_COUNT = 16  # weights of a layer


@dataclass(slots=True)
class Matrices:
    """One layer's weights: matrices in the products' precision, norms in the residuals'."""

    qkv: Tensor  # [3 d, d], query above key above value
    qkv_bias: Tensor
    out: Tensor  # [d, d]
    out_bias: Tensor
    norm1: Tensor
    norm1_bias: Tensor
    up: Tensor  # [f, d]
    up_bias: Tensor
    down: Tensor  # [d, f]
    down_bias: Tensor
    norm2: Tensor
    norm2_bias: Tensor


@dataclass(slots=True)
class Gradients:
    """Gradients of one layer's `Matrices`; none where nothing is trained."""

    qkv: Tensor | None = None
    qkv_bias: Tensor | None = None
    out: Tensor | None = None
    out_bias: Tensor | None = None
    norm1: Tensor | None = None
    norm1_bias: Tensor | None = None
    up: Tensor | None = None
    up_bias: Tensor | None = None
    down: Tensor | None = None
    down_bias: Tensor | None = None
    norm2: Tensor | None = None
    norm2_bias: Tensor | None = None

    def add(self, other: Gradients, dtype: torch.dtype) -> None:
        """Add another part's gradients, in this precision."""
        for field in fields(self):
            one, more = getattr(self, field.name), getattr(other, field.name)
            if one is not None:
                setattr(self, field.name, one.to(dtype).add_(more))


def by_weight(layer: Matrices | Gradients) -> list[Any]:
    """A layer's matrices or gradients in the order of `weights`: those of query, key and value apart."""
    qkv, bias, *rest = (getattr(layer, field.name) for field in fields(layer))
    three: list[Any] = [None] * 6
    if qkv is not None:
        three[::2] = qkv.chunk(3)
    if bias is not None:
        three[1::2] = bias.chunk(3)
    return three + rest


def modules(layer: Any) -> list[Any]:
    """The modules that hold a layer's weights."""
    attention, own = layer.attention, layer.attention.self
    return [
        own.query, own.key, own.value, attention.output.dense, attention.output.LayerNorm,
        layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm,
    ]  # fmt: skip


def weights(layer: Any) -> list[Tensor]:
    """A layer's weights and biases; with LoRA, the matrices with their low-rank updates added."""
    return [part for module in modules(layer) for part in (_weight(module), _bias(module))]


def matrices(
    given: Sequence[Tensor], dtype: torch.dtype, norms: torch.dtype, old: Matrices | None
) -> Matrices:
    """`weights` in the precision of products, those of norms in theirs; copies go where `old` has them."""
    q, qb, k, kb, v, vb, out, out_bias, n1, n1b, up, up_bias, down, down_bias, n2, n2b = (
        weight.detach() for weight in given
    )

    def cast(name: str, *parts: Tensor, to: torch.dtype = dtype) -> Tensor:
        if len(parts) == 1 and parts[0].dtype is to:
            return parts[0]
        rows = sum(len(part) for part in parts)
        target: Tensor = (
            q.new_empty((rows, *parts[0].shape[1:]), dtype=to) if old is None else getattr(old, name)
        )
        for place, part in zip(target.chunk(len(parts)), parts, strict=True):
            place.copy_(part)
        return target

    return Matrices(
        cast("qkv", q, k, v), cast("qkv_bias", qb, kb, vb), cast("out", out), cast("out_bias", out_bias),
        cast("norm1", n1, to=norms), cast("norm1_bias", n1b, to=norms),
        cast("up", up), cast("up_bias", up_bias), cast("down", down), cast("down_bias", down_bias),
        cast("norm2", n2, to=norms), cast("norm2_bias", n2b, to=norms),
    )  # fmt: skip


def wanted(needed: Sequence[bool]) -> list[frozenset[str]]:
    """For each layer, the names of the `Gradients` that are needed, from what each of its weights needs."""
    names = [field.name for field in fields(Gradients)]
    found = []
    for begin in range(0, len(needed), _COUNT):
        own = needed[begin : begin + _COUNT]
        asked = [any(own[0:6:2]), any(own[1:6:2]), *own[6:]]
        found.append(frozenset(name for name, needs in zip(names, asked, strict=True) if needs))
    return found


def _weight(module: Any) -> Tensor:
    base: Any = getattr(module, "base_layer", None)
    if base is None:
        weight: Tensor = module.weight
        return weight
    for adapter in module.active_adapters:
        weight = base.weight + module.get_delta_weight(adapter)
    return weight


def _bias(module: Any) -> Tensor:
    bias: Tensor = getattr(module, "base_layer", module).bias
    return bias
