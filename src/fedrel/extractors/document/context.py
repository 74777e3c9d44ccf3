"""The parts of a document's pairs: entities, localized contexts, and the grouped bilinear function.

These are the equations of FedLCC's Section 3.2, each for all entities or pairs at once. A document has L pieces
with states H, and E entities.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fedrel.extractors.transformer.encoder import frugal

AT_ONCE = 1 << 24  # numbers in memory at once, whatever a document's size
BILINEAR_PAIRS = 128  # pairs whose products of features are computed at once, so that they stay in the cache

_LEAST = 1e-20  # the smallest divisor: two entities may attend to nothing in common


def entities(mentions: Tensor, entity: Tensor, count: int) -> Tensor:
    """Eq. 2: each entity's log-sum-exp over its mentions' states, [count, d]; `entity` [M] says whose each is."""
    index = entity[:, None].expand_as(mentions)
    with torch.no_grad():  # subtracting any number in the exponent changes neither value nor gradient
        largest = mentions.new_full((count, mentions.shape[1]), -torch.inf)
        largest.scatter_reduce_(0, index, mentions, "amax")
    sums = mentions.new_zeros(largest.shape).index_add(0, entity, (mentions - largest[entity]).exp())
    return largest + sums.log()


def shared_attention(attention: Tensor, head: Tensor, tail: Tensor) -> Tensor:
    """Eq. 3 and 4: a pair's attention to each piece, [P, L], from its entities' in every head, [h, E, L].

    For each piece, a small matrix product gives all heads that occur with all tails that occur.
    """
    heads, row = torch.unique(head, return_inverse=True)
    tails, column = torch.unique(tail, return_inverse=True)
    met = torch.bmm(attention[:, heads].permute(2, 1, 0), attention[:, tails].permute(2, 0, 1))
    products = met.flatten(1)[:, row * len(tails) + column]
    return (products / products.sum(0).clamp_min(_LEAST)).T


def contexts(attention: Tensor, states: Tensor, head: Tensor, tail: Tensor) -> Tensor:
    """Eq. 5: the localized context of each pair, H^T a, [P, d]."""

    def some(heads: Tensor, tails: Tensor) -> Tensor:
        return shared_attention(attention, heads, tails) @ states

    parts = list(_runs(head, tail, attention.shape[2]))
    if len(parts) == 1:
        return some(head, tail)
    return torch.cat([frugal(some, head[part], tail[part]) for part in parts])


class GroupedBilinear(torch.autograd.Function):
    """Eq. 8 to 10 without the bias: sum_i z_s^i W_r^i z_o^i for every pair and relation, [P, R].

    `weight` [R, d * size] has the matrices W_r^i, one after the other. Two vectors have `size` times as many
    products of features as features: these are computed for a few pairs at a time, and again for the gradients.
    """

    @staticmethod
    def forward(ctx: Any, subject: Tensor, object_: Tensor, weight: Tensor, size: int) -> Tensor:
        """One matrix product for some pairs at a time."""
        ctx.save_for_backward(subject, object_, weight)
        ctx.size = size
        logits = subject.new_empty((len(subject), len(weight)))
        for part in _slices(len(subject), BILINEAR_PAIRS):
            torch.mm(_products(subject[part], object_[part], size), weight.T, out=logits[part])
        return logits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """The gradients, for some pairs at a time."""
        (gradient,), (subject, object_, weight) = gradients, ctx.saved_tensors
        to_subject, to_object = torch.empty_like(subject), torch.empty_like(object_)
        to_weight = torch.zeros_like(weight)
        for part in _slices(len(subject), BILINEAR_PAIRS):
            some, others = subject[part], object_[part]
            to_weight.addmm_(gradient[part].T, _products(some, others, ctx.size))
            to_products = (gradient[part] @ weight).view(-1, ctx.size, ctx.size)
            to_subject[part] = (to_products @ others.reshape(-1, ctx.size, 1)).view(some.shape)
            to_object[part] = (some.reshape(-1, 1, ctx.size) @ to_products).view(some.shape)
        return to_subject, to_object, to_weight, None


def _products(subject: Tensor, object_: Tensor, size: int) -> Tensor:
    """The products of every feature of a block of one vector with every feature of the other's, [P, d * size]."""
    pairs = len(subject)
    return (subject.view(pairs, -1, size, 1) * object_.view(pairs, -1, 1, size)).view(pairs, -1)


def _runs(head: Tensor, tail: Tensor, length: int) -> Iterator[slice]:
    """Runs of pairs, ordered by head, that need at most `AT_ONCE` numbers for their heads with all tails."""
    tails = max(len(torch.unique(tail)), 1)
    heads = max(AT_ONCE // (length * tails), 1)
    number = torch.unique_consecutive(head, return_inverse=True)[1]  # of each pair's head, counted from 0
    edges = torch.arange(0, int(number[-1]) + 1 + heads, heads, device=number.device)
    bounds = torch.searchsorted(number, edges).tolist()
    return (slice(first, end) for first, end in pairwise(bounds) if first < end)


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, count)) for first in range(0, count, size))
