"""Natural sites: which files belong to which site, and that every site has its own part of each split."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedrel.config.config_sections import FileData
from fedrel.config.sources import load_config
from fedrel.data.load import Dataset, dataset, text_files
from fedrel.data.partition import divide, mirrored
from fedrel.errors import UserError
from tests.documents import documents, write_documents

SPLIT = {"train": ["{site}/train.jsonl"], "test": ["{site}/test.jsonl"]}


def sentence(number: int, relation: str = "treats") -> str:
    """A line of OpenNRE's JSON about a pair of its own."""
    text = f"drug{number} relieves pain{number}"
    start = text.index("pain")
    h = {"id": f"D{number}", "name": f"drug{number}", "pos": [0, text.index(" ")]}
    t = {"id": f"P{number}", "name": f"pain{number}", "pos": [start, len(text)]}
    return json.dumps({"text": text, "h": h, "t": t, "relation": relation}) + "\n"


def write_sites(root: Path, **sites: tuple[int, int]) -> Path:
    """A folder a site, with so many training and test sentences."""
    first = 0
    for name, sizes in sites.items():
        (root / name).mkdir(parents=True)
        for part, size in zip(("train", "test"), sizes, strict=True):
            lines = [sentence(n, "NA" if n % 2 else "treats") for n in range(first, first + size)]
            (root / name / f"{part}.jsonl").write_text("".join(lines))
            first += size
    return root


def read(root: Path, **keys: object) -> Dataset:
    section = {"corpus": "files", "root": str(root), **SPLIT, **keys}
    return dataset(load_config({"data": section}).data)


def sources(data: Dataset, rows: np.ndarray) -> list[str]:
    return [data.corpus.sources[number] for number in data.corpus.source[rows]]


def test_a_folder_is_a_site(tmp_path: Path) -> None:
    root = write_sites(tmp_path, north=(20, 4), east=(10, 2))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "train.jsonl").write_text("not read")
    (tmp_path / "notes").mkdir()  # no training file: no site
    files = text_files(FileData.model_validate({**SPLIT, "root": root}))
    assert [(split, file.relative_to(root).as_posix(), site) for split, file, site in files] == [
        (0, "east/train.jsonl", "east"),
        (0, "north/train.jsonl", "north"),
        (2, "east/test.jsonl", "east"),
        (2, "north/test.jsonl", "north"),
    ]


def test_a_file_is_a_site_and_its_name_may_be_there_twice(tmp_path: Path) -> None:
    for name in ("a-x-a", "b-x-b", "a-x-b", "b.c-x-b.c"):
        (tmp_path / f"{name}.jsonl").write_text(sentence(1))
    files = text_files(FileData.model_validate({"pool": ["{site}-x-{site}.jsonl"], "root": tmp_path}))
    assert [one.site for one in files] == ["a", "b", "b.c"]


def test_sites_can_be_listed(tmp_path: Path) -> None:
    root = write_sites(tmp_path, north=(20, 4), east=(10, 2))
    data = read(root, sites=["north"])
    assert set(sources(data, np.arange(len(data.corpus)))) == {"north"}
    with pytest.raises(UserError, match="the site 'west' has no such file"):
        read(root, sites=["north", "west"])


def test_every_site_has_its_own_part_of_each_split(tmp_path: Path) -> None:
    data = read(write_sites(tmp_path, north=(40, 4), east=(10, 2)), dev_fraction=0.2)
    assert sources(data, data.train).count("north") == 32
    assert sources(data, data.train).count("east") == 8
    assert sources(data, data.dev).count("east") == 2
    config = load_config({"partition": {"kind": "source"}})
    parts = divide(config.partition, data.corpus, data.train, 1)
    held = mirrored(config.partition, parts, data.corpus, data.test, 1)
    assert parts.names == ("east", "north")
    assert {name: sources(data, held.rows(site)) for site, name in enumerate(held.names)} == {
        "east": ["east"] * 2,
        "north": ["north"] * 4,
    }


def test_documents_have_natural_sites_too(tmp_path: Path) -> None:
    for number, name in enumerate(("north", "east")):
        write_documents(tmp_path / f"{name}.json", documents(6, seed=number))
    section = {"corpus": "documents", "format": "docred", "root": str(tmp_path), "pool": ["{site}.json"]}
    rest = {"extractor": {"kind": "document"}, "evaluation": {"task": "documents"}}
    config = load_config({"data": section, "partition": {"kind": "source"}, **rest})
    data = dataset(config.data)
    parts = divide(config.partition, data.corpus, data.train, 1)
    assert parts.names == ("east", "north") and parts.sizes.tolist() == [4, 4]
    held = mirrored(config.partition, parts, data.corpus, data.test, 1)
    assert [sources(data, held.rows(site)) for site in range(2)] == [["east"], ["north"]]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"train": ["train.jsonl"], "test": ["{site}/test.jsonl"]}, "need {site} in every path"),
        ({"train": ["{site}/a.jsonl", "b.jsonl"], "test": ["t"]}, "need {site} in every path"),
        ({"train": ["a.jsonl"], "test": ["b.jsonl"], "sites": ["north"]}, "need {site} in every path"),
        ({"sites": ["north", "north"]}, "names a site twice"),
        ({"train": ["{site}/nothing.jsonl"]}, "no file is called {site}/nothing.jsonl"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, keys: dict[str, object], problem: str) -> None:
    with pytest.raises(UserError) as raised:
        read(write_sites(tmp_path, north=(4, 1)), **keys)
    assert problem in str(raised.value)


def test_the_cache_tells_sites_apart(tmp_path: Path) -> None:
    one = read(write_sites(tmp_path / "one", north=(10, 2)))
    other = read(write_sites(tmp_path / "other", south=(10, 2)))
    assert one.corpus.fingerprint != other.corpus.fingerprint
