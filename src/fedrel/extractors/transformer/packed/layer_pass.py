"""One pass of some texts through all layers, forward and backward, without PyTorch's graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedrel.extractors.transformer.packed.hashed_dropout import Mask, add_dropped, column_sums, dropped, key
from fedrel.extractors.transformer.packed.layer_weights import Gradients, Matrices
from fedrel.extractors.transformer.packed.packed_attention import Kept, Span, Text, attend, attend_back

ACTIVATIONS = {  # those that have a backward pass here
    "gelu": "none",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "relu": "",
}
_OUT, _DOWN, _SHARES = range(3)  # where a layer has dropout
_FEW, _STEPS = 1024, (32, 64)  # rows of bfloat16's products are a multiple of 32, of many of 64


class Dropout(NamedTuple):
    """An encoder's dropout in one pass: its two rates, and the seed that decides which numbers are dropped."""

    hidden: float
    attention: float
    seed: int


class Settings(NamedTuple):
    """What is the same for all layers."""

    heads: int
    activation: str
    eps: float
    dtype: torch.dtype  # of matrix products
    attends: bool  # whether all last states and some attention are returned, instead of some last states
    dropout: Dropout | None


@dataclass(slots=True)
class _Layer:
    """What the backward pass needs of a layer."""

    half: Tensor
    attention: Kept
    context: Tensor
    added: Tensor
    norm1: tuple[Tensor, Tensor]
    y_half: Tensor
    before: Tensor
    middle: Tensor
    total: Tensor
    norm2: tuple[Tensor, Tensor]


class LayerPass:
    """Some of a batch's texts on their way through the layers. It touches nothing that other passes do.

    `first` is the number of the batch's first piece, text and asked piece that are in this pass: dropout goes by
    the places in the batch, however it is divided.
    """

    def __init__(
        self,
        settings: Settings,
        matrices: Sequence[Matrices],
        x: Tensor,
        spans: Sequence[Span],
        asked: Sequence[Tensor],
        first: tuple[int, int, int],
    ) -> None:
        self._settings, self._matrices = settings, matrices
        self._spans, self._asked = spans, asked
        self._first_piece, self._first_text, self._first_asked = first
        rows = torch.cat([rows + a for rows, (a, _) in zip(asked, spans, strict=True)])
        self._pieces, self._queries = len(x), len(rows)
        self._x, self._rows = self._filled_up(x), self._filled_up(rows)
        self._kept: list[_Layer] = []

    @property
    def sizes(self) -> tuple[int, int]:
        """How many states this pass returns, and how many numbers of attention."""
        if not self._settings.attends:
            return self._queries, 0
        told = [len(rows) * (b - a) for rows, (a, b) in zip(self._asked, self._spans, strict=True)]
        return self._pieces, self._settings.heads * sum(told)

    @torch.no_grad()
    def forward(self, *, keep: bool) -> tuple[Tensor, Tensor]:
        """The states that are asked for, and attention as one long row (nothing, unless `attends`)."""
        x, half = self._x, self._x.to(self._settings.dtype)
        told = x.new_zeros(0)
        for number, weights in enumerate(self._matrices):
            x, half, told, kept = self._layer(number, weights, x, half)
            if keep:
                self._kept.append(kept)
        return x[: self.sizes[0]], told

    @torch.no_grad()
    def backward(
        self, into: Tensor, told: Tensor, wanted: Sequence[frozenset[str]]
    ) -> tuple[Tensor, list[Gradients]]:
        """The gradients of the input and of all weights that are wanted."""
        if not self._kept:
            self.forward(keep=True)
        found: list[Gradients] = []
        into = self._filled_up(into)
        for number in reversed(range(len(self._matrices))):
            into, gradients = self._layer_back(number, self._matrices[number], into, told, wanted[number])
            found.append(gradients)
        return into[: self._pieces], found[::-1]

    def _layer(
        self, number: int, w: Matrices, x: Tensor, half: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, _Layer]:
        """One layer; the last one only for the pieces that are asked for, unless all are."""
        settings, rows, width = self._settings, self._only(number), len(w.out)
        if rows is None:
            qkv = torch.addmm(w.qkv_bias, half, w.qkv.t())
            query, memory = qkv[:, :width], qkv[:, width:]
        else:
            query = torch.addmm(w.qkv_bias[:width], half[rows], w.qkv[:width].t())
            memory = torch.addmm(w.qkv_bias[width:], half, w.qkv[width:].t())
            x = x[rows]
        asked = self._asked if settings.attends and self._is_last(number) else None
        context, attention, told = attend(query, memory, self._texts(number), settings.heads, asked)
        added = add_dropped(x, torch.addmm(w.out_bias, context, w.out.t()), self._mask(number, _OUT, width))
        y, *norm1 = torch.native_layer_norm(added, (width,), w.norm1, w.norm1_bias, settings.eps)
        y_half = y.to(settings.dtype)
        before = torch.addmm(w.up_bias, y_half, w.up.t())
        middle = self._activate(before)
        total = add_dropped(y, torch.addmm(w.down_bias, middle, w.down.t()), self._mask(number, _DOWN, width))
        z, *norm2 = torch.native_layer_norm(total, (width,), w.norm2, w.norm2_bias, settings.eps)
        kept = _Layer(
            half, attention, context, added, (norm1[0], norm1[1]), y_half, before, middle, total,
            (norm2[0], norm2[1]),
        )  # fmt: skip
        return z, z.to(settings.dtype), told, kept

    def _layer_back(
        self, number: int, w: Matrices, dz: Tensor, told: Tensor, wanted: frozenset[str]
    ) -> tuple[Tensor, Gradients]:
        settings, rows, width, kept = self._settings, self._only(number), len(w.out), self._kept.pop()
        g = Gradients()
        dtotal, g.norm2, g.norm2_bias = _norm_back(dz, kept.total, kept.norm2, w.norm2, w.norm2_bias)
        ddown = dropped(dtotal, self._mask(number, _DOWN, width), settings.dtype)
        dbefore = self._activate_back(ddown @ w.down, kept.before)
        dy = _plus_product(dtotal, dbefore, w.up)
        dadded, g.norm1, g.norm1_bias = _norm_back(dy, kept.added, kept.norm1, w.norm1, w.norm1_bias)
        dout = dropped(dadded, self._mask(number, _OUT, width), settings.dtype)
        asked = self._asked if settings.attends and self._is_last(number) else None
        dqkv = dout.new_empty(len(kept.half), 3 * width)
        dmemory = dqkv[:, width:] if rows is None else dout.new_empty(len(kept.half), 2 * width)
        dquery = dqkv[:, :width] if rows is None else dout.new_empty(len(rows), width)
        attend_back(
            dout @ w.out, kept.attention, self._texts(number), settings.heads, asked, told, dquery, dmemory
        )
        if rows is None:
            dx = _plus_product(dadded, dqkv, w.qkv)
            g.qkv = dqkv.t() @ kept.half if "qkv" in wanted else None
            g.qkv_bias = column_sums(dqkv) if "qkv_bias" in wanted else None
        else:
            dx = (dmemory @ w.qkv[width:]).to(dadded.dtype)
            dx.index_add_(0, rows, _plus_product(dadded, dquery, w.qkv[:width]))
            if "qkv" in wanted:
                g.qkv = torch.cat([dquery.t() @ kept.half[rows], dmemory.t() @ kept.half])
            if "qkv_bias" in wanted:
                g.qkv_bias = torch.cat([column_sums(dquery), column_sums(dmemory)])
        products = {"out": (dout, kept.context), "up": (dbefore, kept.y_half), "down": (ddown, kept.middle)}
        for name, (gradient, entered) in products.items():
            if name in wanted:
                setattr(g, name, gradient.t() @ entered)
            if f"{name}_bias" in wanted:
                setattr(g, f"{name}_bias", column_sums(gradient))
        return dx, g

    def _activate(self, x: Tensor) -> Tensor:
        kind = ACTIVATIONS[self._settings.activation]
        return F.gelu(x, approximate=kind) if kind else x.relu()

    def _activate_back(self, gradient: Tensor, x: Tensor) -> Tensor:
        found: Tensor
        if kind := ACTIVATIONS[self._settings.activation]:
            found = torch.ops.aten.gelu_backward(gradient, x, approximate=kind)
        else:
            found = torch.ops.aten.threshold_backward(gradient, x, 0)
        return found

    def _filled_up(self, rows: Tensor) -> Tensor:
        """Rows, with zeros after them up to one of few counts, where products are compiled for each count.

        oneDNN compiles a bfloat16 product for its shape, in 1 to 6 ms. The zeros belong to no text and have
        gradients of zero, so that they change no result.
        """
        count = len(rows)
        if self._settings.dtype is not torch.bfloat16 or not rows.is_cpu:
            return rows
        step = _STEPS[0] if count <= _FEW else _STEPS[1]
        more = -count % step
        return torch.cat([rows, rows.new_zeros(more, *rows.shape[1:])]) if more else rows

    def _is_last(self, number: int) -> bool:
        return number == len(self._matrices) - 1

    def _only(self, number: int) -> Tensor | None:
        """The rows that a layer is computed for; none if all are."""
        return self._rows if self._is_last(number) and not self._settings.attends else None

    def _mask(self, number: int, kind: int, width: int) -> Mask | None:
        """What dropout does to the output of attention or of the feed-forward network, which is then added."""
        drop = self._settings.dropout
        if drop is None or not drop.hidden:
            return None
        first = self._first_piece if self._only(number) is None else self._first_asked
        return Mask(key(drop.seed, number, kind), drop.hidden, first * width)

    def _texts(self, number: int) -> list[Text]:
        drop, only, begin, found = self._settings.dropout, self._only(number), 0, []
        for place, ((a, b), asked) in enumerate(zip(self._spans, self._asked, strict=True), self._first_text):
            mask = None
            if drop is not None and drop.attention:
                mask = Mask(key(drop.seed, number, _SHARES, place), drop.attention)
            queries = slice(a, b) if only is None else slice(begin, begin + len(asked))
            begin += len(asked)
            found.append(Text(slice(a, b), queries, mask))
        return found


def _norm_back(
    dy: Tensor, x: Tensor, moments: tuple[Tensor, Tensor], weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    mask = (True, True, True)
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_layer_norm_backward(
        dy, x, (x.shape[1],), *moments, weight, bias, mask
    )
    return found


def _plus_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """total + left @ right; `total` may be overwritten."""
    return torch.addmm(total, left, right) if left.dtype == total.dtype else total.add_(left @ right)
