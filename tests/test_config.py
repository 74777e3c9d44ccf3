"""The config file: what it refuses, what it resolves, and that it documents the world's own knobs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fedrel.config.load import load_config, parse
from fedrel.config.schema import WorldData
from fedrel.data.world.settings import WorldConfig
from fedrel.errors import UserError
from fedrel.runs.train import to_toml
from tests.conftest import tiny


def test_a_resolved_config_reads_back_as_itself(tmp_path):
    config = tiny(method='"att+fedavg"', training__rounds=7)
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "config.toml") == config


def test_the_worlds_knobs_are_the_configs():
    knobs = {field.name: field.default for field in dataclasses.fields(WorldConfig)}
    keys = {name: field.default for name, field in WorldData.model_fields.items()}
    keys["seed"] = keys.pop("world_seed")
    del keys["corpus"]
    assert keys == knobs


def test_data_paths_follow_fedrel_data_and_else_the_config(tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text('[data]\ncorpus = "files"\nroot = "nyt"\npool = ["a.txt"]\n')
    assert load_config(tmp_path / "config.toml").data.root == tmp_path / "nyt"
    monkeypatch.setenv("FEDREL_DATA", "/somewhere")
    assert load_config(tmp_path / "config.toml").data.root == Path("/somewhere/nyt")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"sead": 1}, "unknown key 'sead'\nhint: did you mean 'seed'?"),
        ({"data": {"corpus": "world", "nois": 1}}, "unknown key 'data.nois'\nhint: did you mean 'noise'?"),
        ({"data": {"corpus": "files", "pool": ["a"], "trian": []}}, "did you mean 'train'?"),
        ({"data": {"noise": 0.1}}, "data.corpus is missing\nhint: say 'world', 'files' or 'documents'"),
        ({"data": {"corpus": "files"}}, "give either `pool`, or `train` and `test`"),
        ({"training": {"fraction": 1.5}}, "training.fraction: Input should be less than or equal to 1"),
        ({"evaluation": {"metric": "acc"}}, "evaluation.metric"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(tree, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?").replace(".", r"\.")):
        parse(tree, "config.toml")


def test_a_config_that_extends_another_changes_only_what_it_says(tmp_path):
    (tmp_path / "base.toml").write_text(
        'seed = 5\n[partition]\nkind = "iid"\nsites = 7\n[extractor]\nkind = "pcnn"\nfilters = 9\n'
    )
    (tmp_path / "above.toml").write_text(
        'extends = "base.toml"\n[partition]\nkind = "quantity"\n[extractor]\nkind = "transformer"\n'
    )
    config = load_config(tmp_path / "above.toml")
    assert (config.seed, config.partition.kind, config.partition.sites) == (5, "quantity", 7)
    assert config.extractor.kind == "transformer"  # whose keys are others: `filters` is not among them
    (tmp_path / "base.toml").write_text('extends = "above.toml"\n')
    with pytest.raises(UserError, match="in a chain that ends"):
        load_config(tmp_path / "above.toml")
