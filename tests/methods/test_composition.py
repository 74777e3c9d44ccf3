"""Composed methods in training: each part has its effect, and what they keep does not mix."""

from __future__ import annotations

import numpy as np
import pytest

from fedrel.federation.site import Site
from fedrel.methods.by_name import method, methods
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from tests.conftest import local_session, tiny
from tests.methods.slow_rounds import fast, same, small, with_sites

LOSSES = sorted(
    {"fedprox", "fedrs", "fedlc", "moon", "fedcmc"} & set(methods())
)  # each adds to what is learned


def session(config) -> Session:
    ready = prepare(config)
    return local_session(config, ready)


def test_centralised_training_is_one_site_with_everything():
    config = tiny(method="centralised+one", training__rounds=1)
    rounds = session(config)
    line = rounds.next_round()
    assert line.active == [0]
    assert line.examples == len(prepare(config).dataset.train)
    assert method("centralised+one", {}).simulation_only() is not None
    assert method("lazy-mil", {"lazy-mil": {"pooled_winners": True}}).simulation_only() is not None
    assert method("lazy-mil", {}).simulation_only() is None


def test_with_one_site_lazy_mil_and_one_train_on_as_many_sentences_as_there_are_triples():
    """All sentences at one place: both then choose one sentence a triple."""
    config = tiny(partition__sites=1, training__fraction=1.0, training__epochs=1, extractor__dropout=0.0)
    lazy = session(config.with_settings(["method=lazy-mil"]))
    line = lazy.next_round()
    data = prepare(config).dataset
    assert line.examples == len(np.unique(data.corpus.triple[data.train]))


@pytest.mark.parametrize("loss", LOSSES)
def test_lazy_mil_chooses_the_sentences_and_another_method_the_loss(loss, tmp_path):
    """Where every triple has one sentence at one site there is nothing to choose: only the loss is left."""
    config = tiny(training__fraction=1.0, extractor__bias=False)
    ready = prepare(config)
    corpus, train = ready.dataset.corpus, ready.dataset.train
    _, first = np.unique(corpus.triple[train], return_index=True)
    single = with_sites(ready, np.array_split(train[first][:120], 3))
    alone = fast(config.with_settings([f"method={loss}"]), single, 3, tmp_path / "alone").checkpoint().weights
    for name in (f"lazy-mil+{loss}", f"{loss}+lazy-mil"):
        composed = config.with_settings([f"method={name}"])
        same(fast(composed, single, 3, tmp_path / name), alone)
        line = fast(
            composed, ready, 0, tmp_path / f"{name} all"
        ).next_round()  # all sentences: it does choose
        assert line.examples == len(np.unique(corpus.triple[train]))


@pytest.mark.usefixtures("stepwise")
def test_a_loss_that_adds_nothing_changes_nothing_in_whatever_company(tmp_path):
    config = tiny(training__fraction=1.0, extractor__bias=False, partition__kind="dirichlet")
    off = ["methods.fedrs.alpha=1", "methods.fedlc.tau=0", "methods.fedcmc.mu=0"]
    ready = small(prepare(config), 40)
    expected = fast(config.with_settings(["method=moon"]), ready, 2, tmp_path / "moon").checkpoint().weights
    for name in ("moon+fedrs", "fedrs+moon"):
        same(fast(config.with_settings([f"method={name}", *off]), ready, 2, tmp_path / name), expected)
    average = fast(config.with_settings(["method=fedavg"]), ready, 1).checkpoint().weights
    for name in ("fedcmc+fedrs", "fedcmc+fedlc"):
        same(fast(config.with_settings([f"method={name}", *off]), ready, 1), average)


def test_composed_methods_each_keep_their_own_memories(tmp_path):
    config = tiny()
    at = new_runner(config, prepare(config).site_data, tmp_path).model
    first, second = Site(at, 2, 1, {}), Site(at, 2, 2, {})
    first.remember({"one": np.ones(3, np.float32)})
    first.remember({"other": np.zeros(2, np.float32)})
    assert {name: array.tolist() for name, array in second.recall().items()} == {
        "one": [1, 1, 1],
        "other": [0, 0],
    }
    assert first.recall() is None


def test_sites_are_drawn_by_the_papers_rule_and_empty_ones_never():
    config = tiny(partition__sites=6, training__fraction=0.34)
    ready = prepare(config)
    sites = ready.site_data.partition
    object.__setattr__(sites, "bounds", np.concatenate([[0, 0], sites.bounds[2:]]))  # site 0 loses its text
    rounds = local_session(config, ready)
    drawn = [rounds.next_round().active for _ in range(4)]
    assert all(len(set(active)) == 2 and 0 not in active for active in drawn)  # max(int(0.34 * 6), 1) = 2
    assert len(set(map(tuple, drawn))) > 1


def test_the_journal_knows_what_each_method_trained_on():
    """NONE trains on all sentences of facts; selection precision is then the share that express theirs."""
    config = tiny(method="none", training__fraction=1.0, training__epochs=1)
    data = prepare(config).dataset
    facts = data.train[data.corpus.relation[data.train] != 0]
    line = session(config).next_round()
    assert line.selection_precision == pytest.approx((data.corpus.expresses[facts] == 1).mean())
    assert set(line.watched.values()) == {1.0}


@pytest.mark.usefixtures("stepwise")
def test_an_option_acts_in_its_own_part_only(tmp_path):
    config = tiny(training__fraction=1.0).with_settings(["method=fedprox+moon", "methods.moon.mu=4"])
    ready = small(prepare(config), 40)
    moon = fast(config.with_settings(["method=moon"]), ready, 2, tmp_path / "moon").checkpoint().weights
    same(fast(config.with_settings(["methods.fedprox.mu=0"]), ready, 2, tmp_path / "one"), moon)
    prox = config.with_settings(["methods.moon.mu=0", "methods.fedprox.mu=1.5"])
    alone = fast(prox.with_settings(["method=fedprox"]), ready, 2).checkpoint().weights
    same(fast(prox, ready, 2, tmp_path / "other"), alone)


def test_centralised_training_draws_from_what_lazy_mil_chooses():
    """Only this order keeps both: Lazy MIL does not look at what else there is to train on."""
    config = tiny(method="centralised+lazy-mil", training__rounds=1)
    triples = len(np.unique(prepare(config).dataset.corpus.triple[prepare(config).dataset.train]))
    assert session(config).next_round().examples == triples
    half = config.with_settings(["method=lazy-mil+centralised", "methods.centralised.share=0.5"])
    assert session(half).next_round().examples == round(triples / 2)
