"""Optimisers against torch's own on dense weights; DP-SGD example by example (`ClippedSum`)."""

from __future__ import annotations

from collections.abc import Iterable
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedrel.config.schema import Training
from fedrel.extractors.base import Extractor
from fedrel.extractors.batches import Batch, PieceBatch
from fedrel.extractors.dp_sgd import ClippedSum
from fedrel.extractors.objective import Correction, DPSteps
from fedrel.extractors.optimisers import SGD, AdamW, Optimiser, optimiser
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.extractors.row_tables import RowEmbedding
from fedrel.extractors.transformer import TransformerSection
from fedrel.extractors.transformer.packed import packed_layers
from fedrel.extractors.transformer.sentence_transformer import sentence_transformer
from fedrel.seeding import numpy_generator, torch_generator
from fedrel.tensors import compiling
from fedrel.tensors.machine import cores
from fedrel.tensors.weights import Rows

from . import slow

VOCABULARY, RELATIONS = 40, 4
CLIP, NOISE, EXPECTED = 0.4, 0.7, 4.0


def pcnn() -> PCNN:
    generator = torch_generator(1, "model")
    return PCNN(VOCABULARY, RELATIONS, word_dimension=6, filters=8, max_length=5, generator=generator)


def random_batch(number: int) -> Batch:
    random = numpy_generator(3, "batch", number)
    drawn = []
    for length in random.integers(1, 9, 4):
        words = random.integers(1, VOCABULARY // 2, length).tolist()  # the upper half is never used
        drawn.append((words, int(random.integers(length)), int(random.integers(length))))
    return slow.make_batch(drawn, [1] * 4, random.integers(RELATIONS, size=4).tolist())


class Dense:
    """A PCNN whose word table is an ordinary parameter, for torch's optimisers."""

    def __init__(self) -> None:
        self.model = pcnn()
        self.table = nn.Parameter(self.model.words.dense())
        self.parameters = {
            "words.weight": self.table,
            **{name: weight for name, weight in self.model.named_parameters() if weight.requires_grad},
        }

    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(self.model.classifier(slow.encode(self.model, batch, self.table)), batch.labels)


def train(model: PCNN, chosen: Optimiser, steps: Iterable[int], passes: int = 1) -> None:
    for step in steps:
        losses = [
            slow.loss_of("none", model, random_batch(step + 100 * one), None)[0] for one in range(passes)
        ]
        chosen.zero_grad()
        sum(losses).backward()
        chosen.step()


def training(**choices: object) -> Training:
    return Training.model_validate(
        {"learning_rate": 0.02, "learning_rate_decay": 0.0, "weight_decay": 0.0, **choices}
    )


def assert_equal(model: PCNN, reference: Dense) -> None:
    state = model.state()
    assert state.keys() == reference.parameters.keys()
    for name, weight in reference.parameters.items():
        np.testing.assert_allclose(state[name], weight.detach().numpy(), atol=2e-5, err_msg=name)


def test_without_extras_it_is_plain_sgd_or_adamw() -> None:
    plain = optimiser(pcnn(), training(learning_rate_decay=0.5), 3, 10)
    assert type(plain) is SGD and plain.lr == pytest.approx(0.02 * 0.25)
    assert type(optimiser(pcnn(), training(optimiser="adamw"), 1, 10)) is AdamW


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_by_rows_equals_torchs_on_the_whole_table(decay: float, passes: int) -> None:
    model, reference = pcnn(), Dense()
    model.begin(model.state())
    train(model, optimiser(model, training(optimiser="adamw", weight_decay=decay), 1, 20), range(20), passes)
    theirs = torch.optim.AdamW(reference.parameters.values(), lr=0.02, weight_decay=decay)
    for step in range(20):
        theirs.zero_grad()
        sum(reference.loss(random_batch(step + 100 * one)) for one in range(passes)).backward()
        theirs.step()
    assert_equal(model, reference)
    rows = model.update()["words.weight"]
    assert isinstance(rows, Rows)
    assert len(rows.index) < VOCABULARY // 2 and rows.rest == pytest.approx((1 - 0.02 * decay) ** 20)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("passes", [1, 2])
def test_the_norm_that_is_clipped_is_that_of_all_gradients(kind: str, passes: int) -> None:
    model, reference = pcnn(), Dense()
    model.begin(model.state())
    train(model, optimiser(model, training(optimiser=kind, clip=0.4), 1, 10), range(10), passes)
    weights = list(reference.parameters.values())
    theirs = (
        torch.optim.SGD(weights, lr=0.02)
        if kind == "sgd"
        else torch.optim.AdamW(weights, lr=0.02, weight_decay=0)
    )
    clipped = 0
    for step in range(10):
        theirs.zero_grad()
        sum(reference.loss(random_batch(step + 100 * one)) for one in range(passes)).backward()
        norm = torch.cat([weight.grad.flatten() for weight in weights]).norm()
        clipped += bool(norm > 0.4)
        for weight in weights:
            weight.grad *= min(1.0, 0.4 / float(norm))
        theirs.step()
    assert clipped
    assert_equal(model, reference)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_the_learning_rate_follows_the_whole_run(kind: str) -> None:
    # Four rounds of five steps are twenty; the first four of them are a warm-up.
    settings = training(optimiser=kind, warmup=0.2, linear_decay=True, learning_rate=1.0, rounds=4)
    rates = []
    for round_ in (1, 2, 3, 4):
        model = pcnn()
        chosen = optimiser(model, settings, round_, 5)
        for step in range(5):
            train(model, chosen, [step])
            rates.append(chosen.lr)
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, *(left / 16 for left in range(16, 0, -1))])


def test_a_warm_up_ends_where_the_share_of_the_run_does() -> None:
    rising = training(warmup=0.5, rounds=2)
    assert [rising.rate_factor(1, step, 4) for step in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1]
    assert [rising.rate_factor(2, step, 4) for step in (1, 4)] == [1, 1]
    # Another site has other steps, and is as far in the run after the same share of them.
    assert rising.rate_factor(1, 1, 2) == rising.rate_factor(1, 2, 4)
    whole = training(warmup=1.0, linear_decay=True, rounds=1)
    assert [whole.rate_factor(1, step, 2) for step in (1, 2)] == [0.5, 1]
    falling = training(linear_decay=True, rounds=2)
    assert [falling.rate_factor(*at, 2) for at in ((1, 1), (1, 2), (2, 1), (2, 2))] == [1, 0.75, 0.5, 0.25]


def test_the_rate_of_a_round_and_that_of_its_steps_multiply() -> None:
    settings = training(linear_decay=True, learning_rate=1.0, learning_rate_decay=0.5, rounds=2)
    model = pcnn()
    chosen = optimiser(model, settings, 2, 2)
    train(model, chosen, [0])
    assert chosen.lr == pytest.approx(0.5 * 0.5)


def test_a_guided_sgd_is_still_one_and_follows_its_path() -> None:
    model = pcnn()
    chosen = optimiser(model, training(warmup=0.5, learning_rate=1.0, rounds=1), 1, 4)
    train(model, chosen, range(4))
    assert isinstance(chosen, SGD) and chosen.path == pytest.approx(0.5 + 1 + 1 + 1)


@pytest.mark.parametrize("guided", [False, True])
def test_new_layers_learn_at_a_rate_of_their_own(guided: bool) -> None:
    class Half(PCNN):
        def is_new(self, name: str) -> bool:
            return name.startswith("classifier.")

    generator = torch_generator(1, "model")
    model = Half(VOCABULARY, RELATIONS, word_dimension=6, filters=8, max_length=5, generator=generator)
    reference = Dense()
    model.begin(model.state())
    settings = training(optimiser="adamw", head_learning_rate=0.1, linear_decay=guided, rounds=1)
    train(model, optimiser(model, settings, 1, 10), range(10))
    above = [weight for name, weight in reference.parameters.items() if name.startswith("classifier.")]
    below = [weight for name, weight in reference.parameters.items() if not name.startswith("classifier.")]
    theirs = torch.optim.AdamW(
        [{"params": below, "lr": 0.02}, {"params": above, "lr": 0.1}], weight_decay=settings.weight_decay
    )
    for step in range(10):
        for group, rate in zip(theirs.param_groups, (0.02, 0.1), strict=True):
            group["lr"] = rate * (1 - step / 10 if guided else 1)
        theirs.zero_grad()
        reference.loss(random_batch(step)).backward()
        theirs.step()
    assert_equal(model, reference)


def test_adamw_adds_a_correction_to_the_gradients() -> None:
    model, reference = pcnn(), Dense()
    start = model.state()
    model.begin(start)
    index = np.array([3, 35], np.int32)  # the second has no gradient of its own
    force = np.full((2, 6), 0.05, np.float32)
    own = {"words.weight": Rows(index, force, 0.0), "filters_bias": np.full(8, 0.1, np.float32)}
    correction = Correction(pull=0.3, own=own)
    train(model, optimiser(model, training(optimiser="adamw"), 1, 10, correction), range(10))
    theirs = torch.optim.AdamW(reference.parameters.values(), lr=0.02, weight_decay=0)
    for step in range(10):
        theirs.zero_grad()
        reference.loss(random_batch(step)).backward()
        with torch.no_grad():
            for name, weight in reference.parameters.items():
                weight.grad += 0.3 * (weight - torch.from_numpy(start[name]))
            reference.table.grad[index] += torch.from_numpy(force)
            reference.parameters["filters_bias"].grad += 0.1
        theirs.step()
    assert_equal(model, reference)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_dropped_gradients_do_not_count(kind: str) -> None:
    model = pcnn()
    before = model.state()
    model.begin(before)
    chosen = optimiser(model, training(optimiser=kind, clip=1.0), 1, 10)
    slow.loss_of("none", model, random_batch(0), None)[0].backward()
    chosen.zero_grad()
    chosen.step()
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_the_next_site_begins_where_the_one_before_began(kind: type[SGD] | type[AdamW]) -> None:
    model = pcnn()
    start = model.state()
    for site in range(2):
        model.begin(start)
        for name, array in model.state().items():
            np.testing.assert_array_equal(array, start[name], err_msg=f"{name} at site {site}")
        train(model, kind(model, lr=0.1), range(2))


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


def step_by(model: Extractor, chosen: Optimiser, number: int) -> dict[str, torch.Tensor]:
    """One step; returns the gradients that it was taken by."""
    reading = model.read("none", pieces(number + 2), None)
    cross_entropy(reading.logits, reading.labels).backward()
    found = {name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None}
    chosen.step()
    return found


@pytest.mark.skipif(not compiling.has_numba(), reason="numba is not installed")
@pytest.mark.parametrize("pull", [0.0, 0.5])
@pytest.mark.parametrize("parts", [False, True])  # gradients of parts are added in float32
@pytest.mark.parametrize("frozen", [0, 1])
def test_weights_with_a_copy_in_bfloat16_take_torchs_steps(
    tiny_bert: str, monkeypatch: pytest.MonkeyPatch, frozen: int, parts: bool, pull: float
) -> None:
    if parts:
        monkeypatch.setattr(packed_layers, "SPLIT", 8)
    model = transformer(tiny_bert, torch.float32, frozen_layers=frozen)
    model.compute_in("bfloat16")
    model.begin(model.state())
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    start = {name: weight.detach().clone() for name, weight in named.items()}
    beside = {name: weight.clone().requires_grad_() for name, weight in start.items()}
    new, old = (
        [weight for name, weight in beside.items() if model.is_new(name) is own] for own in (True, False)
    )
    rates = [{"params": new, "lr": 0.03}, {"params": old, "lr": 0.01}]
    theirs = torch.optim.AdamW(rates, weight_decay=0.1)
    ours = AdamW(model, 0.01, 0.1, Correction(pull=pull), head=3.0)
    for number in range(3):
        found = step_by(model, ours, number)
        halves = {name for name, gradient in found.items() if gradient.dtype is torch.bfloat16}
        assert any("query.weight" in name for name in halves) != parts
        for name, weight in beside.items():
            weight.grad = found[name].float() + pull * (weight.detach() - start[name])
        theirs.step()
    copies = model.copies().of
    assert {name for name, weight in named.items() if weight in copies} == {
        name for name in named if ".layer." in name and "LayerNorm" not in name
    }
    for name, weight in named.items():
        torch.testing.assert_close(weight, beside[name], rtol=1e-5, atol=1e-6, msg=name)
        if weight in copies:
            assert torch.equal(copies[weight], weight.bfloat16()), name


@pytest.mark.skipif(not compiling.has_numba(), reason="numba is not installed")
def test_copies_renewed_with_their_weights_are_not_cast_again(
    tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = transformer(tiny_bert, torch.float32)
    model.compute_in("bfloat16")
    model.begin(model.state())
    chosen = AdamW(model, 0.01)
    cast = Mock(side_effect=packed_layers.matrices)
    monkeypatch.setattr(packed_layers, "matrices", cast)
    for number in range(2):
        step_by(model, chosen, number)
    assert not cast.called
    model.begin(model.state())  # other weights, which no optimiser made
    step_by(model, AdamW(model, 0.01), 0)
    assert cast.called


@pytest.mark.skipif(not compiling.has_numba(), reason="numba is not installed")
def test_two_cores_take_the_steps_of_one(tiny_bert: str) -> None:
    found = []
    for count in (1, 2):
        model = transformer(tiny_bert, torch.float32)
        model.compute_in("bfloat16")
        model.begin(model.state())
        with cores(count):
            chosen = optimiser(model, training(optimiser="adamw", clip=0.1), 1, 10)
            for number in range(2):
                step_by(model, chosen, number)
        found.append(model.state())
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name], err_msg=name)


@pytest.mark.skipif(not compiling.has_numba(), reason="numba is not installed")
def test_sgd_and_noised_steps_take_gradients_in_bfloat16_as_they_are(tiny_bert: str) -> None:
    plain, clipped, noised = (transformer(tiny_bert, torch.float32) for _ in range(3))
    for model in (plain, clipped, noised):
        model.compute_in("bfloat16")
        model.begin(model.state())
    start = {name: weight.detach().clone() for name, weight in plain.named_parameters()}
    found = step_by(plain, SGD(plain, 0.5), 0)
    assert any(gradient.dtype is torch.bfloat16 for gradient in found.values())
    norm = torch.stack([one.float().norm() for one in found.values()] + [table_norm(clipped)]).norm()
    step_by(clipped, optimiser(clipped, training(optimiser="sgd", learning_rate=0.5, clip=CLIP), 1, 10), 0)
    reading, total = noised.read("none", pieces(2), None), ClippedSum(noised, steps())
    cross_entropy(reading.logits, reading.labels).backward()
    assert total.add() == pytest.approx(float(norm), rel=1e-5)
    total.finish()
    summed = {name: weight.grad for name, weight in noised.named_parameters() if weight.grad is not None}
    for name, gradient in found.items():
        down = start[name] - dict(plain.named_parameters())[name]
        torch.testing.assert_close(down, 0.5 * gradient.float(), rtol=1e-4, atol=1e-6, msg=name)
        short = start[name] - dict(clipped.named_parameters())[name]
        torch.testing.assert_close(short, down * CLIP / norm, rtol=1e-2, atol=1e-6, msg=name)
        wanted = gradient.float() * CLIP / norm / EXPECTED
        torch.testing.assert_close(summed[name], wanted, rtol=1e-4, atol=1e-7, msg=name)


def table_norm(model: Extractor) -> Tensor:
    """The norm of the word table's gradient of the first batch."""
    reading = model.read("none", pieces(2), None)
    cross_entropy(reading.logits, reading.labels).backward()
    (table,) = (module for module in model.modules() if isinstance(module, RowEmbedding))
    norm = table.gradient()[1].norm()
    SGD(model, 0.0).zero_grad()
    return norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_precisions_have_neither_copies_nor_gradients_in_bfloat16(
    tiny_bert: str, dtype: torch.dtype
) -> None:
    model = transformer(tiny_bert, torch.float32)
    model.compute_in("bfloat16")
    step_by(model, AdamW(model, 0.01), 0)
    if dtype is torch.float32:
        model.compute_in("float32")
    model.to(dtype)
    found = step_by(model, AdamW(model, 0.01), 1)
    assert model.copies() is None
    assert all(gradient.dtype is dtype for gradient in found.values())


@pytest.mark.parametrize("options", [{"lora_rank": 2}, {"frozen_layers": 2}], ids=["lora", "frozen"])
def test_nothing_is_renewed_with_weights_that_are_put_together_or_stay(
    tiny_bert: str, options: dict[str, object]
) -> None:
    model = transformer(tiny_bert, torch.float32, **options)
    model.compute_in("bfloat16")
    assert not model.copies()


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
