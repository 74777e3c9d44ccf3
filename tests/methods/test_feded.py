"""FedED: Eq. 4 to 6 by hand, Algorithm 1 against a slow version, what travels, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrel.errors import UserError
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.messages import RefusedError, payload
from fedrel.federation.predictions import BytePredictions, Predictions
from fedrel.methods.by_name import method
from fedrel.methods.feded import FedED
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.round_outcome import LostRoundError
from fedrel.runs.train import Session, run
from fedrel.seeding import numpy_generator
from tests.conftest import NO_STATES, local_session, tiny
from tests.federation.test_lying_sites import LyingEngine
from tests.methods.slow import slow_logits

CONFIG = tiny(
    method="feded",
    partition__coordinator=0.2,
    evaluation='{task = "classification"}',
    extractor__dropout=0.0,
    training__learning_rate_decay=0.1,
)


def begun(engine=LocalEngine, config=CONFIG) -> Session:
    ready = prepare(config)
    return Session(config, ready, engine(new_runner(config, ready.site_data, NO_STATES)), None)


def test_equations_4_to_6_by_hand():
    # Two sites and a sentence with two relations: logits (ln 4, 0) and (0, 0), up to a constant.
    first, second = np.array([[0.8, 0.2]]), np.array([[0.5, 0.5]])
    feded = FedED(temperature=2.0)
    z = feded.ensemble([first, second])
    assert z[0, 0] - z[0, 1] == pytest.approx(math.log(4) / 2)  # Eq. 5
    # Eq. 4: q is in the ratio exp(ln 4 / 2 / 2) = sqrt 2 to 1.
    q = math.sqrt(2) / (math.sqrt(2) + 1)
    logits, labels = torch.tensor([[math.log(3), 0.0]]), torch.tensor([1])  # p = (3/4, 1/4), y = 1
    expected = -math.log(1 / 4) + q * math.log(q / 0.75) + (1 - q) * math.log((1 - q) / 0.25)  # Eq. 6
    loss = feded.distillation(logits, labels, torch.from_numpy(z))
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    # As Eq. 5 is written: the mean of probabilities is taken for logits.
    probs = FedED(teacher="probs").ensemble([first, second])
    assert probs.tolist() == [[pytest.approx(0.65), pytest.approx(0.35)]]


@pytest.mark.parametrize("teacher", ["logits", "probs"])
def test_two_rounds_equal_a_slow_version_of_algorithm_1(teacher):
    config = CONFIG.with_settings(
        [f"methods.feded.teacher={teacher}", "methods.feded.temperature=2.0", "training.epochs=1"]
    )
    ready = prepare(config)
    corpus, sites = ready.dataset.corpus, ready.site_data.partition
    object.__setattr__(sites, "order", sites.order[: 6 * 20])
    object.__setattr__(sites, "bounds", np.arange(7) * 20)
    object.__setattr__(ready.site_data, "validation", ready.site_data.validation[:30])
    validation = ready.site_data.validation
    session = local_session(config, ready)
    theta = {
        name: torch.tensor(array, dtype=torch.float64) for name, array in session.checkpoint().weights.items()
    }
    for _ in range(2):
        session.next_round()

    training = config.training

    def logits_of(weights, rows):
        reach = config.extractor.max_length
        return torch.stack(
            [slow_logits(weights, corpus, ready.site_data.inputs.lookup, row, reach) for row in rows]
        )

    def labels_of(rows):
        return torch.tensor([int(corpus.relation[row]) for row in rows])

    def train(weights, rows, site, q, loss):
        local = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        rate = training.learning_rate * 0.9 ** (q - 1)
        optimiser = torch.optim.SGD(local.values(), lr=rate, weight_decay=training.weight_decay)
        order = numpy_generator(config.seed, "shuffle", q, site).permutation(len(rows))
        for begin in range(0, len(rows), training.batch_size):
            places = order[begin : begin + training.batch_size]
            optimiser.zero_grad()
            loss(logits_of(local, rows[places]), labels_of(rows[places]), places).backward()
            optimiser.step()
        return {name: tensor.detach() for name, tensor in local.items()}

    for q in (1, 2):
        active = sorted(numpy_generator(config.seed, "draw", q, 0).choice(6, size=3, replace=False))
        said = []
        for site in active:
            rows = sites.rows(site)
            local = train(
                theta, rows, int(site), q, lambda logits, y, _: torch.nn.functional.cross_entropy(logits, y)
            )
            p = logits_of(local, validation).softmax(1).half().double()
            said.append(p if teacher == "probs" else p.clamp(min=2.0**-24).log())
        z = sum(said) / len(said)

        def distil(logits, y, places, z=z):
            log_p, q_ = logits.log_softmax(1), (z[places] / 2.0).softmax(1)
            each = -log_p[torch.arange(len(y)), y] + (q_ * (q_.log() - log_p)).sum(1)
            return each.mean()

        theta = train(theta, validation, -1, q, distil)

    for name, tensor in session.checkpoint().weights.items():
        np.testing.assert_allclose(tensor, theta[name].numpy(), rtol=0, atol=3e-5)


distributions = st.integers(1, 6).flatmap(
    lambda classes: arrays(
        np.float64, st.tuples(st.integers(1, 20), st.just(classes)), elements=st.floats(1e-6, 1)
    )
)


@given(distributions)
def test_what_travels_is_near_what_was_predicted(scores):
    probabilities = scores / scores.sum(1, keepdims=True)
    for message, near in (
        (Predictions.of(probabilities), 2**-11),
        (BytePredictions.of(probabilities), 1 / 255),
    ):
        arrived = type(message).unpack(message.pack(), {})
        arrived.check()
        assert abs(arrived.read() - probabilities).max() <= near * (1 + scores.shape[1] / 2)
        assert payload(message.pack()) == scores.size * (2 if isinstance(message, Predictions) else 1)


def test_eight_bits_lose_none_of_the_255_parts():
    halves = BytePredictions.of(np.full((1, 2), 0.5))
    assert sorted(halves.probabilities[0].tolist()) == [127, 128]
    thirds = BytePredictions.of(np.full((1, 3), 1 / 3))
    assert thirds.probabilities.tolist() == [[85, 85, 85]]


def lie_length(arrays):
    arrays["probabilities"] = arrays["probabilities"][:-1]


def lie_classes(arrays):
    arrays["probabilities"] = arrays["probabilities"][:, :-1]


def lie_sum(arrays):
    arrays["probabilities"][3] = 0.9


def lie_nan(arrays):
    arrays["probabilities"][0, 0] = np.nan


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lie_length, "sentences by relations"),
        (lie_classes, "sentences by relations"),
        (lie_sum, "add up to"),
        (lie_nan, "not finite"),
    ],
)
def test_a_lying_site_is_refused_and_the_round_goes_on(lie, reason):
    active = numpy_generator(CONFIG.seed, "draw", 1, 0).choice(6, size=3, replace=False)
    liar = int(active.min())
    line = begun(lambda at: LyingEngine(at, "predict", lie, {liar})).next_round()
    assert [(one.site, reason in one.reason) for one in line.refused] == [(liar, True)]
    assert line.examples > 0  # the coordinator distilled what the others said


def test_with_no_usable_predictions_the_run_stops_after_a_second_try():
    session = begun(lambda at: LyingEngine(at, "predict", lie_nan, set(range(6))))
    with pytest.raises(LostRoundError, match="no site's answer could be used"):
        session.next_round()


def test_bytes_that_do_not_add_up_are_refused():
    with pytest.raises(RefusedError, match="add up to 254"):
        BytePredictions(np.array([[127, 127]], np.uint8)).check()


def test_uploads_are_the_predictions_and_nothing_else():
    config = CONFIG.with_settings(["methods.feded.upload=uint8"])
    session = begun(config=config)
    line = session.next_round()
    ready = prepare(config)
    numbers = len(ready.site_data.validation) * len(ready.dataset.corpus.relations)
    assert line.bytes.up == 3 * numbers
    assert set(line.bytes.by_kind) == {"Model", "BytePredictions"}


@pytest.mark.parametrize("name", ["feded", "validation-only"])
def test_without_labelled_sentences_at_the_coordinator_nothing_begins(name):
    with pytest.raises(UserError, match=r"set partition\.coordinator"):
        begun(config=tiny(method=name)).next_round()


def test_validation_only_asks_no_site():
    line = begun(config=CONFIG.with_settings(["method=validation-only"])).next_round()
    assert line.bytes.up == line.bytes.down == 0
    assert line.examples == len(prepare(CONFIG).site_data.validation)


def test_workers_and_resume_give_the_same_weights(out):
    config = CONFIG.with_settings(["extractor.dropout=0.3"])
    run(config, out / "local")
    workers = config.with_settings(["engine.kind=workers", "engine.workers=2", "training.rounds=2"])
    run(workers, out / "workers")
    run(workers.with_settings(["training.rounds=3"]), out / "workers", resume=True)
    weights = [(out / name / "model" / "weights.safetensors").read_bytes() for name in ("local", "workers")]
    assert weights[0] == weights[1]


def test_options_are_checked():
    with pytest.raises(UserError, match=r"methods\.feded\.upload"):
        method("feded", {"feded": {"upload": "float8"}})
