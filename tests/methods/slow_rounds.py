"""Federated averaging in plain loops, with whole tensors, in float64: slow versions of methods build on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedrel.config.schema import Config
from fedrel.data.partition import Partition
from fedrel.runs.prepare import Preparation
from fedrel.runs.train import Session
from fedrel.seeding import numpy_generator
from tests.conftest import NO_STATES, local_session
from tests.methods.slow import slow_logits

Model = dict[str, Tensor]


def with_sites(ready: Preparation, rows: Sequence[np.ndarray]) -> Preparation:
    """The same data held by sites that the test chooses."""
    bounds = np.concatenate(([0], np.cumsum([len(own) for own in rows])))
    names = tuple(f"site-{number}" for number in range(len(rows)))
    partition = Partition(np.concatenate(rows), bounds, names)
    return replace(ready, site_data=replace(ready.site_data, partition=partition))


def small(ready: Preparation, sentences: int) -> Preparation:
    """Each site keeps its first few sentences, so that the slow version takes seconds."""
    partition = ready.site_data.partition
    return with_sites(ready, [partition.rows(site)[:sentences] for site in range(partition.sites)])


def fast(config: Config, ready: Preparation, rounds: int, states: Path = NO_STATES) -> Session:
    """The method itself after so many rounds, at one runner."""
    session = local_session(config, ready, states)
    for _ in range(rounds):
        session.next_round()
    return session


def same(session: Session, weights, *, atol: float = 0.0) -> None:
    """A session has come to these weights; by default to the bit."""
    found = session.checkpoint().weights
    assert found.keys() == weights.keys()
    for name, array in found.items():
        np.testing.assert_allclose(array, weights[name], rtol=0, atol=atol, err_msg=name)


class SlowFedAvg:
    """McMahan et al. 2017, Algorithm 1, over bags of one triple each, without dropout."""

    def __init__(self, config: Config, ready: Preparation) -> None:
        assert config.extractor.dropout == 0
        start = fast(config, ready, 0).checkpoint().weights
        self.config, self.corpus = config, ready.dataset.corpus
        self.sites, self.lookup = ready.site_data.partition, ready.site_data.inputs.lookup
        self.weights: Model = {
            name: torch.tensor(array, dtype=torch.float64) for name, array in start.items()
        }

    def run(self, rounds: int) -> Model:
        """So many rounds; returns the global weights."""
        for round_ in range(1, rounds + 1):
            trained = {site: self.train(site, round_) for site in self.active(round_)}
            sizes = {site: len(self.sites.rows(site)) for site in trained}
            before = self.weights
            self.weights = {
                name: sum(sizes[site] * local[name] for site, local in trained.items()) / sum(sizes.values())
                for name in before
            }
            self.aggregated(round_, trained)
        return self.weights

    def active(self, round_: int) -> list[int]:
        able = [site for site in range(self.sites.sites) if len(self.sites.rows(site))]
        wanted = min(max(int(self.config.training.fraction * self.sites.sites), 1), len(able))
        drawn = numpy_generator(self.config.seed, "draw", round_, 0).choice(able, size=wanted, replace=False)
        return sorted(map(int, drawn))

    def train(self, site: int, round_: int) -> Model:
        training = self.config.training
        local = {name: tensor.clone().requires_grad_() for name, tensor in self.weights.items()}
        rate = training.learning_rate * (1 - training.learning_rate_decay) ** (round_ - 1)
        optimiser = torch.optim.SGD(local.values(), lr=rate, weight_decay=training.weight_decay)
        bags: dict[int, list[int]] = {}
        for row in self.sites.rows(site):
            bags.setdefault(int(self.corpus.triple[row]), []).append(int(row))
        shuffle = numpy_generator(self.config.seed, "shuffle", round_, site)
        for _ in range(training.epochs):
            order = [bags[sorted(bags)[i]] for i in shuffle.permutation(len(bags))]
            for begin in range(0, len(order), training.batch_size):
                rows = [row for bag in order[begin : begin + training.batch_size] for row in bag]
                optimiser.zero_grad()
                (sum(self.loss(site, local, row) for row in rows) / len(rows)).backward()
                optimiser.step()
        trained = {name: tensor.detach() for name, tensor in local.items()}
        self.finished(site, trained)
        return trained

    def loss(self, site: int, local: Model, row: int) -> Tensor:
        """The loss of one sentence."""
        logits = self.adjusted(site, self.logits(local, self.vector(local, row)))
        return -logits.log_softmax(0)[self.label(row)]

    def adjusted(self, site: int, logits: Tensor) -> Tensor:
        return logits

    def finished(self, site: int, local: Model) -> None:
        """What a site does after training."""

    def aggregated(self, round_: int, trained: dict[int, Model]) -> None:
        """What the coordinator does after averaging."""

    def label(self, row: int) -> int:
        return int(self.corpus.relation[row])

    def counts(self, site: int) -> list[int]:
        """n(k,c): how many sentences of each class the site has."""
        labels = [self.label(row) for row in self.sites.rows(site)]
        return [labels.count(relation) for relation in range(len(self.corpus.relations))]

    def logits(self, weights: Model, vector: Tensor) -> Tensor:
        return weights["classifier.weight"] @ vector + weights.get("classifier.bias", 0)

    def vector(self, weights: Model, row: int) -> Tensor:
        """A sentence's vector: the logits of a classifier that passes it on."""
        size = weights["classifier.weight"].shape[1]
        identity = {
            "classifier.weight": torch.eye(size).double(),
            "classifier.bias": torch.zeros(size).double(),
        }
        return slow_logits(
            weights | identity, self.corpus, self.lookup, row, self.config.extractor.max_length
        )
