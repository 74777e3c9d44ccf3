"""Presets of FedCMC are of its paper's protocol: classes without `NA`, and batches of sentences on PGR."""

from __future__ import annotations

import pytest

from fedrel.config.config_sections import FileData
from fedrel.config.sources import load_config, presets

FEDCMC = sorted(name for name in presets() if name.startswith("fedcmc/"))


@pytest.mark.parametrize("name", FEDCMC)
def test_na_is_a_class_where_it_is_one_of_the_papers(name: str) -> None:
    """CPR has 5 classes and i2b2 8; PGR's two are related and not."""
    data = load_config(name).data
    assert isinstance(data, FileData)
    assert data.keep_na == name.startswith("fedcmc/pgr")


@pytest.mark.parametrize("name", FEDCMC)
def test_batches_are_of_sentences_where_a_pair_is_in_several(name: str) -> None:
    wanted = "sentences" if name.startswith("fedcmc/pgr") else "bags"
    assert load_config(name).training.batches_of == wanted


@pytest.mark.parametrize("name", FEDCMC)
def test_partition_batches_epochs_and_rate_are_as_published(name: str) -> None:
    config = load_config(name)
    assert (config.partition.kind, config.training.fraction) == ("dirichlet", 1.0)
    if not name.endswith(("-pcnn", "-small")):
        epochs = 3 if name.endswith("-e3") else 1
        training = config.training
        assert (training.batch_size, training.learning_rate, training.epochs) == (8, 5e-5, epochs)
