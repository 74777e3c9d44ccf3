"""Bag heads: how the sentences of a bag become one training signal and one prediction.

A head is a pair of functions of any extractor with `encode` and a linear `classifier`: the logits and labels to
train on, and the probability of every relation for each bag. In the equations x_i is the vector of a bag's
sentence i, W (rows w_r) and d are the classifier's weight and bias, and a softmax over i is within a bag. Dropout
acts on the vector that enters the classifier, in training only. It draws from a given generator, so that the same
seed drops the same numbers everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from fedrel.extractors.batches import Batch
from fedrel.tensors import compiling

_CHANCES = 1 << 24  # numbers drawn for units have so many values


@dataclass(frozen=True, slots=True)
class Reading:
    """A head's output for a batch in training: `n` vectors with a label each, and their logits."""

    vectors: Tensor  # [n, d]
    entering: Tensor  # [n, d], the same after dropout: what the classifier reads
    logits: Tensor  # [n, R]
    labels: Tensor  # [n]
    weights: Tensor  # [S], how much each sentence is trained on, without gradient


class SentenceModel(Protocol):
    """What a head needs of an extractor: sentences as vectors, and a linear classifier of those."""

    @property
    def classifier(self) -> nn.Linear:
        """The classifier."""

    @property
    def dropout(self) -> float:
        """The share of a vector's numbers that dropout sets to zero before the classifier."""

    def encode(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """The vector of each sentence, [S, d]; with a generator, as in training."""


class BagHead(ABC):
    """A way to train on bags in which not every sentence expresses the label, and to classify bags at test time."""

    name: ClassVar[str]

    @abstractmethod
    def read(self, extractor: SentenceModel, batch: Batch, generator: torch.Generator | None) -> Reading:
        """What to train on; a generator draws the dropout, without one there is none."""

    @abstractmethod
    def probabilities(self, extractor: SentenceModel, batch: Batch) -> Tensor:
        """p(r | bag), [B, R]."""


class _Mean:
    """The test rule of NONE and AVE: the mean of a bag's vectors is classified."""

    def probabilities(self, extractor: SentenceModel, batch: Batch) -> Tensor:
        """softmax(W mean_i(x_i) + d)."""
        probabilities: Tensor = extractor.classifier(_bag_means(extractor.encode(batch), batch)).softmax(1)
        return probabilities


class NoDenoising(_Mean, BagHead):
    """NONE: every sentence keeps its bag's label."""

    name = "none"

    def read(self, extractor: SentenceModel, batch: Batch, generator: torch.Generator | None) -> Reading:
        """p(label | sentence) of every sentence."""
        vectors = extractor.encode(batch, generator)
        labels = batch.labels[bag_of_sentence(batch)]
        return _classified(extractor, vectors, labels, vectors.new_ones(len(vectors)), generator)


class Best(BagHead):
    """ONE (Zeng 2015): the sentence of the bag that the current model finds likeliest for the label."""

    name = "one"

    def read(self, extractor: SentenceModel, batch: Batch, generator: torch.Generator | None) -> Reading:
        """p(label | sentence j), j = argmax_i p(label | sentence i) without dropout."""
        chosen = self._choose(extractor, batch)
        vectors = extractor.encode(batch.take(chosen), generator)
        weights = vectors.new_zeros(len(batch.head))
        weights[chosen] = 1
        return _classified(extractor, vectors, batch.labels, weights, generator)

    def probabilities(self, extractor: SentenceModel, batch: Batch) -> Tensor:
        """max_i p(r | sentence i): each relation by the sentence that states it best."""
        scores = sentence_probabilities(extractor, batch)
        best = scores.new_zeros((len(batch.labels), scores.shape[1]))
        return best.scatter_reduce_(0, bag_of_sentence(batch)[:, None].expand_as(scores), scores, "amax")

    @staticmethod
    @torch.no_grad()
    def _choose(extractor: SentenceModel, batch: Batch) -> Tensor:
        """The chosen sentence of each bag, [B]; only bags of several sentences need scoring."""
        chosen = batch.bags[:-1].clone()
        sizes = batch.bags.diff()
        several = sizes > 1
        if not several.any():
            return chosen
        bag = bag_of_sentence(batch)
        sentences = several[bag].nonzero().squeeze(1)
        bag = bag[sentences]
        scores = sentence_probabilities(extractor, batch.take(sentences))
        score = scores.gather(1, batch.labels[bag][:, None]).squeeze(1)
        # The first of the largest in each bag: sort by bag, then falling score, and take each bag's first.
        order = torch.sort(score, descending=True, stable=True).indices
        order = order[torch.sort(bag[order], stable=True).indices]
        sizes = sizes[several]
        chosen[several] = sentences[order[sizes.cumsum(0) - sizes]]
        return chosen


class Average(_Mean, BagHead):
    """AVE: the mean of the sentences' vectors."""

    name = "ave"

    def read(self, extractor: SentenceModel, batch: Batch, generator: torch.Generator | None) -> Reading:
        """p(label | mean_i(x_i))."""
        vectors = _bag_means(extractor.encode(batch, generator), batch)
        weights = 1 / batch.bags.diff().to(vectors.dtype)[bag_of_sentence(batch)]
        return _classified(extractor, vectors, batch.labels, weights, generator)


class Attention(BagHead):
    """ATT (Lin 2016): attention in the bag, whose query is a relation's row of the classifier."""

    name = "att"

    def read(self, extractor: SentenceModel, batch: Batch, generator: torch.Generator | None) -> Reading:
        """p(label | sum_i a_i x_i), a = softmax_i(x_i . w_label)."""
        vectors, bag = extractor.encode(batch, generator), bag_of_sentence(batch)
        query = extractor.classifier.weight[batch.labels[bag]]
        attention = _softmax_in_bags((vectors * query).sum(1, keepdim=True), bag, len(batch.labels))
        pooled = _sum_in_bags(attention * vectors, bag, len(batch.labels))
        return _classified(extractor, pooled, batch.labels, attention.detach().squeeze(1), generator)

    def probabilities(self, extractor: SentenceModel, batch: Batch) -> Tensor:
        """Each relation with its own query: p_r = softmax(W b_r + d)[r], b_r = sum_i a_ir x_i.

        W b_r = sum_i a_ir (W x_i), so no b_r is ever formed.
        """
        if _has_kernels(extractor):
            return _attention_by_kernels(extractor, batch)
        scores, attention, bag = _attend(extractor, batch)
        relations = scores.shape[1]
        products = (attention[:, :, None] * scores[:, None, :]).view(len(scores), -1)
        logits = _sum_in_bags(products, bag, len(batch.labels)).view(-1, relations, relations)
        return _plus_bias(extractor, logits).softmax(2).diagonal(dim1=1, dim2=2)


class RelationAwareAttention(BagHead):
    """ATT_RA (Ye & Ling 2019, within the bag): one vector per bag and relation, all of which the loss uses.

    o_r = w_r . b_r + d_r with b_r = sum_i a_ir x_i and a_ir = softmax_i(x_i . w_r). One dropout mask serves
    all vectors of a bag, so that o_r = sum_i a_ir (w_r . masked x_i) + d_r and no b_r is ever formed.
    """

    name = "att_ra"

    def read(self, extractor: SentenceModel, batch: Batch, generator: torch.Generator | None) -> Reading:
        """softmax(o)[label]; the vector is the label's own, b_label."""
        vectors, bag, bags = extractor.encode(batch, generator), bag_of_sentence(batch), len(batch.labels)
        scores = vectors @ extractor.classifier.weight.T
        attention = _softmax_in_bags(scores, bag, bags)
        mask = drop_units(vectors.new_ones((bags, vectors.shape[1])), extractor.dropout, generator)
        entering = (vectors * mask[bag]) @ extractor.classifier.weight.T if generator is not None else scores
        logits = _plus_bias(extractor, _sum_in_bags(attention * entering, bag, bags))
        weights = attention.gather(1, batch.labels[bag][:, None])
        pooled = _sum_in_bags(weights * vectors, bag, bags)
        return Reading(pooled, pooled * mask, logits, batch.labels, weights.detach().squeeze(1))

    def probabilities(self, extractor: SentenceModel, batch: Batch) -> Tensor:
        """softmax(o)."""
        scores, attention, bag = _attend(extractor, batch)
        return _plus_bias(extractor, _sum_in_bags(attention * scores, bag, len(batch.labels))).softmax(1)


HEADS: dict[str, BagHead] = {
    head.name: head for head in (NoDenoising(), Best(), Average(), Attention(), RelationAwareAttention())
}


def sentence_probabilities(extractor: SentenceModel, batch: Batch) -> Tensor:
    """p(r | sentence), [S, R] (Lazy MIL, Eq. 1): each sentence on its own, whatever its bag."""
    probabilities: Tensor = extractor.classifier(extractor.encode(batch)).softmax(1)
    return probabilities


def bag_of_sentence(batch: Batch) -> Tensor:
    """The bag each sentence is in, [S]."""
    bags = torch.arange(len(batch.labels), device=batch.bags.device)
    return torch.repeat_interleave(bags, batch.bags.diff(), output_size=len(batch.head))


def dropout(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """Set each number to zero with probability `p`, divide the rest by `1 - p`; without a generator, do nothing."""
    if generator is None or p == 0:
        return x
    kept = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device).ge_(p)
    return x * kept.div_(1 - p)


def drop_units(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """The dropout before a classifier, [n, d]: like `dropout`, but with masks that kernels can draw as well.

    It takes one number a step from the generator, whatever the shape. So a method that trains by kernels and one
    that trains step by step drop the same units, and only the methods differ.
    """
    if generator is None or p == 0:
        return x
    seed = int(step_seeds(generator, 1))
    return x * units_kept(seed, x.shape[0], x.shape[1], p, x.device).to(x.dtype).div_(1 - p)


def step_seeds(generator: torch.Generator, steps: int) -> Tensor:
    """The next seeds of masks, one for each step; drawn together they are the same as one by one."""
    return torch.randint(1 << 62, (steps,), generator=generator, device=generator.device)


def units_kept(seed: int, rows: int, units: int, rate: float, device: torch.device | str = "cpu") -> Tensor:
    """Which units of which rows a step keeps, [rows, units], by a hash of the seed, the row and the unit.

    `draw_kept` of PCNN's kernels draws the same. torch has no unsigned integers: products wrap around all the same,
    and `_shifted` shifts as if there were no sign.
    """
    key = _scramble_long(torch.arange(rows, device=device) + seed)
    low, high = key.to(torch.int32), (key >> 32).to(torch.int32)
    number = torch.arange(units, dtype=torch.int32, device=device) + low[:, None]
    number = _scramble(_scramble(number).bitwise_xor_(high[:, None]))
    return _shifted(number, 8, 32) >= int(rate * _CHANCES)


def _classified(
    extractor: SentenceModel,
    vectors: Tensor,
    labels: Tensor,
    weights: Tensor,
    generator: torch.Generator | None,
) -> Reading:
    entering = drop_units(vectors, extractor.dropout, generator)
    return Reading(vectors, entering, extractor.classifier(entering), labels, weights)


def _attend(extractor: SentenceModel, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Every sentence's x . w_r and its attention for every relation, both [S, R]; and its bag."""
    bag = bag_of_sentence(batch)
    scores = extractor.encode(batch) @ extractor.classifier.weight.T
    return scores, _softmax_in_bags(scores, bag, len(batch.labels)), bag


def _softmax_in_bags(scores: Tensor, bag: Tensor, bags: int) -> Tensor:
    """The softmax over each bag's sentences, column by column, [S, n]."""
    with torch.no_grad():  # subtracting a constant changes neither a softmax nor its gradient
        largest = scores.new_full((bags, scores.shape[1]), -torch.inf)
        largest.scatter_reduce_(0, bag[:, None].expand_as(scores), scores, "amax")
    raised = (scores - largest[bag]).exp()
    return raised / _sum_in_bags(raised, bag, bags)[bag]


def _sum_in_bags(values: Tensor, bag: Tensor, bags: int) -> Tensor:
    return values.new_zeros((bags, values.shape[1])).index_add(0, bag, values)


def _bag_means(vectors: Tensor, batch: Batch) -> Tensor:
    sums = _sum_in_bags(vectors, bag_of_sentence(batch), len(batch.labels))
    return sums / batch.bags.diff().to(vectors.dtype)[:, None]


def _plus_bias(extractor: SentenceModel, logits: Tensor) -> Tensor:
    bias = extractor.classifier.bias
    return logits if bias is None else logits + bias


def _has_kernels(extractor: SentenceModel) -> bool:
    weight = extractor.classifier.weight
    trained = torch.is_grad_enabled() and weight.requires_grad
    return weight.is_cpu and weight.dtype is torch.float32 and not trained and compiling.has_numba()


def _attention_by_kernels(extractor: SentenceModel, batch: Batch) -> Tensor:
    """ATT's test rule, without a number for every sentence and pair of relations."""
    from fedrel.tensors.array_kernels import attention_probabilities

    classifier = extractor.classifier
    scores = extractor.encode(batch) @ classifier.weight.T
    bias = scores.new_zeros(scores.shape[1]) if classifier.bias is None else classifier.bias.detach()
    arrays = (compiling.read_only(tensor.numpy()) for tensor in (scores, bias, batch.bags))
    return torch.from_numpy(attention_probabilities(*arrays))


def _scramble_long(x: Tensor) -> Tensor:
    """SplitMix64's output function (Steele et al. 2014)."""
    x = x - 0x61C8864680B583EB
    x = (x ^ _shifted(x, 30, 64)) * -0x40A7B892E31B1A47
    x = (x ^ _shifted(x, 27, 64)) * -0x6B2FB644ECCEEE15
    return x ^ _shifted(x, 31, 64)


def _scramble(x: Tensor) -> Tensor:
    """The finaliser of MurmurHash3: every bit of the result depends on every bit of x."""
    x = (x ^ _shifted(x, 16, 32)) * -0x7A143595
    x = (x ^ _shifted(x, 13, 32)) * -0x3D4D51CB
    return x ^ _shifted(x, 16, 32)


def _shifted(x: Tensor, by: int, bits: int) -> Tensor:
    """x >> by, filled up with zeros, as for unsigned numbers."""
    return (x >> by) & ((1 << (bits - by)) - 1)
