"""Attention of long texts in bfloat16, by the processor's own products of bfloat16 (AVX512-BF16, AMX).

The compiled kernels, which multiply in float32, are faster with short texts only. Here a text is filled up with
zeros to one of few lengths, since oneDNN compiles a product for every shape. Keys that were added have a share of
zero; queries that were added have no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrel.extractors.transformer.packed.hashed_dropout import Mask, drop

LONG = 96  # pieces in a text
_STEP = 32


def size(queries: int, pieces: int, heads: int) -> int:
    """How many shares a text has."""
    return heads * (queries + -queries % _STEP) * (pieces + -pieces % _STEP)


def attend(
    query: Tensor, memory: Tensor, heads: int, mask: Mask | None, asked: Tensor | None,
    context: Tensor, shares: Tensor, told: Tensor,
) -> None:  # fmt: skip
    """Set the context of a text's queries, their shares before dropout, and those after it that are asked for."""
    q, k, v = _by_head(query, memory, heads)
    length, scale = len(memory), mask.scale if mask else 1.0
    scores = torch.baddbmm(q.new_zeros(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=q.shape[2] ** -0.5)
    scores[:, :, length:] = -torch.inf
    share = torch.softmax(scores, 2, out=shares.view(scores.shape))
    used = drop(share, mask)
    _put(used @ v * scale, context)
    if asked is not None:
        told.copy_((used[:, asked, :length].float() * scale).reshape(-1))


def attend_back(
    dcontext: Tensor, query: Tensor, memory: Tensor, shares: Tensor, heads: int, mask: Mask | None,
    asked: Tensor | None, told: Tensor, dquery: Tensor, dmemory: Tensor,
) -> None:  # fmt: skip
    """Set the gradients of a text's queries and memory, from those of its contexts and of the shares asked for."""
    q, k, v = _by_head(query, memory, heads)
    length, width = memory.shape[0], query.shape[1]
    scale, factor = mask.scale if mask else 1.0, q.shape[2] ** -0.5
    share = shares.view(heads, q.shape[1], k.shape[1])
    dout = _filled_up(dcontext, heads) * scale
    dused = dout @ v.transpose(1, 2)
    if asked is not None:
        more = told.view(heads, len(asked), length) * scale
        dused[:, :, :length].index_add_(1, asked, more.to(dused.dtype))
    dscores = torch.ops.aten._softmax_backward_data(drop(dused, mask), share, 2, share.dtype)
    _put(drop(share, mask).transpose(1, 2) @ dout, dmemory[:, width:])
    _put(dscores.transpose(1, 2) @ q * factor, dmemory[:, :width])
    _put(dscores @ k * factor, dquery)


def _by_head(query: Tensor, memory: Tensor, heads: int) -> list[Tensor]:
    """A text's queries, keys and values, [h, n, d / h] each."""
    width = query.shape[1]
    return [_filled_up(part, heads) for part in (query, memory[:, :width], memory[:, width:])]


def _filled_up(x: Tensor, heads: int) -> Tensor:
    """[n, d] as [h, m, d / h], with zeros after the first n."""
    target = x.new_zeros(heads, len(x) + -len(x) % _STEP, x.shape[1] // heads)
    target[:, : len(x)] = x.view(len(x), heads, x.shape[1] // heads).transpose(0, 1)
    return target


def _put(x: Tensor, target: Tensor) -> None:
    """The first n of [h, m, d / h] into [n, d]."""
    target.view(len(target), len(x), x.shape[2]).copy_(x[:, : len(target)].transpose(0, 1))
