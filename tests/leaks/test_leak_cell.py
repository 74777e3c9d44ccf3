"""Attacks on small federations: they succeed where nothing is defended, and fail under what defends."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fedrel.leaks.leak_cell import LeakCell, attacked_cell
from fedrel.leaks.leak_defences import DEFENCES
from fedrel.leaks.leak_texts import divided, with_shadows
from fedrel.leaks.membership_leaks import ABSENT, CLAIMED, MATCHED, UNKNOWN, evidence
from fedrel.methods.claims import Claims, KeyedClaims
from fedrel.runs.prepare import prepare
from tests.conftest import tiny


@cache
def cell(method: str, defence: str, rounds: int = 2) -> LeakCell:
    config = tiny(
        method=method,
        data__sentences=2400,
        partition__sites=10,
        training__fraction=0.4,
        training__epochs=4,
        extractor__min_count=1,
    )
    settings = DEFENCES[defence].over(config)
    begun = LeakCell(method=method, defence=defence, settings=settings, config="", rounds=rounds, seen="")
    return attacked_cell(config.with_settings(settings), begun, DEFENCES[defence])


def test_texts_are_divided_by_text():
    config = tiny(partition__sites=6)
    ready = prepare(config)
    texts = divided(ready, 4, seed=1)
    numbers = texts.corpus.text_numbers()
    groups = [
        set(numbers[np.concatenate(rows)].tolist())
        for rows in (texts.members, texts.outsiders, [texts.reference])
    ]
    assert not groups[0] & groups[1] and not groups[0] & groups[2] and not groups[1] & groups[2]
    assert not np.isin(texts.population, np.concatenate(texts.shadows)).any()
    made = with_shadows(ready, texts).site_data
    assert made.partition.sites == 10
    assert [made.partition.rows(site).tolist() for site in (0, 9)] == [
        texts.members[0].tolist(),
        texts.shadows[3].tolist(),
    ]
    assert np.isin(texts.planted(), made.validation).all()


def test_an_update_of_trained_words_lists_them():
    found = cell("fedavg", "none").words
    assert found.precision == found.recall == 1.0 and found.guessing < 0.2


def test_fixed_words_are_not_listed():
    found = cell("fedavg", "fixed-words").words
    assert found.recall < 0.5


def test_updates_tell_members_from_outsiders():
    found = cell("fedavg", "none").membership
    assert found.auc > 0.6
    assert 0 <= found.tpr_at_0_1_percent <= found.tpr_at_1_percent <= 1


def test_a_sum_tells_less_of_each_site():
    alone, summed = cell("fedavg", "none"), cell("fedavg", "secure-sums")
    assert summed.words.precision < 0.6 < alone.words.precision
    assert summed.membership.auc < alone.membership.auc
    assert summed.counts.beyond_average < alone.counts.beyond_average
    assert summed.attacked == alone.attacked == 8


def test_updates_tell_how_frequent_relations_are():
    found = cell("fedavg", "none").counts
    assert found.beyond_average > 0.4
    assert cell("fedavg", "none").why_not == {
        "facts": "no claims about facts are sent",
        "tokens": "the extractor is no transformer",
    }


def test_noise_hides_members_and_relations():
    pytest.importorskip("dp_accounting")
    alone, noised = cell("fedavg", "fixed-words"), cell("fedavg", "dp-1")
    assert noised.epsilon == pytest.approx(1, abs=0.15)
    assert abs(noised.membership.auc - 0.5) < 0.1 < alone.membership.auc - 0.5
    assert noised.counts.beyond_average < alone.counts.beyond_average / 2


def test_noise_on_a_sites_own_steps_hides_its_sentences():
    pytest.importorskip("dp_accounting")
    alone, noised = cell("fedavg", "fixed-words"), cell("fedavg", "sentence-dp-1")
    assert noised.epsilon == pytest.approx(1, abs=0.3), (
        "of the site that it cost most, not of one of middling size"
    )
    assert abs(noised.membership.auc - 0.5) < 0.1 < alone.membership.auc - 0.5
    assert noised.attacked == alone.attacked, "the coordinator sees every answer"


def test_where_a_method_cannot_have_a_defence_the_cell_says_why():
    pytest.importorskip("dp_accounting")
    assert "claims" in cell("lazy-mil", "dp-8").refused


def test_settings_are_chosen_at_shadow_sites():
    """What the attack assumes is what tells the attacker's own sites best, with no look at the real ones."""
    found = cell("fedavg", "none")
    assert found.chosen["membership"].startswith("a ") and "of 2)" in found.chosen["membership"]
    assert found.chosen["counts"].split(" (")[0] in ("classifier.bias", "sums of rows", "lengths of steps")
    assert cell("lazy-mil", "none").chosen["counts"] == "claims (8 of 8)"


def test_claims_with_numbers_tell_facts_counts_and_members():
    found = cell("lazy-mil", "none")
    assert found.facts.precision == found.facts.recall == 1.0
    assert found.membership.auc > 0.9
    assert found.counts.correlation > 0.9


def test_agreed_defaults_hide_facts():
    found = cell("lazy-mil", "agreed")
    assert found.facts.precision < found.facts.guessing + 0.1 and found.facts.recall < 0.2
    assert found.membership.auc < cell("lazy-mil", "none").membership.auc


def test_predictions_hide_words():
    found = cell("feded", "none")
    assert found.words is None and found.why_not["words"] == "no weights leave a site"
    assert 0.4 < found.membership.auc < cell("fedavg", "none").membership.auc
    assert found.counts.beyond_average < cell("fedavg", "none").counts.beyond_average


def test_what_claims_say_about_sentences():
    triple, value = np.array([3, 5], np.int32), np.array([0.25, 0.5], np.float32)
    index = np.arange(2, dtype=np.int32)
    asked, probability = np.array([3, 3, 5, 7], np.int32), np.array([0.25, 0.1, 0.4, 0.5])
    numbered = evidence(Claims(triple, value, index), asked, probability)
    assert numbered.tolist() == [MATCHED, CLAIMED, CLAIMED, ABSENT]
    digest = np.zeros((2, 32), np.uint8)
    keyed = evidence(KeyedClaims(digest, value, index), asked, probability)
    assert keyed.tolist() == [MATCHED, UNKNOWN, UNKNOWN, MATCHED]


@pytest.mark.parametrize("method", ["scaffold", "moon", "fedprox", "att"])
@pytest.mark.slow
def test_other_methods_can_be_attacked(method):
    found = cell(method, "none", 1)
    assert found.words.recall == 1.0 and found.stopped is None
