"""What kernels train on, head by head and method by method: against float64, against the graph, and on threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import HEADS, step_seeds, units_kept
from fedrel.extractors.objective import Calibration, Correction, FixedClassifier, Objective
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.seeding import numpy_generator
from fedrel.tensors import compiling
from fedrel.tensors.weights import Rows

if not compiling.has_numba():
    pytest.skip("numba, which makes the kernels, is not installed", allow_module_level=True)

from . import slow
from .test_kernels import BATCH_SIZE, RELATIONS, SIZES, model, orders, random_batch, steps

RATE, SEED = 0.3, 11
MIXING = ("ave", "att", "att_ra")  # heads that mix a bag's sentences


def random(purpose: str, *shape: int) -> np.ndarray:
    return numpy_generator(2, purpose).normal(size=shape).astype(np.float32)


def forces(**options: object) -> Correction:
    """Forces on all weights: on those of some words one of the site's own, on all words a common one."""
    shapes = model(**options).shapes()
    own: dict[str, Any] = {name: 0.05 * random(f"own {name}", *shape) for name, shape in shapes.items()}
    index = np.array([2, 5, 19, 28], np.int32)  # words of the batches, and one that none of them has
    own["words.weight"] = Rows(index, own["words.weight"][index], 0.0)
    common = {name: 0.05 * random(f"common {name}", *shape) for name, shape in shapes.items()}
    return Correction(own=own, common=common)


def objective(head: str, *names: str, **options: object) -> Objective:
    """A head, with what some methods make of it."""
    correction = Correction()
    if "pull" in names:
        correction += Correction(pull=0.2)
    if "forces" in names:
        correction += forces(**options)
    shift = np.array([-0.4, 0.0, -1.5, -np.inf if "absent" in names else -0.7])
    return Objective(
        head,
        Calibration(
            scale=np.array([1.0, 0.5, 1.0, 0.2]) if "scale" in names else None,
            shift=shift if "shift" in names or "absent" in names else None,
        ),
        FixedClassifier(0.3 * random("fixed", RELATIONS, 21), 0.6) if "fixed" in names else None,
        correction,
    )


def slow_read(
    pcnn: PCNN, head: str, batch: Batch, table: Tensor, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The vectors that enter the classifier, the logits, their labels and the sentences' shares, bag by bag."""
    weight, bias = pcnn.classifier.weight, 0 if pcnn.classifier.bias is None else pcnn.classifier.bias
    vectors = slow.encode(pcnn, batch, table)
    bags = list(zip(batch.labels.tolist(), pairwise(batch.bags.tolist()), strict=True))
    mask = units_kept(seed, len(vectors), vectors.shape[1], pcnn.dropout) / (1 - pcnn.dropout)
    if head == "none":
        labels = torch.tensor([label for label, (first, last) in bags for _ in range(first, last)])
        entering = vectors * mask
        return entering, entering @ weight.T + bias, labels, torch.ones(len(vectors))
    entering_, logits, shares = [], [], []
    for number, (label, (first, last)) in enumerate(bags):
        x = vectors[first:last]
        if head == "one":
            best = int((x @ weight.T + bias).softmax(1)[:, label].argmax())
            attention = torch.nn.functional.one_hot(torch.tensor(best), last - first).to(x)
        elif head == "ave":
            attention = x.new_full((last - first,), 1 / (last - first))
        else:
            attention = (x @ weight[label]).softmax(0)
        entering_.append(attention @ x * mask[number])
        shares.append(attention.detach())
        if head == "att_ra":
            own = [(x @ row).softmax(0) @ x * mask[number] @ row for row in weight]
            logits.append(torch.stack(own) + bias)
        else:
            logits.append(weight @ entering_[-1] + bias)
    return torch.stack(entering_), torch.stack(logits), batch.labels, torch.cat(shares)


def trajectory_in_float64(
    goal: Objective, decay: float, **options: object
) -> tuple[dict[str, np.ndarray], list[float], np.ndarray]:
    """The weights, the losses and each sentence's share, by the equations on dense weights."""
    pcnn, batch = model(torch.float64, **options), random_batch(9, SIZES)
    table = torch.nn.Parameter(pcnn.words.dense())
    weights = {name: weight for name, weight in pcnn.named_parameters() if weight.requires_grad}
    weights["words.weight"] = table
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    losses, shares = [], np.zeros(len(batch.head))
    generator = torch.Generator().manual_seed(SEED)
    for step in steps(batch):
        seed = int(step_seeds(generator, 1))
        entering, logits, labels, share = slow_read(pcnn, goal.head, step, table, seed)
        np.add.at(shares, step.rows - batch.rows[0], share.numpy())
        if goal.calibration.scale is not None:
            logits = logits * torch.from_numpy(goal.calibration.scale)
        if goal.calibration.shift is not None:
            logits = logits + torch.from_numpy(goal.calibration.shift)
        loss = cross_entropy(logits, labels)
        if goal.fixed is not None:
            loss = loss + 0.6 * cross_entropy(
                entering @ torch.from_numpy(goal.fixed.vectors).T.double(), labels
            )
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        with torch.no_grad():
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
                change = decay * weight + goal.correction.pull * (weight - start[name])
                change += 0 if gradient is None else gradient
                for force in (goal.correction.own.get(name), goal.correction.common.get(name)):
                    if isinstance(force, Rows):
                        change[torch.from_numpy(force.index).long()] += torch.from_numpy(force.values)
                    elif force is not None:
                        change += torch.from_numpy(force)
                weight.sub_(RATE * change)
            table[0] = 0  # the gap between sentences
    return pcnn.state() | {"words.weight": table.detach().numpy()}, losses, shares


def fitted(goal: Objective, decay: float, **options: object) -> tuple[PCNN, Any]:
    pcnn = model(**options)
    pcnn.begin(pcnn.state())
    settings = {"batch_size": BATCH_SIZE, "lr": RATE, "weight_decay": decay, "seed": SEED}
    return pcnn, pcnn.fit(random_batch(9, SIZES), orders(len(SIZES)), **settings, objective=goal)  # type: ignore[arg-type]


def assert_float64s(goal: Objective, decay: float, **options: object) -> None:
    expected, losses, shares = trajectory_in_float64(goal, decay, **options)
    pcnn, found = fitted(goal, decay, **options)
    assert len(losses) == 30
    np.testing.assert_allclose(found.losses, losses, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(found.shares, shares, atol=1e-4)
    for name, array in pcnn.state().items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("head", MIXING)
@pytest.mark.parametrize(
    ("rate", "decay", "bias"),
    [
        (0.0, 0.0, True),
        (0.4, 1e-2, False),
        *(
            pytest.param(*rest, marks=pytest.mark.slow)
            for rest in product([0.0, 0.4], [0.0, 1e-2], [True, False])
            if rest not in ((0.0, 0.0, True), (0.4, 1e-2, False))
        ),
    ],
)
def test_thirty_steps_of_a_bag_head_are_float64s(head: str, rate: float, decay: float, bias: bool) -> None:
    assert_float64s(objective(head), decay, dropout=rate, bias=bias)


@pytest.mark.parametrize(
    "names",
    [
        ("pull", "forces"),
        ("shift",),
        ("forces", "scale", "fixed"),
        *(
            pytest.param(alone, marks=pytest.mark.slow)
            for alone in (("pull",), ("forces",), ("scale",), ("fixed",), ("pull", "fixed"))
        ),
    ],
    ids="+".join,
)
@pytest.mark.parametrize("head", list(HEADS))
def test_thirty_steps_of_a_method_are_float64s(head: str, names: tuple[str, ...]) -> None:
    options: dict[str, object] = {"dropout": 0.4, "bias": "fixed" not in names}
    assert_float64s(objective(head, *names, **options), 1e-2, **options)


def test_a_strong_pull_makes_the_scale_start_again() -> None:
    goal = Objective(correction=Correction(pull=2.0) + forces())
    expected, _, _ = trajectory_in_float64(goal, 0.0)
    pcnn, _ = fitted(goal, 0.0)
    assert 1e-6 < abs(pcnn.words.scale) <= 1 and (1 - RATE * 2.0) ** 30 < 1e-6
    for name, array in pcnn.state().items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=2e-5, err_msg=name)


def test_a_class_that_leaves_the_softmax_is_not_trained() -> None:
    batch = random_batch(9, SIZES)
    batch.labels[batch.labels == 3] = 0
    pcnn = model()
    before = pcnn.state()["classifier.weight"][3]
    settings = {"batch_size": BATCH_SIZE, "lr": RATE, "weight_decay": 0.0, "seed": SEED}
    losses, *_ = pcnn.fit(batch, orders(len(SIZES)), **settings, objective=objective("none", "absent"))  # type: ignore[arg-type]
    assert np.isfinite(losses).all()
    np.testing.assert_array_equal(pcnn.state()["classifier.weight"][3], before)


@pytest.mark.parametrize("names", [(), ("pull", "forces"), ("scale", "fixed")], ids="+".join)
@pytest.mark.parametrize("head", list(HEADS))
def test_fit_is_a_loop_over_the_graph(head: str, names: tuple[str, ...]) -> None:
    """With the same dropout, the same rows touched, and the same path."""
    options: dict[str, object] = {"dropout": 0.4, "bias": "fixed" not in names}
    goal = objective(head, *names, **options)
    pcnn, found = fitted(goal, 1e-2, **options)
    looped, generator = model(**options), torch.Generator().manual_seed(SEED)
    looped.begin(looped.state())
    optimiser = SGD(looped, RATE, 1e-2, goal.correction)
    for number, batch in enumerate(steps(random_batch(9, SIZES))):
        reading = looped.read(head, batch, generator)
        loss = cross_entropy(goal.calibration.of(reading.logits), reading.labels)
        if goal.fixed is not None:
            loss = loss + goal.fixed.loss(reading.entering, reading.labels)
        assert loss.item() == pytest.approx(found.losses[number], rel=1e-5, abs=2e-5)
        loss.backward()
        optimiser.step()
    for name, array in pcnn.state().items():
        np.testing.assert_allclose(array, looped.state()[name], rtol=1e-5, atol=2e-5, err_msg=name)
    assert (pcnn.words.touched == looped.words.touched).all()
    assert pcnn.words.scale == pytest.approx(looped.words.scale, rel=1e-12)
    assert found.path == optimiser.path
    ours, theirs = pcnn.update()["words.weight"], looped.update()["words.weight"]
    assert isinstance(ours, Rows) and isinstance(theirs, Rows)
    assert ours.index.tolist() == theirs.index.tolist() and ours.rest == pytest.approx(theirs.rest)
    np.testing.assert_allclose(ours.values, theirs.values, atol=2e-5)


@pytest.mark.parametrize("head", MIXING)
def test_bags_of_one_sentence_are_read_alike(head: str) -> None:
    batch = random_batch(9, [1] * 9)
    found = []
    for one in ("none", head):
        pcnn = model(dropout=0.4)
        settings = {"batch_size": BATCH_SIZE, "lr": RATE, "weight_decay": 1e-2, "seed": SEED}
        pcnn.fit(batch, orders(9), **settings, objective=Objective(one))  # type: ignore[arg-type]
        found.append(pcnn.state())
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


def test_the_next_site_starts_again() -> None:
    """What a correction leaves in the table is gone with the next `begin`."""
    start = model().state()
    alone, used = model(), model()
    settings = {"batch_size": BATCH_SIZE, "lr": RATE, "weight_decay": 1e-2, "seed": SEED}
    for pcnn, goals in (
        (alone, [objective("att")]),
        (used, [objective("ave", "pull", "forces"), objective("att")]),
    ):
        for goal in goals:
            pcnn.begin(start)
            pcnn.fit(random_batch(9, SIZES), orders(len(SIZES)), **settings, objective=goal)  # type: ignore[arg-type]
    for name, array in alone.state().items():
        np.testing.assert_array_equal(array, used.state()[name], err_msg=name)


@pytest.mark.parametrize("bias", [True, False])
def test_att_scores_as_in_float64(bias: bool) -> None:
    """Bags of one sentence and of several; the kernel forms no number for every pair of relations."""
    batch, fast, plain = random_batch(9, SIZES), model(bias=bias), model(torch.float64, bias=bias)
    with torch.inference_mode():
        found, expected = fast.probabilities("att", batch), plain.probabilities("att", batch)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", MIXING)
def test_nothing_hides_a_nan(head: str) -> None:
    pcnn, batch = model(), random_batch(0, [2, 3])
    with torch.no_grad():
        pcnn.words.weight[int(batch.words[0])] = torch.nan
    found = pcnn.fit(
        batch, [np.arange(2)], batch_size=5, lr=0.1, weight_decay=0.0, seed=0, objective=Objective(head)
    )
    assert np.isnan(found.losses[0])


@pytest.mark.parametrize("head", MIXING)
def test_the_same_bits_again_and_on_two_threads(head: str) -> None:
    batch = random_batch(9, [1, 2, 5, 1, 1, 3, 1, 1, 4, 1] * 2, longest=40)
    goal = objective(head, "pull", "forces", "scale", filters=40)
    settings = {"batch_size": 8, "lr": 0.1, "weight_decay": 1e-3, "seed": 5}

    def work(_: int) -> list[bytes]:
        pcnn = model(dropout=0.5, filters=40)
        pcnn.begin(pcnn.state())
        found = pcnn.fit(batch, [np.arange(20)] * 8, **settings, objective=goal)  # type: ignore[arg-type]
        pcnn.begin(pcnn.state())
        with torch.inference_mode():
            scores = pcnn.probabilities(head, batch)
        return [
            found.losses.tobytes(),
            scores.numpy().tobytes(),
            *(a.tobytes() for a in pcnn.state().values()),
        ]

    alone = work(0)
    with ThreadPoolExecutor(2) as threads:
        assert all(result == alone for result in threads.map(work, range(6)))


def test_one_compiled_kernel_trains_all_of_it() -> None:
    """Whatever the head, the correction, and whether arrays may be written: each kind would take seconds."""
    from fedrel.extractors.pcnn.all_kernels import training
    from fedrel.extractors.pcnn.kernels.several_sites import train_several

    training()
    for head in HEADS:
        goal = objective(head, "pull", "forces", "scale", "fixed", bias=False)
        for writeable in (True, False):
            pcnn = model(bias=False)
            start = {name: array.copy() for name, array in pcnn.state().items()}
            for array in start.values():
                array.flags.writeable = writeable
            pcnn.begin(start)
            settings = {"batch_size": 2, "lr": 0.1, "weight_decay": 0.1, "seed": 0}
            pcnn.fit(random_batch(0, [2, 3]), [np.arange(2)], **settings, objective=goal)  # type: ignore[arg-type]
    assert len(train_several.signatures) == 1  # type: ignore[attr-defined]
