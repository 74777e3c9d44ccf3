"""The kernels against plain PyTorch in float64, and against themselves."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from fedrel.extractors.batches import Batch
from fedrel.extractors.heads import HEADS, bag_of_sentence, dropout, sentence_probabilities
from fedrel.extractors.objective import Objective
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.seeding import numpy_generator, torch_generator
from fedrel.tensors import compiling
from fedrel.tensors.weights import Rows

from . import slow

if not compiling.has_numba():
    pytest.skip("numba, which makes the kernels, is not installed", allow_module_level=True)

VOCABULARY, RELATIONS = 30, 4
NEAR, SAME = 2e-6, 1e-12  # outputs closer than the one may change places in float32, than the other are equal


def model(dtype: torch.dtype = torch.float32, **options: object) -> PCNN:
    sizes = {
        "word_dimension": 6,
        "position_dimension": 2,
        "filters": 7,
        "max_length": 5,
        "dropout": 0.0,
    } | options
    pcnn = PCNN(VOCABULARY, RELATIONS, generator=torch_generator(7, "model"), **sizes)  # type: ignore[arg-type]
    with torch.no_grad():
        pcnn.filters_bias.copy_(torch.linspace(-0.2, 0.3, len(pcnn.filters)))
    return pcnn.to(dtype)


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[int], int, int]:
    words = draw(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=14))
    place = st.integers(0, len(words) - 1)
    return words, draw(place), draw(place)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    drawn = draw(st.lists(sentences(), min_size=1, max_size=8))
    return slow.make_batch(drawn, [1] * len(drawn), [0] * len(drawn))


EDGES = [
    ([5], 0, 0),  # one token
    ([7, 7], 1, 0),  # no token with a whole window
    ([1, 2, 3], 0, 2),  # entities at both ends: the third piece is empty
    ([3, 2, 1, 4], 2, 1),  # adjacent, tail first
    ([3, 3, 3, 3, 3], 2, 2),  # one position for both: the second piece is empty
    (list(range(1, 20)) * 2, 36, 1),  # much longer than max_length
]


def random_batch(number: int, sizes: list[int], longest: int = 15) -> Batch:
    random = numpy_generator(3, "batch", number)
    drawn = []
    for length in random.integers(1, longest, sum(sizes)):
        words = random.integers(1, VOCABULARY * 2 // 3, length).tolist()  # the upper third is never used
        drawn.append((words, int(random.integers(length)), int(random.integers(length))))
    return slow.make_batch(drawn, sizes, random.integers(RELATIONS, size=len(sizes)).tolist())


def has_near_ties(pcnn: PCNN, batch: Batch) -> bool:
    """Whether rounding to float32 might change who wins a piece, or whether anybody does."""
    vectors, half = pcnn.words.dense(), pcnn.window // 2
    for s in range(len(batch.head)):
        words = batch.words[batch.starts[s] : batch.starts[s + 1]]
        away = [torch.arange(len(words)) - place for place in (batch.head[s], batch.tail[s])]
        clipped = [distance.clamp(-pcnn.max_length, pcnn.max_length) + pcnn.max_length for distance in away]
        inputs = [vectors[words], pcnn.head_positions[clipped[0]], pcnn.tail_positions[clipped[1]]]
        padded = torch.nn.functional.pad(torch.cat(inputs, 1), (0, 0, half, half))
        windows = padded.unfold(0, pcnn.window, 1).transpose(1, 2).flatten(1)
        output = windows @ pcnn.filters.T + pcnn.filters_bias
        pieces = (away[0] > 0).long() + (away[1] > 0).long()
        for piece in range(3):
            values = torch.cat([output[pieces == piece], output.new_zeros(1, output.shape[1])])
            gaps = values.max(0).values - values
            if ((gaps > SAME) & (gaps < NEAR)).any():
                return True
    return False


def gradients(pcnn: PCNN, batch: Batch, direction: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of all weights, where the vectors' gradient is `direction`."""
    pcnn.zero_grad()
    (pcnn.encode(batch) * direction.to(pcnn.filters.dtype)).sum().backward()
    rows, values = pcnn.words._pending.pop()
    found = {name: weight.grad for name, weight in pcnn.named_parameters() if weight.grad is not None}
    return found | {"words": torch.zeros_like(pcnn.words.weight).index_add(0, rows, values.grad)}


def assert_same_gradients(batch: Batch, **options: object) -> None:
    direction = torch.randn(
        (len(batch.head), 3 * int(options.get("filters", 7))),  # type: ignore[call-overload]
        generator=torch_generator(1, "direction"),
    )
    direction[:, ::3] = 0  # as dropout does
    found = gradients(model(**options), batch, direction)
    expected = gradients(model(torch.float64, **options), batch, direction)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient.double(), expected[name], rtol=1e-6, atol=1e-6)


@given(batches(), st.sampled_from([1, 3, 5]))
def test_gradients_are_float64s(batch: Batch, window: int) -> None:
    assume(not has_near_ties(model(torch.float64, window=window), batch))
    assert_same_gradients(batch, window=window)


@pytest.mark.parametrize("window", [1, 3, 5])
def test_edges(window: int) -> None:
    batch = slow.make_batch(EDGES, [1] * len(EDGES), [0] * len(EDGES))
    assert not has_near_ties(model(torch.float64, window=window), batch)
    assert_same_gradients(batch, window=window)
    vectors = model(window=window).encode(batch)
    assert (vectors[2, 14:] == 0).all() and (vectors[4, 7:14] == 0).all()
    torch.testing.assert_close(vectors.double(), slow.encode(model(torch.float64, window=window), batch))


def test_published_sizes() -> None:
    sizes: dict[str, object] = {
        "word_dimension": 50, "position_dimension": 5, "filters": 230, "max_length": 120
    }  # fmt: skip
    plain = model(torch.float64, **sizes)
    candidates = (random_batch(number, [1] * 6) for number in range(100))
    batch = next(batch for batch in candidates if not has_near_ties(plain, batch))
    assert_same_gradients(batch, **sizes)


def test_of_equal_values_the_earliest_gets_the_gradient() -> None:
    """Far from both entities all distances are clipped, so equal words give exactly equal outputs."""
    batch = slow.make_batch([([2] * 12, 0, 0), ([3] * 11, 10, 4)], [1, 1], [0, 0])
    assert_same_gradients(batch, max_length=1)


def test_nothing_hides_a_nan() -> None:
    pcnn, batch = model(), random_batch(0, [1] * 5)
    with torch.no_grad():
        pcnn.words.weight[int(batch.words[0])] = torch.nan
    assert pcnn.encode(batch)[0].isnan().any()
    with torch.no_grad():
        assert pcnn.encode(batch)[0].isnan().any()
    bags = random_batch(0, [2, 3])
    for head, one in (("none", batch), ("one", bags)):
        orders_ = [np.arange(len(one.labels))]
        losses = pcnn.fit(
            one, orders_, batch_size=5, lr=0.1, weight_decay=0.0, seed=0, objective=Objective(head)
        ).losses
        assert np.isnan(losses[0])


# Scoring.


@given(st.lists(batches(), min_size=1, max_size=4), st.sampled_from([1, 3, 5]))
def test_one_table_scores_all_batches(several: list[Batch], window: int) -> None:
    fast, plain = model(window=window), model(torch.float64, window=window)
    with torch.inference_mode():
        for batch in several:
            expected = sentence_probabilities(plain, batch)
            torch.testing.assert_close(
                sentence_probabilities(fast, batch).double(), expected, rtol=1e-5, atol=1e-6
            )


def test_the_table_follows_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrel.extractors.pcnn.kernels import sentence_vectors

    pcnn, batch = model(), random_batch(1, [1] * 8)
    first = pcnn.state()
    other = {name: array + np.float32(0.1) for name, array in first.items()}

    def step() -> None:
        pcnn.encode(batch).sum().backward()
        SGD(pcnn, lr=0.1, weight_decay=0.1).step()

    changes: list[Callable[[], object]] = [
        step,
        lambda: pcnn.fit(batch, [np.arange(8)], batch_size=4, lr=0.1, weight_decay=0.0, seed=0),
        lambda: pcnn.load(other),
        lambda: pcnn.begin(first),
        lambda: pcnn.begin(first),
        lambda: pcnn.fit(
            random_batch(2, [1] * 4), [np.arange(4)], batch_size=4, lr=0.0, weight_decay=0.0, seed=0
        ),
        lambda: pcnn.begin(first),
        lambda: pcnn.begin(other),
    ]
    for number, change in enumerate(changes):
        change()
        plain = model(torch.float64)
        plain.load(pcnn.state())
        with torch.no_grad():
            torch.testing.assert_close(
                pcnn.encode(batch).double(), plain.encode(batch), msg=f"after change {number}"
            )

    projected = []
    encode = sentence_vectors._find_maxima
    monkeypatch.setattr(
        sentence_vectors,
        "_find_maxima",
        lambda *given: (projected.append(given[1][: -sentence_vectors.ROWS]), encode(*given)),
    )
    with torch.no_grad():
        for _ in range(3):  # a site that only scores leaves the table to the next one
            pcnn.begin(other)
            pcnn.encode(batch)
            pcnn.encode(batch)
    assert [len(vectors) for vectors in projected] == [0] * 6


def test_a_small_table_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedrel.extractors.pcnn.kernels import sentence_vectors

    monkeypatch.setattr(sentence_vectors, "_LARGEST", 1)
    fast, plain = model(), model(torch.float64)
    with torch.no_grad():
        for number in range(6):
            batch = random_batch(number, [1] * (1 + number % 3))
            torch.testing.assert_close(fast.encode(batch).double(), plain.encode(batch))


def test_more_sentences_than_are_scored_at_once() -> None:
    batch = random_batch(4, [1] * 150)
    with torch.no_grad():
        torch.testing.assert_close(model().encode(batch).double(), model(torch.float64).encode(batch))


def test_unknown_words_are_refused() -> None:
    pcnn = model()
    batch = slow.make_batch([([1, VOCABULARY], 0, 1)], [1], [0])
    with torch.no_grad(), pytest.raises(IndexError):
        pcnn.encode(batch)
    with pytest.raises(IndexError):
        pcnn.fit(batch, [np.arange(1)], batch_size=1, lr=0.1, weight_decay=0.0, seed=0)


# Training.

SIZES = [1, 3, 1, 2, 1, 1, 4, 1, 1, 2, 1]  # sentences of each bag
BATCH_SIZE, EPOCHS = 4, 10  # three steps an epoch, of which the last is short


def orders(bags: int) -> list[np.ndarray]:
    random = numpy_generator(5, "order")
    return [random.permutation(bags) for _ in range(EPOCHS)]


def steps(batch: Batch) -> Iterator[Batch]:
    """The bags of each step, in order."""
    bag = bag_of_sentence(batch)
    for order in orders(len(batch.labels)):
        for begin in range(0, len(order), BATCH_SIZE):
            bags = order[begin : begin + BATCH_SIZE]
            sentences = [(bag == number).nonzero().squeeze(1) for number in bags]
            bounds = torch.tensor([0, *map(len, sentences)]).cumsum(0)
            yield dataclasses.replace(
                batch.take(torch.cat(sentences)), bags=bounds, labels=batch.labels[torch.from_numpy(bags)]
            )


def likeliest(pcnn: PCNN, batch: Batch, table: torch.Tensor) -> torch.Tensor:
    """ONE's choice, bag by bag."""
    chosen = []
    for label, (begin, end) in zip(batch.labels, pairwise(batch.bags.tolist()), strict=True):
        vectors = slow.encode(pcnn, batch.take(torch.arange(begin, end)), table)
        chosen.append(begin + pcnn.classifier(vectors).softmax(1)[:, label].argmax())
    return torch.stack(chosen)


def trajectory_in_float64(
    batch: Batch, lr: float, decay: float, seed: int, head: str = "none", **options: object
) -> tuple[dict[str, np.ndarray], list[float], np.ndarray]:
    """The weights, the losses and how often each sentence was trained on.

    By torch.optim.SGD on dense weights, under the kernel's own dropout masks.
    """
    from fedrel.extractors.heads import step_seeds, units_kept

    pcnn = model(torch.float64, **options)
    table = torch.nn.Parameter(pcnn.words.dense())
    others = [weight for weight in pcnn.parameters() if weight.requires_grad]
    optimiser = torch.optim.SGD([table, *others], lr=lr, weight_decay=decay)
    losses, times = [], np.zeros(len(batch.head), int)
    generator = torch.Generator().manual_seed(seed)
    for step in steps(batch):
        one = step.take(likeliest(pcnn, step, table) if head == "one" else torch.arange(len(step.head)))
        np.add.at(times, one.rows - batch.rows[0], 1)
        vectors = slow.encode(pcnn, one, table)
        mask = units_kept(int(step_seeds(generator, 1)), *vectors.shape, pcnn.dropout)
        logits = pcnn.classifier(vectors * mask / (1 - pcnn.dropout))
        loss = torch.nn.functional.cross_entropy(logits, one.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return pcnn.state() | {"words.weight": table.detach().numpy()}, losses, times


@pytest.mark.parametrize("head", ["none", "one"])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("decay", [0.0, 1e-2])
@pytest.mark.parametrize("bias", [True, False])
def test_thirty_steps_are_float64s(head: str, rate: float, decay: float, bias: bool) -> None:
    batch = random_batch(9, SIZES)
    expected, expected_losses, expected_times = trajectory_in_float64(
        batch, 0.3, decay, 11, head, dropout=rate, bias=bias
    )
    pcnn = model(dropout=rate, bias=bias)
    settings_ = {"batch_size": BATCH_SIZE, "lr": 0.3, "weight_decay": decay, "seed": 11}
    losses, shares, _ = pcnn.fit(batch, orders(len(SIZES)), **settings_, objective=Objective(head))  # type: ignore[arg-type]
    assert len(losses) == 30
    assert shares.tolist() == expected_times.tolist()
    np.testing.assert_allclose(losses, expected_losses, atol=1e-5)
    for name, array in pcnn.state().items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("head", ["none", "one"])
def test_fit_is_a_loop_over_the_graph(head: str) -> None:
    batch = random_batch(9, SIZES)
    fitted, looped = model(), model()
    settings_ = {"batch_size": BATCH_SIZE, "lr": 0.3, "weight_decay": 1e-2, "seed": 0}
    losses = fitted.fit(batch, orders(len(SIZES)), **settings_, objective=Objective(head)).losses  # type: ignore[arg-type]
    optimiser = SGD(looped, lr=0.3, weight_decay=1e-2)
    for number, one in enumerate(steps(batch)):
        reading = HEADS[head].read(looped, one, None)
        loss = torch.nn.functional.cross_entropy(reading.logits, reading.labels)
        assert loss.item() == pytest.approx(losses[number], abs=1e-5)
        loss.backward()
        optimiser.step()
    for name, array in fitted.state().items():
        np.testing.assert_allclose(array, looped.state()[name], atol=1e-5, err_msg=name)
    assert fitted.words.scale == looped.words.scale
    assert (fitted.words.touched == looped.words.touched).all()


def test_update_after_fit_lists_the_words_used() -> None:
    pcnn, batch = model(dropout=0.5), random_batch(9, SIZES)
    start = pcnn.state()
    pcnn.begin(start)
    settings_ = {"batch_size": BATCH_SIZE, "lr": 0.3, "weight_decay": 1e-2, "seed": 1}
    pcnn.fit(batch, orders(len(SIZES)), **settings_)  # type: ignore[arg-type]
    rows, state = pcnn.update()["words.weight"], pcnn.state()
    assert isinstance(rows, Rows)
    used = np.unique(batch.words)
    assert rows.index.tolist() == used.tolist()
    assert rows.rest == pytest.approx((1 - 0.3 * 1e-2) ** 30)
    np.testing.assert_array_equal(rows.values, state["words.weight"][used])
    rest = np.setdiff1d(np.arange(VOCABULARY), used)
    np.testing.assert_allclose(
        state["words.weight"][rest], start["words.weight"][rest] * rows.rest, rtol=1e-6
    )

    pcnn.begin(start)
    for name, array in pcnn.state().items():
        np.testing.assert_array_equal(array, start[name])
    pcnn.fit(batch, orders(len(SIZES)), **settings_)  # type: ignore[arg-type]
    for name, array in pcnn.state().items():
        np.testing.assert_array_equal(array, state[name])


def test_the_gap_between_sentences_stays_zero() -> None:
    batch = slow.make_batch([([0, 3, 0, 4], 1, 3)] * 4, [1] * 4, [1] * 4)
    pcnn = model()
    pcnn.fit(batch, [np.arange(4)], batch_size=2, lr=0.3, weight_decay=1e-2, seed=0)
    assert (pcnn.words.weight[0] == 0).all()


def test_decay_to_almost_nothing_stays_exact() -> None:
    batch = random_batch(9, SIZES)
    expected, *_ = trajectory_in_float64(batch, 0.5, 1.0, 0)  # 2 ** -30 is well below the smallest scale
    pcnn = model()
    pcnn.fit(batch, orders(len(SIZES)), batch_size=BATCH_SIZE, lr=0.5, weight_decay=1.0, seed=0)
    assert 1e-6 < pcnn.words.scale <= 1
    for name, array in pcnn.state().items():
        np.testing.assert_allclose(array, expected[name], atol=1e-6)


def test_no_epochs_change_nothing() -> None:
    pcnn = model()
    before = pcnn.state()
    fitted = pcnn.fit(random_batch(0, [1]), [], batch_size=4, lr=0.1, weight_decay=0.1, seed=0)
    assert len(fitted.losses) == 0 and fitted.shares.tolist() == [0]
    assert all((array == before[name]).all() for name, array in pcnn.state().items())


def test_the_same_bits_again_and_on_two_threads() -> None:
    batch = random_batch(9, [1] * 40, longest=40)

    def work(_: int) -> list[bytes]:
        pcnn = model(dropout=0.5, filters=40)
        losses = pcnn.fit(batch, [np.arange(40)] * 8, batch_size=8, lr=0.1, weight_decay=1e-3, seed=5).losses
        with torch.no_grad():
            scores = sentence_probabilities(pcnn, batch)
        pcnn.encode(batch).square().sum().backward()
        return [losses.tobytes(), scores.numpy().tobytes(), *(a.tobytes() for a in pcnn.state().values()),
                *(w.grad.numpy().tobytes() for w in pcnn.parameters() if w.grad is not None)]  # fmt: skip

    alone = work(0)
    with ThreadPoolExecutor(2) as threads:
        assert all(result == alone for result in threads.map(work, range(6)))


# Dropout.


@pytest.fixture(scope="module")
def draw() -> Callable[..., None]:
    """Masks as kernels draw them."""
    import numba

    from fedrel.extractors.pcnn.kernels.classify import draw_kept

    @numba.njit
    def draw(seed, rate, masks):  # type: ignore[no-untyped-def]
        for sentence in range(len(masks)):
            draw_kept(seed, sentence, rate, masks[sentence])

    return draw


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 3, 2**31, 2**62 - 1])
def test_kernels_drop_the_units_that_tensors_do(rate: float, seed: int, draw: Callable[..., None]) -> None:
    from fedrel.extractors.heads import units_kept

    masks = np.empty((40, 690), np.bool_)
    draw(seed, rate, masks)
    np.testing.assert_array_equal(masks, units_kept(seed, 40, 690, rate).numpy())


def test_dropout_has_torchs_scale() -> None:
    """Without a step's moving them, the losses of many masks have the mean that torch's masks have."""
    batch, pcnn = random_batch(9, [1] * 40), model(dropout=0.5, filters=40)
    losses = pcnn.fit(batch, [np.arange(40)] * 200, batch_size=40, lr=0.0, weight_decay=0.0, seed=1).losses
    generator = torch_generator(0, "dropout")
    with torch.no_grad():
        vectors = pcnn.encode(batch)
        theirs = [
            torch.nn.functional.cross_entropy(
                pcnn.classifier(dropout(vectors, 0.5, generator)), batch.labels
            ).item()
            for _ in range(200)
        ]
    assert abs(losses.mean() - np.mean(theirs)) < 5 * np.std(theirs) * np.sqrt(2 / 200)


# Where kernels come from.


@pytest.mark.parametrize("why", ["no numba", "numba fails", "switched off"])
def test_without_kernels_plain_torch_does_the_work(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_batch(3, [1] * 6)
    fast = model().encode(batch)
    if why == "no numba":
        monkeypatch.setitem(sys.modules, "numba", None)
    elif why == "numba fails":
        monkeypatch.delitem(sys.modules, "numba")
        monkeypatch.setitem(sys.modules, "numba._version", None)  # which it imports first
    else:
        monkeypatch.setenv("FEDREL_KERNELS", "off")
    compiling.has_numba.cache_clear()
    try:
        pcnn = model()
        assert not pcnn.can_fit("none")
        vectors = pcnn.encode(batch)
        assert "Encode" not in type(vectors.grad_fn).__name__
        torch.testing.assert_close(vectors, fast)
        with torch.no_grad():
            torch.testing.assert_close(pcnn.encode(batch), fast)
        assert pcnn._table is None
    finally:
        compiling.has_numba.cache_clear()


def test_fit_is_for_plain_float32_on_the_cpu() -> None:
    assert model().can_fit("none")
    assert not model(torch.float64).can_fit("none")
    frozen = model()
    frozen.filters.requires_grad_(False)
    assert not frozen.can_fit("none")
    corrected = model()
    corrected.begin(corrected.state())
    corrected.words.correct(0.1, None, None)
    assert not corrected.can_fit("none")


def test_a_copied_model_has_a_table_of_its_own() -> None:
    pcnn, batch = model(), random_batch(0, [1] * 3)
    with torch.no_grad():
        expected = pcnn.encode(batch)
        copied = copy.deepcopy(pcnn)
        copied.filters.mul_(2)
        torch.testing.assert_close(pcnn.encode(batch), expected)
        assert (copied.encode(batch) != expected).any()
