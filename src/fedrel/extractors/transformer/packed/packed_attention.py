"""Attention over packed pieces, text by text, and its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedrel.extractors.hashed_dropout import Mask, drop

Span = tuple[int, int]


class Text(NamedTuple):
    """One text of a part: its pieces, the rows of its queries, and what dropout does to its attention."""

    pieces: slice
    queries: slice
    mask: Mask | None


class Heads(NamedTuple):
    """A text's queries, keys and values by head, [h, n, d / h]."""

    query: Tensor
    key: Tensor
    value: Tensor


@dataclass(slots=True)
class Kept:
    """What the backward pass needs of attention."""

    query: Tensor  # [n, d]
    memory: Tensor  # [T, 2 d], keys beside values
    shares: list[Tensor]  # of each text, [h, n, L]: before dropout


def attend(
    query: Tensor, memory: Tensor, texts: Sequence[Text], heads: int, asked: Sequence[Tensor] | None
) -> tuple[Tensor, Kept, list[Tensor]]:
    """Each query's context, [n, d]; and the attention of the queries `asked` of each text, after dropout."""
    context, kept, told = torch.empty_like(query), Kept(query, memory, []), []
    for number, text in enumerate(texts):
        q, k, v = _heads(query, memory, text, heads)
        shares = _product(q, k.transpose(1, 2), q.shape[2] ** -0.5).softmax(2)
        used = drop(shares, text.mask)
        out = used @ v
        if text.mask:
            out *= text.mask.scale
        _by_head(context[text.queries], heads).copy_(out)
        kept.shares.append(shares)
        if asked is not None:
            told.append(used[:, asked[number]] * (text.mask.scale if text.mask else 1.0))
    return context, kept, told


def attend_back(
    dcontext: Tensor,
    kept: Kept,
    texts: Sequence[Text],
    heads: int,
    asked: Sequence[Tensor] | None,
    told: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of queries and memory, from those of the context and of the attention that was told."""
    dquery, dmemory, begin = torch.empty_like(kept.query), torch.empty_like(kept.memory), 0
    for number, (text, shares) in enumerate(zip(texts, kept.shares, strict=True)):
        q, k, v = _heads(kept.query, kept.memory, text, heads)
        dq, dk, dv = _heads(dquery, dmemory, text, heads)
        dout = _by_head(dcontext[text.queries], heads)
        scale = text.mask.scale if text.mask else 1.0
        if text.mask:
            dout = dout * scale
        dv.copy_(drop(shares, text.mask).transpose(1, 2) @ dout)
        dused = dout @ v.transpose(1, 2)
        if told is not None and asked is not None:
            rows = asked[number]
            size = len(dused) * len(rows) * dused.shape[2]
            more = told[begin : begin + size].view(len(dused), len(rows), dused.shape[2]) * scale
            dused.index_add_(1, rows, more.to(dused.dtype))
            begin += size
        dused = drop(dused, text.mask, in_place=True)
        dscores = torch.ops.aten._softmax_backward_data(dused, shares, 2, shares.dtype)
        dq.copy_(_product(dscores, k, q.shape[2] ** -0.5))
        dk.copy_(_product(dscores.transpose(1, 2), q, q.shape[2] ** -0.5))
    return dquery, dmemory


def _heads(query: Tensor, memory: Tensor, text: Text, heads: int) -> Heads:
    width = query.shape[1]
    own = memory[text.pieces]
    three = (query[text.queries], own[:, :width], own[:, width:])
    return Heads(*(_by_head(part, heads) for part in three))


def _by_head(x: Tensor, heads: int) -> Tensor:
    """A view of [n, d] as [h, n, d / h]."""
    return x.view(len(x), heads, x.shape[1] // heads).transpose(0, 1)


def _product(left: Tensor, right: Tensor, factor: float) -> Tensor:
    """factor * left @ right, [h, n, m]."""
    return torch.baddbmm(left.new_zeros(1, 1, 1), left, right, beta=0, alpha=factor)
