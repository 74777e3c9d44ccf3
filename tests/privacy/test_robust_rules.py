"""Rules over many updates: against numpy, scipy, Flower's own functions and results worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.server.strategy.aggregate import (
    aggregate_bulyan,
    aggregate_krum,
    aggregate_median,
    aggregate_trimmed_avg,
)

from fedrel.privacy import robust_rules, update_blocks
from fedrel.privacy.robust_rules import (
    Agreeing,
    Bulyan,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
    comparisons,
    gram,
    median_shares,
    middle,
)
from fedrel.privacy.update_blocks import UpdateStore
from fedrel.tensors import compiling
from fedrel.tensors.weights import NoAnswerError, Rows, dense

RULES = {
    "median": Median,
    "trimmed-mean": lambda base: TrimmedMean(base, 0.2),
    "krum": lambda base: Krum(base, 0.2),
    "multi-krum": lambda base: MultiKrum(base, 0.2),
    "bulyan": lambda base: Bulyan(base, 0.19),
    "geometric-median": GeometricMedian,
    "agreeing": Agreeing,
}


def updates(sites: int, seed: int = 0) -> tuple[dict, list[dict]]:
    """A small model, and sites' weights of which two are far off."""
    generator = np.random.default_rng(seed)
    base = {name: generator.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    near = [{n: (t + 0.1 * generator.normal(size=t.shape)).astype(np.float32) for n, t in base.items()}]
    for _ in range(1, sites):
        near.append(
            {n: (t + 0.1 * generator.normal(size=t.shape)).astype(np.float32) for n, t in base.items()}
        )
    near[3] = {name: tensor + np.float32(50) for name, tensor in near[3].items()}
    near[7] = {name: np.float32(-30) * tensor for name, tensor in near[7].items()}
    return base, near


SHAPES = {"filters": (6, 5), "bias": (7,)}


def combined(rule, sites, weights=None):
    for number, site in enumerate(sites):
        rule.add(site, 1.0 if weights is None else weights[number])
    return rule.result()


def flowers(base, sites):
    return [(list(site.values()), 10 + number) for number, site in enumerate(sites)]


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "krum", "multi-krum", "bulyan"])
def test_a_rule_gives_what_flowers_function_gives(name):
    base, sites = updates(11)
    expected = {
        "median": aggregate_median,
        "trimmed-mean": lambda found: aggregate_trimmed_avg(found, 0.2),
        "krum": lambda found: aggregate_krum(found, 2, 0),
        "multi-krum": lambda found: aggregate_krum(found, 2, 9),
        "bulyan": lambda found: aggregate_bulyan(found, 2, aggregate_krum, to_keep=0),
    }[name](flowers(base, sites))
    found = combined(RULES[name](base), sites, [10.0 + number for number in range(11)])
    for ours, theirs in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 5, 8, 10, 13, 31])
def test_columns_are_sorted_as_far_as_they_are_needed(sites, monkeypatch):
    from scipy.stats import trim_mean

    generator = np.random.default_rng(sites)
    values = generator.normal(size=(sites, 600)).astype(np.float32)
    values[:, :50] = values[:, :50].round()  # with equal ones
    for cut in range((sites - 1) // 2 + 1):
        found = middle(values.copy(), cut)
        np.testing.assert_allclose(
            found, np.sort(values, 0)[cut : sites - cut].mean(0, np.float64), rtol=1e-12
        )
        monkeypatch.setattr(compiling, "has_numba", lambda: False)
        np.testing.assert_array_equal(middle(values.copy(), cut), found)
        monkeypatch.undo()
    np.testing.assert_array_equal(
        middle(values.copy(), (sites - 1) // 2), np.median(values.astype(np.float64), axis=0)
    )
    np.testing.assert_allclose(
        middle(values.copy(), int(0.2 * sites)), trim_mean(values.astype(np.float64), 0.2), rtol=1e-12
    )


def test_a_median_needs_fewer_comparisons_than_a_sort():
    assert len(comparisons(40, 19)) < len(comparisons(40)) < 40 * 39 / 2
    assert comparisons(1).tolist() == []


def worked(numbers, rule):
    """A model with one weight that starts at 0."""
    base = {"w": np.zeros(1, np.float32)}
    return combined(rule(base), [{"w": np.array([number], np.float32)} for number in numbers])["w"][0]


def test_krum_worked_out_by_hand():
    """n = 5, f = 1: the sum of the 2 smallest squared distances. 0: 1 + 4; 1: 1 + 1; 2: 1 + 4; 4: 4 + 9; 100: …"""
    numbers = [0, 1, 2, 4, 100]
    assert worked(numbers, lambda base: Krum(base, 0.2)) == 1
    assert worked(numbers, lambda base: MultiKrum(base, 0.2)) == (0 + 1 + 2 + 4) / 4


def test_bulyan_worked_out_by_hand():
    """n = 7, f = 1: Krum picks 5 of 7, the 3 nearest their median are averaged."""
    numbers = [0, 1, 2, 3, 4, 50, -70]
    # Scores are sums of 4 squared distances; 2 is picked, then again among the rest, until 0 to 4 are picked.
    assert worked(numbers, lambda base: Bulyan(base, 0.15)) == (1 + 2 + 3) / 3


def test_the_geometric_median_worked_out_by_hand():
    """Of an equilateral triangle it is the middle, on a line the median, and a heavy point wins."""
    corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]], np.float32)
    base = {"w": np.zeros(2, np.float32)}
    found = combined(GeometricMedian(base), [{"w": corner} for corner in corners])["w"]
    np.testing.assert_allclose(found, [0.5, np.sqrt(0.75) / 3], atol=1e-5)
    assert worked([0, 1, 50], GeometricMedian) == pytest.approx(1, abs=1e-3)
    heavy = combined(GeometricMedian(base), [{"w": corner} for corner in corners], [1.0, 10.0, 1.0])["w"]
    np.testing.assert_allclose(heavy, [1, 0], atol=1e-4)


def test_the_geometric_median_has_the_smallest_sum_of_distances():
    generator = np.random.default_rng(5)
    points = generator.normal(size=(9, 30)).astype(np.float32)
    base = {"w": np.zeros(30, np.float32)}
    found = combined(GeometricMedian(base), [{"w": point} for point in points])["w"]

    def total(point):
        return np.linalg.norm(points.astype(np.float64) - point, axis=1).sum()

    assert all(total(found) <= total(found + 0.01 * generator.normal(size=30)) + 1e-6 for _ in range(50))


def test_those_that_go_another_way_are_left_out_however_long_they_are():
    """The medians of the cosines with the others: about .5 of the first three, -1 and 0 of the others."""
    moves = [[1, 0.1], [2, 0], [1, -0.1], [-0.5, 0], [0, 3]]
    base = {"w": np.array([5, 7], np.float32)}
    sites = [{"w": base["w"] + np.array(move, np.float32)} for move in moves]
    found = combined(Agreeing(base), sites, [1.0, 1.0, 2.0, 5.0, 1.0])["w"] - base["w"]
    np.testing.assert_allclose(found, [(1 + 2 + 2) / 4, (0.1 - 0.2) / 4], atol=1e-6)


def test_two_long_lies_that_go_the_same_way_are_left_out():
    """As old updates sent again do: honest ones have little in common, and the two lies almost everything."""
    base = {"w": np.zeros(20, np.float32)}
    unit = np.eye(20, dtype=np.float32)
    honest = [0.3 * unit[0] + unit[1 + site] for site in range(8)]
    lie = 6 * unit[19] - 2 * unit[0]
    found = combined(Agreeing(base), [{"w": move} for move in (*honest, lie, lie)])["w"]
    np.testing.assert_allclose(found, np.mean(honest, axis=0), atol=1e-6)
    plain = np.mean([*honest, lie, lie], axis=0)
    assert plain[0] < 0 < found[0]  # the mean goes against what honest updates have in common


def test_one_update_two_opposite_ones_and_none_that_moved_agree():
    base = {"w": np.zeros(2, np.float32)}
    there, back = {"w": np.array([1, 0], np.float32)}, {"w": np.array([-1, 0], np.float32)}
    assert combined(Agreeing(base), [there])["w"].tolist() == [1, 0]
    assert combined(Agreeing(base), [there, back])["w"].tolist() == [0, 0]
    assert combined(Agreeing(base), [base, base, base])["w"].tolist() == [0, 0]


def tables(sites: int, rows: int = 60) -> tuple[dict, list[dict]]:
    """Updates that list some rows of a table; one of them has it whole."""
    generator = np.random.default_rng(sites)
    base = {
        "words": generator.normal(size=(rows, 3)).astype(np.float32),
        "bias": generator.normal(size=4).astype(np.float32),
    }
    found = []
    for site in range(sites):
        index = np.sort(generator.choice(rows - 20, 15, replace=False)).astype(np.int32)
        values = base["words"][index] + generator.normal(size=(15, 3)).astype(np.float32)
        words = Rows(index, values, 1 - 0.01 * site)
        bias = base["bias"] + generator.normal(size=4).astype(np.float32)
        found.append({"words": words, "bias": bias})
    return base, found


@pytest.mark.parametrize("one_whole", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_rows_that_a_site_left_out_count_as_its_factor_times_the_global_rows(name, one_whole, monkeypatch):
    base, sites = tables(11)
    if one_whole:
        sites[4] = dense(base, sites[4])
    whole = [dense(base, site) for site in sites]
    expected = combined(RULES[name](base), whole)
    for block in (2**19, 40):  # all in one block, and a row or two at a time
        monkeypatch.setattr(update_blocks, "BLOCK", block)
        found = combined(RULES[name](base), sites)
        for tensor in base:
            np.testing.assert_allclose(found[tensor], expected[tensor], rtol=1e-5, atol=1e-6)


def test_products_of_updates_are_those_of_their_moves():
    base, sites = tables(5)
    moves = np.stack([np.concatenate([(dense(base, s)[n] - base[n]).ravel() for n in base]) for s in sites])
    np.testing.assert_allclose(gram(base, sites), moves @ moves.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", RULES)
def test_without_updates_there_is_no_model(name):
    with pytest.raises(NoAnswerError):
        RULES[name]({"w": np.zeros(1, np.float32)}).result()


@pytest.mark.parametrize(("rule", "sites", "needed"), [(Krum, 4, 5), (MultiKrum, 4, 5), (Bulyan, 6, 7)])
def test_with_too_few_updates_a_rule_says_how_many_it_needs(rule, sites, needed):
    base = {"w": np.zeros(1, np.float32)}
    with pytest.raises(NoAnswerError, match=f"there are {sites} updates, and the rule needs {needed}"):
        combined(rule(base, 0.26 if rule is not Bulyan else 0.17), [base] * sites)


@pytest.mark.parametrize("name", RULES)
def test_equal_updates_give_that_update(name):
    base, (first, *_) = tables(11)
    found, expected = combined(RULES[name](base), [first] * 11), dense(base, first)
    for tensor in base:
        np.testing.assert_allclose(found[tensor], expected[tensor], rtol=1e-6)


def test_large_updates_wait_in_a_file_and_stay_the_same():
    base, sites = tables(11)
    store = UpdateStore(in_memory=1000)
    kept = [store.keep(site) for site in sites]
    assert kept[0] is sites[0]
    assert isinstance(kept[-1]["bias"], np.memmap)
    for rule in RULES.values():
        one, other = combined(rule(base), kept), combined(rule(base), sites)
        assert all(np.array_equal(one[tensor], other[tensor]) for tensor in base)


def test_half_of_the_coordinates_may_be_anything():
    """Property: a median lies between honest values as long as fewer than half lie."""
    generator = np.random.default_rng(9)
    for _ in range(20):
        honest = generator.normal(size=(6, 40)).astype(np.float32)
        lies = (1e5 * generator.normal(size=(5, 40))).astype(np.float32)
        found = robust_rules.middle(generator.permutation(np.concatenate([honest, lies])), 5)
        assert (found >= honest.min(axis=0)).all() and (found <= honest.max(axis=0)).all()


def test_a_very_long_lie_does_not_move_the_geometric_median_far():
    honest = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
    for length in (1e3, 1e7, 1e9):
        updates = np.stack([*honest, np.array([-length, 0.0])])
        shares = median_shares(updates @ updates.T, np.ones(3))
        assert np.linalg.norm(shares @ updates) < 2
