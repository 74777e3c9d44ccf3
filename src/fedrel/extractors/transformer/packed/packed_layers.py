"""The layers of an encoder of BERT's family over packed pieces, with the backward pass written out.

The pieces of all texts stand in one matrix [T, d], so no text is padded to another's length: linear layers read
the whole matrix, and attention goes from text to text. Matrix products are in the precision that is asked for.
The residual stream, layer norms and all that leaves this module are float32 (float64 where the input is).

The last layer computes its queries and its feed-forward network only for the pieces that somebody reads.

A batch of many pieces is always computed in two parts, whose gradients are added in order. So two cores may share
the work of one site, and the result has the same bits as on one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedrel.extractors.base import Copies
from fedrel.extractors.transformer.packed.hashed_dropout import has_kernels
from fedrel.extractors.transformer.packed.layer_pass import Dropout, LayerPass, Settings
from fedrel.extractors.transformer.packed.layer_weights import (
    Gradients,
    Matrices,
    by_weight,
    matrices,
    wanted,
    weights,
)
from fedrel.extractors.transformer.packed.packed_attention import Span
from fedrel.tensors.machine import PARTS, in_parts, keep_freed_memory

SPLIT = 512  # pieces; from here on a batch is computed in two parts
AT_ONCE = 4096  # pieces in one part, where nothing is kept for a backward pass
KEPT = 8192  # pieces in a batch; with more, training computes parts again instead of keeping everything


class PackedLayers:
    """Some layers of an encoder, to be run over packed pieces.

    Weights are cast to the products' precision when they have changed, not when they are used.
    """

    def __init__(self, layers: Sequence[nn.Module], config: Any) -> None:
        keep_freed_memory()
        self._layers, self._config = list(layers), config
        self.heads = int(config.num_attention_heads)
        self._cast: dict[tuple[torch.dtype, torch.dtype], tuple[list[int], list[Matrices]]] = {}

    def read(
        self, x: Tensor, starts: Sequence[int], where: Tensor, dtype: torch.dtype, seed: int | None
    ) -> Tensor:
        """The last states of the pieces at `where` [Q], which ascends from text to text: [Q, d].

        Text s is the pieces from starts[s] to starts[s + 1] of x [T, d]. A seed means training, with dropout.
        """
        if not self._layers:
            return x[where]
        states, _ = self._run(x, starts, where, self._settings(dtype, seed, attends=False))
        return states

    def attend(
        self, x: Tensor, starts: Sequence[int], where: Tensor, dtype: torch.dtype, seed: int | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The last states of all pieces, [T, d], and what the pieces at `where` attend to.

        That is the last layer's attention, after dropout: [h, Q_s, L_s] for each text s.
        """
        states, attention = self._run(x, starts, where, self._settings(dtype, seed, attends=True))
        spans, asked = list(pairwise(starts)), _by_text(starts, where)
        sizes = [self.heads * len(rows) * (b - a) for (a, b), rows in zip(spans, asked, strict=True)]
        parts = zip(torch.split(attention, sizes), spans, asked, strict=True)
        return states, [part.view(self.heads, len(rows), b - a) for part, (a, b), rows in parts]

    def copies(self, dtype: torch.dtype) -> Copies | None:
        """The copies that products in this precision read; none if they read weights, or sums with updates."""
        given = self._given() if dtype is torch.bfloat16 else []
        if not given or not all(weight.is_leaf and weight.dtype is torch.float32 for weight in given):
            return None
        cast = self._matrices(given, _versions(self._parameters), dtype, torch.float32)

        def renewed() -> None:
            self._cast[dtype, torch.float32] = _versions(self._parameters), cast

        places = [place for one in cast for place in by_weight(one)]
        pairs = zip(given, places, strict=True)
        return Copies({weight: place for weight, place in pairs if place.dtype is dtype}, renewed)

    def give_gradients_in(self, dtype: torch.dtype) -> None:
        """Leave gradients of trained weights in the precision of products, where kernels can read them."""
        for weight in self._parameters:
            as_found = dtype is torch.bfloat16 and weight.requires_grad and has_kernels(weight)
            if as_found != _takes_halves(weight):
                weight.grad, weight.grad_dtype = None, None if as_found else weight.dtype

    def _given(self) -> list[Tensor]:
        """What products read: weights, with low-rank updates added."""
        return [weight for layer in self._layers for weight in weights(layer)]

    @cached_property
    def _parameters(self) -> list[Tensor]:
        """What that is made of."""
        return [one for layer in self._layers for one in layer.parameters()]

    def _settings(self, dtype: torch.dtype, seed: int | None, *, attends: bool) -> Settings:
        about = self._config
        rates = about.hidden_dropout_prob, about.attention_probs_dropout_prob
        dropout = None if seed is None else Dropout(*rates, seed)
        return Settings(self.heads, about.hidden_act, about.layer_norm_eps, dtype, attends, dropout)

    def _run(
        self, x: Tensor, starts: Sequence[int], where: Tensor, settings: Settings
    ) -> tuple[Tensor, Tensor]:
        given, parameters = self._given(), self._parameters
        cast = self._matrices(given, _versions(parameters), settings.dtype, x.dtype)
        graph = torch.is_grad_enabled()
        keep = graph and starts[-1] <= KEPT
        parts = _parts(settings, cast, x.detach(), starts, where, keep=keep)
        if not graph:
            return _forward(parts, keep=False)
        states, attention = _Layers.apply(parts, keep, parameters, x, *given)  # type: ignore[no-untyped-call]
        return states, attention

    def _matrices(
        self, given: Sequence[Tensor], now: list[int], dtype: torch.dtype, norms: torch.dtype
    ) -> list[Matrices]:
        """The weights as products read them: cast again only after they were changed."""
        known, cast = self._cast.get((dtype, norms), ([], []))
        if known != now:
            count = len(given) // len(self._layers)
            own = [given[begin : begin + count] for begin in range(0, len(given), count)]
            before: list[Matrices | None] = [*cast] or [None] * len(own)
            with torch.inference_mode(False), torch.no_grad():  # to be used in training, too
                cast = [matrices(one, dtype, norms, old) for one, old in zip(own, before, strict=True)]
            self._cast[dtype, norms] = now, cast
        return cast


class _Layers(torch.autograd.Function):
    """All layers as one node of the graph."""

    @staticmethod
    def forward(
        ctx: Any, parts: list[LayerPass], keep: bool, parameters: list[Tensor], x: Tensor, *given: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The parts themselves keep what the backward pass needs."""
        ctx.parts, ctx.dtype, ctx.parameters, ctx.begun = parts, x.dtype, parameters, _versions(parameters)
        ctx.as_found = [weight.is_leaf and _takes_halves(weight) for weight in given]
        return _forward(parts, keep=keep)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x, and of the weights that are trained: those of the parts added in their order."""
        assert _versions(ctx.parameters) == ctx.begun, (
            "weights were changed between the forward and the backward pass"
        )
        parts: list[LayerPass] = ctx.parts
        ctx.parts = None
        asked = wanted(ctx.needs_input_grad[4:])
        sizes = [part.sizes for part in parts]
        given = [
            torch.split(gradient, [size[which] for size in sizes]) for which, gradient in enumerate(gradients)
        ]
        into: list[Tensor] = []
        total: list[Gradients] = []
        tasks = [
            partial(part.backward, states, told, asked)
            for part, states, told in zip(parts, *given, strict=True)
        ]
        for begin in range(
            0, len(tasks), PARTS
        ):  # not all at once: a part's gradients are as large as the model
            for ahead, more in in_parts(tasks[begin : begin + PARTS]):
                into.append(ahead)
                if not total:
                    total = more
                    continue
                for one, other in zip(total, more, strict=True):
                    one.add(other, ctx.dtype)
        found = [part for layer in total for part in by_weight(layer)]
        needed = zip(found, ctx.needs_input_grad[4:], ctx.as_found, strict=True)
        cast = [None if one is None or not asked_for else one if as_found else one.to(ctx.dtype)
                for one, asked_for, as_found in needed]  # fmt: skip
        return None, None, None, torch.cat(into), *cast


def _takes_halves(weight: Tensor) -> bool:
    """Whether a weight may have a gradient in bfloat16; older versions of torch would cast it."""
    may = getattr(weight, "grad_dtype", weight.dtype) is None
    return may and weight.is_cpu and weight.dtype is torch.float32


def _versions(parameters: Sequence[Tensor]) -> list[int]:
    """Numbers that change when any of the weights does."""
    return [parameter._version for parameter in parameters]


def _forward(parts: Sequence[LayerPass], *, keep: bool) -> tuple[Tensor, Tensor]:
    """The states that are asked for, and attention as one long row."""
    found = in_parts([partial(part.forward, keep=keep) for part in parts])
    states, attention = zip(*found, strict=True)
    return torch.cat(states), torch.cat(attention)


def _parts(
    settings: Settings, cast: list[Matrices], x: Tensor, starts: Sequence[int], where: Tensor, *, keep: bool
) -> list[LayerPass]:
    """A batch's texts in parts; the batch alone decides in which."""
    spans, asked = list(pairwise(starts)), _by_text(starts, where)
    before = [0, *np.cumsum([len(rows) for rows in asked]).tolist()]
    found = []
    for begin, end in pairwise(_cuts(spans, keep=keep)):
        first, after = spans[begin][0], spans[end - 1][1]
        own = [(a - first, b - first) for a, b in spans[begin:end]]
        places = (first, begin, before[begin])
        found.append(LayerPass(settings, cast, x[first:after], own, asked[begin:end], places))
    return found


def _by_text(starts: Sequence[int], where: Tensor) -> list[Tensor]:
    """The places in each text of the pieces that are asked for."""
    bounds = torch.searchsorted(where, torch.tensor(starts, device=where.device)).tolist()
    return [where[a:b] - start for (a, b), start in zip(pairwise(bounds), starts[:-1], strict=True)]


def _cuts(spans: Sequence[Span], *, keep: bool) -> list[int]:
    """Where to cut a batch's texts: nowhere, in two where the larger part costs least, or in as many as needed."""
    pieces = spans[-1][1] - spans[0][0]
    if pieces < SPLIT or len(spans) < PARTS:
        return [0, len(spans)]
    if not keep and pieces > PARTS * AT_ONCE:
        cuts = [0]
        for number, (_, end) in enumerate(spans):
            if end - spans[cuts[-1]][0] > AT_ONCE and number > cuts[-1]:
                cuts.append(number)
        return [*cuts, len(spans)]
    lengths = np.array([b - a for a, b in spans], np.float64)
    cost = np.cumsum(lengths * (1 + lengths / 4096))
    larger = np.maximum(cost[:-1], cost[-1] - cost[:-1])
    return [0, int(larger.argmin()) + 1, len(spans)]
