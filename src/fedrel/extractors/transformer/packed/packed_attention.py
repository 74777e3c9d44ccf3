"""Attention over packed pieces, text by text, and its backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedrel.extractors.transformer.packed import padded_attention
from fedrel.extractors.transformer.packed.hashed_dropout import Mask, drop, flat, has_kernels

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
    shares: Tensor  # of each text [h, n, L], one after the other: before dropout


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
    if _padded(query, texts):
        for text, share, rows, say in _each(query, texts, heads, shares, asked, told):
            own = query[text.queries], memory[text.pieces]
            padded_attention.attend(*own, heads, text.mask, rows, context[text.queries], share, say)
    elif has_kernels(query):
        from fedrel.extractors.transformer.packed import attention_kernels

        table, asked_rows, cut, scale = _table(texts, heads, asked)
        numbers, where = _memory(query, memory, context)
        attention_kernels.attend(
            numbers, where, query.shape[1], heads, table, cut, scale, flat(shares), asked_rows, flat(told)
        )
    else:
        _attend(query, memory, texts, heads, asked, context, shares, told)
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
    if _padded(dcontext, texts):
        for text, share, rows, say in _each(dcontext, texts, heads, kept.shares, asked, told):
            own = dcontext[text.queries], kept.query[text.queries], kept.memory[text.pieces]
            into = dquery[text.queries], dmemory[text.pieces]
            padded_attention.attend_back(*own, share, heads, text.mask, rows, say, *into)
    elif has_kernels(dcontext):
        from fedrel.extractors.transformer.packed import attention_kernels

        table, asked_rows, cut, scale = _table(texts, heads, asked)
        numbers, where = _memory(dcontext.contiguous(), kept.query, kept.memory, dquery, dmemory)
        attention_kernels.attend_back(
            numbers, where, dquery.shape[1], heads, table, cut, scale, flat(kept.shares), asked_rows,
            flat(told.contiguous()),
        )  # fmt: skip
    else:
        _attend_back(dcontext, kept, texts, heads, asked, told, dquery, dmemory)
    dquery[texts[-1].queries.stop :] = 0
    dmemory[texts[-1].pieces.stop :] = 0


def _attend(
    query: Tensor,
    memory: Tensor,
    texts: Sequence[Text],
    heads: int,
    asked: Sequence[Tensor] | None,
    context: Tensor,
    shares: Tensor,
    told: Tensor,
) -> None:
    """As the kernel, in PyTorch."""
    for text, own, rows, say in _each(query, texts, heads, shares, asked, told):
        q, k, v = _heads(query, memory, text, heads)
        share = own.view(*q.shape[:2], k.shape[1])
        share.copy_(_product(q, k.transpose(1, 2), q.shape[2] ** -0.5).softmax(2))
        used, scale = drop(share, text.mask), text.mask.scale if text.mask else 1.0
        _by_head(context[text.queries], heads).copy_(used @ v * scale)
        if rows is not None:
            say.copy_((used[:, rows] * scale).reshape(-1))


def _attend_back(
    dcontext: Tensor,
    kept: Kept,
    texts: Sequence[Text],
    heads: int,
    asked: Sequence[Tensor] | None,
    told: Tensor,
    dquery: Tensor,
    dmemory: Tensor,
) -> None:
    """As the kernel, in PyTorch."""
    for text, own, rows, say in _each(dcontext, texts, heads, kept.shares, asked, told):
        q, k, v = _heads(kept.query, kept.memory, text, heads)
        dq, dk, dv = _heads(dquery, dmemory, text, heads)
        share, scale = own.view(*q.shape[:2], k.shape[1]), text.mask.scale if text.mask else 1.0
        dout = _by_head(dcontext[text.queries], heads) * scale
        dv.copy_(drop(share, text.mask).transpose(1, 2) @ dout)
        dused = dout @ v.transpose(1, 2)
        if rows is not None:
            more = say.view(len(dused), len(rows), dused.shape[2]) * scale
            dused.index_add_(1, rows, more.to(dused.dtype))
        dused = drop(dused, text.mask, in_place=True)
        dscores = torch.ops.aten._softmax_backward_data(dused, share, 2, share.dtype)
        dq.copy_(_product(dscores, k, q.shape[2] ** -0.5))
        dk.copy_(_product(dscores.transpose(1, 2), q, q.shape[2] ** -0.5))


def _table(
    texts: Sequence[Text], heads: int, asked: Sequence[Tensor] | None
) -> tuple[Ints, Ints, int, float]:
    """Texts as kernels read them: a row each; the rows that are asked; the least hash kept, and its factor."""
    found, shares, told, before = [], 0, 0, 0
    cut, scale = 0, 1.0
    for number, text in enumerate(texts):
        many, length = text.queries.stop - text.queries.start, text.pieces.stop - text.pieces.start
        count = 0 if asked is None else len(asked[number])
        seed = stride = 0
        if text.mask:
            (_, seed, stride, cut), scale = text.mask.words, text.mask.scale
        found.append(
            (text.pieces.start, text.pieces.stop, text.queries.start, text.queries.stop, shares,
             before, before + count, told, seed, stride)
        )  # fmt: skip
        shares += heads * many * length
        told += heads * count * length
        before += count
    rows = torch.cat(list(asked)).numpy() if asked else np.empty(0, np.int64)
    return np.array(found, np.int64), rows, cut, scale


def _each(
    query: Tensor,
    texts: Sequence[Text],
    heads: int,
    shares: Tensor,
    asked: Sequence[Tensor] | None,
    told: Tensor,
) -> Iterator[tuple[Text, Tensor, Tensor | None, Tensor]]:
    """Each text with its shares, the rows that are asked for, and what is told of them."""
    own = torch.split(shares, _sizes(query, texts, heads))
    if asked is None:
        yield from ((text, share, None, told) for text, share in zip(texts, own, strict=True))
    else:
        said = torch.split(told, _told_sizes(texts, heads, asked))
        yield from zip(texts, own, asked, said, strict=True)


def _padded(query: Tensor, texts: Sequence[Text]) -> bool:
    """Whether these texts are so long that products of bfloat16 are worth filling up."""
    pieces = sum(text.pieces.stop - text.pieces.start for text in texts)
    return query.is_cpu and query.dtype is torch.bfloat16 and pieces >= padded_attention.LONG * len(texts)


def _sizes(query: Tensor, texts: Sequence[Text], heads: int) -> list[int]:
    """How many shares each text has."""
    counts = [(one.queries.stop - one.queries.start, one.pieces.stop - one.pieces.start) for one in texts]
    if _padded(query, texts):
        return [padded_attention.size(*count, heads) for count in counts]
    return [heads * queries * pieces for queries, pieces in counts]


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
