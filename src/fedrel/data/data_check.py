"""What may be wrong with data that can be read: parts that share text, relations that one part lacks, empty sites.

It is cheap, so it is done before every training, and `fedrel data check` shows it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedrel.data.load import Dataset
from fedrel.data.partition import Partition
from fedrel.data.problems import Reading
from fedrel.data.store import TRAIN, Corpus, Ints
from fedrel.errors import some_of

UNKNOWN_LIMIT = 0.1  # a larger share of unknown tokens is worth a warning
NAMED = 5  # things that a warning names


@dataclass(frozen=True)
class DataCheck:
    """What was found; `warnings` say in sentences what a user should look at."""

    unit: str
    sizes: Mapping[str, int]  # rows of each part
    relations: Mapping[str, Mapping[str, int]]  # by part, how often each occurs
    repeated: Mapping[str, int]  # rows of dev and test whose text is also in the training part
    sites: int
    empty_sites: list[str]
    seen: int  # records that readers tried
    skipped: Mapping[str, int]  # by reason
    notes: Mapping[str, Mapping[str, Any]]  # what readers noted: count, and the first few places
    unknown_tokens: float | None = None  # share of the training tokens
    warnings: list[str] = field(default_factory=list)


def check_data(
    data: Dataset,
    parts: Partition,
    unknown_tokens: float | None = None,
    none_label: str | None = None,
    directions: str = "both",
) -> DataCheck:
    """Check the parts of a dataset and how it is divided; `unknown_tokens` is the extractor's share.

    `none_label` is what the files call an unrelated pair, where a config says so: some pair should be called so.
    `directions` are those in which a config asks about pairs.
    """
    corpus = data.corpus
    rows = {"train": data.train, "dev": data.dev, "test": data.test}
    reading = Reading.of(corpus.folder)
    counts = {name: corpus.label_counts(part) for name, part in rows.items()}
    names = list(corpus.relations)
    found = DataCheck(
        unit=corpus.unit,
        sizes={name: len(part) for name, part in rows.items()},
        relations={name: dict(zip(names, count.tolist(), strict=True)) for name, count in counts.items()},
        repeated=_repeated(corpus, rows),
        sites=parts.sites,
        empty_sites=[parts.names[site] for site in np.flatnonzero(parts.sizes == 0)],
        seen=reading.seen,
        skipped=dict(reading.skipped),
        notes={
            **{what: {"count": one.count, "examples": one.examples} for what, one in reading.notes.items()},
            **{what: {"count": count, "examples": []} for what, count in corpus.corrections().items()},
            **_left_out_again(data),
        },
        unknown_tokens=unknown_tokens,
    )
    found.warnings.extend(_warnings(found))
    if (
        none_label is not None
        and corpus.unit == "sentences"
        and not any(count[0] for count in counts.values())
    ):
        found.warnings.append(f"no sentence has the relation {none_label!r}, which data.none_label names")
    if directions == "annotated":
        found.warnings.append(
            'data.directions = "annotated" gives labels away: use it for counts, not to compare'
        )
    return found


def _repeated(corpus: Corpus, rows: Mapping[str, Ints]) -> dict[str, int]:
    texts = corpus.text_numbers()
    train = np.unique(texts[rows["train"]])
    return {name: int(np.isin(texts[rows[name]], train).sum()) for name in ("dev", "test")}


def _left_out_again(data: Dataset) -> dict[str, dict[str, Any]]:
    """How many of the training files' rows are in no part because they repeat another."""
    corpus = data.corpus
    rows = corpus.rows(TRAIN)
    unused = np.setdiff1d(rows, np.concatenate([data.train, data.dev, data.test]))
    if not len(unused):
        return {}
    again = np.isin(unused, corpus.without_duplicates(rows), invert=True)
    what = "rows that repeat another one in all they say, left out"
    return {what: {"count": int(again.sum()), "examples": []}} if again.any() else {}


def _warnings(found: DataCheck) -> Iterator[str]:
    skipped = sum(found.skipped.values())
    if skipped:
        reasons = "; ".join(f"{count:,} times: {why}" for why, count in list(found.skipped.items())[:NAMED])
        yield f"{skipped:,} of {found.seen:,} records cannot be read and are left out; {reasons}"
    for what, note in found.notes.items():
        if note["examples"]:
            yield f"{note['count']:,} {what}; first: {note['examples'][0]}"
    for part, count in found.repeated.items():
        if count:
            share = f"{count:,} of {found.sizes[part]:,}"
            yield f"{share} {part} {found.unit} are also among the training {found.unit}"
    learnt = {name for name, count in found.relations["train"].items() if count}
    for part in ("dev", "test"):
        unseen = [name for name, count in found.relations[part].items() if count and name not in learnt]
        if unseen:
            yield f"{part} has relations that training lacks: {some_of(unseen, NAMED)}"
    tested = {name for part in ("dev", "test") for name, count in found.relations[part].items() if count}
    if untested := [name for name in found.relations["train"] if name in learnt - tested]:
        yield f"only training has these relations: {some_of(untested, NAMED)}"
    yield from _spelt_alike(found)
    if found.empty_sites:
        empty = f"{len(found.empty_sites):,} of {found.sites:,} sites have no data and are never drawn"
        yield f"{empty}: {some_of(found.empty_sites, 20)}"
    if found.unknown_tokens is not None and found.unknown_tokens > UNKNOWN_LIMIT:
        share = f"{found.unknown_tokens:.1%} of the training tokens are not in the vocabulary"
        yield f"{share}: check how the text is cut into words, extractor.vectors and extractor.min_count"


def _spelt_alike(found: DataCheck) -> Iterator[str]:
    """Relations that differ only in case, spaces or punctuation."""
    alike: dict[str, list[str]] = {}
    for name in found.relations["train"]:
        if any(of_part[name] for of_part in found.relations.values()):
            alike.setdefault("".join(filter(str.isalnum, name)).casefold(), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            yield f"these relations are spelt alike: {some_of(sorted(names), NAMED)}; are they one?"
