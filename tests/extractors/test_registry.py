"""Extractors by name, and one from outside: docs/examples/bag_of_words_extractor.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedrel
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.errors import UserError
from fedrel.extractors.document import DocumentSection
from fedrel.extractors.pcnn import PCNNSection
from fedrel.extractors.registry import EXTRACTORS, extractor_kind
from fedrel.extractors.transformer import TransformerSection
from fedrel.federation.engines.in_process import ThreadEngine
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.train import run
from fedrel.tensors import compiling
from tests.conftest import tiny

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "bag_of_words_extractor.py"


def test_the_package_s_own_extractors() -> None:
    kinds = {name: (kind.section, kind.unit) for name, kind in EXTRACTORS.all().items()}
    ours = {
        "document": (DocumentSection, "documents"),
        "pcnn": (PCNNSection, "sentences"),
        "transformer": (TransformerSection, "sentences"),
    }
    assert ours.items() <= kinds.items()
    assert isinstance(Config().extractor, PCNNSection)


@pytest.mark.parametrize(
    ("tree", "problem", "hint"),
    [
        ({"kind": "pcn"}, "no extractor is called 'pcn'", "did you mean 'pcnn'?"),
        ("transfromer", "no extractor is called 'transfromer'", "did you mean 'transformer'?"),
        (
            {"kind": "document", "blok_size": 1},
            "unknown key 'extractor.blok_size'",
            "did you mean 'block_size'?",
        ),
        ({"fliters": 1}, "unknown key 'extractor.fliters'", "did you mean 'filters'?"),
        ({"kind": "nowhere:Kind"}, "cannot import the extractor 'nowhere:Kind'", "install the package"),
        ({"kind": "pathlib:Path"}, "'pathlib:Path' is no extractor", ""),
    ],
)
def test_a_wrong_extractor_or_key_is_named(tree: object, problem: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        load_config({"extractor": tree})
    assert problem in caught.value.problem and hint in caught.value.hint
    assert str(caught.value).startswith("config: ")


@pytest.mark.usefixtures("real_python")
def test_reading_a_config_imports_no_torch() -> None:
    code = """
import sys
from fedrel.config.sources import load_config
for kind in ("pcnn", "transformer"):
    load_config({"extractor": kind})
load_config("fedlcc/cdr")
assert not {"torch", "transformers", "numba"} & sys.modules.keys(), "heavy"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# An extractor of one's own.


@pytest.fixture(scope="module")
def plugged_in() -> Iterator[Config]:
    tree = {
        "plugins": [str(EXAMPLE)],
        "method": "lazy-mil",
        "data": {"corpus": "world", "sentences": 1000, "relations": 5, "mean_length": 14},
        "partition": {"sites": 6},
        "extractor": {"kind": "bag-of-words", "word_dimension": 8, "dropout": 0.3},
        "training": {"rounds": 2, "fraction": 0.5, "epochs": 2, "batch_size": 16, "learning_rate": 0.5},
        "engine": {"kind": "local"},
    }
    return load_config(tree)


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model" / "weights.safetensors")


def same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.fixture(scope="module")
def trained(plugged_in: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bag-of-words") / "run"
    run(plugged_in, out)
    return out


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60


def test_an_extractor_from_outside_learns_and_predicts(trained: Path) -> None:
    assert set(weights(trained)) == {"words.weight", "classifier.weight", "classifier.bias"}
    model = fedrel.load_model(trained)
    found = model.predict("<e1>Ada</e1> met <e2>Bo</e2>", threshold=0.0)
    assert len(found) == len(model.relations) - 1
    assert fedrel.load_model(trained).predict("<e1>Ada</e1> met <e2>Bo</e2>", threshold=0.0) == found


def test_worker_processes_give_the_same_weights(plugged_in: Config, trained: Path, tmp_path: Path) -> None:
    run(plugged_in.with_settings({"engine.kind": "workers", "engine.workers": 2}), tmp_path / "workers")
    same(trained, tmp_path / "workers")


def test_threads_give_the_same_weights(
    plugged_in: Config, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = prepare(plugged_in)
    runners = [new_runner(plugged_in, ready.site_data, tmp_path / "sites") for _ in range(2)]
    with ThreadEngine(runners) as engine:
        monkeypatch.setattr("fedrel.runs.engines.LocalEngine", lambda *_: engine)
        run(plugged_in, tmp_path / "threads")
    same(trained, tmp_path / "threads")


def test_its_words_may_stay_as_they_are(plugged_in: Config, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text(
        "".join(f"{word} " + " ".join("0.1" for _ in range(8)) + "\n" for word in ("the", "of"))
    )
    settings = {"extractor.vectors": str(vectors), "extractor.train_words": False, "training.rounds": 1}
    config = plugged_in.with_settings(settings)
    ready = prepare(config)
    kind = extractor_kind("bag-of-words")
    model = kind.build(config.extractor, ready.site_data.inputs, 5, config.seed)
    assert set(model.shapes()) == {"classifier.weight", "classifier.bias"}
    run(config, tmp_path / "run")
    saved = weights(tmp_path / "run")
    np.testing.assert_array_equal(saved["words.weight"], model.frozen()["words.weight"])


def test_it_can_be_published_for_sites(plugged_in: Config, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("the 1 2\nof 3 4\n")
    section = plugged_in.extractor.model_copy(update={"vectors": str(vectors), "word_dimension": 2})
    kind = extractor_kind("bag-of-words")
    assert kind.publish(section, tmp_path) == {"vectors": "published"}
    corpus = prepare(plugged_in).dataset.corpus
    inputs = kind.published_inputs(section, corpus, tmp_path, tmp_path)
    assert inputs.vocabulary().words == ("the", "of")


@pytest.mark.skipif(not compiling.has_numba(), reason="without kernels, workers are processes anyway")
def test_a_class_of_a_notebook_is_refused_by_worker_processes(tmp_path: Path) -> None:
    from fedrel.extractors.pcnn import PCNNKind

    class Local(PCNNKind):
        name = "local-pcnn"
        has_kernels = False

    config = tiny(extractor__kind="local-pcnn", training__rounds=1)
    run(config, tmp_path / "local")
    with pytest.raises(UserError, match="defined in this process only"):
        run(config.with_settings({"engine.kind": "workers", "engine.workers": 2}), tmp_path / "workers")
