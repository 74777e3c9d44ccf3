"""FedLCC against its equations with three models side by side, where it is FedAvg, and what its sites remember."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedrel.config.schema import Config
from fedrel.errors import UserError
from fedrel.extractors.batches import shuffled
from fedrel.extractors.document.document_transformer import DocumentTransformer
from fedrel.extractors.registry import extractor_kind
from fedrel.methods.by_name import method
from fedrel.methods.fedlcc import FedLCC
from fedrel.runs.checkpoint import Checkpoints
from fedrel.runs.prepare import Preparation, prepare
from fedrel.runs.train import run
from fedrel.seeding import numpy_generator
from tests.conftest import local_session, tiny
from tests.documents import tiny_documents
from tests.extractors.conftest import write_encoder

MU, TAU = 2.0, 0.2


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny BERT without dropout, so that a slow version can be compared with."""
    folder = tmp_path_factory.mktemp("bert")
    return str(write_encoder(folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


@pytest.fixture
def config(tmp_path: Path, encoder: str) -> Config:
    return tiny_documents(
        tmp_path / "data",
        encoder,
        "method=fedlcc",
        "extractor.frozen_layers=1",
        f"methods.fedlcc.mu={MU}",
        f"methods.fedlcc.tau={TAU}",
        "training.epochs=2",
        "training.precision=float32",  # as the slow version
        "training.fraction=0.7",
    )


def rounds(config: Config, ready: Preparation, count: int, states: Path) -> dict[str, np.ndarray]:
    session = local_session(config, ready, states)
    for _ in range(count):
        session.next_round()
    return dict(session.checkpoint().weights)


class Slow:
    """Algorithm 1 with whole models: every context is computed anew for every batch, under all three."""

    def __init__(self, config: Config, ready: Preparation) -> None:
        self.config, self.ready = config, ready
        relations = len(ready.dataset.corpus.relations)
        build, inputs = extractor_kind("document").build, ready.site_data.inputs
        self.models = [build(config.extractor, inputs, relations, config.seed) for _ in range(3)]
        self.weights = self.models[0].state()
        self.previous: dict[int, dict[str, np.ndarray]] = {}
        self.contrasted = 0

    def round(self, number: int) -> None:
        sites, training = self.ready.site_data.partition, self.config.training
        wanted = max(int(training.fraction * sites.sites), 1)
        drawn = numpy_generator(self.config.seed, "draw", number, 0).choice(
            sites.sites, wanted, replace=False
        )
        results = [self.train(int(site), number) for site in np.sort(drawn)]
        self.weights = {name: np.mean([own[name] for own in results], axis=0) for name in self.weights}

    def train(self, site: int, number: int) -> dict[str, np.ndarray]:
        local, globally, before = self.models
        local.load(self.weights)
        globally.load(self.weights)
        contrasts = site in self.previous
        if contrasts:
            before.load(self.previous[site])
        optimiser = torch.optim.SGD(
            [weight for weight in local.parameters() if weight.requires_grad],
            self.config.training.learning_rate,
        )
        for batch in self.batches(site, number):
            reading = local.read("none", batch, torch.Generator().manual_seed(0))
            labels = reading.labels
            with torch.no_grad():
                others = [self.contexts(model, batch) for model in (globally, before)]
            loss = torch.zeros(())
            for pair in range(len(labels)):
                likely = reading.logits[pair].sigmoid()
                loss = loss - (labels[pair] * likely.log() + (1 - labels[pair]) * (1 - likely).log()).sum()
                if contrasts:
                    loss = loss + MU * self.contrast(
                        reading.contexts[pair], *(other[pair] for other in others)
                    )
            optimiser.zero_grad()
            (loss / len(labels)).backward()
            optimiser.step()
        self.previous[site] = local.state()
        return self.previous[site]

    def contrast(self, context, now, then):  # Eq. 12
        self.contrasted += 1
        near, far = (torch.exp(cosine(context, other) / TAU) for other in (now, then))
        return -torch.log(near / (near + far))

    def contexts(self, model, batch):
        assert isinstance(model, DocumentTransformer)
        return model.pairs(batch, model.documents(batch)).contexts

    def batches(self, site: int, number: int):
        site_data, training = self.ready.site_data, self.config.training
        bags = site_data.bags(site_data.partition.rows(site))
        shuffle = numpy_generator(self.config.seed, "shuffle", number, site)
        for _ in range(training.epochs):
            for which in shuffled(len(bags), training.batch_size, shuffle):
                yield site_data.inputs.batch(bags.take(which))


def cosine(a, b):
    return a @ b / (a @ a).sqrt() / (b @ b).sqrt()


def test_three_rounds_equal_a_slow_version(tmp_path: Path, config: Config) -> None:
    ready = prepare(config.with_settings(["data.fractions=[0.3, 0.4, 0.3]"]))
    slow = Slow(config, ready)
    for number in (1, 2, 3):
        slow.round(number)
    assert slow.contrasted > 100
    found = rounds(config, ready, 3, tmp_path / "states")
    assert found.keys() == slow.weights.keys()
    for name, weight in slow.weights.items():
        np.testing.assert_allclose(found[name], weight, rtol=0, atol=2e-5, err_msg=name)


def test_mu_0_is_fedavg_that_counts_all_sites_alike(tmp_path: Path, config: Config) -> None:
    ready = prepare(config)
    nothing = config.with_settings(["methods.fedlcc.mu=0"])
    fedavg = config.with_settings(["method=fedavg", "methods.fedavg.weighting=uniform"])
    found, expected = (rounds(one, ready, 2, tmp_path / one.method) for one in (nothing, fedavg))
    assert all(np.array_equal(found[name], weight) for name, weight in expected.items())
    assert not (tmp_path / "fedlcc").exists()
    contrasted = rounds(config, ready, 2, tmp_path / "contrasted")
    assert not all(np.array_equal(contrasted[name], weight) for name, weight in expected.items())


def test_workers_and_a_resumed_run_come_to_the_same_weights(tmp_path: Path, config: Config) -> None:
    config = config.with_settings(["training.rounds=3"])

    def weights(folder: Path) -> dict[str, np.ndarray]:
        checkpoint = Checkpoints(folder / "checkpoint", config.shapes_result()).latest()
        assert checkpoint is not None and checkpoint.round == 3
        return dict(checkpoint.weights)

    expected = run(config, tmp_path / "whole")
    spread = run(config.with_settings(["engine.kind=workers", "engine.workers=2"]), tmp_path / "workers")
    run(config.with_settings(["training.rounds=1"]), tmp_path / "resumed")
    resumed = run(config, tmp_path / "resumed", resume=True)
    assert expected.metrics == spread.metrics == resumed.metrics
    whole = weights(tmp_path / "whole")
    for other in ("workers", "resumed"):
        assert all(np.array_equal(weights(tmp_path / other)[name], weight) for name, weight in whole.items())


def test_a_site_keeps_the_contexts_of_its_pairs(tmp_path: Path, config: Config) -> None:
    ready = prepare(config)
    rounds(config, ready, 2, tmp_path)
    corpus, parts = ready.dataset.corpus, ready.site_data.partition
    for folder in tmp_path.glob("0*"):
        kept = load_file(sorted(folder.glob("*.safetensors"))[-1])
        assert kept["fedlcc.contexts"].shape == (len(corpus.pairs_of(parts.rows(int(folder.name)))), 32)
    assert len(list(tmp_path.glob("0*"))) > 1


def test_it_reads_each_document_no_more_often_than_the_equations_need(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    own = DocumentTransformer.documents

    def counted(self, batch, generator=None):
        read.append(len(batch.rows))
        return own(self, batch, generator)

    monkeypatch.setattr(DocumentTransformer, "documents", counted)
    config = config.with_settings(["training.fraction=1.0", "evaluation.every=9", "training.rounds=9"])
    ready = prepare(config)
    session = local_session(config, ready, tmp_path)
    held = len(ready.site_data.partition.order)
    session.next_round()
    assert sum(read) == held * (2 + 1)  # two epochs, and this round's model for the next one
    read.clear()
    session.next_round()
    assert sum(read) == held * (2 + 1 + 1)  # and the global model


def test_sentences_have_no_contexts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fedlcc needs documents, but the data are sentences"):
        run(tiny(method="fedlcc"), tmp_path)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("one", "chooses among the sentences of a bag"),
        ("lazy-mil", "chooses among the sentences of a bag"),
        ("moon", "needs sentences, but the data are documents"),
        ("fedrs", "needs sentences, but the data are documents"),
        ("fedcmc", "needs sentences, but the data are documents"),
    ],
)
def test_methods_for_sentences_refuse_documents(
    tmp_path: Path, config: Config, name: str, problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        run(config.with_settings([f"method={name}"]), tmp_path / "run")


@pytest.mark.parametrize(
    "name",
    ["fedatt", "fedprox", "scaffold", "feddyn", "fedadam", "local", "fedlcc+fedavgm", "fedlcc+fedatt"],
)
def test_other_methods_read_documents_too(tmp_path: Path, config: Config, name: str) -> None:
    config = config.with_settings([f"method={name}", "methods={}", "training.rounds=1"])
    assert set(run(config, tmp_path / "run").metrics) >= {"f1", "ign_f1", "intra_f1", "inter_f1"}


def test_the_papers_values_are_the_defaults() -> None:
    chosen = method("fedlcc", {})
    assert isinstance(chosen, FedLCC)
    assert (chosen.mu, chosen.tau, chosen.weighting) == (0.1, 0.5, "uniform")
