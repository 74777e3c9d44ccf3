"""What a site's answers cost is kept on its disk; a site whose budget is spent answers no more, whoever asks."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`")
pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")

from fedrel.config.schema import Config
from fedrel.deployment.answered import PrivacyBudget, Spent
from fedrel.deployment.audit import check
from fedrel.deployment.record_check import check_record
from fedrel.errors import UserError
from fedrel.privacy.differential_privacy import Steps, epsilon, local_steps
from tests.federation_e2e.conftest import Called, experiment
from tests.federation_e2e.test_lying_coordinator import Liar
from tests.federation_e2e.testbed import NAMES, Testbed, rounds

NOISE, DELTA = 4.0, 1e-5
SPENT = "refused the request: another answer would exceed max_epsilon of its site.toml"
NORTH = 0


def private(**changes: object) -> Config:
    settings: dict[str, object] = {
        "extractor__train_words": False,
        "privacy__dp__level": "site",
        "privacy__dp__noise": NOISE,
        "privacy__dp__clip": 0.05,
        "engine__deadline": 0.5,
    }
    return experiment("fedavg", **(settings | changes))


def limited(bed: Testbed, name: str, answers: int) -> float:
    """Give a site a budget that suffices for so many answers and no more; returns it."""
    most = epsilon(NOISE, 1.0, answers, DELTA) + 1e-9
    bed.privacy["max_epsilon"] = most
    bed.write_policy(name)
    del bed.privacy["max_epsilon"]
    return most


def spent(bed: Testbed, name: str) -> Spent:
    return PrivacyBudget(bed.site(name).privacy).read()


def last_entry(bed: Testbed, name: str) -> Any:
    return check(bed.site(name).audit).lines[-1].entry


def test_answers_are_counted_across_runs_and_recorded(called: Called, tmp_path: Path):
    called.run(private(), tmp_path / "one")
    assert not [line["refused"] for line in rounds(tmp_path / "one") if line["refused"]]  # noise is explained
    called.run(private(seed=2, privacy__dp__noise=2.0), tmp_path / "two")
    for name in NAMES:
        assert spent(called.bed, name) == Spent(4, (Steps(NOISE, 1.0, 2), Steps(2.0, 1.0, 2)))
        told = last_entry(called.bed, name).privacy
        # Two sums of noise 4 and two of noise 2 are one of 1 / sqrt(2/16 + 2/4).
        assert told["answers"] == 4 and told["delta"] == DELTA
        assert told["epsilon"] == pytest.approx(epsilon(0.625**-0.5, 1.0, 1, DELTA), rel=1e-3)
        assert not check_record(called.bed.site(name)).broken


def test_shares_of_noise_between_real_sites_are_counted_too(called: Called, tmp_path: Path):
    """Each site counts what the coordinator counts: Gaussian noise without sampling, and next to nothing beside."""
    called.run(private(privacy__secure_sum=True), tmp_path / "one")
    lines = rounds(tmp_path / "one")
    assert not [line["refused"] for line in lines if line["refused"]]
    for name in NAMES:
        (steps,) = spent(called.bed, name).steps
        assert (steps.noise, steps.rate, steps.count) == (NOISE, 1.0, 2)
        assert lines[-1]["privacy"]["extra"] <= steps.extra < 1e-3
        told = last_entry(called.bed, name).privacy["epsilon"]
        assert told == pytest.approx(lines[-1]["privacy"]["epsilon"], rel=1e-2)


def test_a_site_whose_budget_is_spent_answers_no_more(called: Called, tmp_path: Path):
    limited(called.bed, "north", answers=2)
    called.run(private(training__rounds=4), tmp_path / "one")
    said = [[(one["site"], one["reason"]) for one in line["refused"]] for line in rounds(tmp_path / "one")]
    assert said == [[], [], [(NORTH, SPENT)], [(NORTH, SPENT)]]
    assert spent(called.bed, "north").answers == 2 and spent(called.bed, "south").answers == 4
    assert "and privacy.max_epsilon is" in last_entry(called.bed, "north").note
    # Another run, and another experiment whose answers cost next to nothing, get none either.
    called.run(private(seed=2, privacy__dp__noise=1000.0, training__rounds=1), tmp_path / "two")
    assert [one["reason"] for one in rounds(tmp_path / "two")[0]["refused"]] == [SPENT]
    assert spent(called.bed, "north").answers == 2


def test_the_same_question_again_costs_nothing(called: Called):
    limited(called.bed, "north", answers=1)
    liar = Liar(called, private())
    first = liar.asks("train", **liar.initial)
    again = liar.asks("train", **liar.initial)
    assert first.arrays is not None and again.arrays is not None
    assert all((first.arrays[name] == array).all() for name, array in again.arrays.items())
    assert spent(called.bed, "north").answers == 1
    assert liar.asks("train", run=f"{'1' * 32}-00000000", **liar.initial).failure == SPENT


def test_at_sentence_level_an_answer_costs_its_steps_and_its_noise_is_drawn_once(called: Called):
    """The noise does not follow from the seed: the same answer is kept, and another run's has other noise."""
    config = private(privacy__dp__level="sentence", privacy__dp__noise=1.0)
    liar = Liar(called, config)
    first, again = (liar.asks("train", **liar.initial) for _ in range(2))
    other = liar.asks("train", run=f"{'1' * 32}-00000000", **liar.initial)
    assert first.arrays is not None and again.arrays is not None and other.arrays is not None
    assert all((first.arrays[name] == array).all() for name, array in again.arrays.items())
    assert first.arrays["loss"] == 0 and first.arrays["examples"] == called.bed.site("north").sentences
    weights = [name for name in first.arrays if name.startswith("weights/")]
    assert all((first.arrays[name] != other.arrays[name]).mean() > 0.9 for name in weights)
    assert config.privacy.dp is not None
    one = local_steps(config.privacy.dp, config.training, called.bed.site("north").sentences)
    assert spent(called.bed, "north") == Spent(2, (replace(one, count=2 * one.count),))


def test_a_run_at_sentence_level_between_real_sites(called: Called, tmp_path: Path):
    """Noise does not make weights look unearned, and the coordinator counts what the sites count."""
    config = private(privacy__dp__level="sentence", privacy__dp__noise=1.0, training__rounds=2)
    called.run(config, tmp_path / "one")
    lines = rounds(tmp_path / "one")
    assert len(lines) == 2 and not [line["refused"] for line in lines if line["refused"]]
    most = max(spent(called.bed, name).epsilon(DELTA) for name in NAMES)
    assert lines[-1]["privacy"]["epsilon"] == pytest.approx(most, rel=1e-6) and most > 0


def test_without_noise_a_site_with_a_budget_tells_nothing(called: Called):
    limited(called.bed, "north", answers=100)
    liar = Liar(called, experiment("fedavg", engine__deadline=0.5))
    assert liar.asks("train", **liar.initial).failure == SPENT
    assert "no [privacy.dp]" in liar.note() and spent(called.bed, "north") == Spent()


@pytest.mark.parametrize("noised", [False, True])
def test_a_site_with_a_budget_claims_nothing(called: Called, noised: bool):
    """Claims tell of the text, and no noise covers them: also where a lying coordinator has published some."""
    limited(called.bed, "north", answers=100)
    config = experiment("lazy-mil", engine__deadline=0.5)
    if noised:
        privacy = {"level": "site", "noise": NOISE, "clip": 0.05}
        config = config.with_settings({"privacy.dp": privacy, "extractor.train_words": False})
    liar = Liar(called, config)
    assert liar.asks("claim", **liar.initial).failure == SPENT
    assert ("noise does not cover lazy-mil's claims" if noised else "no [privacy.dp]") in liar.note()


def test_answers_without_noise_are_counted_and_no_later_budget_covers_them(called: Called):
    liar = Liar(called, experiment("fedavg", engine__deadline=0.5))
    assert liar.asks("train", **liar.initial).arrays is not None
    assert spent(called.bed, "north") == Spent(unnoised=1)
    assert last_entry(called.bed, "north").privacy["unnoised"] == 1
    limited(called.bed, "north", answers=100)
    liar = Liar(called, private())
    assert liar.asks("train", **liar.initial).failure == SPENT
    assert "1 answers without noise, which no privacy.max_epsilon covers" in liar.note()


def test_an_account_that_was_made_cheaper_is_noticed(called: Called):
    liar = Liar(called, private())
    liar.asks("train", **liar.initial)
    PrivacyBudget(called.bed.site("north").privacy).write(Spent(1, (Steps(1e4),)))
    broken = check_record(called.bed.site("north")).broken
    assert broken is not None and "privacy.json 0.0007" in broken.reason


def test_an_account_that_was_removed_replaced_or_damaged_is_noticed(called: Called, tmp_path: Path):
    liar = Liar(called, private())
    file = called.bed.site("north").privacy
    liar.asks("train", **liar.initial)
    shutil.copy(file, tmp_path / "earlier.json")
    assert liar.asks("train", run=f"{'1' * 32}-00000000", **liar.initial).arrays is not None
    shutil.copy(file, tmp_path / "last.json")
    for damage in (
        file.unlink,
        lambda: shutil.copy(tmp_path / "earlier.json", file),
        lambda: file.write_text((tmp_path / "last.json").read_text().replace('"count": 2', '"count": 1')),
    ):
        damage()
        assert liar.asks("train", run=f"{'2' * 32}-00000000", **liar.initial).arrays is None
    with pytest.raises(UserError, match="is damaged"):
        spent(called.bed, "north")
    file.unlink()
    broken = check_record(called.bed.site("north")).broken
    assert broken is not None and "counts 2 answers that cost privacy, privacy.json 0" in broken.reason
    shutil.copy(tmp_path / "last.json", file)
    assert liar.asks("train", run=f"{'2' * 32}-00000000", **liar.initial).arrays is not None


@pytest.mark.slow
def test_a_budget_outlasts_the_processes_of_site_and_coordinator(federation: Testbed, tmp_path: Path):
    limited(federation, "west", answers=2)
    config = private(training__rounds=2, engine__deadline=120)
    federation.start()
    federation.finish(config, tmp_path / "one")
    assert not [line["refused"] for line in rounds(tmp_path / "one") if line["refused"]]
    for name in ("west", "superlink"):
        federation.kill(name)
    federation.start_superlink()
    federation.start_site("west")
    federation.finish(config.with_settings(["seed=2"]), tmp_path / "two")
    assert [
        [(one["site"], one["reason"]) for one in line["refused"]] for line in rounds(tmp_path / "two")
    ] == [[(2, SPENT)]] * 2
    assert spent(federation, "west").answers == 2 and spent(federation, "south").answers == 4
    assert json.loads((tmp_path / "two" / "result.json").read_text())["epsilon"] == epsilon(
        NOISE, 1.0, 2, DELTA
    )
