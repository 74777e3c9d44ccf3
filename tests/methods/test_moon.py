"""MOON against its equation, where it is FedAvg, and what its sites remember."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedrel.errors import UserError
from fedrel.methods.by_name import method
from fedrel.methods.moon import Anchors
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.prepare import prepare
from fedrel.runs.round_outcome import LostRoundError
from fedrel.runs.train import run
from tests.conftest import tiny
from tests.federation.test_engines import same as same_runs
from tests.methods.slow_rounds import SlowFedAvg, fast, same, small, with_sites

SKEWED = ("partition.kind=dirichlet", "partition.alpha=0.3", "partition.sites=4", "training.batch_size=4")


class SlowMOON(SlowFedAvg):
    """Eq. 3 with three models side by side, and every vector computed anew for every batch."""

    def __init__(self, config, ready):
        super().__init__(config, ready)
        self.previous = {}
        self.contrasted = set()

    def loss(self, site, local, row):
        loss = super().loss(site, local, row)
        if site not in self.previous:
            return loss
        self.contrasted.add(site)
        z, z_glob, z_prev = (self.vector(w, row) for w in (local, self.weights, self.previous[site]))
        near, far = (torch.exp(cosine(z, other) / 0.2) for other in (z_glob, z_prev))
        return loss - 3.0 * torch.log(near / (near + far))

    def finished(self, site, local):
        self.previous[site] = local


def cosine(a, b):
    return a @ b / (a @ a).sqrt() / (b @ b).sqrt()


def test_four_rounds_equal_a_slow_version(tmp_path):
    config = tiny(extractor__dropout=0.0, method="moon").with_settings(SKEWED)
    config = config.with_settings(["methods.moon.mu=3", "methods.moon.tau=0.2"])
    ready = small(prepare(config), 10)
    slow = SlowMOON(config, ready)
    weights = slow.run(4)
    assert len(slow.contrasted) > 1
    same(fast(config, ready, 4, tmp_path), weights, atol=3e-5)


def test_the_contrast_by_hand():
    anchors = Anchors(
        rows=np.array([3, 8]),
        now=torch.tensor([[2.0, 0.0], [0.0, 1.0]]),
        before=torch.tensor([[0.0, 1.0], [1.0, 0.0]]),
    )
    vectors = torch.tensor([[0.0, 5.0], [3.0, 0.0]])
    found = anchors.contrast(np.array([8, 3]), vectors, tau=0.5)  # each as now
    assert found.item() == pytest.approx(-np.log(np.exp(2) / (np.exp(2) + 1)))
    found = anchors.contrast(np.array([3, 8]), vectors, tau=0.5)  # each as before
    assert found.item() == pytest.approx(np.log(1 + np.exp(2)))


def test_a_vector_of_zeros_has_a_finite_contrast():
    anchors = Anchors(np.array([0]), torch.zeros(1, 3), torch.ones(1, 3))
    vectors = torch.zeros(1, 3, requires_grad=True)
    found = anchors.contrast(np.array([0]), vectors, tau=0.5)
    found.backward()
    assert found.item() == pytest.approx(np.log(2))
    assert torch.isfinite(vectors.grad).all()


@pytest.mark.usefixtures("stepwise")
def test_mu_0_is_fedavg_to_the_bit(tmp_path):
    config = tiny().with_settings(SKEWED)
    ready = small(prepare(config), 40)
    average = fast(config.with_settings(["method=fedavg"]), ready, 3).checkpoint().weights
    same(fast(config.with_settings(["method=moon", "methods.moon.mu=0"]), ready, 3, tmp_path), average)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("stepwise")
def test_the_first_time_a_site_takes_part_it_trains_as_in_fedavg(tmp_path):
    config = tiny().with_settings([*SKEWED, "training.fraction=1.0"])
    ready = small(prepare(config), 40)
    moon, average = (config.with_settings([f"method={name}"]) for name in ("moon", "fedavg"))
    same(fast(moon, ready, 1, tmp_path), fast(average, ready, 1).checkpoint().weights)
    weights = fast(average, ready, 2).checkpoint().weights
    with pytest.raises(AssertionError):
        same(fast(moon, ready, 2, tmp_path), weights)


def test_with_one_the_contrast_is_that_of_the_chosen_sentences(tmp_path):
    """Bags of one leave nothing to choose, so ONE and NONE then agree, contrast and all."""
    config = tiny(training__fraction=1.0).with_settings(SKEWED)
    ready = prepare(config)
    _, first = np.unique(ready.dataset.corpus.triple[ready.dataset.train], return_index=True)
    ready = with_sites(ready, np.array_split(ready.dataset.train[first][:120], 3))
    one, none = (config.with_settings([f"method={name}"]) for name in ("moon+one", "moon"))
    expected = fast(none, ready, 3, tmp_path / "none").checkpoint().weights
    same(fast(one, ready, 3, tmp_path / "one"), expected)


def test_with_larger_bags_one_looks_up_the_sentences_it_has_read(tmp_path, monkeypatch):
    """With weights that hardly move, what is read is what the global model makes of the same sentence."""
    config = tiny(method="moon+one", training__learning_rate=1e-12, training__fraction=1.0)
    ready = prepare(config.with_settings(SKEWED))
    contrast, seen = Anchors.contrast, []

    def compared(self, rows, vectors, tau):
        torch.testing.assert_close(vectors, self.now[np.searchsorted(self.rows, rows)])
        seen.append(len(rows))
        return contrast(self, rows, vectors, tau)

    monkeypatch.setattr(Anchors, "contrast", compared)
    line = fast(config, ready, 1, tmp_path).next_round()
    assert sum(seen) < config.training.epochs * line.examples  # bags of several: some sentences are not read


def test_a_head_that_mixes_sentences_is_refused():
    config = tiny(method="moon+att")
    with pytest.raises(UserError, match="the head 'att' mixes"):
        fast(config, prepare(config), 1)


def test_sentences_of_other_sites_are_refused(tmp_path):
    config = tiny(method="moon+lazy-mil", training__fraction=1.0)
    config = config.with_settings(["methods.lazy-mil.pooled_winners=true"])
    with pytest.raises(LostRoundError, match="known for its own sentences only"):
        fast(config, prepare(config), 2, tmp_path)


def test_sites_of_one_class_and_a_class_that_nobody_has(tmp_path):
    config = tiny(method="moon", training__fraction=1.0)
    ready = prepare(config)
    labels, rows = ready.dataset.corpus.relation[ready.dataset.train], ready.dataset.train
    ready = with_sites(ready, [rows[labels == 0], rows[labels == 1], rows[(labels == 2) | (labels == 3)]])
    weights = fast(config, ready, 3, tmp_path).checkpoint().weights
    assert all(np.isfinite(array).all() for array in weights.values())


def test_a_site_keeps_a_vector_for_each_of_its_sentences_in_at_most_two_files(tmp_path):
    config = tiny(method="moon", training__fraction=1.0)
    ready = small(prepare(config), 40)
    fast(config, ready, 4, tmp_path)
    sites = ready.site_data.partition
    assert len(list(tmp_path.iterdir())) == sites.sites
    for site in range(sites.sites):
        files = sorted((tmp_path / f"{site:06}").iterdir())
        assert [file.name for file in files] == ["round-00003.safetensors", "round-00004.safetensors"]
        (kept,) = load_file(files[-1]).values()
        assert kept.shape == (len(sites.rows(site)), 3 * config.extractor.filters)


def test_the_state_of_another_model_is_refused(tmp_path):
    config = tiny(method="moon", training__fraction=1.0)
    ready = prepare(config)
    fast(config, ready, 1, tmp_path)
    other = config.with_settings(["methods.moon.tau=0.4"])
    session = fast(other, ready, 0, tmp_path)
    for file in tmp_path.glob("*/round-00001.safetensors"):
        file.rename(file.with_name("round-00000.safetensors"))
    with pytest.raises(UserError, match="is the state of another model"):
        session.next_round()


def test_two_workers_and_a_run_killed_in_the_middle_of_a_round_give_the_same_weights(tmp_path, monkeypatch):
    config = tiny(method="moon", training__rounds=4, training__fraction=0.7)
    run(config, tmp_path / "whole")
    run(config.with_settings(["engine.kind=workers", "engine.workers=2"]), tmp_path / "workers")
    same_runs(tmp_path / "whole", tmp_path / "workers")

    save = Checkpoints.save
    with monkeypatch.context() as patch:
        # The third round is done and its sites remember it, but it is not kept: it will be done again.
        patch.setattr(Checkpoints, "save", lambda self, at: save(self, at) if at.round < 3 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(config, tmp_path / "killed")
    run(config, tmp_path / "killed", resume=True)
    same_runs(tmp_path / "whole", tmp_path / "killed")


def test_wrong_options_are_refused():
    for option, value in (("tau", 0), ("mu", -1)):
        with pytest.raises(UserError, match=rf"methods\.moon\.{option}"):
            method("moon", {"moon": {option: value}})
