"""Sites that read with a public encoder: sentences for FedED, documents for FedLCC's extractor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.experiment import load_experiment
from fedrel.deployment.folders import CoordinatorFolder, SiteFolder
from fedrel.deployment.publishing import open_coordinator, publish_experiment
from fedrel.deployment.site_preparation import prepare_site
from fedrel.deployment.submit import config_for_sites
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.messages import Model
from fedrel.federation.site_data import SiteData
from fedrel.runs.engines import new_runner
from tests.conftest import NO_STATES
from tests.deployment.joint import joint
from tests.documents import documents, write_documents
from tests.extractors.conftest import write_encoder

SITES = ["north", "south"]


def sentence(number: int) -> str:
    says = "raises the risk of" if number % 2 else "and the level of binding"
    text = f"{'the ' * (number % 5)}@GENE$ {says} @DISEASE$"
    return f"{text}\t{number % 2}\n"


def write(folder: Path, tree: dict[str, Any], site: dict[str, Any]) -> Path:
    """The coordinator's folder, the sites' folders, and the experiment's file."""
    (folder / "coordinator").mkdir()
    table = {"host": "localhost", "port": 9092, "sites": SITES}
    (folder / "coordinator" / "federation.toml").write_text(tomli_w.dumps(table))
    for number, name in enumerate(SITES):
        path = folder / "sites" / name
        path.mkdir(parents=True)
        (path / "place.json").write_text(json.dumps({"number": number, "name": name, "sites": SITES}))
        (path / "site.toml").write_text(tomli_w.dumps({"coordinator": "localhost:9092", "data": site}))
    (folder / "experiment.toml").write_text(tomli_w.dumps(tree))
    return folder


def publish(folder: Path) -> Artefacts:
    published = publish_experiment(
        CoordinatorFolder(folder / "coordinator"), load_experiment(folder / "experiment.toml")
    )
    for name in SITES:
        shutil.copytree(published.folder, folder / "sites" / name / "artefacts", dirs_exist_ok=True)
    return published


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("hub") / "tiny-bert")


@pytest.fixture
def sentences(tmp_path: Path, encoder: Path) -> Path:
    tree = {
        "method": "feded",
        "extractor": {"kind": "transformer", "encoder": str(encoder), "max_length": 32},
        "training": {"epochs": 1, "batch_size": 4},
        "evaluation": {"task": "classification"},
        "shared": {"format": "gad", "validation": ["dv.tsv"], "dev": ["dev.tsv"], "test": ["dev.tsv"]},
    }
    folder = write(tmp_path, tree, {"files": ["own.tsv"], "format": "gad", "encoder": str(encoder)})
    for name, numbers in (("dv", range(8)), ("dev", range(20, 30))):
        (folder / f"{name}.tsv").write_text("".join(map(sentence, numbers)))
    for number, name in enumerate(SITES):
        own = range(40 + 20 * number, 60 + 17 * number)
        (folder / "sites" / name / "own.tsv").write_text("".join(map(sentence, own)))
    return folder


@pytest.fixture
def abstracts(tmp_path: Path, encoder: Path) -> Path:
    tree = {
        "method": "fedavg",
        "extractor": {"kind": "document", "encoder": str(encoder), "block_size": 8},
        "training": {"epochs": 1, "batch_size": 3},
        "shared": {
            "format": "docred",
            "relations": "relations.json",
            "dev": ["dev.json"],
            "test": ["test.json"],
        },
    }
    folder = write(tmp_path, tree, {"files": ["own.json"], "format": "docred", "encoder": str(encoder)})
    (folder / "relations.json").write_text(json.dumps({"NA": 0, "r0": 1, "r1": 2}))
    for number, name in enumerate(("dev.json", "test.json", *(f"sites/{site}/own.json" for site in SITES))):
        write_documents(folder / name, documents(9, seed=number))
    return folder


def answers(folder: Path, phase: str, tmp_path: Path, format: str) -> list[dict[str, bytes]]:
    """What a site answers from its own folder, and from a corpus of all sites."""
    published = publish(folder)
    prepare_site(SiteFolder(folder / "sites" / "north"))
    site = SiteFolder(folder / "sites" / "south")
    assert prepare_site(site).objections[0] == f"allow.methods does not name {published.config.method!r}"
    files = {name: list((folder / "sites" / name).glob("own.*")) for name in SITES}
    whole = joint(published, site.published, files, tmp_path / "joint", format)
    section = site.published.extractor
    kind, relations = extractor_kind(section.kind), len(published.relations)
    weights = kind.build(section, whole.inputs, relations, seed=1).state()
    request = {f"Model.{name}": array for name, array in Model(weights).pack().items()}
    found = []
    for site_data in (SiteData.load(site.site_data, section.kind), whole):
        place = new_runner(site.published, site_data, NO_STATES)
        place.open(phase, 1, request)
        arrays, _ = place.answer(phase, 1, site.number, {})
        found.append({name: array.tobytes() for name, array in arrays.items()})
    return found


def test_fededs_predictions_are_those_of_the_joint_corpus(sentences, tmp_path):
    mine, whole = answers(sentences, "predict", tmp_path, "gad")
    assert mine == whole
    coordinator = open_coordinator(sentences / "coordinator" / "preparation", "transformer")
    assert len(coordinator.ready.site_data.validation) == 8
    assert len(coordinator.ready.dataset.dev) == 10


def test_documents_train_as_in_the_joint_corpus(abstracts, tmp_path):
    mine, whole = answers(abstracts, "train", tmp_path, "docred")
    assert mine == whole
    site = SiteFolder(abstracts / "sites" / "south")
    assert site.sentences == 9  # documents
    config = config_for_sites(load_experiment(abstracts / "experiment.toml"), SITES)
    assert (config.data.corpus, config.evaluation.task) == ("documents", "documents")


def test_an_encoder_is_published_by_name_and_fingerprint(sentences, encoder):
    published = publish(sentences)
    assert list(published.files)[2] == "encoder" and "vocabulary" not in published.files
    assert json.loads((published.folder / "encoder.json").read_text())["name"] == "tiny-bert"
    assert str(encoder) not in (published.folder / "config.json").read_text()


def test_another_encoder_is_refused(sentences, tmp_path):
    publish(sentences)
    other = write_encoder(tmp_path / "other", intermediate_size=32)
    site = SiteFolder(sentences / "sites" / "north")
    toml = site.path / "site.toml"
    tree = {"coordinator": "h:1", "data": {"files": ["own.tsv"], "format": "gad", "encoder": str(other)}}
    toml.write_text(tomli_w.dumps(tree))
    with pytest.raises(UserError, match=r"encoder: .*other' is not the encoder that was published"):
        prepare_site(SiteFolder(site.path))
    assert not site.seal.exists()
