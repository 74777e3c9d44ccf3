"""The inner loop of PCNN: a convolution over packed sentences and the largest value of each piece.

Everything an extractor computes per token happens here, behind one function, `convolve_and_pool`.

Sentences stand end to end with a gap of `window // 2` zero rows around each, so one pass convolves all of
them and none reads its neighbour. Two facts make it cheap:

- A word adds the same vector to the convolution wherever it stands. So each distinct word (and distance)
  is multiplied by the filters once, and the convolution is a sum of `3 * window` rows of that table.
- The gradient of a maximum is sparse: of a piece's tokens one per filter has any. Both gradients, of the
  filters and of the inputs, are weighted sums of rows over those (token, filter) pairs only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_SUM = 0  # torch.embedding_bag's number for it
_CHUNK = 2048  # rows convolved at a time when no gradient is needed: their output stays in the cache


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each of the `N` packed rows (tokens and gaps) finds its features and which piece it is in."""

    features: Tensor  # [3, N] int64: word, distance to head, distance to tail; 0 in a gap, else 1 + row
    segment: Tensor  # [N - 2 * (window // 2)] int64: 3 * sentence + piece; 3 * S in a gap
    sentences: int
    window: int


def lay_out(
    inverse: Tensor, starts: Tensor, head: Tensor, tail: Tensor, *, reach: int, window: int
) -> Layout:
    """Pack sentences; `inverse` is each token's word row, `reach` the largest distance told apart."""
    device = starts.device
    sentences, tokens, half = len(head), len(inverse), window // 2
    sentence = torch.repeat_interleave(
        torch.arange(sentences, device=device), starts.diff(), output_size=tokens
    )
    token = torch.arange(tokens, device=device)
    place = token - starts[sentence]
    to_head, to_tail = place - head[sentence], place - tail[sentence]
    row = token + half * (sentence + 1)

    features = torch.zeros((3, tokens + half * (sentences + 1)), dtype=torch.int64, device=device)
    features[0, row] = inverse + 1
    features[1, row] = to_head.clamp(-reach, reach) + (reach + 1)
    features[2, row] = to_tail.clamp(-reach, reach) + (reach + 1)
    segment = torch.full((features.shape[1] - 2 * half,), 3 * sentences, device=device)
    # A token is past the earlier start if past either, past the later one if past both.
    segment[row - half] = 3 * sentence + (to_head > 0) + (to_tail > 0)
    return Layout(features, segment, sentences, window)


def convolve_and_pool(
    words: Tensor, head: Tensor, tail: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout
) -> Tensor:
    """ReLU of the largest convolution output in each piece, [S, 3 * filters], piece after piece.

    `words`, `head`, `tail` are the rows that `layout.features` counts. `weight` is [filters, window * width]:
    in each filter one offset after another, in each offset the word's numbers, the head's, the tail's.
    An empty piece gives 0; a gap never wins.
    """
    if torch.is_grad_enabled():
        pooled: Tensor = _ConvolveAndPool.apply(words, head, tail, weight, bias, layout)  # type: ignore[no-untyped-call]
        return pooled
    table = _project(words, head, tail, weight, bias, layout.window)
    lookups = _lookups(layout, len(words), len(head))
    pooled = table.new_zeros((3 * layout.sentences + 1, len(weight)))
    for rows, segment in zip(lookups.split(_CHUNK), layout.segment.split(_CHUNK), strict=True):
        _raise_to(pooled, segment, _sum_rows(table, rows))
    return pooled[:-1].view(layout.sentences, -1)


class _ConvolveAndPool(torch.autograd.Function):
    """`convolve_and_pool` with its sparse gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        words: Tensor,
        head: Tensor,
        tail: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        layout: Layout,
    ) -> Tensor:
        """Convolve all rows at once and keep the output: the backward pass finds the winners in it."""
        table = _project(words, head, tail, weight, bias, layout.window)
        output = _sum_rows(table, _lookups(layout, len(words), len(head)))
        pooled = output.new_zeros((3 * layout.sentences + 1, len(weight)))
        _raise_to(pooled, layout.segment, output)
        ctx.layout = layout
        ctx.save_for_backward(words, head, tail, weight, output, pooled)
        return pooled[:-1].view(layout.sentences, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Sum over the (row, filter) pairs that won their piece and have a gradient; no other has any."""
        layout: Layout = ctx.layout
        words, head, tail, weight, output, pooled = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, len(weight))
        # ReLU passes nothing where the largest value was not above 0. The last row is the gaps'.
        gradient = torch.where(pooled[:-1] > 0, gradient, 0)
        winners = _Winners(output, pooled, gradient, layout.segment)

        inputs = torch.cat(
            [_with_gap(table)[rows] for table, rows in zip((words, head, tail), layout.features)], 1
        )
        d_weight = winners.by_filter(_windows(inputs, layout.window))
        d_windows = winners.by_row(weight)
        width = inputs.shape[1]
        d_inputs = torch.zeros_like(inputs)
        for offset, d_offset in enumerate(d_windows.split(width, 1)):
            d_inputs[offset : offset + len(d_offset)] += d_offset
        d_tables = [
            _with_gap(table).zero_().index_add_(0, rows, d_rows)[1:]
            for table, rows, d_rows in zip(
                (words, head, tail),
                layout.features,
                d_inputs.split([words.shape[1], head.shape[1], tail.shape[1]], 1),
            )
        ]
        d_bias = gradient.sum(0) if ctx.needs_input_grad[4] else None
        return *d_tables, d_weight, d_bias, None


class _Winners:
    """The (row, filter) pairs whose output is the largest of its piece, with the gradient of each, by row."""

    def __init__(self, output: Tensor, pooled: Tensor, gradient: Tensor, segment: Tensor) -> None:
        self.rows, self.filters = output.shape
        # What has no gradient is never equal to anything, nor is what stands in a gap.
        sought = torch.nn.functional.pad(
            pooled[:-1].masked_fill(gradient == 0, torch.inf), (0, 0, 0, 1), value=torch.inf
        )
        flat = _where_equal(output, sought.index_select(0, segment))
        row = flat // self.filters
        self.filter = flat - row * self.filters
        piece = segment.index_select(0, row) * self.filters + self.filter
        if len(flat) > int((gradient != 0).sum()):  # an exact tie: the earliest row has it
            first = _firsts(piece)
            flat, row, piece, self.filter = flat[first], row[first], piece[first], self.filter[first]
        self.row = row
        self.value = gradient.reshape(-1).index_select(0, piece)
        self._row_starts = torch.searchsorted(
            flat, torch.arange(self.rows, device=flat.device) * self.filters
        )

    def by_row(self, filters: Tensor) -> Tensor:
        """The sum over each row's winning filters of gradient times filter, [rows, n]."""
        return _weighted_sums(filters, self.filter, self._row_starts, self.value)

    def by_filter(self, rows: Tensor) -> Tensor:
        """The sum over each filter's winning rows of gradient times row, [filters, n]."""
        order, starts = _grouped(self.filter, self.filters)
        return _weighted_sums(rows, self.row[order], starts, self.value[order])


def _project(
    words: Tensor, head: Tensor, tail: Tensor, weight: Tensor, bias: Tensor | None, window: int
) -> Tensor:
    """Each feature row times each offset's filters, [(1 + u + 2 * distances) * window, filters]; first a gap's zeros."""
    filters = len(weight)
    sizes = [words.shape[1], head.shape[1], tail.shape[1]]
    by_feature = weight.view(filters, window, -1).permute(2, 1, 0).reshape(sum(sizes), window * filters)
    of_word, of_head, of_tail = by_feature.split(sizes)
    table = weight.new_empty((1 + len(words) + len(head) + len(tail), window * filters))
    gap, word_rows, head_rows, tail_rows = table.split([1, len(words), len(head), len(tail)])
    gap.zero_()
    torch.mm(words, of_word, out=word_rows)
    torch.mm(head, of_head, out=head_rows)
    torch.mm(tail, of_tail, out=tail_rows)
    if bias is not None:  # every token has one distance to the tail at its own offset: the bias rides on it
        middle = window // 2 * filters
        tail_rows[:, middle : middle + filters] += bias
    return table.view(-1, filters)


def _lookups(layout: Layout, words: int, distances: int) -> Tensor:
    """The rows of the projected table whose sum is a row's convolution, [rows, 3 * window]."""
    device = layout.features.device
    skipped = torch.tensor([[0], [words], [words + distances]], device=device)
    base = torch.where(layout.features > 0, layout.features + skipped, 0) * layout.window
    around = base.unfold(1, layout.window, 1) + torch.arange(layout.window, device=device)
    return around.transpose(0, 1).reshape(-1, 3 * layout.window)


def _sum_rows(table: Tensor, lookups: Tensor) -> Tensor:
    """The sum of each lookup's rows."""
    starts = torch.arange(0, lookups.numel(), lookups.shape[1], device=lookups.device)
    return torch.embedding_bag(table, lookups.reshape(-1), starts, mode=_SUM)[0]


def _weighted_sums(table: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """The sum of weight times row over each run of `rows` that begins at `starts`."""
    return torch.embedding_bag(table, rows, starts, mode=_SUM, per_sample_weights=weights)[0]


def _raise_to(pooled: Tensor, segment: Tensor, output: Tensor) -> None:
    """Raise each segment's row to the largest of its outputs; rows that begin at 0 end as ReLU's."""
    pooled.scatter_reduce_(0, segment[:, None].expand_as(output), output, "amax")


def _where_equal(left: Tensor, right: Tensor) -> Tensor:
    """The flat places where two tensors are equal, ascending."""
    if left.is_cpu:  # numpy compares and lists twice as fast as torch does
        return torch.from_numpy(np.flatnonzero(left.numpy() == right.numpy()))
    return (left == right).reshape(-1).nonzero().squeeze(1)


def _firsts(keys: Tensor) -> Tensor:
    """The places of each key's first occurrence, ascending."""
    ordered, order = torch.sort(keys, stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=new[1:])
    return order[new].sort().values


def _grouped(keys: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """An order that puts equal keys together, and where each of the groups begins in it."""
    if keys.is_cpu:  # numpy sorts small integers by radix
        small = keys.numpy().astype(np.uint8 if groups <= 256 else np.uint16 if groups <= 65536 else np.int64)
        order = torch.from_numpy(np.argsort(small, kind="stable"))
    else:
        order = torch.sort(keys, stable=True).indices
    counts = torch.bincount(keys, minlength=groups)
    return order, counts.cumsum(0) - counts


def _with_gap(table: Tensor) -> Tensor:
    """A copy of a table with a row of zeros before its first."""
    return torch.cat([table.new_zeros((1, table.shape[1])), table])


def _windows(inputs: Tensor, window: int) -> Tensor:
    """Each window of rows as one row, [rows - window + 1, window * width]."""
    return inputs.unfold(0, window, 1).transpose(1, 2).reshape(len(inputs) - window + 1, -1)
