"""The inner loop of PCNN in plain PyTorch: a convolution over packed sentences, and the maximum of each piece.

Two functions, `lay_out` and `convolve_and_pool`, compute all that PCNN computes per token.

Sentences are laid end to end with a gap of `window // 2` zero rows around each, so that one pass convolves all of
them and none reads its neighbour. Two facts make it fast:

- A word adds the same vector to the convolution wherever it is. So each distinct word (and distance) is multiplied
by the filters once, and the convolution is a sum of `3 * window` rows of that table. - The gradient of a maximum is
sparse: of a piece's tokens, one per filter has a gradient. The gradients of the filters and of the inputs are
weighted sums of rows over those (token, filter) pairs only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_SUM = 0  # torch.embedding_bag's number for it
_CHUNK = 2048  # rows convolved at a time when no gradient is needed, so that their output stays in the cache

Tables = Sequence[Tensor]
"""The vectors of words, of distances to the head, and of distances to the tail: [n, width] each."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Of each of `N` packed rows, which are tokens and gaps, its features and the piece that it is in."""

    features: Tensor  # [3, N] int64: rows of the three tables; 0 in a gap
    gaps: Tensor  # [h * (S + 1)] int64: the rows that are gaps, h = window // 2
    segment: Tensor  # [N - 2h] int64, of rows h to N - h: 3 * sentence + piece; 3 * S in a gap
    sentences: int
    window: int


def lay_out(inverse: Tensor, starts: Tensor, entities: Tensor, *, reach: int, window: int) -> Layout:
    """Pack sentences.

    `inverse` [T] is each token's row in the table of words; `entities` [2, S] are the places of head and tail;
    larger distances than `reach` count as `reach`, so that a table of distances has 2 * reach + 1 rows.
    """
    device, half, sentences, tokens = starts.device, window // 2, entities.shape[1], len(inverse)
    numbers = torch.arange(sentences + 1, device=device)
    sentence = torch.repeat_interleave(numbers[:-1], starts.diff(), output_size=tokens)
    token = torch.arange(tokens, device=device)
    away = token - (starts[:-1] + entities).index_select(1, sentence)
    centre = token + half * sentence  # the token's place when the first gap is not counted

    features = starts.new_zeros((3, tokens + half * (sentences + 1)))
    features[0, half:].index_copy_(0, centre, inverse)
    features[1:, half:].index_copy_(1, centre, away.clamp(-reach, reach) + reach)
    segment = starts.new_full((features.shape[1] - 2 * half,), 3 * sentences)
    # A token is past the earlier entity if past either, and past the later one if past both.
    segment.index_copy_(0, centre, 3 * sentence + (away > 0).sum(0))
    gaps = (starts + half * numbers)[:, None] + torch.arange(half, device=device)
    return Layout(features, gaps.reshape(-1), segment, sentences, window)


def convolve_and_pool(tables: Tables, weight: Tensor, bias: Tensor, layout: Layout) -> Tensor:
    """ReLU of the largest convolution output in each piece, [S, 3 * filters], piece after piece.

    `weight` is [filters, window * width]: in a filter one offset after another, in an offset the numbers for the
    word, for the distance to the head, and for that to the tail. An empty piece gives 0; gaps do not count.
    """
    if torch.is_grad_enabled():
        pooled: Tensor = _ConvolveAndPool.apply(weight, bias, layout, *tables)  # type: ignore[no-untyped-call]
        return pooled
    table, lookups = _project(tables, weight, bias, layout.window), _lookups(tables, layout)
    pooled = weight.new_zeros((3 * layout.sentences + 1, len(weight)))
    for rows, segment in zip(torch.split(lookups, _CHUNK), torch.split(layout.segment, _CHUNK), strict=True):
        _raise(pooled, segment, _sum_rows(table, rows))
    return pooled[:-1].view(layout.sentences, -1)


class _ConvolveAndPool(torch.autograd.Function):
    """`convolve_and_pool` with its sparse gradient."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, layout: Layout, *tables: Tensor) -> Tensor:
        """Convolve all rows at once and keep the output, in which the backward pass finds the maxima."""
        output = _sum_rows(_project(tables, weight, bias, layout.window), _lookups(tables, layout))
        pooled = output.new_zeros((3 * layout.sentences + 1, len(weight)))
        _raise(pooled, layout.segment, output)
        ctx.layout = layout
        ctx.save_for_backward(weight, output, pooled, *tables)
        return pooled[:-1].view(layout.sentences, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Sum over the (row, filter) pairs that have the maximum of their piece and a gradient."""
        layout: Layout = ctx.layout
        weight, output, pooled, *tables = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, len(weight))
        gradient = torch.ops.aten.threshold_backward(gradient, pooled[:-1], 0)  # ReLU's part
        winners = _Winners(output, pooled, gradient, layout.segment)

        sources = zip(tables, layout.features, strict=True)
        inputs = torch.cat([table.index_select(0, rows) for table, rows in sources], 1)
        inputs.index_fill_(0, layout.gaps, 0)
        rows, width = inputs.shape
        windows = inputs.as_strided((rows - layout.window + 1, layout.window * width), (width, 1))
        d_weight = winners.by_filter(windows)

        d_inputs = torch.zeros_like(inputs)
        for offset, d_offset in enumerate(torch.split(winners.by_row(weight), width, 1)):
            d_inputs[offset : offset + len(d_offset)] += d_offset
        d_inputs.index_fill_(0, layout.gaps, 0)
        d_features = torch.split(d_inputs, [table.shape[1] for table in tables], 1)
        d_tables = [
            torch.zeros_like(table).index_add_(0, rows, d_feature.contiguous()) if trained else None
            for table, rows, d_feature, trained in zip(
                tables, layout.features, d_features, ctx.needs_input_grad[3:], strict=True
            )
        ]
        return d_weight, gradient.sum(0), None, *d_tables


class _Winners:
    """The (row, filter) pairs whose output is the largest of its piece, with the gradient of each."""

    def __init__(self, output: Tensor, pooled: Tensor, gradient: Tensor, segment: Tensor) -> None:
        rows, self._filters = output.shape
        # Gaps, and pairs without a gradient (0 / 0), are NaN, which equals nothing.
        sought = torch.full_like(pooled, torch.nan)
        torch.mul(pooled[:-1], gradient / gradient, out=sought[:-1])
        found = _where_equal(output, sought.index_select(0, segment))
        row = found // self._filters
        filter_ = found - row * self._filters
        piece = segment.index_select(0, row) * self._filters + filter_
        if len(found) > int(gradient.bool().sum()):  # an exact tie: the earliest row counts
            first = _firsts(piece)
            row, filter_, piece = row[first], filter_[first], piece[first]
        self._row, self._filter = row, filter_
        self._value = gradient.reshape(-1).index_select(0, piece)
        self._row_starts = _starts(row, rows)

    def by_row(self, filters: Tensor) -> Tensor:
        """The sum over each row's winning filters of gradient times filter, [rows, n]."""
        return _weighted_sums(filters, self._filter, self._row_starts, self._value)

    def by_filter(self, rows: Tensor) -> Tensor:
        """The sum over each filter's winning rows of gradient times row, [filters, n]."""
        order = _order(self._filter, self._filters)
        starts = _starts(self._filter, self._filters)
        return _weighted_sums(
            rows, self._row.index_select(0, order), starts, self._value.index_select(0, order)
        )


def _project(tables: Tables, weight: Tensor, bias: Tensor, window: int) -> Tensor:
    """A gap's zeros, then each row of the tables, times each offset's filters, [(1 + rows) * window, filters]."""
    filters, sizes = len(weight), [len(table) for table in tables]
    by_offset = weight.view(filters, window, -1).permute(2, 1, 0).reshape(-1, window * filters)
    projected = weight.new_empty((1 + sum(sizes), window * filters))
    gap, *parts = torch.split(projected, [1, *sizes])
    gap.zero_()
    factors = torch.split(by_offset, [table.shape[1] for table in tables])
    for table, factor, part in zip(tables, factors, parts, strict=True):
        torch.mm(table, factor, out=part)
    # Every token has exactly one distance to the tail at its own offset, so the bias is added there.
    parts[-1].view(-1, window, filters)[:, window // 2] += bias
    return projected.view(-1, filters)


def _lookups(tables: Tables, layout: Layout) -> Tensor:
    """The rows of the projected tables whose sum is a row's convolution, [rows, 3 * window]."""
    words, head, _ = tables
    first = layout.features + 1
    first[1:] += len(words)
    first[2] += len(head)
    first.index_fill_(1, layout.gaps, 0).mul_(layout.window)
    offsets = torch.arange(layout.window, device=first.device)
    return (first.unfold(1, layout.window, 1) + offsets).transpose(0, 1).reshape(-1, 3 * layout.window)


def _sum_rows(table: Tensor, lookups: Tensor) -> Tensor:
    """The sum of each lookup's rows."""
    starts = torch.arange(0, lookups.numel(), lookups.shape[1], device=lookups.device)
    return torch.embedding_bag(table, lookups.reshape(-1), starts, mode=_SUM)[0]


def _weighted_sums(table: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """The sum of weight times row over each run of `rows` that begins at `starts`."""
    return torch.embedding_bag(table, rows, starts, mode=_SUM, per_sample_weights=weights)[0]


def _raise(pooled: Tensor, segment: Tensor, output: Tensor) -> None:
    """Raise each segment's row to the largest of its outputs; since it begins at 0, that is ReLU, too."""
    pooled.scatter_reduce_(0, segment[:, None].expand_as(output), output, "amax")


def _where_equal(left: Tensor, right: Tensor) -> Tensor:
    """The flat places where two tensors are equal, ascending."""
    if left.is_cpu:  # numpy compares and lists twice as fast as torch
        return torch.from_numpy(np.flatnonzero(left.numpy() == right.numpy()))
    return (left == right).reshape(-1).nonzero().squeeze(1)


def _order(keys: Tensor, groups: int) -> Tensor:
    """An order that puts equal keys together, the smallest first."""
    if keys.is_cpu and groups <= 1 << 16:  # numpy sorts small integers by radix
        small = keys.numpy().astype(np.uint8 if groups <= 1 << 8 else np.uint16)
        return torch.from_numpy(np.argsort(small, kind="stable"))
    return torch.sort(keys, stable=True).indices


def _starts(keys: Tensor, groups: int) -> Tensor:
    """Where each group begins among the keys in order."""
    counts = torch.bincount(keys, minlength=groups)
    return counts.cumsum(0) - counts


def _firsts(keys: Tensor) -> Tensor:
    """The places of each key's first occurrence, ascending."""
    ordered, order = torch.sort(keys, stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=new[1:])
    return order[new].sort().values
