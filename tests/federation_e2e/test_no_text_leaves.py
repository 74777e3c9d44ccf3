"""A search of all bytes that are sent: none of a site's sentences is in them, in any readable form.

Every training sentence holds a word that occurs nowhere else. Without TLS, a proxy before the superlink keeps all
that passes, and the coordinator's files are searched as well.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ahocorasick_rs import BytesAhoCorasick

pytest.importorskip("flwr", reason="needs the extra `flower`")

from fedrel.config.schema import Config
from fedrel.data.load import open_corpus
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import TRAIN
from fedrel.data.world import World, WorldConfig
from fedrel.runs.prepare import prepare
from tests.federation_e2e.conftest import experiment
from tests.federation_e2e.proxy import recording
from tests.federation_e2e.testbed import NAMES, Testbed

pytestmark = pytest.mark.slow


def marker(number: int) -> str:
    """A word for one sentence; digits alone could turn up by chance."""
    return f"qzx{number:05}vjk"


def write_marked(folder: Path) -> Config:
    """The built-in world in files, a marker at the end of every training sentence."""
    world = World(WorldConfig(sentences=1000, relations=5, mean_length=14))
    splits: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for number, (split, one) in enumerate(world.instances()):
        text = f"{one.text} {marker(number)}" if split == TRAIN else one.text
        ends = {
            key: {"id": end.id, "name": end.name, "pos": [end.start, end.end]}
            for key, end in (("h", one.head), ("t", one.tail))
        }
        splits[split].append(json.dumps({"text": text, "relation": one.relation, **ends}))
    for split, name in enumerate(("train", "dev", "test")):
        (folder / f"{name}.jsonl").write_text("\n".join(splits[split]) + "\n")
    files = {name: [str(folder / f"{name}.jsonl")] for name in ("train", "dev", "test")}
    plain = experiment(training__rounds=2, partition__coordinator=0.0, engine__deadline=600)
    tree = plain.model_dump(mode="json", exclude_none=True)
    tree["data"] = {"corpus": "files", "format": "jsonl", **files}
    return Config.model_validate(tree)


def disguises(word: str) -> Iterator[bytes]:
    """A word as it could be hidden in bytes; base64 begins at any of three places in its groups."""
    for plain in (word.encode(), word.encode("utf-16-le"), word.encode("utf-16-be")):
        yield plain
        for before in range(3):
            yield base64.b64encode(b"\0" * before + plain)[4 if before else 0 : -4]


def runs_of_ids(corpus: SentenceCorpus, ids: np.ndarray, beyond: int) -> Iterator[bytes]:
    """Every three token ids in a row that could not stand in an ascending list or among row numbers by chance."""
    for row in range(len(corpus)):
        sentence = ids[corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]]]
        for three in np.lib.stride_tricks.sliding_window_view(sentence, 3):
            if len(set(three.tolist())) == 3 and (np.diff(three) < 0).any() and three.max() > beyond:
                for kind in ("<i4", ">i4", "<i8", ">i8"):
                    yield three.astype(kind).tobytes()


def test_no_sentence_leaves_a_site(tmp_path: Path, out: Path):
    config = write_marked(tmp_path)
    bed = Testbed(tmp_path / "federation", secure=False)
    bed.make(config, prepare(config))
    with recording(bed.coordinator.federation.port) as (port, recorder):
        bed.link = port
        for name in NAMES:
            bed.write_policy(name)
        with bed:
            bed.start()
            bed.finish(config, out)
        crossed = recorder.captured()
    at_coordinator = [
        file.read_bytes()
        for root in (bed.coordinator.path, out)
        for file in root.rglob("*")
        if file.is_file()
    ]

    # The search would find what does cross, the model's numbers as they are, and what the coordinator does have.
    (stored,) = (bed.site("north").path / "state").rglob("00002-*-claim.safetensors")
    numbers = stored.read_bytes()[-64:]
    assert any(numbers in stream for stream in crossed)
    own = open_corpus(bed.coordinator.preparation / "corpus").text_of(0).encode()
    assert any(own in file for file in at_coordinator)

    needles: set[bytes] = set()
    for name in NAMES:
        folder = bed.site(name).path / "materials"
        corpus = open_corpus(folder / "corpus")
        texts = [corpus.text_of(row) for row in range(len(corpus))]
        marks = [text.rsplit(" ", 1)[-1] for text in texts]
        assert all(mark.startswith("qzx") for mark in marks) and len(set(marks)) == len(marks)
        needles.update(form for mark in marks for form in disguises(mark))
        lookup = np.load(folder / "lookup.npy")
        for ids in (np.arange(len(corpus.words)), lookup):
            needles.update(runs_of_ids(corpus, ids, beyond=len(corpus)))
    assert len(needles) > 20_000
    search = BytesAhoCorasick(sorted(needles))  # all at once: there are megabytes to look through
    assert search.find_matches_as_indexes(b"..." + sorted(needles)[7] + b"...")
    for heap in (*crossed, *at_coordinator):
        assert not search.find_matches_as_indexes(heap)
