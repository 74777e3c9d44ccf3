"""Attention over packed pieces, text by text, and its backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedrel.extractors.row_tables import flat
from fedrel.extractors.transformer.packed import padded_attention
from fedrel.extractors.transformer.packed.hashed_dropout import Mask, drop, has_kernels

Ints = npt.NDArray[np.int64]
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
    shares: Tensor  # of each text [h, n, L], one after the other: before dropout; of long ones filled up


def attend(
    query: Tensor, memory: Tensor, texts: Sequence[Text], heads: int, asked: Sequence[Tensor] | None
) -> tuple[Tensor, Kept, Tensor]:
    """Each query's context, [n, d]; and of the queries `asked` of each text, their attention after dropout.

    That is [h, Q, L] for each text, one after the other; nothing if none are asked. Rows after the last text's
    have a context of zero.
    """
    context = query.new_empty(query.shape)
    shares = query.new_empty(sum(_sizes(query, texts, heads)))
    told = query.new_empty(
        0 if asked is None else sum(_told_sizes(texts, heads, asked)), dtype=_told_dtype(query)
    )
    if has_kernels(query):
        from fedrel.extractors.transformer.packed import attention_kernels

        table, asked_rows, cut, scale = _table(query, texts, heads, asked)
        numbers, where = _memory(query, memory, context)
        attention_kernels.attend(
            numbers, where, query.shape[1], heads, table, cut, scale, flat(shares), asked_rows, flat(told)
        )
    for text, share, rows, say in _others(query, texts, heads, shares, asked, told):
        one = padded_attention.attend if _is_long(query, text) else _attend
        own = query[text.queries], memory[text.pieces]
        one(*own, heads, text.mask, rows, context[text.queries], share, say)
    context[texts[-1].queries.stop :] = 0
    return context, Kept(query, memory, shares), told


def attend_back(
    dcontext: Tensor,
    kept: Kept,
    texts: Sequence[Text],
    heads: int,
    asked: Sequence[Tensor] | None,
    told: Tensor,
    dquery: Tensor,
    dmemory: Tensor,
) -> None:
    """Set the gradients of queries and memory, from those of the context and of the attention that was told."""
    if has_kernels(dcontext):
        from fedrel.extractors.transformer.packed import attention_kernels

        table, asked_rows, cut, scale = _table(dcontext, texts, heads, asked)
        numbers, where = _memory(dcontext.contiguous(), kept.query, kept.memory, dquery, dmemory)
        attention_kernels.attend_back(
            numbers, where, dquery.shape[1], heads, table, cut, scale, flat(kept.shares), asked_rows,
            flat(told.contiguous()),
        )  # fmt: skip
    for text, share, rows, say in _others(dcontext, texts, heads, kept.shares, asked, told):
        one = padded_attention.attend_back if _is_long(dcontext, text) else _attend_back
        own = dcontext[text.queries], kept.query[text.queries], kept.memory[text.pieces]
        one(*own, share, heads, text.mask, rows, say, dquery[text.queries], dmemory[text.pieces])
    dquery[texts[-1].queries.stop :] = 0
    dmemory[texts[-1].pieces.stop :] = 0


def _attend(
    query: Tensor, memory: Tensor, heads: int, mask: Mask | None, asked: Tensor | None,
    context: Tensor, shares: Tensor, told: Tensor,
) -> None:  # fmt: skip
    """Of one text, as the kernel, in PyTorch."""
    q, k, v = _heads(query, memory, heads)
    share = shares.view(*q.shape[:2], k.shape[1])
    share.copy_(_product(q, k.transpose(1, 2), q.shape[2] ** -0.5).softmax(2))
    used, scale = drop(share, mask), mask.scale if mask else 1.0
    _by_head(context, heads).copy_(used @ v * scale)
    if asked is not None:
        told.copy_((used[:, asked] * scale).reshape(-1))


def _attend_back(
    dcontext: Tensor, query: Tensor, memory: Tensor, shares: Tensor, heads: int, mask: Mask | None,
    asked: Tensor | None, told: Tensor, dquery: Tensor, dmemory: Tensor,
) -> None:  # fmt: skip
    """Of one text, as the kernel, in PyTorch."""
    q, k, v = _heads(query, memory, heads)
    dq, dk, dv = _heads(dquery, dmemory, heads)
    share, scale = shares.view(*q.shape[:2], k.shape[1]), mask.scale if mask else 1.0
    dout = _by_head(dcontext, heads) * scale
    dv.copy_(drop(share, mask).transpose(1, 2) @ dout)
    dused = dout @ v.transpose(1, 2)
    if asked is not None:
        more = told.view(len(dused), len(asked), dused.shape[2]) * scale
        dused.index_add_(1, asked, more.to(dused.dtype))
    dscores = torch.ops.aten._softmax_backward_data(drop(dused, mask), share, 2, share.dtype)
    dq.copy_(_product(dscores, k, q.shape[2] ** -0.5))
    dk.copy_(_product(dscores.transpose(1, 2), q, q.shape[2] ** -0.5))


def _table(
    query: Tensor, texts: Sequence[Text], heads: int, asked: Sequence[Tensor] | None
) -> tuple[Ints, Ints, int, float]:
    """Texts as kernels read them, a row each, but not long ones; rows asked; the least hash kept, its factor."""
    found: list[tuple[int, ...]] = []
    shares = told = before = 0
    cut, scale = 0, 1.0
    for number, (text, size) in enumerate(zip(texts, _sizes(query, texts, heads), strict=True)):
        length = text.pieces.stop - text.pieces.start
        count = 0 if asked is None else len(asked[number])
        seed = stride = 0
        if text.mask:
            (_, seed, stride, cut), scale = text.mask.words, text.mask.scale
        if not _is_long(query, text):
            found.append(
                (text.pieces.start, text.pieces.stop, text.queries.start, text.queries.stop, shares,
                 before, before + count, told, seed, stride)
            )  # fmt: skip
        shares += size
        told += heads * count * length
        before += count
    rows = torch.cat(list(asked)).numpy() if asked else np.empty(0, np.int64)
    return np.array(found, np.int64).reshape(-1, 10), rows, cut, scale


def _others(
    query: Tensor,
    texts: Sequence[Text],
    heads: int,
    shares: Tensor,
    asked: Sequence[Tensor] | None,
    told: Tensor,
) -> Iterator[tuple[Text, Tensor, Tensor | None, Tensor]]:
    """The texts that no kernel attends to, each with its shares, the rows asked for, and what is told of them."""
    everything = not has_kernels(query)
    if not everything and not any(_is_long(query, text) for text in texts):
        return
    own = torch.split(shares, _sizes(query, texts, heads))
    rows = [None] * len(texts) if asked is None else asked
    said = [told] * len(texts) if asked is None else torch.split(told, _told_sizes(texts, heads, asked))
    for found in zip(texts, own, rows, said, strict=True):
        if everything or _is_long(query, found[0]):
            yield found


def _is_long(query: Tensor, text: Text) -> bool:
    """Whether a text is so long that products of bfloat16 are worth filling it up."""
    length = text.pieces.stop - text.pieces.start
    return query.is_cpu and query.dtype is torch.bfloat16 and length >= padded_attention.LONG


def _sizes(query: Tensor, texts: Sequence[Text], heads: int) -> list[int]:
    """How many shares each text has."""
    found = []
    for text in texts:
        count = text.queries.stop - text.queries.start, text.pieces.stop - text.pieces.start
        long = _is_long(query, text)
        found.append(padded_attention.size(*count, heads) if long else heads * count[0] * count[1])
    return found


def _told_sizes(texts: Sequence[Text], heads: int, asked: Sequence[Tensor]) -> list[int]:
    return [
        heads * len(rows) * (text.pieces.stop - text.pieces.start)
        for text, rows in zip(texts, asked, strict=True)
    ]


def _told_dtype(query: Tensor) -> torch.dtype:
    """Attention leaves the encoder in the precision of states."""
    return torch.float32 if query.dtype is torch.bfloat16 else query.dtype


def _memory(*given: Tensor) -> tuple[tuple[np.ndarray[Any, Any], ...], Ints]:
    """The memory that each matrix is a view of; and where it begins there, and how far its rows are apart."""
    numbers = tuple(flat(torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())) for x in given)
    return numbers, np.array([(x.storage_offset(), x.stride(0)) for x in given], np.int64)


def _heads(query: Tensor, memory: Tensor, heads: int) -> Heads:
    width = query.shape[1]
    three = (query, memory[:, :width], memory[:, width:])
    return Heads(*(_by_head(part, heads) for part in three))


def _by_head(x: Tensor, heads: int) -> Tensor:
    """A view of [n, d] as [h, n, d / h]."""
    return x.view(len(x), heads, x.shape[1] // heads).transpose(0, 1)


def _product(left: Tensor, right: Tensor, factor: float) -> Tensor:
    """factor * left @ right, [h, n, m]."""
    return torch.baddbmm(left.new_zeros(1, 1, 1), left, right, beta=0, alpha=factor)
