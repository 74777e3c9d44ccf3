"""Lazy MIL against its paper's algorithm boxes, written out slowly with dictionaries and loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrel.methods.lazy_mil import Claims, KeyedClaims, first_of_highest, pooled, winners
from fedrel.runs.prepare import prepare
from fedrel.seeding import numpy_generator
from tests.conftest import local_engine, local_session, tiny
from tests.methods.slow import slow_logits


def test_winners_by_hand():
    claims = {
        2: Claims(np.array([5, 8], np.int32), np.array([0.4, 0.9], np.float32), np.array([1, 0], np.int32)),
        3: Claims(np.array([5, 9], np.int32), np.array([0.7, 0.2], np.float32), np.array([6, 4], np.int32)),
        7: Claims(np.array([5, 8], np.int32), np.array([0.7, 0.1], np.float32), np.array([3, 2], np.int32)),
    }
    won = winners(claims)  # triple 5 is a tie of sites 3 and 7: the lower number has it
    assert {site: message.index.tolist() for site, message in won.items()} == {2: [0], 3: [4, 6]}
    all_won = pooled(won, claims)
    assert set(all_won) == {2, 3, 7}
    assert pooled({}, claims) == {}
    assert list(zip(all_won[2].site, all_won[2].index, strict=True)) == [(2, 0), (3, 4), (3, 6)]
    assert winners({}) == {}


CLAIMS = st.dictionaries(
    st.integers(0, 9),
    st.dictionaries(st.integers(0, 12), st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=8),
    min_size=1,
    max_size=5,
)


@given(CLAIMS, st.binary(min_size=32, max_size=32))
def test_winners_are_those_of_algorithm_1_keyed_or_not(table, key):
    from fedrel.privacy.site_rules import digests

    plain, keyed = {}, {}
    best: dict[int, tuple[float, int, int]] = {}
    for site in sorted(table):
        triples = sorted(table[site])
        value = np.array([table[site][t] for t in triples], np.float32)
        index = np.arange(len(triples), dtype=np.int32)[::-1].copy()
        plain[site] = Claims(np.array(triples, np.int32), value, index)
        keyed[site] = KeyedClaims(digests(key, [("h", str(t), "t") for t in triples]), value, index)
        for triple, v, i in zip(triples, value, index, strict=True):
            if triple not in best or v > best[triple][0]:
                best[triple] = (v, site, i)
    expected: dict[int, list[int]] = {}
    for _, site, index in best.values():
        expected.setdefault(site, []).append(int(index))
    for found in (winners(plain), winners(keyed)):
        assert {site: won.index.tolist() for site, won in found.items()} == {
            site: sorted(won) for site, won in expected.items()
        }


def test_the_first_of_equal_values_stands_for_its_bag():
    values = np.array([0.1, 0.7, 0.7, 0.5, 0.2, 0.2], np.float32)
    assert first_of_highest(values, np.array([0, 3, 4, 6])).tolist() == [1, 3, 4]


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_two_rounds_equal_a_slow_version_of_algorithms_1_and_2(weighting):
    config = tiny(extractor__dropout=0.0, method="lazy-mil", training__learning_rate_decay=0.1)
    config = config.with_settings([f"methods.lazy-mil.weighting={weighting}", "training.epochs=1"])
    ready = prepare(config)
    # Fewer sentences a site, so that the slow version takes seconds.
    corpus, sites = ready.dataset.corpus, ready.site_data.partition
    object.__setattr__(sites, "order", sites.order[: 6 * 25])
    object.__setattr__(sites, "bounds", np.arange(7) * 25)
    session = local_session(config, ready)
    start = {
        name: torch.tensor(array, dtype=torch.float64) for name, array in session.checkpoint().weights.items()
    }
    for _ in range(2):
        session.next_round()

    theta, reach, lookup = start, config.extractor.max_length, ready.site_data.inputs.lookup
    for q in (1, 2):
        active = sorted(numpy_generator(config.seed, "draw", q, 0).choice(6, size=3, replace=False))
        values: dict[int, list[tuple[float, int, int]]] = {}
        for site in active:
            for row in sites.rows(site):
                p = slow_logits(theta, corpus, lookup, row, reach).softmax(0)[int(corpus.relation[row])]
                values.setdefault(int(corpus.triple[row]), []).append((float(p), -int(site), int(row)))
        chosen: dict[int, list[int]] = {}
        for claims in values.values():
            _, site, row = max(claims, key=lambda claim: claim[:2])
            chosen.setdefault(-site, []).append(row)
        total = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
        weight_sum = 0.0
        rate = config.training.learning_rate * 0.9 ** (q - 1)
        for site, won in sorted(chosen.items()):
            order_at_site = {int(row): place for place, row in enumerate(sites.rows(site))}
            rows = sorted(won, key=order_at_site.__getitem__)
            local = {name: tensor.clone().requires_grad_() for name, tensor in theta.items()}
            optimiser = torch.optim.SGD(local.values(), lr=rate, weight_decay=config.training.weight_decay)
            order = numpy_generator(config.seed, "shuffle", q, int(site)).permutation(len(rows))
            for begin in range(0, len(rows), config.training.batch_size):
                batch = [rows[i] for i in order[begin : begin + config.training.batch_size]]
                logits = torch.stack([slow_logits(local, corpus, lookup, row, reach) for row in batch])
                labels = torch.tensor([int(corpus.relation[row]) for row in batch])
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(logits, labels).backward()
                optimiser.step()
            weight = len(rows) if weighting == "examples" else 1
            weight_sum += weight
            for name in total:
                total[name] += weight * local[name].detach()
        theta = {name: tensor / weight_sum for name, tensor in total.items()}

    for name, array in session.checkpoint().weights.items():
        np.testing.assert_allclose(array, theta[name], atol=2e-5, err_msg=name)


def test_keyed_triples_change_no_weight():
    def weights(*settings: str) -> dict[str, np.ndarray]:
        config = tiny(method="lazy-mil").with_settings(settings)
        ready = prepare(config)
        session = local_session(config, ready)
        for _ in range(2):
            line = session.next_round()
        kinds.append(set(line.bytes.by_kind))
        return session.checkpoint().weights

    kinds: list[set[str]] = []
    plain, keyed = weights(), weights("methods.lazy-mil.keyed_triples=true")
    for name in plain:
        np.testing.assert_array_equal(plain[name], keyed[name])
    assert kinds == [{"Model", "Claims", "Winners", "Update"}, {"Model", "KeyedClaims", "Winners", "Update"}]


def test_the_model_crosses_once_a_round():
    config = tiny(method="lazy-mil", training__fraction=0.5)
    ready = prepare(config)
    session = local_session(config, ready)
    model = sum(array.nbytes for array in session.checkpoint().weights.values())
    for _ in range(2):
        line = session.next_round()
        assert line.bytes.by_kind["Model"].down == 3 * model


def test_pooled_winners_train_every_site_on_all_of_them():
    config = tiny(method="lazy-mil", training__epochs=1).with_settings(
        ["methods.lazy-mil.pooled_winners=true"]
    )
    ready = prepare(config)
    session = local_session(config, ready)
    line = session.next_round()
    rows = np.concatenate([ready.site_data.partition.rows(site) for site in line.active])
    triples = len(np.unique(ready.dataset.corpus.triple[rows]))
    assert line.examples == triples * len(line.active)


def test_random_winners_are_each_sentence_as_often_as_any_other_of_its_triple():
    config = tiny(method="lazy-mil").with_settings(["methods.lazy-mil.claims=random"])
    ready = prepare(config)
    engine = local_engine(config, ready)
    weights = local_session(config, ready).checkpoint().weights
    shared = {f"Model.weights/{name}": array for name, array in weights.items()}
    parts, rounds = ready.site_data.partition, 120
    won = np.zeros(len(ready.dataset.corpus.triple))
    for q in range(1, rounds + 1):
        answers = engine.ask("claim", q, shared, {site: {} for site in range(parts.sites)})
        claims = {site: Claims(**answer.arrays) for site, answer in answers}
        for site, names in winners(claims).items():
            won[parts.rows(site)[names.index]] += 1
    triple = ready.dataset.corpus.triple[parts.order]
    size = np.bincount(triple)[triple]
    assert (size > 1).sum() > 100
    expected, spread = rounds / size, np.sqrt(rounds / size * (1 - 1 / size))
    assert np.all(np.abs(won[parts.order] - expected) <= 5 * spread)  # of a triple with one sentence: always
