"""DP-SGD by PCNN's kernels: against a loop over examples in float64, the noise, and what one example can change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fedrel.extractors.batches import Batch
from fedrel.extractors.dp_sgd import ClippedSum
from fedrel.extractors.heads import step_seeds
from fedrel.extractors.objective import Correction, DPSteps, Objective
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.seeding import numpy_generator
from fedrel.tensors import compiling
from fedrel.tensors.weights import Rows

if not compiling.has_numba():
    pytest.skip("numba, which makes the kernels, is not installed", allow_module_level=True)

from fedrel.extractors.pcnn.kernels.dp_training import fit_with_noise

from . import slow
from .test_kernel_objectives import objective, slow_read
from .test_kernels import EDGES, SIZES, VOCABULARY, batches, has_near_ties, model, random_batch

RATE, SEED, EXPECTED = 0.3, 11, 4.0
DENSE = (
    "classifier.weight",
    "classifier.bias",
    "filters",
    "filters_bias",
    "head_positions",
    "tail_positions",
)  # the order in which noise is drawn


def nothing(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def drawn(seed: int) -> Any:
    generator = numpy_generator(seed, "noise")
    return lambda count: generator.standard_normal(count, np.float32)


def poisson(bags: int, steps: int) -> list[np.ndarray]:
    """Batches of all sizes, an empty one among them."""
    random = numpy_generator(4, "sampling")
    found = [np.flatnonzero(random.random(bags) < 0.35) for _ in range(steps)]
    found[2] = found[2][:0]
    return found


def bags_of(batch: Batch, which: Sequence[int]) -> Batch:
    sentences, sizes = [], []
    for bag in which:
        own = range(int(batch.bags[bag]), int(batch.bags[bag + 1]))
        sentences += own
        sizes.append(len(own))
    taken = batch.take(torch.tensor(sentences, dtype=torch.int64))
    return Batch(
        taken.words, taken.starts, taken.head, taken.tail, torch.tensor([0, *np.cumsum(sizes)]),
        batch.labels[torch.tensor(list(which))], taken.rows,
    )  # fmt: skip


def in_float64(
    batch: Batch, goal: Objective, steps: DPSteps, decay: float, **options: object
) -> tuple[dict[str, np.ndarray], list[float]]:
    """The weights by Algorithm 1 of Abadi et al., an example at a time, and the norms of all gradients."""
    pcnn = model(torch.float64, **options)
    table = torch.nn.Parameter(pcnn.words.dense())
    weights = {name: weight for name, weight in pcnn.named_parameters() if weight.requires_grad}
    if options.get("train_words", True):
        weights["words.weight"] = table
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    norms, generator = [], torch.Generator().manual_seed(SEED)
    for which in steps.batches:
        seed = int(step_seeds(generator, 1))
        total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        if len(which):
            entering, logits, labels, _ = slow_read(pcnn, goal.head, bags_of(batch, which), table, seed)
            for number in range(len(logits)):
                one = slice(number, number + 1)
                loss = cross_entropy(logits[one], labels[one])
                if goal.fixed is not None:
                    fixed = torch.from_numpy(goal.fixed.vectors).double()
                    loss = loss + goal.fixed.weight * cross_entropy(entering[one] @ fixed.T, labels[one])
                found = torch.autograd.grad(
                    loss, list(weights.values()), allow_unused=True, retain_graph=True
                )
                own = {name: g for name, g in zip(weights, found, strict=True) if g is not None}
                if "words.weight" in own:
                    own["words.weight"] = own["words.weight"].index_fill(0, torch.tensor([0]), 0)
                norms.append(float(torch.stack([g.square().sum() for g in own.values()]).sum().sqrt()))
                for name, gradient in own.items():
                    total[name] += gradient * min(1.0, steps.clip / max(norms[-1], 1e-30))
        for name in [name for name in DENSE if name in weights]:
            noise = torch.from_numpy(steps.draw(weights[name].numel())).double().view_as(weights[name])
            total[name] -= noise * steps.noise * steps.clip  # the sign does not matter, and kernels add it
        with torch.no_grad():
            for name, weight in weights.items():
                change = total[name] / steps.expected + decay * weight
                change += goal.correction.pull * (weight - start[name])
                for force in (goal.correction.own.get(name), goal.correction.common.get(name)):
                    if isinstance(force, Rows):
                        change[torch.from_numpy(force.index).long()] += torch.from_numpy(force.values)
                    elif force is not None:
                        change += torch.from_numpy(force)
                weight.sub_(RATE * change)
            table[0] = 0  # the gap between sentences
    known = {"words.weight": table.detach().numpy()} if options.get("train_words", True) else {}
    return {**pcnn.state(), **known}, norms


def by_kernels(
    batch: Batch, goal: Objective, steps: DPSteps, decay: float, **options: object
) -> tuple[PCNN, np.ndarray]:
    pcnn = model(**options)
    pcnn.begin(pcnn.state())
    _, norms = fit_with_noise(pcnn, batch, steps, RATE, decay, SEED, goal)
    return pcnn, norms


def assert_float64s(
    batch: Batch, goal: Objective, steps: DPSteps, decay: float = 0.0, **options: object
) -> None:
    """With noise, words must be fixed: their noise is drawn in another order."""
    seeds = (steps, steps) if steps.draw is nothing else (_again(steps), _again(steps))
    expected, norms = in_float64(batch, goal, seeds[0], decay, **options)
    pcnn, found = by_kernels(batch, goal, seeds[1], decay, **options)
    np.testing.assert_allclose(found, norms, rtol=1e-4, atol=1e-6)
    for name, array in pcnn.state().items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=2e-5, err_msg=name)


def _again(steps: DPSteps) -> DPSteps:
    return DPSteps(steps.batches, steps.expected, steps.clip, steps.noise, drawn(8))


# Norms and clipping.


@given(batches(), st.sampled_from([1, 3, 5]))
def test_norms_are_float64s(batch: Batch, window: int) -> None:
    assume(not has_near_ties(model(torch.float64, window=window), batch))
    every = [np.arange(len(batch.labels))]
    assert_float64s(batch, Objective(), DPSteps(every, EXPECTED, 0.05, 1.0, nothing), window=window)


@pytest.mark.parametrize("bias", [True, False])
def test_norms_at_the_edges(bias: bool) -> None:
    """One word five times in a sentence; sentences longer than the table of distances; empty pieces."""
    batch = slow.make_batch(EDGES, [1] * len(EDGES), [0, 1, 2, 3, 0, 1])
    every = [np.arange(len(EDGES))]
    for clip in (1e-3, 1e3):
        assert_float64s(batch, Objective(), DPSteps(every, EXPECTED, clip, 1.0, nothing), bias=bias)


def test_norms_of_the_published_sizes() -> None:
    sizes: dict[str, object] = {
        "word_dimension": 50, "position_dimension": 5, "filters": 230, "max_length": 120, "dropout": 0.5
    }  # fmt: skip
    candidates = (random_batch(number, [1] * 6) for number in range(100))
    batch = next(one for one in candidates if not has_near_ties(model(torch.float64, **sizes), one))
    steps = DPSteps([np.arange(6)], EXPECTED, 0.2, 1.0, nothing)
    assert_float64s(batch, Objective(), steps, **sizes)


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("none", ()),
        ("none", ("pull", "forces")),
        ("one", ("fixed",)),
        *(
            pytest.param(head, names, marks=pytest.mark.slow)
            for head in ("none", "one")
            for names in (("fixed",), ("forces",), ("pull",), ())
            if (head, names) not in (("none", ()), ("one", ("fixed",)))
        ),
    ],
)
def test_twenty_steps_are_float64s(head: str, names: tuple[str, ...]) -> None:
    """About half of the gradients are clipped; sizes vary, and a step is empty, in which decay still acts."""
    sizes = SIZES if head == "one" else [1] * 11
    steps = DPSteps(poisson(len(sizes), 20), EXPECTED, 0.6, 1.0, nothing)
    options: dict[str, object] = {"dropout": 0.4, "bias": "fixed" not in names}
    assert_float64s(random_batch(9, sizes), objective(head, *names, **options), steps, 1e-2, **options)


def test_steps_with_noise_are_float64s() -> None:
    steps = DPSteps(poisson(11, 20), EXPECTED, 0.1, 0.5, drawn(8))
    options: dict[str, object] = {"dropout": 0.4, "train_words": False}
    assert_float64s(random_batch(9, [1] * 11), Objective(), steps, 1e-2, **options)


def test_the_numbers_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, steps = random_batch(9, SIZES), poisson(len(SIZES), 9)
    found = []
    for most in (1 << 20, 1):
        monkeypatch.setattr("fedrel.extractors.pcnn.kernels.dp_training._DRAWN_AT_ONCE", most)
        drawing = DPSteps(steps, EXPECTED, 0.1, 0.5, drawn(8))
        found.append(by_kernels(batch, Objective("one"), drawing, 1e-2, dropout=0.4, train_words=False)[0])
    for name, array in found[0].state().items():
        np.testing.assert_array_equal(array, found[1].state()[name])


def test_a_loop_over_the_graph_does_the_same() -> None:
    """`ClippedSum`, with the kernel's dropout left out: both are given the same noise."""
    batch, every = random_batch(9, [1] * 11), poisson(11, 6)
    pcnn, _ = by_kernels(batch, Objective(), DPSteps(every, EXPECTED, 0.3, 1.0, nothing), 1e-2)
    looped = model()
    looped.begin(looped.state())
    optimiser = SGD(looped, RATE, 1e-2)
    total = ClippedSum(looped, DPSteps(every, EXPECTED, 0.3, 1.0, nothing))
    for which in every:
        for bag in which:
            reading = looped.read("none", bags_of(batch, [int(bag)]), None)
            cross_entropy(reading.logits, reading.labels).backward()
            total.add()
        total.finish()
        optimiser.step()
    for name, array in pcnn.state().items():
        np.testing.assert_allclose(array, looped.state()[name], rtol=1e-5, atol=2e-5, err_msg=name)


# What one example can change.


@pytest.mark.parametrize("head", ["none", "one"])
def test_no_example_moves_the_sum_by_more_than_the_bound(head: str) -> None:
    """A step with and without an example: the weights differ by at most rate * clip / expected."""
    sizes, clip = SIZES if head == "one" else [1] * 11, 0.05
    batch = random_batch(9, sizes)
    with_all, _ = by_kernels(
        batch, Objective(head), DPSteps([np.arange(11)], EXPECTED, clip, 1.0, nothing), 0.0
    )
    for left_out in range(11):
        rest = np.delete(np.arange(11), left_out)
        without, _ = by_kernels(batch, Objective(head), DPSteps([rest], EXPECTED, clip, 1.0, nothing), 0.0)
        before, after = without.state(), with_all.state()
        moved = np.sqrt(sum(np.square(after[name] - before[name].astype(float)).sum() for name in after))
        assert 0.5 < moved / (RATE * clip / EXPECTED) < 1 + 1e-3


def test_an_example_without_a_finite_gradient_counts_as_nothing() -> None:
    """Its word's vector is so large that the gradient overflows; the others are trained as without it."""
    batch = random_batch(9, [1] * 11)
    found = []
    for which in (np.arange(11), np.arange(1, 11)):
        pcnn = model(train_words=False)
        with torch.no_grad():
            pcnn.words.weight[VOCABULARY - 1] = 1e30
        words = batch.words.clone()
        words[0] = VOCABULARY - 1
        odd = Batch(words, batch.starts, batch.head, batch.tail, batch.bags, batch.labels, batch.rows)
        pcnn.begin(pcnn.state())
        fit_with_noise(pcnn, odd, DPSteps([which], EXPECTED, 0.1, 1.0, nothing), RATE, 0.0, SEED, Objective())
        found.append(pcnn.state())
    for name, array in found[0].items():
        assert np.isfinite(array).all()
        np.testing.assert_allclose(array, found[1][name], rtol=1e-5, atol=1e-6, err_msg=name)


# Noise.


def test_a_step_without_examples_takes_its_noise() -> None:
    empty = np.empty(0, np.int64)
    batch, start = random_batch(9, [1] * 11), model(train_words=False).state()
    steps = DPSteps([empty, empty], EXPECTED, 0.5, 2.0, drawn(8))
    pcnn, norms = by_kernels(batch, Objective(), steps, 0.0, train_words=False)
    assert not len(norms)
    numbers = drawn(8)(2 * sum(array.size for array in start.values())).reshape(2, -1).sum(0)
    at = 0
    for name in DENSE:
        size = start[name].size
        expected = start[name] + RATE * 2.0 * 0.5 / EXPECTED * numbers[at : at + size].reshape(
            start[name].shape
        )
        np.testing.assert_allclose(pcnn.state()[name], expected, rtol=1e-5, atol=1e-6)
        at += size


@pytest.mark.parametrize("pull", [0.0, 2.0], ids=["decay", "decay that starts the scale again"])
def test_every_row_of_words_gets_the_noise_of_all_steps(pull: float) -> None:
    """Rows that sentences have, and rows that none has: their noise is drawn late, and as large as it should be."""
    batch, decay, clip, steps = random_batch(9, [1] * 11), 0.05, 1e-6, 30
    goal = Objective(correction=Correction(pull=pull))
    kept = 1 - RATE * (decay + pull)
    spread = RATE * 1e6 * clip / EXPECTED
    expected = spread * np.sqrt(sum(kept ** (2 * step) for step in range(steps)))
    still = np.random.default_rng(0)  # a start from which decay and pull lead to known weights
    moved: dict[str, list[np.ndarray]] = {"read": [], "never read": []}
    for seed in range(40):
        every = [np.flatnonzero(still.random(11) < 0.4) for _ in range(steps)]
        pcnn, _ = by_kernels(batch, goal, DPSteps(every, EXPECTED, clip, 1e6, drawn(seed)), decay)
        rest = model().state()["words.weight"].astype(float)
        for _ in range(steps):
            rest = rest - RATE * (decay * rest + pull * (rest - model().state()["words.weight"]))
        noise = pcnn.state()["words.weight"] - rest
        assert (noise[0] == 0).all() and pcnn.words.touched[1:].all()
        moved["read"].append(noise[1 : VOCABULARY * 2 // 3])
        moved["never read"].append(noise[VOCABULARY * 2 // 3 :])
    for found in moved.values():
        numbers = np.concatenate(found).reshape(-1)
        assert abs(numbers.mean()) < 5 * expected / np.sqrt(len(numbers))
        assert numbers.std() == pytest.approx(expected, rel=5 / np.sqrt(2 * len(numbers)))
