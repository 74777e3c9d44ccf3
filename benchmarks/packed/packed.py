"""The layers of an encoder of BERT's family over packed pieces, with the backward pass written out.

The pieces of all sentences stand in one matrix [T, d], so nothing is padded: linear layers read the whole matrix,
and attention goes from sentence to sentence. Matrix products are in the precision that is asked for; the residual
stream, layer norms, biases' sums and all that leaves this module are float32 (float64 where the input is).

The last layer computes its queries and its feed-forward network only for the pieces that somebody reads.

A batch of many pieces is always computed in two parts, whose gradients are added in order. So two cores may share
the work of one site, and the result has the same bits as on one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import packed_kernels
import torch
import torch.nn.functional as F  # noqa: N812
from parallel import in_parts
from torch import Tensor, nn

from fedrel.tensors.compiling import has_numba

SPLIT = 512  # pieces; from here on a batch is computed in two parts
ACTIVATIONS = {"gelu", "relu"}  # that have a backward pass here

_WORD = (1 << 32) - 1


class Dropout(NamedTuple):
    """An encoder's dropout in one pass: its two rates, and the seed that decides which numbers are dropped."""

    hidden: float
    attention: float
    seed: int


@dataclass(slots=True)
class Matrices:
    """One layer's weights, or their gradients: matrices in the products' precision, norms in the residuals'."""

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


class PackedLayers:
    """Some layers of an encoder, to be run over packed pieces.

    Weights are cast to the products' precision when they have changed, not when they are used.
    """

    def __init__(self, layers: Sequence[nn.Module], heads: int, activation: str) -> None:
        self.layers: list[Any] = list(layers)
        self.heads, self.activation = heads, activation
        self.parameters = [weight for layer in self.layers for weight in _weights(layer)]
        self._cast: dict[torch.dtype, tuple[list[int], list[Matrices]]] = {}

    def read(
        self, x: Tensor, starts: Sequence[int], where: Tensor, dtype: torch.dtype, dropout: Dropout | None
    ) -> Tensor:
        """The last states of the pieces at `where` [Q], which ascends from sentence to sentence: [Q, d].

        Sentence s is the pieces from starts[s] to starts[s + 1] of x [T, d].
        """
        states, _ = self._run(_Pass(self, starts, where, False, dtype, dropout), x)
        return states

    def attend(
        self, x: Tensor, starts: Sequence[int], where: Tensor, dtype: torch.dtype, dropout: Dropout | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The last states of all pieces, [T, d], and what the pieces at `where` attend to.

        That is the last layer's attention, after dropout: [h, Q_s, L_s] for each sentence s.
        """
        run = _Pass(self, starts, where, True, dtype, dropout)
        states, attention = self._run(run, x)
        sizes = [
            self.heads * len(asked) * (b - a) for (a, b), asked in zip(run.spans, run.asked, strict=True)
        ]
        parts = zip(torch.split(attention, sizes), run.spans, run.asked, strict=True)
        return states, [part.view(self.heads, len(asked), b - a) for part, (a, b), asked in parts]

    def _run(self, run: _Pass, x: Tensor) -> tuple[Tensor, Tensor]:
        if not torch.is_grad_enabled():
            return run.forward(x)
        states, attention = _Layers.apply(run, x, *self.parameters)  # type: ignore[no-untyped-call]
        return states, attention

    def matrices(self, dtype: torch.dtype, norms: torch.dtype) -> list[Matrices]:
        """The weights as products read them: cast again only after they were changed."""
        versions = [weight._version for weight in self.parameters]
        known, cast = self._cast.get(dtype, ([], []))
        if known != versions:
            cast = [_matrices(layer, dtype, norms) for layer in self.layers]
            self._cast[dtype] = versions, cast
        return cast


class _Layers(torch.autograd.Function):
    """All layers as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, run: _Pass, x: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        """Keep what the backward pass needs in the pass itself."""
        ctx.run = run
        return run.forward(x, keep=True)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x, and of every layer's weights."""
        run: _Pass = ctx.run
        into, matrices = run.backward(*gradients)
        found = [part for layer in matrices for part in _split(layer)]
        kept = zip(run.layers.parameters, found, strict=True)
        return None, into, *(grad.to(weight) if weight.requires_grad else None for weight, grad in kept)


class _Pass:
    """One pass over a batch: where its sentences are, which pieces are asked for, and what forward kept."""

    def __init__(
        self,
        layers: PackedLayers,
        starts: Sequence[int],
        where: Tensor,
        attends: bool,
        dtype: torch.dtype,
        dropout: Dropout | None,
    ) -> None:
        self.layers, self.attends, self.dtype, self.dropout = layers, attends, dtype, dropout
        self.spans = list(pairwise(starts))
        bounds = torch.searchsorted(where, torch.tensor(starts, device=where.device)).tolist()
        self.asked = [where[a:b] - start for (a, b), start in zip(pairwise(bounds), starts[:-1], strict=True)]
        self._kept: list[_Part] = []

    def forward(self, x: Tensor, *, keep: bool = False) -> tuple[Tensor, Tensor]:
        """The states that are asked for, and the attention as one long row (nothing, unless `attends`)."""
        cuts = _halves(self.spans)
        parts = [_Part(self, number, x, slice(*cut)) for number, cut in enumerate(pairwise(cuts))]
        found = in_parts([partial(part.forward, keep=keep) for part in parts])
        if keep:
            self._kept = parts
        states, attention = zip(*found, strict=True)
        return torch.cat(states), torch.cat(attention)

    def backward(self, states: Tensor, attention: Tensor) -> tuple[Tensor, list[Matrices]]:
        """The gradients of the input and of the weights, those of the parts added in their order."""
        ahead = torch.split(states, [part.states for part in self._kept])
        aside = torch.split(attention, [part.attention for part in self._kept])
        tasks = [
            partial(part.backward, *given) for part, *given in zip(self._kept, ahead, aside, strict=True)
        ]
        found = in_parts(tasks)
        self._kept = []
        total = found[0][1]
        for _, more in found[1:]:
            for one, other in zip(total, more, strict=True):
                for field in fields(Matrices):
                    both = getattr(one, field.name).to(states.dtype) + getattr(other, field.name)
                    setattr(one, field.name, both)
        return torch.cat([into for into, _ in found]), total


class _Part:
    """Some of a batch's sentences on their way through the layers; its tasks touch nothing that others do."""

    def __init__(self, run: _Pass, number: int, x: Tensor, sentences: slice) -> None:
        self._run, self._number = run, number
        first = run.spans[sentences.start][0]
        self._spans = [(a - first, b - first) for a, b in run.spans[sentences]]
        self._x = x[first : run.spans[sentences.stop - 1][1]]
        self._asked, self._first = run.asked[sentences], sentences.start
        self._rows = torch.cat([rows + a for rows, (a, _) in zip(self._asked, self._spans, strict=True)])
        self.states = len(self._x) if run.attends else len(self._rows)
        self.attention = 0
        self._saved: list[tuple[Any, ...]] = []
        self._matrices = run.layers.matrices(run.dtype, x.dtype)

    @torch.no_grad()
    def forward(self, *, keep: bool) -> tuple[Tensor, Tensor]:
        x, half = self._x, self._x.to(self._run.dtype)
        shares: list[Tensor] = []
        for number, weights in enumerate(self._matrices):
            last = number == len(self._matrices) - 1
            x, half, shares, saved = self._layer(number, weights, x, half, last=last)
            if keep:
                self._saved.append(saved)
        attention = torch.cat([part.reshape(-1) for part in shares]) if shares else x.new_zeros(0)
        self.attention = len(attention)
        return x, attention.to(x.dtype)

    def _layer(
        self, number: int, w: Matrices, x: Tensor, half: Tensor, *, last: bool
    ) -> tuple[Tensor, Tensor, list[Tensor], tuple[Any, ...]]:
        """One layer; the last one only for the rows that are asked for, unless all are."""
        run, some = self._run, last and not self._run.attends
        rows = self._rows if some else None
        width = len(w.out)
        if rows is None:
            qkv = torch.addmm(w.qkv_bias, half, w.qkv.t())
            query, memory = qkv[:, :width], qkv[:, width:]
            residual = x
        else:
            query = torch.addmm(w.qkv_bias[:width], half[rows], w.qkv[:width].t())
            memory = torch.addmm(w.qkv_bias[width:], half, w.qkv[width:].t())
            residual = x[rows]
        context, shares, told = self._attention(number, query, memory, some, tells=last and run.attends)
        added = self._residual(number, 0, torch.addmm(w.out_bias, context, w.out.t()), residual)
        y, mean1, scale1 = _norm(added, w.norm1, w.norm1_bias, self._layer_module(number).attention.output)
        y_half = y.to(run.dtype)
        before = torch.addmm(w.up_bias, y_half, w.up.t())
        middle = F.gelu(before) if run.layers.activation == "gelu" else before.relu()
        total = self._residual(number, 1, torch.addmm(w.down_bias, middle, w.down.t()), y)
        z, mean2, scale2 = _norm(total, w.norm2, w.norm2_bias, self._layer_module(number).output)
        saved = (
            half,
            query,
            memory,
            shares,
            context,
            added,
            mean1,
            scale1,
            y_half,
            before,
            middle,
            total,
            mean2,
        )
        return z, z.to(run.dtype), told, (*saved, scale2)

    @torch.no_grad()
    def backward(self, into: Tensor, attention: Tensor) -> tuple[Tensor, list[Matrices]]:
        """The gradients of this part's input and of all weights."""
        found: list[Matrices] = []
        for number in reversed(range(len(self._matrices))):
            last = number == len(self._matrices) - 1
            told = attention if last and self._run.attends else None
            into, gradients = self._layer_back(number, self._matrices[number], into, told, last=last)
            found.append(gradients)
        return into, found[::-1]

    def _layer_back(
        self, number: int, w: Matrices, dz: Tensor, told: Tensor | None, *, last: bool
    ) -> tuple[Tensor, Matrices]:
        (half, query, memory, shares, context, added, mean1, scale1,
         y_half, before, middle, total, mean2, scale2) = self._saved.pop()  # fmt: skip
        rows = self._rows if last and not self._run.attends else None
        width, ones = len(w.out), half.new_ones(1, len(query))
        dtotal, norm2, norm2_bias = _norm_back(dz, total, mean2, scale2, w.norm2, w.norm2_bias)
        ddown = self._dropped(number, 1, dtotal)
        dbefore = ddown @ w.down
        if self._run.layers.activation == "gelu":
            dbefore = torch.ops.aten.gelu_backward(dbefore, before)
        else:
            dbefore = torch.ops.aten.threshold_backward(dbefore, before, 0)
        dy = _plus_product(dtotal, dbefore, w.up)
        dadded, norm1, norm1_bias = _norm_back(dy, added, mean1, scale1, w.norm1, w.norm1_bias)
        dout = self._dropped(number, 0, dadded)
        dquery, dmemory = self._attention_back(number, dout @ w.out, query, memory, shares, told, rows)
        if rows is None:
            dqkv = torch.cat([dquery, dmemory], 1)
            qkv, qkv_bias = dqkv.t() @ half, (ones @ dqkv)[0]
            dx = _plus_product(dadded, dqkv, w.qkv)
        else:
            all_ones = half.new_ones(1, len(half))
            qkv = torch.cat([dquery.t() @ half[rows], dmemory.t() @ half])
            qkv_bias = torch.cat([(ones @ dquery)[0], (all_ones @ dmemory)[0]])
            dx = (dmemory @ w.qkv[width:]).to(dadded.dtype)
            dx.index_add_(0, rows, _plus_product(dadded, dquery, w.qkv[:width]))
        return dx, Matrices(
            qkv=qkv, qkv_bias=qkv_bias, out=dout.t() @ context, out_bias=(ones @ dout)[0],
            norm1=norm1, norm1_bias=norm1_bias, up=dbefore.t() @ y_half, up_bias=(ones @ dbefore)[0],
            down=ddown.t() @ middle, down_bias=(ones @ ddown)[0], norm2=norm2, norm2_bias=norm2_bias,
        )  # fmt: skip

    # Attention, sentence by sentence.

    def _attention(
        self, number: int, query: Tensor, memory: Tensor, some: bool, *, tells: bool
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Each query's context, [n, d]; probabilities before dropout; and those that are asked for, after it."""
        context, kept, told = torch.empty_like(query), [], []
        drop, dropout = self._run.dropout, 1.0
        if drop is not None and drop.attention:
            dropout = 1 / (1 - drop.attention)
        for place, (rows, q, k, v) in enumerate(self._heads(query, memory, some)):
            scores = _product(q, k.transpose(1, 2), q.shape[2] ** -0.5)
            shares = scores.softmax(2)
            used = self._drop_shares(number, place, shares)
            out = used @ v
            if dropout != 1.0:
                out *= dropout
            context[rows].view(q.shape[1], *q.shape[::2]).copy_(out.transpose(0, 1))
            kept.append(shares)
            if tells:
                told.append(used[:, self._asked[place]] * dropout)
        return context, kept, told

    def _attention_back(
        self,
        number: int,
        dcontext: Tensor,
        query: Tensor,
        memory: Tensor,
        kept: list[Tensor],
        told: Tensor | None,
        some: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        dquery, dmemory = torch.empty_like(query), torch.empty_like(memory)
        drop, begin = self._run.dropout, 0
        dropout = 1 / (1 - drop.attention) if drop is not None and drop.attention else 1.0
        if dropout != 1.0:
            dcontext = dcontext * dropout
        into = self._heads(dquery, dmemory, some is not None)
        given = zip(self._heads(query, memory, some is not None), into, kept, strict=True)
        for place, ((rows, q, k, v), (_, dq, dk, dv), shares) in enumerate(given):
            dout = dcontext[rows].view(q.shape[1], *q.shape[::2]).transpose(0, 1)
            dv.copy_(self._drop_shares(number, place, shares).transpose(1, 2) @ dout)
            dused = dout @ v.transpose(1, 2)
            if told is not None:
                asked = self._asked[place]
                size = len(dused) * len(asked) * dused.shape[2]
                more = told[begin : begin + size].view(len(dused), len(asked), dused.shape[2]) * dropout
                dused.index_add_(1, asked, more.to(dused.dtype))
                begin += size
            dused = self._drop_shares(number, place, dused, in_place=True)
            dscores = torch.ops.aten._softmax_backward_data(dused, shares, 2, shares.dtype)
            dq.copy_(_product(dscores, k, q.shape[2] ** -0.5))
            dk.copy_(_product(dscores.transpose(1, 2), q, q.shape[2] ** -0.5))
        return dquery, dmemory

    def _heads(self, query: Tensor, memory: Tensor, some: bool) -> list[tuple[slice, Tensor, Tensor, Tensor]]:
        """Each sentence's queries, keys and values by head, [h, n, d / h], and the rows of its queries."""
        heads, width = self._run.layers.heads, query.shape[1]
        size, begin, found = width // heads, 0, []
        for (a, b), asked in zip(self._spans, self._asked, strict=True):
            rows = slice(begin, begin + len(asked)) if some else slice(a, b)
            begin += len(asked)
            three = (query[rows], memory[a:b, :width], memory[a:b, width:])
            q, k, v = (part.view(len(part), heads, size).transpose(0, 1) for part in three)
            found.append((rows, q, k, v))
        return found

    # Dropout.

    def _drop_shares(self, layer: int, place: int, x: Tensor, *, in_place: bool = False) -> Tensor:
        """Attention under dropout, not yet divided by what is kept."""
        drop = self._run.dropout
        if drop is None or not drop.attention:
            return x
        return _kept_of(x, drop.attention, _key(drop.seed, layer, 2, self._first + place), in_place=in_place)

    def _residual(self, layer: int, kind: int, o: Tensor, x: Tensor) -> Tensor:
        """x + dropout(o)."""
        drop = self._run.dropout
        if drop is None or not drop.hidden:
            return x + o
        key, scale = _key(drop.seed, layer, kind, self._number), 1 / (1 - drop.hidden)
        if not _has_kernels(x):
            return x + o * kept(key, o.numel(), drop.hidden, o.device).view(o.shape) * scale
        total = torch.empty_like(x)
        add = packed_kernels.add_dropped if o.dtype is torch.float32 else packed_kernels.add_dropped_halves
        add(_flat(x), _flat(o), _flat(total), *_words(key), _cut(drop.hidden), scale)
        return total

    def _dropped(self, layer: int, kind: int, x: Tensor) -> Tensor:
        """dropout(x) in the products' precision: the gradient of what `_residual` added."""
        drop, dtype = self._run.dropout, self._run.dtype
        if drop is None or not drop.hidden:
            return x.to(dtype)
        key, scale = _key(drop.seed, layer, kind, self._number), 1 / (1 - drop.hidden)
        if not _has_kernels(x):
            return (x * kept(key, x.numel(), drop.hidden, x.device).view(x.shape) * scale).to(dtype)
        out = torch.empty(x.shape, dtype=dtype)
        drop_ = packed_kernels.dropped if dtype is torch.float32 else packed_kernels.dropped_halves
        drop_(_flat(x), _flat(out), *_words(key), _cut(drop.hidden), scale)
        return out

    def _layer_module(self, number: int) -> Any:
        return self._run.layers.layers[number]


def kept(key: int, count: int, rate: float, device: torch.device | str = "cpu") -> Tensor:
    """Which of `count` numbers dropout keeps, [count]: as `packed_kernels`, in PyTorch."""
    seed, stride = _words(key)
    x = (torch.arange(count, device=device) * stride + seed) & _WORD
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _WORD
    return (x ^ (x >> 16)) >= _cut(rate)


def _kept_of(x: Tensor, rate: float, key: int, *, in_place: bool) -> Tensor:
    """x where dropout keeps a number, else 0."""
    if not _has_kernels(x):
        return x * kept(key, x.numel(), rate, x.device).view(x.shape)
    x = x.contiguous()
    out = x if in_place else torch.empty_like(x)
    packed_kernels.drop(_flat(x), _flat(out), *_words(key), _cut(rate))
    return out


def _key(seed: int, *purpose: int) -> int:
    """64 bits for one purpose in a pass: SplitMix64's steps over the seed and the purpose."""
    key = seed
    for number in purpose:
        key = (key + 0x9E3779B97F4A7C15 * (number + 1)) & ((1 << 64) - 1)
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & ((1 << 64) - 1)
        key ^= key >> 31
    return key


def _words(key: int) -> tuple[int, int]:
    """A key as the hash's offset and its odd stride."""
    return key & _WORD, key >> 32 | 1


def _cut(rate: float) -> int:
    return int(rate * (1 << 32))


def _has_kernels(x: Tensor) -> bool:
    return x.is_cpu and x.dtype in (torch.float32, torch.bfloat16) and has_numba()


def _flat(x: Tensor) -> np.ndarray[Any, Any]:
    """The numbers in memory order; of bfloat16, their bits."""
    return (x.view(torch.uint16) if x.dtype is torch.bfloat16 else x).view(-1).numpy()


def _halves(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Where to cut a batch's sentences into parts: nowhere, or where the larger part costs least."""
    if spans[-1][1] - spans[0][0] < SPLIT or len(spans) < 2:
        return [0, len(spans)]
    lengths = np.array([b - a for a, b in spans], np.float64)
    cost = np.cumsum(lengths * (1 + lengths / 4096))
    larger = np.maximum(cost[:-1], cost[-1] - cost[:-1])
    return [0, int(larger.argmin()) + 1, len(spans)]


def _product(left: Tensor, right: Tensor, factor: float) -> Tensor:
    """factor * left @ right, [h, n, m]."""
    return torch.baddbmm(left.new_zeros(1, 1, 1), left, right, beta=0, alpha=factor)


def _plus_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """total + left @ right; `total` may be overwritten."""
    return torch.addmm(total, left, right) if left.dtype == total.dtype else total.add_(left @ right)


def _norm(x: Tensor, weight: Tensor, bias: Tensor, module: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(x, (x.shape[1],), weight, bias, module.LayerNorm.eps)


def _norm_back(
    dy: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    mask = (True, True, True)
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_layer_norm_backward(
        dy, x, (x.shape[1],), mean, scale, weight, bias, mask
    )
    return found


def _weights(layer: Any) -> list[nn.Parameter]:
    """A layer's parameters in the order of `_split`."""
    attention, own = layer.attention, layer.attention.self
    modules = [
        own.query, own.key, own.value, attention.output.dense, attention.output.LayerNorm,
        layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm,
    ]  # fmt: skip
    return [weight for module in modules for weight in (module.weight, module.bias)]


def _matrices(layer: Any, dtype: torch.dtype, norms: torch.dtype) -> Matrices:
    q, qb, k, kb, v, vb, out, out_bias, n1, n1b, up, up_bias, down, down_bias, n2, n2b = (
        weight.detach() for weight in _weights(layer)
    )
    qkv, qkv_bias = (torch.cat(three).to(dtype) for three in ((q, k, v), (qb, kb, vb)))
    cast: list[Tensor] = [part.to(dtype) for part in (out, out_bias, up, up_bias, down, down_bias)]
    kept: list[Tensor] = [part.to(norms) for part in (n1, n1b, n2, n2b)]
    return Matrices(qkv, qkv_bias, *cast[:2], *kept[:2], *cast[2:], *kept[2:])


def _split(layer: Matrices) -> list[Tensor]:
    """Gradients in the order of `_weights`."""
    halves = zip(layer.qkv.chunk(3), layer.qkv_bias.chunk(3), strict=True)
    attention = [part for pair in halves for part in pair]
    rest = [
        layer.out, layer.out_bias, layer.norm1, layer.norm1_bias,
        layer.up, layer.up_bias, layer.down, layer.down_bias, layer.norm2, layer.norm2_bias,
    ]  # fmt: skip
    return attention + rest
