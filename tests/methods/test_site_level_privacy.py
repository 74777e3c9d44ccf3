"""Site-level differential privacy: every method that averages trains as without but for clipping and noise."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")

from fedrel.errors import UserError
from fedrel.federation.coordinator import Federation
from fedrel.federation.rounds import draw
from fedrel.methods.by_name import check_privacy, method, methods
from fedrel.privacy import differential_privacy
from fedrel.privacy.differential_privacy import epsilon
from fedrel.runs.prepare import prepare
from fedrel.runs.train import run
from tests.conftest import local_session, tiny
from tests.methods.slow_rounds import fast, same

NOISED = {  # method: how far weights may be from those without, if nothing is clipped and no noise drawn
    "fedavg": 1e-6,
    "fedprox": 1e-6,
    "moon": 1e-6,
    "fedrs": 1e-6,
    "fedlc": 1e-6,
    "fedavgm": 1e-6,
    "fedadam": 1e-3,
    "feddyn": 1e-3,
    "feded": 1e-5,
    "scaffold": 1e-3,
}
REFUSED = {
    "fedatt": "fedatt's attention over the sites needs the answers of single sites",
    "fedcmc": "fedcmc's choice of class vectors needs the answers of single sites",
    "lazy-mil": "lazy-mil's claims, which also decide what other sites train on",
    "lazy-one": "lazy-mil's claims",
    "centralised": "trains in one place",
    "local": "trains in one place",
    "validation-only": "trains in one place",
}
OTHERS = {"none", "one", "ave", "att", "att-ra", "fedlcc"}  # bag heads, and a method of documents
DP = ["privacy.dp.level=site", "privacy.dp.noise=1", "privacy.dp.clip=0.5"]


@pytest.fixture(scope="module")
def data():
    config = tiny(
        method="fedavg",
        extractor__bias=False,
        extractor__train_words=False,
        training__fraction=1.0,
        partition__coordinator=0.1,
    )
    return config, prepare(config)


def test_every_method_is_noised_or_refused():
    ours = {name for name, kind in methods().items() if kind.__module__.startswith("fedrel.methods.")}
    assert ours == {*NOISED, *REFUSED, *OTHERS}


@pytest.mark.parametrize("name", NOISED)
def test_without_noise_and_clipping_weights_are_those_of_the_plain_mean(data, name, tmp_path, monkeypatch):
    monkeypatch.setattr(Federation, "normal", lambda self, *purpose: np.zeros)
    # A finer grid, since the noise that it follows is huge.
    monkeypatch.setattr(differential_privacy, "STEPS", 2.0**50)
    config, ready = data
    named = [f"method={name}", *([] if name == "feded" else [f"methods.{name}.weighting=uniform"])]
    plain = fast(config.with_settings(named), ready, 2, tmp_path / "plain")
    unclipped = [
        f"method={name}",
        *DP,
        "privacy.dp.clip=1e6",
    ]  # whatever `weighting` says, all count the same
    noised = fast(config.with_settings(unclipped), ready, 2, tmp_path / "noised")
    same(noised, plain.checkpoint().weights, atol=NOISED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_a_method_that_tells_more_is_refused(name):
    config = tiny(method=name).with_settings(DP)
    with pytest.raises(UserError, match=REFUSED[name]):
        check_privacy(method(name, {}), config)
    with pytest.raises(UserError, match=REFUSED["lazy-mil"]):
        check_privacy(method("fedprox+lazy-mil", {}), tiny(method='"fedprox+lazy-mil"').with_settings(DP))


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("aggregation.rule=median", "needs the answers of single sites"),
        ("aggregation.norm_bound=2.0", "needs the answers of single sites"),
        ("engine.extra_sites=1", "a site that replaces another is not drawn as the accountant assumes"),
    ],
)
def test_settings_that_do_not_go_with_noise_are_refused(setting, reason):
    config = tiny(method="fedavg").with_settings([*DP, setting])
    with pytest.raises(UserError, match=reason):
        check_privacy(method("fedavg", {}), config)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["privacy.dp.noise=1", "privacy.dp.clip=1"], "privacy.dp.level"),
        ([*DP, "privacy.dp.noise=0.01"], "privacy.dp.noise"),
        ([*DP, "privacy.dp.level=sentence", "privacy.dp.adaptive_clip=0.5"], "adaptive_clip is for level"),
        ([*DP, "privacy.dp.level=sentence", "privacy.dp.sampling=fixed"], "always drawn by poisson sampling"),
        ([*DP, "privacy.dp.adaptive=0.5"], "unknown key 'privacy.dp.adaptive'"),
    ],
)
def test_a_section_that_says_nothing_sensible_is_refused(settings, reason):
    with pytest.raises(UserError, match=reason):
        tiny(method="fedavg").with_settings(settings)


def test_the_noise_is_as_strong_as_the_section_says(data, tmp_path, monkeypatch):
    """The same seed gives the same normal numbers: two runs differ by the difference of their multipliers."""
    config, ready = data
    runs = {
        noise: fast(config.with_settings([*DP, f"privacy.dp.noise={noise}"]), ready, 1, tmp_path / noise)
        for noise in ("1", "3")
    }
    one, three = (
        np.concatenate([tensor.ravel() for tensor in runs[noise].checkpoint().weights.values()])
        for noise in ("1", "3")
    )
    expected = (3 - 1) * 0.5 / 6  # noise times clip, over the six sites
    assert np.std(three - one) == pytest.approx(expected, rel=0.1) and len(one) > 500
    monkeypatch.setattr(Federation, "normal", lambda self, *purpose: np.zeros)
    still = fast(config.with_settings(DP), ready, 1, tmp_path / "still").checkpoint().weights
    start = local_session(config, ready).checkpoint().weights
    moved = np.sqrt(sum(np.square(still[name] - start[name]).sum() for name in start))
    assert 0 < moved <= 0.5 + 1e-6  # each of the six is clipped


def test_a_run_says_what_it_has_spent(data, tmp_path):
    config = data[0].with_settings([*DP, "training.fraction=0.5", "training.rounds=3"])
    result = run(config, tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [line["privacy"] for line in lines] == [
        {"epsilon": epsilon(1.0, 0.5, rounds, 1e-5), "rates": [0.5], "clip": 0.5} for rounds in (1, 2, 3)
    ]
    assert result.epsilon == epsilon(1.0, 0.5, 3, 1e-5)
    assert all(line["loss"] is None for line in lines)
    assert all(site["loss"] is None for line in lines for site in line["at_sites"].values())
    run(config.with_settings(["training.rounds=2"]), tmp_path / "again")
    assert run(config, tmp_path / "again", resume=True).epsilon == result.epsilon


def test_a_round_without_sites_is_noise_alone(data, tmp_path):
    config, ready = data
    config = config.with_settings([*DP, "training.fraction=0.01"])
    session = local_session(config, ready, tmp_path)
    start = dict(session.checkpoint().weights)
    done = session.next_round()
    assert done.active == [] and done.refused == []
    assert any((tensor != start[name]).any() for name, tensor in session.checkpoint().weights.items())


def test_the_clip_adapts_and_is_kept(data, tmp_path):
    config, ready = data
    config = config.with_settings([*DP, "privacy.dp.clip=0.01", "privacy.dp.adaptive_clip=0.5"])
    session = local_session(config, ready, tmp_path)
    rounds = [session.next_round() for _ in range(3)]
    clips = [one.privacy.clip for one in rounds]
    assert clips[0] == 0.01 and len(set(clips)) == 3
    kept = session.checkpoint()
    again = local_session(config, ready, tmp_path)
    again._at, again._fed.weights, again._fed.state = kept, kept.weights, dict(kept.state)
    assert again.next_round().privacy.clip == session.next_round().privacy.clip


def test_a_site_does_not_tell_its_loss(data, tmp_path):
    from fedrel.federation.messages import Update

    config, ready = data
    session = local_session(config.with_settings(DP), ready, tmp_path)
    engine, told = session._engine, []
    ask = engine.ask

    def listening(*given):
        for site, answer in ask(*given):
            told.append(float(answer.arrays["loss"]))
            yield site, replace(answer)

    engine.ask = listening
    session.next_round()
    assert told == [0.0] * 6 and "loss" in Update.declared()


@pytest.mark.parametrize("real", [False, True])
def test_who_is_drawn_between_real_sites_does_not_follow_from_the_seed(data, tmp_path, monkeypatch, real):
    """The seed is published, and the cost of a round counts on it that nobody else knows who was drawn."""
    config, ready = data
    config = config.with_settings([*DP, "training.fraction=0.5"])
    fed = local_session(config, ready, tmp_path)._fed
    monkeypatch.setattr(type(fed._engine), "reaches_real_sites", real)
    drawn = []
    for number in range(1, 31):
        fed.draw(number)
        drawn.append(fed.drawn.sites)
    expected = [
        draw(fed.sizes, 0.5, config.seed, number, sampling="poisson").sites for number in range(1, 31)
    ]
    assert (drawn == expected) == (not real)


def test_draws_of_either_kind():
    sizes = np.array([5, 0, 3, 1, 1, 9, 2, 2, 2, 2])
    fixed = draw(sizes, 0.3, 1, 1)
    assert len(fixed.sites) == 3 and fixed.expected == 3 and fixed.rate == 3 / 9 and 1 not in fixed.sites
    draws = [draw(sizes, 0.3, 1, number, sampling="poisson") for number in range(1, 2001)]
    assert all(one.expected == pytest.approx(2.7) and one.rate == 0.3 for one in draws)
    counts = np.bincount(np.concatenate([one.sites for one in draws]).astype(int), minlength=10)
    assert counts[1] == 0 and all(
        abs(count - 600) < 4 * (2000 * 0.21) ** 0.5 for count in np.delete(counts, 1)
    )
    together = sum({0, 2} <= set(one.sites) for one in draws)  # each by itself: 0.09
    assert abs(together - 180) < 4 * (2000 * 0.09 * 0.91) ** 0.5
    again = draw(sizes, 0.3, 1, 1, attempt=1, without=[0], sampling="poisson")
    assert again.rate == 1.0 and 0 not in again.sites  # who is left after a failure is no random sample


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feded"])
def test_noise_in_shares_is_the_noise_of_the_sum(data, name, tmp_path, monkeypatch):
    """Without noise, sums are those that the coordinator would have clipped; then the noise is as stated."""
    from fedrel.federation.summands import NoiseShares

    config, ready = data
    config = config.with_settings([f"method={name}", *DP, "privacy.dp.clip=0.2"])
    secure = config.with_settings(["privacy.secure_sum=true"])
    noised = fast(secure, ready, 1, tmp_path / "noised").checkpoint().weights
    monkeypatch.setattr(Federation, "normal", lambda self, *purpose: np.zeros)
    monkeypatch.setattr(NoiseShares, "add", lambda *given: None)
    plain = fast(config, ready, 1, tmp_path / "plain")
    same(fast(secure, ready, 1, tmp_path / "secure"), plain.checkpoint().weights, atol=1e-4)
    if name == "fedavg":  # all six add a share, where four suffice
        moved = np.concatenate([(noised[key] - w).ravel() for key, w in plain.checkpoint().weights.items()])
        assert np.std(moved) == pytest.approx(0.2 / 6 * (6 / 4) ** 0.5, rel=0.1)


def test_a_secure_run_counts_the_rounds_of_the_site_that_answered_most(data, tmp_path):
    config = data[0].with_settings([*DP, "privacy.secure_sum=true", "training.fraction=0.7"])
    config = config.with_settings(["training.rounds=3", "privacy.dp.sampling=fixed"])
    result = run(config, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    most = max(sum(site in line["active"] for line in lines) for site in range(6))
    gaussian = epsilon(1.0, 1.0, most, 1e-5)
    assert gaussian < result.epsilon < 1.1 * gaussian
    assert all(0 < line["privacy"]["extra"] < 1e-3 and "rates" not in line["privacy"] for line in lines)
