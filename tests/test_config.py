"""The config file: what it refuses, what it resolves, and that it documents the world's own knobs."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from fedrel.config.check import check
from fedrel.config.config_sections import WorldData
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.data.world import WorldConfig
from fedrel.errors import UserError
from tests.conftest import tiny


def test_a_resolved_config_reads_back_as_itself(tmp_path):
    config = tiny(method='"att+fedavg"', training__rounds=7)
    (tmp_path / "config.toml").write_text(config.to_toml())
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


def test_a_digest_does_not_depend_on_where_the_corpora_are(tmp_path, monkeypatch):
    """Kept runs and searches are named after it, and are looked for in every clone."""
    (tmp_path / "config.toml").write_text('[data]\ncorpus = "files"\nroot = "nyt"\npool = ["a.txt"]\n')

    def digest(folder: str, settings=()) -> str:
        monkeypatch.setenv("FEDREL_DATA", folder)
        return load_config(tmp_path / "config.toml", settings).digest()

    assert digest("/somewhere") == digest("/elsewhere/corpora")
    assert digest("/somewhere") == digest("/", ["data.root=nyt"])
    assert digest("/somewhere") != digest("/somewhere", ["data.root=nyt10"])
    assert digest("/some") != digest("/somewhere", ["data.root=/some/nyt"])  # not below the folder


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
        ({"evaluation": {"metric": "acc"}}, "evaluation.metric: Input should be 'auc'"),
        ({"data": "wrld"}, "config.toml: no corpus is called 'wrld'\nhint: did you mean 'world'?"),
        ({"extractor": {"filtrs": 1}}, "unknown key 'extractor.filtrs'\nhint: did you mean 'filters'?"),
        ({"extractor": {"kind": "transformer", "poling": "max"}}, "did you mean 'pooling'?"),
        ({"extractor": {"kind": "transformer", "max_length": 2}}, "extractor.max_length: Input should be"),
        (
            {"extractor": {"kind": 3}},
            "extractor.kind is missing\nhint: say '",
        ),
        ({"plugins": "mine.py"}, "plugins: Input should be a valid list, found 'mine.py'"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(tree, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?").replace(".", r"\.")):
        check(Config, tree, "config.toml")


def test_the_hint_of_a_wrong_value_says_what_its_key_means():
    expected = (
        r"training\.fraction: .* less than or equal to 1, found 2\nhint: fraction: C, the share of sites"
    )
    with pytest.raises(UserError, match=expected):
        load_config("demo", {"training.fraction": 2})


def test_a_site_file_is_checked_as_a_config_is(tmp_path):
    """One loader: a nested key of a site's own file is named with the nearest one, too."""
    from fedrel.deployment.policy import read_policy

    (tmp_path / "site.toml").write_text('coordinator = "c:1"\n[allow]\nround = 3\n')
    with pytest.raises(UserError, match=r"site.toml: unknown key 'allow.round'\nhint: did you mean 'rounds'"):
        read_policy(tmp_path)
    (tmp_path / "site.toml").write_text("[allow]\nrounds = 3\n")
    with pytest.raises(UserError, match=r"site.toml: coordinator: Field required"):
        read_policy(tmp_path)
    (tmp_path / "site.toml").write_text('coordinator = "c:1"\n[allow]\nrounds = -3\n')
    with pytest.raises(UserError, match=r"allow.rounds: Input should be greater than .*, found -3"):
        read_policy(tmp_path)


def test_a_config_is_read_from_a_path_a_name_a_dictionary_or_a_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = {"seed": 3, "data": {"corpus": "files", "pool": ["a.txt"]}}
    config = load_config(tree, {"training.rounds": 2, "method": "one"})
    assert (config.seed, config.training.rounds, config.method) == (3, 2, "one")
    assert config.data.root == tmp_path
    assert tree == {"seed": 3, "data": {"corpus": "files", "pool": ["a.txt"]}}  # not touched
    (tmp_path / "mine.toml").write_text(config.to_toml())
    assert load_config("mine.toml") == load_config(tmp_path / "mine.toml") == load_config(config) == config
    assert load_config("demo", ["seed=9"]) == load_config("demo").with_settings({"seed": 9})
    with pytest.raises(UserError, match="no config file and no preset is called 'demoo'"):
        load_config("demoo")


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("demoo", "did you mean 'demo'"),
        ("presets/natural/pip.toml", "did you mean 'natural/ppi'"),
        ("ppi", "did you mean 'natural/ppi'"),
        ("fedcmc/pgr-pcn.toml", "did you mean 'fedcmc/pgr-pcnn'"),
        ("my/experiments/qqqqqq.toml", "check the path"),
    ],
)
def test_a_mistyped_preset_is_answered_with_the_nearest_ones(typed, first):
    with pytest.raises(UserError) as raised:
        load_config(typed)
    assert raised.value.hint.startswith(first)
    assert raised.value.hint.endswith("`fedrel presets` lists all presets")
    assert len(raised.value.hint) < 150


@pytest.mark.parametrize(
    ("tree", "digest"),
    [
        ({}, "a243d17e920fb41520a8bdeeaf8bce80"),
        (
            {
                "extractor": {"kind": "transformer", "pooling": "sum"},
                "evaluation": {"task": "classification"},
                "engine": {"kind": "local"},
            },
            "caa15df7130c776135652109c1deba6c",
        ),
        (
            {
                "extractor": "document",
                "evaluation": {"task": "documents"},
                "data": {"corpus": "documents", "pool": ["a.txt"]},
                "partition": {"kind": "entropy"},
            },
            "c195c93746bba9c47862e792ce2b6cb2",
        ),
        (
            {
                "data": {"corpus": "files", "pool": ["a.txt"]},
                "methods": {"lazy-mil": {"keyed_triples": True}},
                "plugins": ["somewhere.py"],
            },
            "abd28d9ff2859cec40bfc57fb8be349e",
        ),
    ],
)
def test_digests_are_those_of_earlier_versions(tree, digest):
    """Checkpoints and sites' memories are kept under them."""
    assert check(Config, tree, "test").digest() == digest


def test_plugins_are_imported_by_the_loader_and_never_by_a_check(tmp_path, monkeypatch):
    """A coordinator's config must not make a site import code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("one.py", "folder/two.py", "three.py"):
        text = f"import os; os.environ['LOADED'] = os.environ.get('LOADED', '') + '{name} '"
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("LOADED", "")
    (tmp_path / "folder" / "mine.toml").write_text('plugins = ["two.py"]\n')
    check(Config, {"plugins": ["one.py"]}, "test")
    Config.model_validate({"plugins": [str(tmp_path / "one.py")]})
    assert os.environ["LOADED"] == ""
    config = load_config("folder/mine.toml", plugins=["three.py"])
    assert config.plugins == [tmp_path / "folder" / "two.py", tmp_path / "three.py"]
    assert os.environ["LOADED"] == "folder/two.py three.py "
    assert load_config(config) == config
    (tmp_path / "folder" / "mine.toml").write_text('plugins = ["nowhere.py"]\nsead = 1\n')
    with pytest.raises(UserError, match=r"nowhere.py: cannot load the plug-in: expected a Python file"):
        load_config("folder/mine.toml")


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
