"""From a config's data section to the corpus it describes, with its training, dev and test rows.

Natural sites: where a path of `[data]` has `{site}`, each file or folder that fits it belongs to a site.
`train = ["{site}/train.jsonl"]` finds a site in every folder that holds a `train.jsonl`, and names it after that
folder. Its dev and test files are then its own, too: they are found by the same name.

A corpus is built once for the same files read in the same way, and kept on disk (`cached`). Where it comes without
training, dev and test parts, its rows are dealt out (`split_rows`); `sample` draws from a part.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedrel.config.config_sections import SITE, DocumentData, FileData, WorldData
from fedrel.data.corpora import no_such_file
from fedrel.data.documents import DocumentCorpus
from fedrel.data.hypernyms import as_listed, by_tree, filtered, read_tree
from fedrel.data.problems import ADVICE, Problems, Reading
from fedrel.data.readers import reader
from fedrel.data.relations import NA, RelationMap, read_relations
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import DEV, TEST, TRAIN, Corpus, Ints, Kind, Progress
from fedrel.data.text_files import UNREADABLE, files_in, stored, there, unreadable
from fedrel.data.world import World, WorldConfig, relation_names
from fedrel.errors import UserError
from fedrel.files import cache_folder
from fedrel.seeding import numpy_generator

WORLD_VERSION = 1  # raise it when the world's text changes: it is part of the cache key
_log = logging.getLogger(__name__)
KINDS: dict[str, type[Corpus]] = {kind.unit: kind for kind in (SentenceCorpus, DocumentCorpus)}


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


class TextFile(NamedTuple):
    """A file or folder of a corpus: its split, and the site that it belongs to, if it is one's own."""

    split: int
    path: Path
    site: str = ""


def text_files(section: FileData | DocumentData) -> list[TextFile]:
    """All files of a section, split by split and in each site by site."""
    splits = {TRAIN: [*section.pool, *section.train], DEV: section.dev, TEST: section.test}
    sites = section.sites or sites_in(section.root, splits[TRAIN])
    return [
        file
        for split, paths in splits.items()
        for path in paths
        for file in _files_of(section, split, path, sites)
    ]


def sites_in(root: Path, paths: Sequence[Path]) -> list[str]:
    """The names that stand for `{site}` in training paths, of all files that there are, in alphabetical order."""
    found: set[str] = set()
    for path in paths:
        if SITE not in str(path):
            continue
        pattern = re.escape(path.as_posix()).replace(re.escape(SITE), r"([^/.][^/]*)", 1)
        named = re.compile(pattern.replace(re.escape(SITE), r"\1"))
        for file in root.glob(path.as_posix().replace(SITE, "*")):
            if match := named.fullmatch(file.relative_to(root).as_posix()):
                found.add(match[1])
        if not found:
            problem = f"no file is called {path}, with the name of a site in place of {SITE}"
            raise UserError(problem, file=root, hint="check data.root and the path; FEDREL_DATA may be unset")
    return sorted(found)


def open_corpus(folder: Path) -> Corpus:
    """Open a corpus, whose index says of which kind it is; raise a `UserError` if it is none, or damaged."""
    for kind in KINDS.values():
        if kind.index_in(folder).exists():
            return kind.open(folder)
    names = " nor ".join(kind.index_in(folder).name for kind in KINDS.values())
    problem = f"not a corpus, or a damaged one: it has neither {names}"
    raise UserError(problem, file=folder, hint="remove the folder and build it again")


def cached(
    kind: type[Kind],
    key: Sequence[Any],
    relations: Sequence[str] | Callable[[], Sequence[str]],
    rows: Callable[[], Iterable[tuple[int, Any]]],
    progress: Progress | None = None,
    finish: Callable[[Path], None] = lambda _: None,
) -> Kind:
    """A corpus of (split, row) pairs, from the cache if one was built under the same key.

    The key says all that shapes the corpus, in values that JSON can hold: the contents of the files
    (`digest`), how they are read, and the relations if they are given. Where the relations follow from the
    files, `relations` may be a function; like `rows`, it is called only if the corpus must be built. So is
    `finish`, with the folder, at the end.
    """
    name = hashlib.sha256(json.dumps([kind.format, *key], sort_keys=True).encode()).hexdigest()
    folder = cache_folder() / f"{kind.prefix}-{name[:32]}"
    if folder.exists():
        try:
            return kind.open(folder)
        except UserError as error:
            _log.warning("%s", error)
            shutil.rmtree(folder, ignore_errors=True)
    known = relations() if callable(relations) else relations
    return kind.build(rows(), folder, known, progress, finish)


def digest(path: Path) -> str:
    """SHA-256 of a file; of a folder, over its files, their names and its own path.

    Some readers of folders take names as data: i2b2's takes the hospital from one.
    """
    if path.is_dir():
        files = [(file.relative_to(path).as_posix(), digest(file)) for file in files_in(path)]
        return hashlib.sha256(json.dumps([str(path.resolve()), files]).encode()).hexdigest()
    whole = hashlib.sha256()
    try:
        with stored(path) as content:
            while part := content.read(1 << 20):
                whole.update(part)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    return whole.hexdigest()


def split_rows(
    corpus: Corpus, rows: Ints, fractions: Sequence[float] = (0.7, 0.1, 0.2), *, seed: int
) -> tuple[Ints, ...]:
    """Deal out the rows at random, without duplicates, so that each part has its fraction of their groups.

    A group is what must stay together: all sentences about two entities, whichever is the head, or one document.
    Parts keep the order of `rows`.
    """
    if min(fractions) < 0 or not np.isclose(sum(fractions), 1):
        raise UserError(f"expected fractions that add up to 1, found {tuple(fractions)}")
    rows = corpus.without_duplicates(rows)
    groups, group = np.unique(corpus.groups(rows), return_inverse=True)
    place = numpy_generator(seed, "split").permutation(len(groups))
    bounds = np.rint(np.cumsum(fractions) * len(groups))
    part = np.searchsorted(bounds, place, side="right")[group]
    return tuple(rows[part == number] for number in range(len(fractions)))


def split_by_source(
    corpus: Corpus, rows: Ints, fractions: Sequence[float] = (0.7, 0.1, 0.2), *, seed: int
) -> tuple[Ints, ...]:
    """The same for each source by itself, so that every natural site has its fraction of all parts."""
    of_row = np.asarray(corpus.source[rows])
    own = [split_rows(corpus, rows[of_row == one], fractions, seed=seed) for one in np.unique(of_row)]
    return tuple(np.sort(np.concatenate(parts)) for parts in zip(*own, strict=True))


def sample(corpus: SentenceCorpus, rows: Ints, n: int, *, balanced: bool, seed: int) -> Ints:
    """Draw n rows without replacement: equally many of each relation that occurs, or in their own proportions.

    FedCMC's Table 3 has a balanced and an unbalanced sample of 500 sentences of CPR. Where n cannot be
    divided exactly, the largest remainders get one more, and of equal remainders the lowest classes. The rows
    keep their order.
    """
    if not 0 < n <= len(rows):
        raise UserError(f"expected to draw from 1 to {len(rows)} sentences, found {n}")
    classes, label, count = np.unique(corpus.relation[rows], return_inverse=True, return_counts=True)
    share = np.full(len(classes), n / len(classes)) if balanced else n * count / len(rows)
    wanted = np.floor(share).astype(np.int64)
    wanted[np.argsort(wanted - share, kind="stable")[: n - wanted.sum()]] += 1
    if short := [which for which in range(len(classes)) if count[which] < wanted[which]]:
        name = corpus.relations[int(classes[short[0]])]
        problem = f"a balanced sample of {n} needs {wanted[short[0]]} sentences of {name!r}"
        raise UserError(f"{problem}, there are {count[short[0]]}", hint="ask for fewer")
    generator = numpy_generator(seed, "sample")
    drawn = [
        generator.choice(np.flatnonzero(label == which), size, replace=False)
        for which, size in enumerate(wanted)
    ]
    chosen: Ints = np.asarray(rows)[np.sort(np.concatenate(drawn))]
    return chosen


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


def _files_of(
    section: FileData | DocumentData, split: int, path: Path, sites: Sequence[str]
) -> Iterator[TextFile]:
    if SITE not in str(path):
        yield TextFile(split, section.root / path)
        return
    for site in sites:
        file = section.root / str(path).replace(SITE, site)
        if not file.exists():
            hint = "add the file, or leave the site out: data.sites lists those that take part"
            raise UserError(f"the site {site!r} has no such file", file=file, hint=hint)
        yield TextFile(split, file, site)
