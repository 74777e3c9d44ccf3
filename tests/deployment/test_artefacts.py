"""What is published, and what is refused before: all that would need the sites' text in one place."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from fedrel.deployment.artefacts import Artefacts, agreed_part, differences
from fedrel.deployment.experiment import load_experiment
from fedrel.deployment.publishing import check_published, open_coordinator
from fedrel.deployment.submit import config_for_sites
from fedrel.errors import UserError
from fedrel.extractors.pcnn import PCNNSection
from tests.deployment.conftest import SITES


def test_a_manifest_lists_every_file_with_its_sha256(first_federation):
    published = Artefacts(first_federation.coordinator.artefacts)
    published.check()
    assert list(published.files) == ["config", "relations", "vocabulary", "knowledge_base", "validation"]
    listed = {file: digest for files in published.files.values() for file, digest in files.items()}
    there = {path.name for path in published.folder.iterdir()} - {"manifest.json"}
    assert set(listed) == there
    for file, digest in listed.items():
        assert hashlib.sha256((published.folder / file).read_bytes()).hexdigest() == digest
    single = published.files["relations"]["relations.json"]
    assert published.fingerprints["relations"] == single
    both = json.dumps(sorted(published.files["vocabulary"].items())).encode()
    assert published.fingerprints["vocabulary"] == hashlib.sha256(both).hexdigest()


def test_published_artefacts_are_read_back(first_federation):
    published = Artefacts(first_federation.coordinator.artefacts)
    experiment = load_experiment(first_federation.write())
    assert agreed_part(published.config) == agreed_part(experiment.config)
    assert published.reading == experiment.shared.reading
    assert published.relations[0] == "NA" and len(published.relations) == 4
    lines = (first_federation.folder / "vectors.txt").read_text().splitlines()
    words = json.loads((published.folder / "words.json").read_text())
    assert words == [line.split()[0] for line in lines]
    vectors = np.load(published.folder / "vectors.npy")
    assert vectors[5].tolist() == np.float32(lines[5].split()[1:]).tolist()
    texts = [json.loads(line)["text"] for line in (first_federation.folder / "dev.jsonl").open()]
    assert [instance.text for instance in published.validation()] == texts


def test_no_path_and_no_text_of_a_site_is_published(first_federation):
    published = Artefacts(first_federation.coordinator.artefacts).folder
    assert str(first_federation.folder) not in (published / "config.json").read_text()
    own = {json.loads(line)["text"] for line in (first_federation.folder / "dev.jsonl").open()}
    content = b"".join(path.read_bytes() for path in published.iterdir()).decode(errors="replace")
    for name in SITES:
        for path in (first_federation.site(name).path / "text").iterdir():
            for sentence in path.read_text().split(". "):
                assert len(sentence) < 30 or sentence not in content or any(sentence in one for one in own)


def test_defaults_between_sites_reveal_less(first_federation):
    config = load_experiment(first_federation.write()).config
    assert config.methods["lazy-mil"]["keyed_triples"] is True
    assert isinstance(config.extractor, PCNNSection) and not config.extractor.train_words
    said = load_experiment(
        first_federation.write(**{"methods__lazy-mil__keyed_triples": False, "shared__na_rate": 0})
    )
    assert said.config.methods["lazy-mil"]["keyed_triples"] is False


def test_between_sites_no_update_is_longer_than_twice_the_median_unless_that_is_said(first_federation):
    def bound(**changes):
        return load_experiment(first_federation.write(**changes)).config.aggregation.norm_bound

    assert bound() == bound(method="scaffold") == 2.0
    assert bound(aggregation__norm_bound=0) == bound(privacy__secure_sum=True) == 0.0
    with pytest.raises(UserError, match="'median' cannot be used with scaffold"):
        bound(method="scaffold", aggregation__rule="median")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extractor__vectors": "corpus"}, "vocabulary from the sites' text(?s:.*)public vectors"),
        ({"method": "centralised"}, "simulation only"),
        ({"data__corpus": "world"}, r"\[data\] describes text that is in one place"),
        ({"shared": None}, r"add a \[shared\] table"),
        ({"shared__dev": None}, "shared.dev: Field required"),
        (
            {"shared__knowlege_base": "x"},
            "unknown key 'shared.knowlege_base'\nhint: did you mean 'knowledge_base'",
        ),
        ({"shared__format": "josnl"}, "did you mean 'jsonl'"),
        ({"shared__knowledge_base": None}, "which relations"),
        ({"shared__test": ["nowhere.jsonl"]}, "nowhere.jsonl: no such file"),
        ({"methods__lazy-mil__keyed_triples": False}, "no number that all sites agree on"),
        ({"training__epoch": 1}, "did you mean 'epochs'"),
        ({"method": "fedcmc", "privacy__secure_sum": True}, "needs the answers of single sites"),
        (
            {"privacy__secure_sum": True, "aggregation__norm_bound": 2},
            "aggregation.norm_bound or share_cap needs the answers of single sites",
        ),
    ],
)
def test_refused_before_anything_is_published(federation, changes, message):
    with pytest.raises(UserError, match=message):
        load_experiment(federation.write(**changes))


def test_vectors_of_another_size_are_refused(federation):
    with pytest.raises(UserError, match=r"8 dimensions.*word_dimension is 9"):
        federation.publish(extractor__word_dimension=9)


@pytest.mark.parametrize("name", ["config", "relations", "vocabulary", "knowledge_base", "validation"])
def test_a_changed_file_is_refused_by_its_name(federation, name):
    published = Artefacts(federation.coordinator.artefacts)
    file = next(iter(published.files[name]))
    content = (published.folder / file).read_bytes()
    (published.folder / file).write_bytes(content[:-1] + b" ")
    with pytest.raises(UserError, match=f"{name}: {file} is not the file that was published"):
        published.check()
    (published.folder / file).unlink()
    with pytest.raises(UserError, match=f"{name}: {file} is missing"):
        published.check()


def test_a_manifest_that_contradicts_itself_is_refused(federation):
    published = Artefacts(federation.coordinator.artefacts)
    path = published.folder / "manifest.json"
    path.write_text(path.read_text().replace(published.fingerprints["config"], "0" * 64, 1))
    with pytest.raises(UserError, match=r"config"):
        Artefacts(published.folder).check()


def test_a_file_that_was_not_published_is_refused_and_not_read(federation):
    published = Artefacts(federation.coordinator.artefacts)
    path = published.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["artefacts"]["validation"], manifest["artefacts"]["knowledge_base"]
    path.write_text(json.dumps(manifest))
    published = Artefacts(published.folder)
    assert list(published.validation()) == [] and published.knowledge_base is None
    with pytest.raises(UserError, match=r"knowledge_base.tsv is there, but was not published"):
        published.check()


@pytest.mark.parametrize(
    "artefacts",
    [
        None,
        ["config"],
        {"config": "0" * 64},
        {"config": {"sha256": 1, "files": {}}},
        {"config": {"sha256": "0", "files": ["config.json"]}},
        {"config": {"sha256": "0", "files": {"../site.key": "0"}}},
        {"other": {"sha256": "0", "files": {"config.json": "0"}}},
    ],
)
def test_a_manifest_of_another_form_is_refused(artefacts, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "artefacts": artefacts}))
    with pytest.raises(UserError, match=r"does not list artefacts(?s:.*)coordinator publish"):
        Artefacts(tmp_path).check()
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match=r"is not a manifest"):
        Artefacts(tmp_path).check()


def test_differences_are_named():
    mine = {"config": "1", "relations": "2", "encoder": "3"}
    assert differences(mine, dict(mine)) == []
    assert differences(mine, {"config": "1", "relations": "x", "validation": "4"}) == [
        "relations",
        "encoder",
        "validation",
    ]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"training__epochs": 3}, "training.epochs"),
        ({"seed": 4}, "seed"),
        ({"shared__na_rate": 0.4}, "shared.na_rate"),
        ({"methods__lazy-mil__weighting": "uniform"}, "methods.lazy-mil.weighting"),
        ({"privacy__secure_sum": True}, "privacy"),
    ],
)
def test_a_run_must_match_what_was_published(federation, changes, key):
    check_published(federation.coordinator, load_experiment(federation.write(training__rounds=99)))
    with pytest.raises(UserError, match=f"{key} is not as it was published"):
        check_published(federation.coordinator, load_experiment(federation.write(**changes)))


def test_the_config_that_the_coordinator_sends_has_no_path(first_federation):
    config = config_for_sites(load_experiment(first_federation.write()), SITES)
    assert str(first_federation.folder) not in config.model_dump_json()
    assert (config.partition.sites, config.engine.kind, config.training.rounds) == (3, "flower", 2)


def test_the_coordinator_holds_its_own_text_only(first_federation):
    coordinator = open_coordinator(first_federation.coordinator.preparation, "pcnn")
    published = Artefacts(first_federation.coordinator.artefacts)
    corpus = coordinator.ready.dataset.corpus
    lines = {name: (first_federation.folder / f"{name}.jsonl").open().readlines() for name in ("dev", "test")}
    rows = {"dev": coordinator.ready.dataset.dev, "test": coordinator.ready.dataset.test}
    for name in ("dev", "test"):
        texts = [json.loads(line)["text"] for line in lines[name]]
        assert [corpus.text_of(int(row)) for row in rows[name]] == texts
    assert len(coordinator.ready.site_data.validation) == len(lines["dev"])
    assert len(corpus) == 2 * len(lines["dev"]) + len(lines["test"])
    assert coordinator.artefacts == published.fingerprints
    assert coordinator.ready.site_data.partition.names == tuple(SITES)
    assert coordinator.ready.site_data.partition.sizes.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [{"method": "evil:Method"}, {"methods": {"evil:Method": {}}}, {"extractor": {"kind": "evil:Kind"}}],
)
def test_a_published_config_cannot_make_a_site_import_code(change, federation, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = federation.site("north").artefacts
    published = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(published | {"config": published["config"] | change}))
    with pytest.raises(UserError, match=r"'evil:\w+' names a class to import(?s:.*)hint: install"):
        _ = Artefacts(folder).config


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"plugins": ["mine.py"]}, "plug-in files are for one machine"),
        ({"method": "one+mine:Method"}, "'mine:Method' names a class to import"),
    ],
)
def test_an_experiment_between_sites_names_only_what_is_installed(change, problem, federation):
    with pytest.raises(UserError, match=problem):
        load_experiment(federation.write(**change))
