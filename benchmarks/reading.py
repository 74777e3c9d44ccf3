"""How fast do sentences become a corpus that sites can train on?

    python benchmarks/reading.py [--sentences 500000]

The built-in world in NYT10's shape is written as OpenNRE's JSON lines and as raw text with its knowledge base. Each
step that stands before a first round is then measured by itself, in one process: parsing the lines, tokenising the
sentences, both together with writing the columns (`fedrel run`'s own way), opening the columns again, the
vocabulary, duplicates and splits, each way of partitioning over 100 sites, and aligning the raw text with the
knowledge base (`fedrel align`), where other sentences stand between those of the pairs. Rates are sentences for a
second of the processor, which other work on the machine changes little. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fedrel.data.align import align, read_kb, write_jsonl
from fedrel.data.load import open_corpus, split_rows
from fedrel.data.partition import kinds
from fedrel.data.partition.kinds import iid
from fedrel.data.readers.opennre import OpenNRE
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import TRAIN
from fedrel.data.text import sentences, tokenise
from fedrel.data.text_files import paragraphs
from fedrel.data.vectors import vocabulary_from_corpus
from fedrel.data.world import World, nyt10_shape

SITES, ALPHA = 100, 0.5

Result = TypeVar("Result")


class Rates:
    """What was measured."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}

    def measure(self, name: str, sentences: int, work: Callable[[], Result]) -> Result:
        """Do some work on so many sentences."""
        begin = time.process_time()
        result = work()
        seconds = time.process_time() - begin
        self.found[name] = {"seconds": round(seconds, 3), "per_second": round(sentences / max(seconds, 1e-3))}
        print(f"{name:24}{seconds:9.2f} s{sentences / max(seconds, 1e-3):14,.0f} a second", flush=True)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Sentences a second before the first round.")
    parser.add_argument("--sentences", type=int, default=500_000, help="of the world (default: 500,000)")
    count = parser.parse_args().sentences
    shape = nyt10_shape()
    pairs = round(count * shape.pairs / shape.sentences) if shape.pairs else None
    world = World(replace(shape, sentences=count, pairs=pairs, dev=0.0, test=0.0))
    rates = Rates()
    with tempfile.TemporaryDirectory(prefix="fedrel-reading-") as name:
        folder = Path(name)
        write_jsonl((instance for _, instance in world.instances()), folder / "sentences.jsonl")
        world.kb(folder / "kb.tsv", na=True)
        world.documents(folder / "text")

        texts = rates.measure(
            "parsing JSON lines",
            count,
            lambda: [one.text for one in OpenNRE().read(folder / "sentences.jsonl")],
        )
        rates.measure("tokenising", count, lambda: sum(len(tokenise(text)) for text in texts))
        stream = ((TRAIN, instance) for instance in OpenNRE().read(folder / "sentences.jsonl"))
        rates.measure(
            "reading into columns",
            count,
            lambda: SentenceCorpus.build(stream, folder / "corpus", world.relations),
        )
        corpus = rates.measure("opening", count, lambda: open_corpus(folder / "corpus"))
        rows = corpus.rows(TRAIN)
        rates.measure("vocabulary", count, lambda: vocabulary_from_corpus(corpus, rows, 1))
        rates.measure("duplicates and splits", count, lambda: split_rows(corpus, rows, seed=1))
        rates.measure("partition, iid", count, lambda: iid(rows, SITES, 1))
        labels = corpus.relation[rows]
        rates.measure("partition, dirichlet", count, lambda: kinds.dirichlet(rows, labels, SITES, ALPHA, 1))
        rates.measure("partition, shards", count, lambda: kinds.shards(rows, labels, SITES, 2, 1))

        kb = rates.measure("knowledge base", len(corpus.pairs), lambda: read_kb(folder / "kb.tsv"))
        files = sorted((folder / "text").iterdir())
        raw = sum(1 for file in files for _, paragraph in paragraphs(file) for _ in sentences(paragraph))
        found = rates.measure("aligning", raw, lambda: sum(1 for _ in align(files, kb, na_rate=0.0, seed=1)))
    print(
        json.dumps(
            {"sentences": count, "raw_sentences": raw, "aligned_instances": found, "rates": rates.found}
        )
    )


if __name__ == "__main__":
    main()
