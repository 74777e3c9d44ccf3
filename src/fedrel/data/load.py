"""From a config's data section to the corpus it describes, with its training, dev and test rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fedrel.config.config_sections import SITE, DocumentData, FileData, WorldData
from fedrel.data.cache import KINDS, cached, digest
from fedrel.data.corpora import no_such_file
from fedrel.data.hypernyms import as_listed, by_tree, filtered, read_tree
from fedrel.data.natural_sites import TextFile, text_files
from fedrel.data.problems import ADVICE, Problems, Reading
from fedrel.data.readers import reader
from fedrel.data.relations import NA, RelationMap, read_relations
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.splits import sample, split_by_source, split_rows
from fedrel.data.store import DEV, TEST, TRAIN, Corpus, Ints, Progress
from fedrel.data.text_files import there
from fedrel.data.world import World, WorldConfig, relation_names
from fedrel.errors import UserError

WORLD_VERSION = 1  # raise it when the world's text changes: it is part of the cache key


@dataclass(frozen=True)
class Dataset:
    """A corpus and which of its rows are for training, for choosing a model, and for testing."""

    corpus: Corpus
    train: Ints
    dev: Ints
    test: Ints


def dataset(section: WorldData | FileData | DocumentData, progress: Progress | None = None) -> Dataset:
    """The data that a config describes; the corpus is built once and then found in the cache."""
    if section.corpus == "world":
        return _world(section, progress)
    if section.corpus == "files":
        return _sentences(section, progress)
    return _documents(section, progress)


def world_config(section: WorldData) -> WorldConfig:
    """The settings of the built-in world."""
    return WorldConfig(**section.model_dump(exclude={"corpus", "world_seed"}), seed=section.world_seed)


def load_files(
    files: Sequence[tuple[int, Path] | TextFile],
    format: str,
    *,
    options: Mapping[str, Any] | None = None,
    relations: RelationMap | None = None,
    not_include: Sequence[Path] = (),
    mesh: Path | None = None,
    none_label: str | None = None,
    keep_na: bool = True,
    max_skipped: float | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """The corpus of (split, file) pairs in one format, of the kind that the format's reader yields.

    A `TextFile` may name a site: it becomes the source of all that the file holds.
    `options` are the reader's own. Without `relations` the format's are taken, or those that occur in the
    training files (in all files, where none is for training), in alphabetical order. Of documents, pairs are
    left out that EoG files list (`not_include`) or that a MeSH tree shows to be hypernyms (`mesh`). With
    `max_skipped`, records that cannot be read are left out, up to that share of them. Without `keep_na`, sentences
    of unrelated pairs are left out, and `NA` is none of the corpus's relations.
    """
    skip = max_skipped is not None
    problems = Problems(skip=skip, advice=ADVICE)
    chosen, options = reader(format, problems, none_label), dict(options or {})
    kind = KINDS[chosen.unit]
    known = relations or chosen.relations
    parts = [TextFile(*file) for file in files]

    @cache
    def found() -> RelationMap:
        training = [one.path for one in parts if one.split == TRAIN] or [one.path for one in parts]
        first = reader(format, Problems(skip=skip, advice=ADVICE), none_label)
        return kind.relations_of(row for path in training for row in first.read(path, **options))

    def finish(folder: Path) -> None:
        problems.save(folder)
        Reading.of(folder).check(1.0 if max_skipped is None else max_skipped)
        problems.log()

    def rows() -> Iterator[tuple[int, Any]]:
        rules = [as_listed(not_include)] if not_include else []
        rules += [by_tree(read_tree(mesh))] if mesh else []
        for split, path, site in parts:
            of_file: Iterator[Any] = chosen.read(path, relations=known or found(), **options)
            for rule in rules:
                of_file = filtered(of_file, rule)
            for row in of_file:
                if not keep_na and row.relation == NA:
                    continue
                yield split, replace(row, source=site) if site else row

    digests = [(one.split, digest(one.path)) for one in parts]
    given = list(known) if known else None
    # Only what is not the default, so that corpora built before there were such keys are found.
    reading: dict[str, Any] = {"version": chosen.version} if chosen.version > 1 else {}
    reading |= {"on_error": "skip"} if skip else {}
    reading |= {"none_label": none_label} if none_label is not None else {}
    reading |= {} if keep_na else {"keep_na": False}
    key: list[Any]
    if chosen.unit == "sentences":
        how = {"format": format, "splits": [split for split, _ in digests], **options, **reading}
        key = [how, [content for _, content in digests], given]
    else:
        contents = [digest(value) for value in options.values() if isinstance(value, Path)]
        named = {name: None if isinstance(value, Path) else value for name, value in options.items()}
        filters = [[digest(path) for path in not_include], digest(mesh) if mesh else None]
        key = [format, {**named, **reading}, digests, contents, *filters, given]
    if any(one.site for one in parts):
        key.append([one.site for one in parts])
    corpus = cached(kind, key, lambda: (known or found())[0 if keep_na else 1 :], rows, progress, finish)
    if max_skipped is not None:  # one from the cache may have been built with a higher limit
        Reading.of(corpus.folder).check(max_skipped)
    return corpus


def _world(section: WorldData, progress: Progress | None) -> Dataset:
    config = world_config(section)
    relations = relation_names(config)
    key = [{"world": WORLD_VERSION, **asdict(config)}, [], list(relations)]
    corpus = cached(SentenceCorpus, key, relations, lambda: World(config).instances(), progress)
    return Dataset(corpus, corpus.rows(TRAIN), corpus.rows(DEV), corpus.rows(TEST))


def _sentences(section: FileData, progress: Progress | None) -> Dataset:
    corpus = load_files(**_files(section), keep_na=section.keep_na, progress=progress).require(SentenceCorpus)
    train, dev, test = _split(section, corpus)
    if section.sample is not None:
        train = sample(corpus, train, section.sample, balanced=section.balanced, seed=section.split_seed)
    return Dataset(corpus, train, dev, test)


def _documents(section: DocumentData, progress: Progress | None) -> Dataset:
    not_include = [section.root / path for path in section.not_include]
    mesh = section.root / section.mesh if section.mesh else None
    corpus = load_files(**_files(section), not_include=not_include, mesh=mesh, progress=progress)
    if len(corpus.relations) < 2:
        raise UserError("the training documents state no relation", hint="check the files in [data]")
    return Dataset(corpus, *_split(section, corpus))


def _files(section: FileData | DocumentData) -> dict[str, Any]:
    """What `load_files` needs to know of a section."""
    files = text_files(section)
    for _, path, _ in files:
        if not there(path):
            raise no_such_file(path)
    return {
        "files": files,
        "format": section.format,
        "options": section.reader_options(),
        "relations": _relations(section),
        "none_label": section.none_label,
        "max_skipped": section.max_skipped if section.on_error == "skip" else None,
    }


def _relations(section: FileData | DocumentData) -> RelationMap | None:
    if section.relations is None:
        return None
    named = read_relations(section.root / section.relations)
    return RelationMap(name for name in named if name != section.none_label)


def _split(section: FileData | DocumentData, corpus: Corpus) -> tuple[Ints, ...]:
    """The training, dev and test rows: as the files say, or dealt out where they do not."""
    train, dev, test = (corpus.rows(part) for part in (TRAIN, DEV, TEST))
    split = split_by_source if SITE in str((section.pool or section.train)[0]) else split_rows
    if section.pool:
        return split(corpus, train, section.fractions, seed=section.split_seed)
    if section.dev:
        return corpus.without_duplicates(train), dev, test
    shares = (1 - section.dev_fraction, section.dev_fraction)
    return *split(corpus, train, shares, seed=section.split_seed), test
