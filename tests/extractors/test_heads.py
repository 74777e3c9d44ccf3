"""Bag heads on a linear toy extractor, against hand-worked values and loops over bags; and dropout."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedrel.extractors.base import Extractor
from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import HEADS, drop_units, dropout, sentence_probabilities, step_seeds, units_kept
from fedrel.seeding import torch_generator

from . import slow

RELATIONS, WIDTH = 3, 4


class Toy(Extractor):
    """A sentence's vector is its first word's row."""

    def __init__(self, vectors: Tensor, weight: Tensor, bias: Tensor | None, dropout: float = 0.0) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors)
        self.classifier = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).to(weight)
        self.classifier.weight.data = weight
        if bias is not None:
            self.classifier.bias.data = bias
        self.dropout = dropout
        self.encoded = 0

    def encode(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        self.encoded += len(batch.head)
        return self.vectors[batch.words[batch.starts[:-1]]]


def bags_of(sizes: list[int], labels: list[int]) -> Batch:
    """Sentence number i consists of word i, twice."""
    sentences = [([number, number], 0, 1) for number in range(sum(sizes))]
    return slow.make_batch(sentences, sizes, labels)


def random_toy(sentences: int, *, bias: bool = True, dropout: float = 0.0) -> Toy:
    generator = torch_generator(2, "toy")

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return Toy(draw(sentences, WIDTH), draw(RELATIONS, WIDTH), draw(RELATIONS) if bias else None, dropout)


def by_hand() -> tuple[Toy, Batch]:
    """Two sentences in one bag, labelled 0; logits (log 3, 0) and (0, log 3)."""
    toy = Toy(torch.eye(2) * math.log(3), torch.eye(2), None)
    return toy, bags_of([2], [0])


@pytest.mark.parametrize(
    ("head", "loss", "weights"),
    [
        ("none", -(math.log(3 / 4) + math.log(1 / 4)) / 2, [1, 1]),
        ("one", -math.log(3 / 4), [1, 0]),
        ("ave", -math.log(1 / 2), [1 / 2, 1 / 2]),
        # a = (3/4, 1/4), b = log 3 * (3/4, 1/4)
        ("att", -math.log(math.sqrt(3) / (math.sqrt(3) + 1)), [3 / 4, 1 / 4]),
        # o_0 = o_1 = log 3 * 3/4
        ("att_ra", -math.log(1 / 2), [3 / 4, 1 / 4]),
    ],
)
def test_loss_by_hand(head: str, loss: float, weights: list[float]) -> None:
    toy, batch = by_hand()
    found, trained = slow.loss_of(head, toy, batch, None)
    assert found.item() == pytest.approx(loss)
    assert trained.tolist() == pytest.approx(weights) and not trained.requires_grad


@pytest.mark.parametrize(
    ("head", "probabilities"),
    [
        ("none", [1 / 2, 1 / 2]),
        ("one", [3 / 4, 3 / 4]),
        ("ave", [1 / 2, 1 / 2]),
        ("att", [math.sqrt(3) / (math.sqrt(3) + 1)] * 2),
        ("att_ra", [1 / 2, 1 / 2]),
    ],
)
def test_probabilities_by_hand(head: str, probabilities: list[float]) -> None:
    toy, batch = by_hand()
    assert HEADS[head].probabilities(toy, batch)[0].tolist() == pytest.approx(probabilities)


def slow_loss(head: str, toy: Toy, vectors: list[Tensor], labels: list[int]) -> tuple[Tensor, list[float]]:
    """Bag by bag; `vectors` are the bags' sentences."""
    losses, weights = [], []
    for xs, label in zip(vectors, labels, strict=True):
        logits = toy.classifier(xs)
        if head == "none":
            losses += [-logits[i].log_softmax(0)[label] for i in range(len(xs))]
            weights += [1.0] * len(xs)
        elif head == "one":
            best = int(logits.softmax(1)[:, label].argmax())
            losses.append(-logits[best].log_softmax(0)[label])
            weights += [float(i == best) for i in range(len(xs))]
        elif head == "ave":
            losses.append(-toy.classifier(xs.mean(0)).log_softmax(0)[label])
            weights += [1 / len(xs)] * len(xs)
        elif head == "att":
            attention = (xs @ toy.classifier.weight[label]).softmax(0)
            losses.append(-toy.classifier(attention @ xs).log_softmax(0)[label])
            weights += attention.tolist()
        else:
            losses.append(-slow_relation_logits(toy, xs).log_softmax(0)[label])
            weights += (xs @ toy.classifier.weight[label]).softmax(0).tolist()
    return torch.stack(losses).mean(), weights


def slow_relation_logits(toy: Toy, xs: Tensor) -> Tensor:
    outputs = []
    for relation, query in enumerate(toy.classifier.weight):
        pooled = (xs @ query).softmax(0) @ xs
        bias = 0 if toy.classifier.bias is None else toy.classifier.bias[relation]
        outputs.append(query @ pooled + bias)
    return torch.stack(outputs)


def slow_probabilities(head: str, toy: Toy, xs: Tensor) -> Tensor:
    if head in ("none", "ave"):
        return toy.classifier(xs.mean(0)).softmax(0)
    if head == "one":
        return toy.classifier(xs).softmax(1).max(0).values
    if head == "att":
        pooled = [(xs @ query).softmax(0) @ xs for query in toy.classifier.weight]
        return torch.stack([toy.classifier(b).softmax(0)[r] for r, b in enumerate(pooled)])
    return slow_relation_logits(toy, xs).softmax(0)


@given(
    st.sampled_from(sorted(HEADS)),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, RELATIONS - 1)), min_size=1, max_size=6),
    st.booleans(),
)
def test_heads_equal_loops_over_bags(head: str, bags: list[tuple[int, int]], bias: bool) -> None:
    sizes, labels = [size for size, _ in bags], [label for _, label in bags]
    toy, batch = random_toy(sum(sizes), bias=bias), bags_of(sizes, labels)
    vectors = list(torch.split(toy.vectors, sizes))
    parameters = list(toy.parameters())
    loss, weights = slow.loss_of(head, toy, batch, None)
    wanted, wanted_weights = slow_loss(head, toy, vectors, labels)
    torch.testing.assert_close(loss, wanted)
    assert weights.tolist() == pytest.approx(wanted_weights)
    for found, gradient in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(wanted, parameters), strict=True
    ):
        torch.testing.assert_close(found, gradient)
    expected = torch.stack([slow_probabilities(head, toy, xs) for xs in vectors])
    torch.testing.assert_close(HEADS[head].probabilities(toy, batch), expected)


def test_one_scores_only_bags_of_several_sentences_and_takes_the_first_of_equals() -> None:
    toy = random_toy(5)
    slow.loss_of("one", toy, bags_of([1, 1, 1, 1, 1], [0] * 5), None)
    assert toy.encoded == 5
    slow.loss_of("one", toy, bags_of([1, 3, 1], [0, 1, 2]), None)
    assert toy.encoded == 5 + 3 + 3
    toy.vectors.data[:] = 1
    _, weights = slow.loss_of("one", toy, bags_of([2, 3], [0, 1]), None)
    assert weights.tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("head", sorted(HEADS))
def test_dropout_follows_its_generator_and_acts_before_the_classifier(head: str) -> None:
    toy, batch = random_toy(4, dropout=0.5), bags_of([1, 3], [0, 1])
    losses = [
        slow.loss_of(head, toy, batch, torch_generator(seed, "dropout"))[0].item() for seed in (1, 1, 2)
    ]
    assert losses[0] == losses[1] != losses[2]
    toy.dropout = 1 - 1e-9  # nothing enters the classifier but its bias
    loss, _ = slow.loss_of(head, toy, batch, torch_generator(1, "dropout"))
    labels = torch.tensor([0, 1, 1, 1] if head == "none" else [0, 1])
    assert loss.item() == pytest.approx(-toy.classifier.bias.log_softmax(0)[labels].mean().item())


def test_sentence_probabilities_ignore_bags() -> None:
    toy = random_toy(3)
    expected = toy.classifier(toy.vectors).softmax(1)
    torch.testing.assert_close(sentence_probabilities(toy, bags_of([2, 1], [0, 1])), expected)


def test_taking_sentences_out_of_a_batch() -> None:
    batch = slow.make_batch([([1, 2, 3], 0, 2), ([4], 0, 0), ([5, 6], 1, 0), ([7, 8], 0, 1)], [3, 1], [2, 0])
    taken = batch.take(torch.tensor([3, 0, 2]))
    assert taken.words.tolist() == [7, 8, 1, 2, 3, 5, 6]
    assert taken.starts.tolist() == [0, 2, 5, 7]
    assert (taken.head.tolist(), taken.tail.tolist()) == ([0, 0, 1], [1, 2, 0])
    assert (taken.bags.tolist(), taken.labels.tolist()) == ([0, 1, 2, 3], [0, 2, 2])
    assert taken.rows.tolist() == [1003, 1000, 1002]


def test_keep_rate_and_scale() -> None:
    x = torch.ones(400, 500)
    dropped = dropout(x, 0.3, torch_generator(1, "dropout"))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    assert abs((dropped > 0).float().mean().item() - 0.7) < 0.005  # five standard deviations
    assert abs(dropped.mean().item() - 1) < 0.008


def test_the_generator_decides() -> None:
    x = torch.ones(50, 50)
    first, second = (dropout(x, 0.5, torch_generator(1, "dropout")) for _ in range(2))
    assert (first == second).all()
    torch.manual_seed(0)
    generator = torch_generator(1, "dropout")
    assert (dropout(x, 0.5, generator) == first).all()
    assert (dropout(x, 0.5, generator) != first).any()


def test_without_a_generator_or_a_rate_nothing_is_dropped() -> None:
    x = torch.randn((3, 3), generator=torch_generator(1, "x"))
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, torch_generator(1, "dropout")) is x


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_units_are_kept_at_the_rate_and_independently(rate: float) -> None:
    one, two, three = step_seeds(torch_generator(1, "dropout"), 3).tolist()
    mask = units_kept(one, 2000, 690, rate).numpy()
    spread = np.sqrt(rate * (1 - rate))
    assert abs(mask.mean() - (1 - rate)) <= 5 * spread / np.sqrt(mask.size)
    for axis, many in ((0, 2000), (1, 690)):  # no unit and no sentence is favoured
        assert (abs(mask.mean(axis) - (1 - rate)) <= 6 * spread / np.sqrt(many)).all()
    if rate:
        others = (units_kept(seed, 2000, 690, rate).numpy() for seed in (two, three))
        for other in (*others, np.roll(mask, 1, 0), np.roll(mask, 1, 1)):
            assert abs((mask & other).mean() - (1 - rate) ** 2) <= 5 / np.sqrt(mask.size)
    np.testing.assert_array_equal(mask, units_kept(one, 2000, 690, rate).numpy())


def test_units_follow_from_one_number_a_step() -> None:
    x, steps = torch.randn((6, 50), generator=torch_generator(1, "x")), torch_generator(1, "dropout")
    expected = [
        x * units_kept(seed, 6, 50, 0.5) * 2 for seed in step_seeds(torch_generator(1, "dropout"), 3).tolist()
    ]
    for step in expected:
        torch.testing.assert_close(drop_units(x, 0.5, steps), step)
    assert drop_units(x, 0.5, None) is x
    assert drop_units(x, 0.0, steps) is x
