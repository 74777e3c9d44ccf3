"""`[aggregation]` in training: equal on all engines, with every method that averages, and against each attack."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest

from fedrel.config.schema import AggregationSection
from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer
from fedrel.federation.engines.attacks import ATTACKS, AttackedEngine
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.methods.by_name import check_aggregation, method, methods
from fedrel.privacy.trust import Norms
from fedrel.runs.attack_table import AttackedSites, OtherLabels, drawn
from fedrel.runs.engines import new_runner, parallel_engine
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session, run
from tests.conftest import NO_STATES, local_engine, local_session, tiny

RULES = ("median", "trimmed-mean", "krum", "multi-krum", "bulyan", "geometric-median", "agreeing")
ALL = {"aggregation__norm_bound": 1.0, "aggregation__share_cap": 2.0}


def quoted(rule: str) -> dict[str, str]:
    return {"aggregation__rule": f'"{rule}"', "aggregation__liars": 0.15}


def wide(**changes: object):
    """Ten sites, all of them active: enough for every rule."""
    return tiny(partition__sites=10, training__fraction=1.0, training__rounds=2, **changes)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_gives_the_same_bits_on_threads(rule, tmp_path):
    config = wide(method="lazy-mil", **quoted(rule), **ALL)
    ready = prepare(config)
    alone = local_session(config, ready)
    with parallel_engine(config, ready.site_data, tmp_path, 2) as engine:
        together = Session(config, ready, engine, None)
        for _ in range(2):
            assert alone.next_round().examples == together.next_round().examples
    one, other = alone.checkpoint().weights, together.checkpoint().weights
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_norm_bound_that_nobody_reaches_changes_no_bit(tmp_path):
    ready = prepare(wide())
    for name in ("lazy-mil", "scaffold", "feddyn", "fedatt", "fedavgm"):
        plain, bounded = wide(method=name), wide(method=name, aggregation__norm_bound=100.0)
        one = local_session(plain, ready, tmp_path / f"{name}-plain")
        other = local_session(bounded, ready, tmp_path / f"{name}-bounded")
        one.next_round()
        other.next_round()
        for tensor, values in one.checkpoint().weights.items():
            np.testing.assert_array_equal(values, other.checkpoint().weights[tensor])


def test_checkpoints_of_runs_without_the_section_are_those_of_its_defaults():
    assert "aggregation" not in tiny().shapes_result()
    assert tiny(aggregation__norm_bound=2.0).shapes_result()["aggregation"]["norm_bound"] == 2.0
    assert tiny().digest() == tiny(aggregation__liars=0.3).digest()  # no rule uses it


# What a method cannot have is refused with the reason.

REASONS = {
    "feded": "its sites send predictions, not updates",
    "fedatt": "it has a way of its own to combine updates",
    "scaffold": "its control variate is a mean",
    "feddyn": "by h, which is a mean",
    "fedcmc": "class vectors of single sites",
}
ALONE = {"centralised", "local", "validation-only"}


def expected(name: str, section: AggregationSection) -> str | None:
    parts = set(name.split("+"))
    if parts & ALONE:
        return None
    for part, reason in REASONS.items():
        if part in parts and (section.rule != "mean" or part == "feded"):
            return reason
    return None


@cache
def composable() -> list[str]:
    names = sorted(name for name, kind in methods().items() if kind.__module__.startswith("fedrel."))
    found = list(names)
    for pair in combinations(names, 2):
        try:
            method("+".join(pair), {})
        except UserError:
            continue
        found.append("+".join(pair))
    return found


@pytest.mark.parametrize("rule", ["mean", *RULES])
def test_every_method_and_pair_of_methods_takes_a_rule_or_is_refused_with_the_reason(rule):
    section = AggregationSection(rule=rule, norm_bound=2.0)
    names = composable()
    assert len(names) > 120
    for name in names:
        made, reason = method(name, {}), expected(name, section)
        if reason is None:
            check_aggregation(made, section, 40)
            continue
        with pytest.raises(UserError) as refused:
            check_aggregation(made, section, 40)
        assert any(one in str(refused.value) for one in REASONS.values()), name


def test_a_rule_that_needs_more_updates_than_a_round_has_is_refused_before_the_first():
    config = tiny(method="fedavg", aggregation__rule='"bulyan"', training__fraction=0.5)
    with pytest.raises(UserError, match="'bulyan' with 0 liars needs 3 updates a round, and there are 2"):
        local_session(config.with_settings({"training.fraction": 0.34}), prepare(config))


def test_less_than_an_equal_share_is_refused():
    with pytest.raises(UserError, match="less than an equal share for every site is impossible"):
        tiny(aggregation__share_cap=0.5)


# Each attack does harm without a defence, and none or little with it.


def attacked(config, attack: str, liars=(0,)) -> tuple[float, float]:
    """How far the first mean went, in usual updates, and the cosine of its direction with the honest mean's."""
    ready = prepare(config)
    honest = local_session(config.with_settings(PLAIN), ready)
    start = honest.checkpoint().weights
    honest.next_round()
    usual = float(np.median(list(honest._fed.notes.moves.norms.values())))
    sizes, triples = ready.site_data.partition.sizes, ready.dataset.corpus.triple_count
    inner = local_engine(config, ready)
    lied = AttackedEngine(inner, ATTACKS[attack], liars, sizes, triples)
    session = Session(config, ready, lied, None)
    session.next_round()
    there, here = honest.checkpoint().weights, session.checkpoint().weights
    good = np.concatenate([(there[name] - start[name]).ravel() for name in start])
    bad = np.concatenate([(here[name] - start[name]).ravel() for name in start])
    cosine = float(good @ bad / max(np.linalg.norm(good) * np.linalg.norm(bad), 1e-12))
    return Norms(start).of(here) / usual, cosine


PLAIN = {"aggregation.norm_bound": 0.0, "aggregation.share_cap": 0.0, "aggregation.rule": "mean"}


@pytest.mark.parametrize("attack", ["sign-flip", "claim-all", "scaling"])
def test_an_attack_turns_the_mean_and_the_defence_turns_it_back(attack, monkeypatch):
    monkeypatch.setattr("fedrel.privacy.trust.DIVERGES", 1e30)
    method_ = "lazy-mil" if attack == "claim-all" else "fedavg"
    plain = wide(method=method_, extractor__dropout=0.0)
    defended = wide(method=method_, extractor__dropout=0.0, **ALL).with_settings(
        {"methods.lazy-mil.claims": "rank"} if method_ == "lazy-mil" else {}
    )
    far, turned = attacked(plain, attack)
    assert turned < 0.5 or far > 10
    far, turned = attacked(defended, attack)
    assert turned > 0.7 and far < 1.2


class WithoutLiars(LocalEngine):
    """Sites 0 and 1 do not answer."""

    def ask(self, phase, round_, shared, own):
        for site, answer in super().ask(phase, round_, shared, own):
            yield site, Answer(None, failure="is away") if site < 2 else answer


def trained(config, engine, ready) -> np.ndarray:
    """All weights after three rounds."""
    session = Session(config, ready, engine, None)
    for _ in range(3):
        session.next_round()
    return np.concatenate([tensor.ravel() for tensor in session.checkpoint().weights.values()])


@pytest.mark.parametrize(
    ("attack", "left"),
    [("inner-product", 0.75), ("replay", 0.75), ("sign-flip", 0.75), ("label-flip", 0.85), ("little", 0.9)],
)
def test_what_two_of_ten_liars_do_to_the_model_is_undone_in_part(attack, left, monkeypatch):
    """How far the weights are from those of a federation without the two, with the plain mean and the defence."""
    monkeypatch.setattr("fedrel.privacy.trust.DIVERGES", 1e30)
    plain = wide(method="fedavg").with_settings({"training.rounds": 3})
    ready = AttackedSites(ATTACKS[attack], [0, 1], agreed_sizes=False).prepare(plain, None)
    sizes, triples = ready.site_data.partition.sizes, ready.dataset.corpus.triple_count
    expected = trained(plain, WithoutLiars(new_runner(plain, ready.site_data, NO_STATES)), ready)

    def harm(config):
        lied = AttackedEngine(local_engine(config, ready), ATTACKS[attack], (0, 1), sizes, triples)
        return np.linalg.norm(trained(config, lied, ready) - expected)

    defended = plain.with_settings({"aggregation.rule": "agreeing", "aggregation.norm_bound": 1.0})
    assert harm(defended) < left * harm(plain)


def test_liars_that_were_left_out_twice_are_not_asked_any_more():
    """They were asked in every round, and their claims won what no other site then trained on."""
    config = wide(method="fedavg").with_settings({"training.rounds": 4, "aggregation.rule": "agreeing"})
    ready = prepare(config)
    sizes, triples = ready.site_data.partition.sizes, ready.dataset.corpus.triple_count

    def rounds(config):
        lied = AttackedEngine(local_engine(config, ready), ATTACKS["inner-product"], (0, 1), sizes, triples)
        session = Session(config, ready, lied, None)
        return [session.next_round() for _ in range(4)]

    asked_always = rounds(config)
    assert all({0, 1} <= set(one.active) and not one.excluded for one in asked_always)
    *_, third, fourth = rounds(config.with_settings({"aggregation.exclude_after": 2}))
    assert third.excluded == fourth.excluded == [0, 1] and not {0, 1} & set(fourth.active)


def test_only_a_rule_that_leaves_out_can_exclude():
    with pytest.raises(UserError, match='only the rule "agreeing" leaves out what disagrees'):
        wide(method="fedavg").with_settings({"aggregation.exclude_after": 2})


def test_flipped_labels_are_in_the_data_of_the_liars_alone():
    config = wide(method="fedavg")
    plain = prepare(config).site_data
    other = AttackedSites(ATTACKS["label-flip"], [2], agreed_sizes=False).prepare(config, None).site_data
    assert isinstance(other, OtherLabels)
    for site in (2, 3):
        rows = plain.partition.rows(site)
        before, after = plain.bags(rows), other.bags(rows)
        assert before.keys.tolist() == after.keys.tolist()
        same = before.labels == after.labels
        assert not same.any() if site == 2 else same.all()


def test_liars_are_drawn_by_the_seed_and_more_of_them_include_the_fewer():
    config = tiny()
    assert set(drawn(config, 40, 4)) < set(drawn(config, 40, 8)) and len(drawn(config, 40, 8)) == 8


def test_a_lie_about_holdings_is_limited_by_what_was_agreed():
    sizes = np.array([30, 40])
    claim_all = ATTACKS["claim-all"]
    assert AttackedEngine(None, claim_all, [1], sizes, 500).holdings().sizes.tolist() == [30, 5000]
    limited = AttackedEngine(None, claim_all, [1], sizes, 500, np.array([100, 100]))
    assert limited.holdings().sizes.tolist() == [30, 100]


@pytest.mark.slow
def test_an_attacked_run_is_the_same_each_time(tmp_path):
    config = tiny(method="lazy-mil", training__rounds=2, training__fraction=1.0)
    sites = AttackedSites(ATTACKS["claim-all"], [1, 4], agreed_sizes=False)
    first, second = (run(config, tmp_path / name, sites=sites) for name in ("one", "two"))
    assert first.metrics == second.metrics
