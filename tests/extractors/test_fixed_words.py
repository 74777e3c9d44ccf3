"""A word table that is not trained: all ways of training agree, it stays as it is, and it stays at home."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrel.extractors.batches import Batch
from fedrel.extractors.optimisers import SGD
from fedrel.extractors.pcnn.pcnn import PCNN
from fedrel.inference.model import load_model
from fedrel.runs.train import run
from fedrel.seeding import numpy_generator, torch_generator
from fedrel.tensors import compiling
from fedrel.tensors.weights import Weights
from tests.conftest import tiny

from . import slow

VOCABULARY, RELATIONS, BATCH_SIZE, EPOCHS = 30, 4, 4, 6
RATE, DECAY = 0.3, 1e-2


def model(dtype: torch.dtype = torch.float32) -> PCNN:
    sizes = {"word_dimension": 6, "position_dimension": 2, "filters": 7, "max_length": 5, "dropout": 0.0}
    generator = torch_generator(7, "model")
    pcnn = PCNN(VOCABULARY, RELATIONS, generator=generator, train_words=False, **sizes)  # type: ignore[arg-type]
    return pcnn.to(dtype)


@pytest.fixture(scope="module")
def batch() -> Batch:
    random = numpy_generator(3, "batch")
    drawn = [
        (random.integers(1, VOCABULARY, length).tolist(), int(random.integers(length)), 0)
        for length in random.integers(1, 15, 11)
    ]
    return slow.make_batch(drawn, [1] * 11, random.integers(RELATIONS, size=11).tolist())


def orders() -> list[np.ndarray]:
    random = numpy_generator(5, "order")
    return [random.permutation(11) for _ in range(EPOCHS)]


def steps(batch: Batch) -> Iterator[Batch]:
    for order in orders():
        for begin in range(0, len(order), BATCH_SIZE):
            yield batch.take(torch.from_numpy(order[begin : begin + BATCH_SIZE]))


@pytest.fixture(scope="module")
def in_float64(batch: Batch) -> Weights:
    """torch.optim.SGD over the slow version, whose table of words is no parameter."""
    pcnn = model(torch.float64)
    trained = [weight for weight in pcnn.parameters() if weight.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=RATE, weight_decay=DECAY)
    for one in steps(batch):
        logits = pcnn.classifier(slow.encode(pcnn, one, pcnn.words.dense()))
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits, one.labels).backward()
        optimiser.step()
    return pcnn.state()


def stepwise(batch: Batch) -> PCNN:
    pcnn = model()
    optimiser = SGD(pcnn, lr=RATE, weight_decay=DECAY)
    for one in steps(batch):
        loss = torch.nn.functional.cross_entropy(pcnn.classifier(pcnn.encode(one)), one.labels)
        loss.backward()
        optimiser.step()
    return pcnn


def plain(batch: Batch) -> PCNN:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "has_numba", lambda: False)
        return stepwise(batch)


def fused(batch: Batch) -> PCNN:
    pcnn = model()
    assert pcnn.can_fit("none")
    pcnn.fit(batch, orders(), batch_size=BATCH_SIZE, lr=RATE, weight_decay=DECAY, seed=0)
    return pcnn


@pytest.mark.parametrize("way", [fused, stepwise, plain])
def test_all_ways_of_training_are_float64s_and_leave_the_table_alone(
    way, batch: Batch, in_float64: Weights
) -> None:
    if way is not plain and not compiling.has_numba():
        pytest.skip("numba, which makes the kernels, is not installed")
    first, pcnn = model(), way(batch)
    assert sorted(pcnn.state()) == sorted(in_float64)
    for name, array in pcnn.state().items():
        np.testing.assert_allclose(array, in_float64[name], atol=1e-5, err_msg=name)
    torch.testing.assert_close(pcnn.words.weight, first.words.weight, rtol=0, atol=0)
    moved = {name for name, array in pcnn.state().items() if (array != first.state()[name]).any()}
    assert moved == set(pcnn.shapes())
    with torch.inference_mode():  # the table of scores follows the filters
        torch.testing.assert_close(
            pcnn.encode(batch), slow.encode(pcnn, batch, pcnn.words.dense()), atol=1e-5, rtol=0
        )


def test_the_table_does_not_travel_and_positions_do(batch: Batch) -> None:
    pcnn = model()
    start = pcnn.state()
    pcnn.begin(start)
    pcnn.fit(batch, orders(), batch_size=BATCH_SIZE, lr=RATE, weight_decay=DECAY, seed=0)
    update = pcnn.update()
    assert "words.weight" not in {*start, *update, *pcnn.shapes()}
    assert {"head_positions", "tail_positions", "filters"} < set(update)
    pcnn.begin(start)
    for name, array in pcnn.state().items():
        np.testing.assert_array_equal(array, start[name])


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Public vectors of words that the built-in world uses."""
    out = tmp_path_factory.mktemp("words") / "run"
    run(tiny(training__rounds=1), out)
    words = (out / "model" / "vocabulary.txt").read_text().split()
    numbers = numpy_generator(0, "vectors").normal(size=(len(words), 8))
    file = out.parent / "vectors.txt"
    file.write_text(
        "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, numbers, strict=True))
    )
    return file


def test_a_run_keeps_the_table_in_its_model_and_sends_less(vectors: Path, tmp_path: Path) -> None:
    sent = {}
    for name, changes in {
        "trained": {},
        "fixed": {"extractor__train_words": False},
        "in workers": {"extractor__train_words": False, "engine__kind": '"workers"', "engine__workers": 2},
    }.items():
        sent[name] = run(tiny(extractor__vectors=f'"{vectors}"', **changes), tmp_path / name).bytes
    assert sent["in workers"] == sent["fixed"]
    assert sent["fixed"].up < sent["trained"].up and sent["fixed"].down < sent["trained"].down
    models = {name: load_model(tmp_path / name / "model").extractor.state() for name in sent}
    assert models["fixed"].keys() == models["trained"].keys()
    for name, array in models["fixed"].items():
        np.testing.assert_array_equal(array, models["in workers"][name], err_msg=name)
    known = np.loadtxt(vectors, usecols=range(1, 9), dtype=np.float32)
    np.testing.assert_array_equal(models["fixed"]["words.weight"][2:], known)
    assert (models["trained"]["words.weight"][2:] != known).any()
