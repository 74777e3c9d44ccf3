"""DP-SGD example by example (`ClippedSum`): transformers, bag heads, tables of rows, optimisers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedrel.extractors.base import Extractor
from fedrel.extractors.batches import PieceBatch
from fedrel.extractors.dp_sgd import ClippedSum
from fedrel.extractors.objective import DPSteps
from fedrel.extractors.optim.adamw import AdamW
from fedrel.extractors.optim.sgd import SGD
from fedrel.extractors.transformer.sections import TransformerSection
from fedrel.extractors.transformer.sentence_transformer import sentence_transformer
from fedrel.seeding import numpy_generator, torch_generator

CLIP, NOISE, EXPECTED = 0.4, 0.7, 4.0


def nothing(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def steps(draw=nothing) -> DPSteps:
    return DPSteps([], EXPECTED, CLIP, NOISE, draw)


def pieces(count: int) -> PieceBatch:
    """Sentences of pieces, the same piece often twice in one; each a bag of its own."""
    random = numpy_generator(6, "pieces")
    lengths = random.integers(6, 12, count)
    words = [random.integers(5, 25, length) for length in lengths]
    head = torch.from_numpy(random.integers(1, 3, count))
    tail = torch.from_numpy(random.integers(3, 5, count))
    return PieceBatch(
        words=torch.from_numpy(np.concatenate(words)),
        starts=torch.tensor([0, *np.cumsum(lengths)]),
        head=head,
        tail=tail,
        bags=torch.arange(count + 1),
        labels=torch.from_numpy(random.integers(3, size=count)),
        rows=np.arange(count),
        head_end=head + 1,
        tail_end=tail + 1,
    )


def transformer(encoder: str, dtype: torch.dtype, **options: object) -> Extractor:
    section = TransformerSection(encoder=encoder, dropout=0.0, **options)  # type: ignore[arg-type]
    made = sentence_transformer(section, 3, torch_generator(3, "model"))
    return made.to(dtype)


def dense_gradients(model: Extractor, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """By name; of a table, of all its rows."""
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    found = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
    for name, module in model.named_modules():
        if hasattr(module, "gradient"):
            rows, values = module.gradient()
            found[f"{name}.weight"] = torch.zeros_like(module.weight).index_add(0, rows, values)
            module.drop_gradient()
    return found


OPTIONS = [
    {},
    {"frozen_layers": 1},
    {"lora_rank": 2},
    {"pooling": "max", "markers": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["all", "frozen", "lora", "max"])
def test_a_transformers_examples_are_clipped_as_by_a_loop_in_float64(
    options: dict[str, object], tiny_bert: str
) -> None:
    """The loop reads all sentences in one pass, and takes the gradient of each one's own loss."""
    batch = pieces(6)
    exact = transformer(tiny_bert, torch.float64, **options)
    expected: dict[str, torch.Tensor] = {}
    norms = []
    for number in range(6):
        reading = exact.read("none", batch, None)
        loss = cross_entropy(reading.logits[number : number + 1], reading.labels[number : number + 1])
        own = dense_gradients(exact, loss)
        norms.append(torch.stack([g.square().sum() for g in own.values()]).sum().sqrt().item())
        for name, gradient in own.items():
            expected[name] = expected.get(name, 0) + gradient * min(1.0, CLIP / norms[-1]) / EXPECTED
    assert min(norms) > CLIP or options  # some options make gradients small: both sides of the bound are seen

    model = transformer(tiny_bert, torch.float32, **options)
    total, found = ClippedSum(model, steps()), []
    for number in range(6):
        one = model.read("none", batch.take(torch.tensor([number])), None)
        cross_entropy(one.logits, one.labels).backward()
        found.append(total.add())
    np.testing.assert_allclose(found, norms, rtol=1e-4)
    total.finish()
    summed = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
    for name, module in model.named_modules():
        if hasattr(module, "gradient"):
            summed[f"{name}.weight"] = module.gradient()[1]
    assert summed.keys() >= expected.keys()
    for name, gradient in summed.items():
        wanted = expected.get(name, torch.zeros_like(gradient)).float()
        torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-6, msg=name)


def test_noise_reaches_every_trained_weight_and_no_other(tiny_bert: str) -> None:
    model = transformer(tiny_bert, torch.float32)
    model.begin(model.state())
    start, generator = model.state(), numpy_generator(1, "noise")
    total = ClippedSum(model, steps(lambda count: generator.standard_normal(count, np.float32)))
    optimiser = SGD(model, 1.0)
    total.finish()  # a step without examples
    optimiser.step()
    moved = {name: model.state()[name] - array for name, array in start.items()}
    spread = NOISE * CLIP / EXPECTED
    assert (moved["words.weight"][0] == 0).all()  # the gap between sentences is not trained
    numbers = np.concatenate([array.reshape(-1) for array in moved.values()])
    numbers = numbers[numbers != 0]
    assert len(numbers) == sum(array.size for array in start.values()) - start["words.weight"].shape[1]
    assert numbers.std() == pytest.approx(spread, rel=0.02)
    changed = model.update()["words.weight"]
    assert len(changed.index) == len(start["words.weight"])  # type: ignore[union-attr]


def test_adamw_steps_on_the_noised_gradient(tiny_bert: str) -> None:
    """It is post-processing: the optimiser sees nothing but the noised mean."""
    model, other = (transformer(tiny_bert, torch.float32) for _ in range(2))
    for one in (model, other):
        one.begin(one.state())
    takes, total = AdamW(model, 0.01), ClippedSum(model, steps())
    reading = model.read("none", pieces(1), None)
    cross_entropy(reading.logits, reading.labels).backward()
    norm = total.add()
    total.finish()
    takes.step()
    reading, again = other.read("none", pieces(1), None), AdamW(other, 0.01)
    (cross_entropy(reading.logits, reading.labels) * min(1.0, CLIP / norm) / EXPECTED).backward()
    again.step()
    for name, array in other.state().items():
        if (
            "key.bias" in name
        ):  # attention does not depend on it: its gradient is rounding, which AdamW magnifies
            continue
        np.testing.assert_allclose(model.state()[name], array, atol=2e-5, err_msg=name)


def test_a_gradient_that_is_not_finite_counts_as_nothing(tiny_bert: str) -> None:
    model = transformer(tiny_bert, torch.float32)
    total = ClippedSum(model, steps())
    reading = model.read("none", pieces(1), None)
    (cross_entropy(reading.logits, reading.labels) * torch.inf).backward()
    assert not np.isfinite(total.add())
    total.finish()
    assert all((w.grad == 0).all() for w in model.parameters() if w.grad is not None)
