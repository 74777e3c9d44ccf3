"""With secure sums a method trains as without, up to the rounding of fixed point, or is refused with the reason."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedrel.errors import UserError
from fedrel.federation.coordinator import Answer
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.messages import RefusedError
from fedrel.federation.summands import Summand
from fedrel.methods.by_name import check_secure_sum, method, methods
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session, run
from tests.conftest import tiny
from tests.methods.slow_rounds import fast, same

SUMMED = {  # method: how far weights may be from those without secure sums
    "fedavg": 1e-6,
    "lazy-mil": 1e-6,
    "lazy-one": 1e-6,
    "fedprox": 1e-6,
    "moon": 1e-6,
    "fedrs": 1e-6,
    "fedlc": 1e-6,
    "fedavgm": 1e-6,
    "fedadam": 1e-3,  # divides by the root of small numbers
    "feddyn": 1e-3,  # divides by alpha, and takes weight decay of unused words for moves
    "feded": 1e-5,
    "scaffold": 1e-3,  # divides by the path
}
SINGLE = {
    "fedatt": "fedatt's attention over the sites needs the answers of single sites",
    "fedcmc": "fedcmc's choice of class vectors needs the answers of single sites",
    "centralised": "trains in one place",
    "local": "trains in one place",
    "validation-only": "trains in one place",
}
HEADS = {"none", "one", "ave", "att", "att-ra"}  # change what a site trains, not what it sends
DOCUMENTS = {"fedlcc"}


@pytest.fixture(scope="module")
def data():
    config = tiny(method="fedavg", extractor__bias=False, training__fraction=1.0, partition__coordinator=0.1)
    return config, prepare(config)


def test_every_method_is_summed_or_refused():
    ours = {name for name, kind in methods().items() if kind.__module__.startswith("fedrel.methods.")}
    assert ours == {*SUMMED, *SINGLE, *HEADS, *DOCUMENTS}


@pytest.mark.parametrize("name", SUMMED)
def test_weights_are_those_of_plain_answers(data, name, tmp_path):
    config, ready = data
    plain = fast(config.with_settings([f"method={name}"]), ready, 2, tmp_path / "plain")
    secure = fast(
        config.with_settings([f"method={name}", "privacy.secure_sum=true"]), ready, 2, tmp_path / "secure"
    )
    same(secure, plain.checkpoint().weights, atol=SUMMED[name])
    assert any((plain.checkpoint().weights[n] != w).any() for n, w in secure.checkpoint().weights.items())


@pytest.mark.parametrize("name", SINGLE)
def test_a_method_that_needs_single_answers_is_refused(name):
    config = tiny(method=name, privacy__secure_sum=True)
    with pytest.raises(UserError, match=SINGLE[name]):
        check_secure_sum(method(name, {}), config)


def test_nothing_but_masked_numbers_crosses(data, tmp_path):
    config, ready = data
    config = config.with_settings(["privacy.secure_sum=true", "training.rounds=1"])
    run(config, tmp_path / "run")
    (noted,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    up = {kind for kind, sent in noted["bytes"]["by_kind"].items() if sent["up"]}
    assert up == {"PublicKeys", "SealedShares", "MaskedNumbers", "SignedLists", "Unmasking"}
    assert noted["examples"] == len(ready.site_data.partition.order)


STEPS = ["give_keys", "give_shares", "answer_masked", "sign_lists", "unmask"]


class Deaf(LocalEngine):
    """Loses a site's answers from one phase on."""

    def __init__(self, runner, site, phase):
        super().__init__(runner)
        self.site = site
        self.phases = set(STEPS[STEPS.index(phase) :])

    def ask(self, phase, round_, shared, own):
        for site, answer in super().ask(phase, round_, shared, own):
            lost = site == self.site and phase in self.phases
            yield site, Answer(None, "gone", lost=True) if lost else answer


@pytest.mark.parametrize("phase", STEPS)
def test_a_site_that_drops_out_is_left_out_of_the_mean_or_not_missed(data, phase, tmp_path):
    config, ready = data
    config = config.with_settings(["privacy.secure_sum=true"])
    session = Session(config, ready, Deaf(new_runner(config, ready.site_data, tmp_path), 2, phase), None)
    session.next_round()
    plain = data[0]

    class Absent(LocalEngine):
        def ask(self, phase_, round_, shared, own):
            for site, answer in super().ask(phase_, round_, shared, own):
                missing = site == 2 and phase in STEPS[:3]
                yield site, Answer(None, "gone") if missing else answer

    expected = Session(plain, ready, Absent(new_runner(plain, ready.site_data, tmp_path)), None)
    expected.next_round()
    same(session, expected.checkpoint().weights, atol=1e-6)


class Forging(LocalEngine):
    """Changes a site's signature in one phase."""

    def __init__(self, runner, site, phase):
        super().__init__(runner)
        self.site, self.phase = site, phase

    def ask(self, phase, round_, shared, own):
        for site, answer in super().ask(phase, round_, shared, own):
            yield site, forged(answer) if (site, phase) == (self.site, self.phase) else answer


def forged(answer):
    signature = answer.arrays["signature"].copy()
    signature[3] ^= 1
    return Answer({**answer.arrays, "signature": signature})


@pytest.mark.parametrize(("phase", "message"), [("give_keys", "PublicKeys"), ("sign_lists", "SignedLists")])
def test_a_site_whose_signature_is_wrong_is_dropped_and_named(data, phase, message, tmp_path):
    config, ready = data
    config = config.with_settings(["privacy.secure_sum=true"])
    session = Session(config, ready, Forging(new_runner(config, ready.site_data, tmp_path), 3, phase), None)
    done = session.next_round()
    (refused,) = done.refused
    assert (refused.site, refused.message) == (3, message)
    assert refused.reason == "the signature does not fit: not signed with its registered key"
    counted = data[1].site_data.partition.sizes
    assert done.examples == counted.sum() - (counted[3] if phase == "give_keys" else 0)


def test_too_few_sites_are_refused_before_anything_is_trained(data, tmp_path):
    config = data[0].with_settings(["privacy.secure_sum=true", "privacy.min_cohort=7"])
    with pytest.raises(UserError, match=r"a round has 6 sites, and privacy\.min_cohort demands 7"):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_clipped_numbers_are_counted(data, tmp_path):
    config, ready = data
    config = config.with_settings(["privacy.secure_sum=true", "privacy.range=0.001"])
    session = fast(config, ready, 1, tmp_path)
    start = fast(config, ready, 0, tmp_path).checkpoint().weights
    moved = max(np.abs(w - start[name]).max() for name, w in session.checkpoint().weights.items())
    assert 0 < moved < 0.00101


def test_sites_scale_their_own_updates_to_a_norm(data, tmp_path):
    config, ready = data
    start = fast(config, ready, 0, tmp_path).checkpoint().weights

    def moved(*settings: str) -> float:
        own = tmp_path / f"{len(settings)}"  # sites help to uncover one sum a round
        session = fast(config.with_settings(["privacy.secure_sum=true", *settings]), ready, 1, own)
        squares = (np.square(w - start[name]).sum() for name, w in session.checkpoint().weights.items())
        return float(np.sqrt(sum(squares)))

    assert moved() > 0.02
    assert 0.005 < moved("privacy.clip=0.01") < 0.01001  # a mean of updates of norm 0.01


def test_a_summand_within_a_norm():
    summand = Summand(np.array([[3.0, 4.0]], np.float32), 2.0, 7, 0.5)
    assert summand.within(None) is summand
    assert summand.within(5.0).numbers.tolist() == [3, 4]
    shorter = summand.within(1.0)
    np.testing.assert_allclose(shorter.numbers, [0.6, 0.8], rtol=1e-6)
    assert (shorter.weight, shorter.examples, shorter.loss) == (2.0, 7, 0.5)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["privacy.clip=1"], "privacy.clip is for secure sums"),
        (
            ["privacy.secure_sum=true", "privacy.clip=1", 'privacy.dp={level="site",noise=1.0,clip=1.0}'],
            "privacy.dp has a clip of its own",
        ),
    ],
)
def test_a_clip_that_would_do_nothing_is_refused(data, settings, problem):
    with pytest.raises(UserError, match=problem):
        data[0].with_settings(settings)


def test_there_is_no_update_of_predictions_to_scale(data):
    config = data[0].with_settings(["privacy.secure_sum=true", "privacy.clip=1"])
    with pytest.raises(UserError, match=r"privacy.clip: feded has no updates to scale"):
        check_secure_sum(method("feded", {}), config)


@pytest.mark.parametrize("rule", ["aggregation.rule=median", "aggregation.norm_bound=2"])
def test_rules_that_look_at_single_updates_are_refused(data, rule):
    config = data[0].with_settings(["method=fedavg", "privacy.secure_sum=true", rule])
    with pytest.raises(UserError, match="needs the answers of single sites"):
        check_secure_sum(method("fedavg", {}), config)


def test_a_site_does_not_send_its_answer_by_itself(data, tmp_path):
    config, ready = data
    config = config.with_settings(["privacy.secure_sum=true"])
    runner = new_runner(config, ready.site_data, tmp_path)
    runner.open("train", 1, {})
    weights = fast(config, ready, 0, tmp_path).checkpoint().weights
    arrays = {f"Model.weights/{name}": tensor for name, tensor in weights.items()}
    with pytest.raises(RefusedError, match="would tell this site's answer by itself"):
        runner.answer("train", 1, 0, arrays)
