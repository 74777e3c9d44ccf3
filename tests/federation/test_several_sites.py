"""Sites served together answer as they do one by one: the same messages to the bit, journals and refusals too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrel.data.partition import Partition
from fedrel.federation.messages import Model, RefusedError
from fedrel.federation.runner import Runner
from fedrel.methods.by_name import method
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import Preparation, prepare
from fedrel.tensors import compiling
from tests.conftest import NO_STATES, tiny

pytest.importorskip("greenlet")
pytestmark = pytest.mark.skipif(not compiling.has_numba(), reason="only kernels serve several sites at once")

SITES = 12
METHODS = ["lazy-mil", "fedavg", "one", "feded", "fedprox", "att", "moon", "one+fedprox"]


@cache
def ready(words: bool) -> Preparation:
    return prepare(tiny(partition__sites=SITES, extractor__train_words=words, partition__coordinator=0.05))


@cache
def states() -> TemporaryDirectory[str]:
    """Where sites remember things, as long as the tests run."""
    return TemporaryDirectory()


@cache
def runner(name: str, words: bool = True, **changes: object) -> Runner:
    """A runner over sites of which the last holds nothing."""
    config = tiny(
        method=f'"{name}"',
        partition__sites=SITES,
        partition__coordinator=0.05,
        extractor__train_words=words,
        **changes,
    )
    made = ready(words)
    held = made.site_data.partition
    bounds = np.concatenate([held.bounds[:-2], held.bounds[-1:], held.bounds[-1:]])
    data = made.site_data.__class__(
        **{**vars(made.site_data), "partition": Partition(held.order, bounds, held.names)}
    )
    return new_runner(config, data, Path(states().name))


@cache
def weights(name: str, words: bool) -> dict[str, np.ndarray]:
    state = runner(name, words).model.extractor.state()
    draw = np.random.default_rng(5)
    return {
        key: (array + draw.normal(0, 0.02, array.shape)).astype(np.float32) for key, array in state.items()
    }


def won(sites: list[int], seed: int) -> dict[int, dict[str, np.ndarray]]:
    """Winners of each site: some of its sentences, or none, or one that it does not hold."""
    draw, sizes, found = np.random.default_rng(seed), runner("lazy-mil").model.site_data.partition.sizes, {}
    for site in sites:
        index = np.flatnonzero(draw.random(sizes[site]) < draw.choice([0.0, 0.2, 0.9])).astype(np.int32)
        if draw.random() < 0.2:
            index = np.append(index, np.int32(sizes[site]))
        found[site] = {"Winners.index": index}
    return found


def phase_of(name: str) -> str:
    return "predict" if name == "feded" else "train"


def both_ways(
    asked: Runner, phase: str, own: dict[int, Any], shared: dict[str, np.ndarray]
) -> tuple[list, list]:
    """The answers together, and one by one with a model that starts anew."""
    asked.open(phase, 3, shared)
    with np.errstate(all="ignore"):
        together = asked.answers(phase, 3, own)
        return together, [
            one for site, arrays in own.items() for one in asked.answers(phase, 3, {site: arrays})
        ]


def assert_same(together: list[Any], alone: list[Any]) -> None:
    assert len(together) == len(alone)
    for one, other in zip(together, alone, strict=True):
        if isinstance(other, RefusedError):
            assert isinstance(one, RefusedError) and str(one) == str(other)
            continue
        assert one[0].keys() == other[0].keys()
        for name, array in other[0].items():
            assert one[0][name].dtype == array.dtype
            np.testing.assert_array_equal(one[0][name], array, err_msg=name)
        assert one[1] == other[1]


some_sites = st.lists(st.integers(0, SITES - 1), unique=True, min_size=2, max_size=SITES)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the mean loss of a site without examples
@given(sites=some_sites, seed=st.integers(0, 10**6), words=st.booleans())
@settings(max_examples=15)
def test_lazy_mil_together_and_one_by_one(sites, seed, words):
    asked = runner("lazy-mil", words)
    shared = {f"Model.weights/{name}": array for name, array in weights("lazy-mil", words).items()}
    held = {site: {} for site in sites if asked.model.site_data.partition.sizes[site]}
    assert_same(*both_ways(asked, "claim", held, shared))
    assert_same(*both_ways(asked, "train", won(sites, seed), shared))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", METHODS[1:])
def test_any_method_together_and_one_by_one(name):
    asked = runner(name)
    shared = {f"Model.weights/{key}": array for key, array in weights(name, True).items()}
    own = {site: {} for site in (4, 1, 7, 2)}
    assert_same(*both_ways(asked, phase_of(name), own, shared))


def test_kernels_are_called_once_for_all(monkeypatch):
    asked = runner("lazy-mil")
    model, calls = asked.model, []
    for work in ("several_sentence_probabilities", "fit_several"):
        function = getattr(model, work)

        def counted(*given: Any, work: str = work, function: Any = function) -> Any:
            calls.append((work, len(given[-1])))
            return function(*given)

        monkeypatch.setattr(model, work, counted)
    shared = {f"Model.weights/{name}": array for name, array in weights("lazy-mil", True).items()}
    asked.open("claim", 1, shared)
    asked.answers("claim", 1, {site: {} for site in range(5)})
    asked.answers("train", 1, {site: {"Winners.index": np.arange(3, dtype=np.int32)} for site in range(5)})
    assert calls == [("several_sentence_probabilities", 5), ("fit_several", 5)]


def test_a_scale_that_is_folded_into_all_rows_lists_them_all():
    asked = runner("fedavg", training__weight_decay=3.2)  # 1 - 0.3 * 3.2 to the power of 5 is below 1e-6
    shared = {f"Model.weights/{key}": array for key, array in weights("fedavg", True).items()}
    together, alone = both_ways(asked, "train", {site: {} for site in range(4)}, shared)
    assert_same(together, alone)
    assert len(together[0][0]["weights/words.weight/index"]) > 100


def groups_of(sizes: list[int], most: int) -> Iterator[list[int]]:
    asked = runner("lazy-mil")
    held = asked._sizes
    asked._sizes = np.array(sizes)
    yield from (list(group) for group in asked.groups({site: {} for site in range(len(sizes))}, most))
    asked._sizes = held


def test_only_small_sites_share_a_group():
    assert list(groups_of([10] * 5, 2)) == [[0, 1], [2, 3], [4]]
    assert list(groups_of([3000, 1000, 90, 10, 5000, 7], 9)) == [[0, 1, 2], [3], [4], [5]]
    assert [len(group) for group in groups_of([1] * 40, 100)] == [16, 16, 8]
    assert list(groups_of([5000, 5000, 1], 9)) == [[0], [1], [2]]
    assert list(groups_of([], 9)) == []


def test_a_method_may_use_the_model_after_its_update():
    """As a method from outside may: what `update` found together with others is found again, alone."""
    kind = type(method("fedavg", {}))
    seen: dict[int, np.ndarray] = {}

    class Looks(kind):
        def train(self, site):
            update = kind.train(self, site)
            seen[site.number] = site.vectors(site.rows).numpy()
            np.testing.assert_array_equal(site.extractor.update()["filters"], update.weights["filters"])
            return update

    Looks.train.takes, Looks.train.gives = (Model,), kind.train.gives
    config = tiny(partition__sites=SITES, partition__coordinator=0.05)
    asked = new_runner(config.with_settings(['method="fedavg"']), ready(True).site_data, NO_STATES)
    asked.method = Looks()
    shared = {f"Model.weights/{key}": array for key, array in weights("fedavg", True).items()}
    together, alone = both_ways(asked, "train", {site: {} for site in (2, 0, 3)}, shared)
    assert_same(together, alone)
    first = {site: vectors.copy() for site, vectors in seen.items()}
    both_ways(asked, "train", {3: {}}, shared)
    np.testing.assert_array_equal(first[3], seen[3])


def test_a_site_does_not_wait_while_gradients_are_off():
    kind = type(method("lazy-mil", {}))

    class Careful(kind):
        def claim(self, site):
            assert torch.is_grad_enabled()
            with torch.no_grad():
                return kind.claim(self, site)

    Careful.claim.takes, Careful.claim.gives = (Model,), kind.claim.gives
    asked = new_runner(
        tiny(partition__sites=SITES, partition__coordinator=0.05), ready(True).site_data, NO_STATES
    )
    asked.method = Careful()
    shared = {f"Model.weights/{key}": array for key, array in weights("lazy-mil", True).items()}
    assert_same(*both_ways(asked, "claim", {site: {} for site in range(3)}, shared))
