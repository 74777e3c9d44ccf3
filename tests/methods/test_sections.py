"""`[aggregation]` and `[privacy]`: what of them a method can have, and what is refused with the reason."""

from __future__ import annotations

import pytest

from fedrel.config.schema import AggregationSection
from fedrel.errors import UserError
from fedrel.methods.by_name import check_aggregation, check_secure_sum, check_vouched, gives_mean, method
from tests.conftest import tiny

SITE_NOISE = {"privacy__dp__level": '"site"', "privacy__dp__clip": 1.0, "privacy__dp__noise": 1.0}


@pytest.mark.parametrize(
    ("rule", "liars", "updates", "counted", "needed"),
    [
        ("krum", 0.0, 2, 0, 3),
        ("krum", 0.4, 6, 2, 7),
        ("multi-krum", 0.4, 6, 2, 7),
        ("bulyan", 0.29, 10, 2, 11),  # 2.9 sites are two
        ("bulyan", 0.29, 100, 29, 119),  # in floats, 0.29 * 100 is a little less than 29
    ],
)
def test_a_rule_needs_so_many_updates_a_round(
    rule: str, liars: float, updates: int, counted: int, needed: int
) -> None:
    chosen = method("fedavg", {})
    said = f"with {counted} liars needs {needed} updates a round, and there are {updates}"
    with pytest.raises(UserError, match=said):
        check_aggregation(chosen, AggregationSection(rule=rule, liars=liars), updates)
    check_aggregation(chosen, AggregationSection(rule=rule, liars=counted / needed), needed)
    check_aggregation(chosen, AggregationSection(rule="median", liars=liars), updates)


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedatt"])
def test_some_methods_need_the_mean(name: str) -> None:
    chosen = method(name, {})
    with pytest.raises(UserError, match=f"aggregation.rule 'median' cannot be used with {name}"):
        check_aggregation(chosen, AggregationSection(rule="median"), 10)
    check_aggregation(chosen, AggregationSection(), 10)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aggregation__rule": '"median"'}, "aggregation.rule 'median' needs the answers of single sites"),
        ({"aggregation__rule": '"trimmed-mean"'}, "aggregation.rule 'trimmed-mean' needs"),
        ({"aggregation__rule": '"geometric-median"'}, "aggregation.rule 'geometric-median' needs"),
        ({"aggregation__norm_bound": 2.0}, "aggregation.norm_bound or share_cap needs"),
        ({"aggregation__share_cap": 2.0}, "aggregation.norm_bound or share_cap needs"),
        ({"method": "centralised"}, "centralised trains in one place, so there is no sum to hide in"),
        ({"method": "feded", "privacy__clip": 1.0}, "privacy.clip: feded has no updates to scale"),
    ],
)
def test_where_a_sum_is_not_enough_secure_sums_are_refused(changes: dict[str, object], reason: str) -> None:
    config = tiny(**{"method": "fedavg", "privacy__secure_sum": True} | changes)
    with pytest.raises(UserError, match=reason):
        check_secure_sum(method(config.method, {}), config)
    check_secure_sum(method("fedavg", {}), tiny(method="fedavg", privacy__secure_sum=True))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "scaffold"}, "with scaffold, the global weights are no mean of the sites' updates"),
        ({"method": "feded"}, "with feded, the global weights are no mean"),
        ({"aggregation__rule": '"median"'}, "aggregation.rule 'median' is no mean of the updates"),
        ({"aggregation__rule": '"agreeing"'}, "aggregation.rule 'agreeing' is no mean of the updates"),
        ({"engine__extra_sites": 1}, "extra_sites are not used"),
        ({"privacy__secure_sum": True}, "privacy.vouched and privacy.secure_sum do not work together"),
        (SITE_NOISE, "privacy.vouched and privacy.dp do not work together"),
    ],
)
def test_where_weights_are_no_mean_of_updates_nobody_can_vouch(
    changes: dict[str, object], reason: str
) -> None:
    config = tiny(**{"method": "fedavg", "privacy__vouched": True} | changes)
    with pytest.raises(UserError, match=reason):
        check_vouched(method(config.method, {}), config)
    check_vouched(method(config.method, {}), tiny())  # not asked for
    check_vouched(method("fedavg", {}), tiny(method="fedavg", privacy__vouched=True))


def test_which_methods_weights_are_a_mean() -> None:
    means = {name for name in ("fedavg", "lazy-mil", "one", "fedprox") if gives_mean(method(name, {}))}
    assert means == {"fedavg", "lazy-mil", "one", "fedprox"}
    others = ("local", "centralised", "feded", "scaffold", "feddyn", "fedavgm", "fedadam", "validation-only")
    assert not [name for name in others if gives_mean(method(name, {}))]
