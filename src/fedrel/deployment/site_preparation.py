"""Preparing a site: read its own files, label and number them by what was published, save them as columns.

The result is what a simulation's worker has, for one site: the same numbers for relations, words and triples,
the same order of sentences and bags. Nothing leaves the site here. The coordinator prepares its own text with
the same code.

The same triple has the same number at every site, though no site sees another's corpus. A corpus numbers entities,
pairs and triples in the order in which it meets them. Here they are numbered anew: those of the published knowledge
base first, in its order, then the corpus's others, sorted by name. So a published triple has one number everywhere,
and any two triples are in the same order at every site that has both, as they would be in one corpus of all sites.
So bags come in the same order, and with the same seed in the same batches.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import Config
from fedrel.data.align import KnowledgeBase, align
from fedrel.data.annotations import Document
from fedrel.data.documents import DocumentCorpus
from fedrel.data.partition import Partition
from fedrel.data.readers import reader
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import TRAIN, Corpus, Progress
from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.experiment import sends_triple_numbers
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.policy import (
    SITE_TOML,
    TEXT,
    OwnFiles,
    check_names,
    check_tensors,
    objections,
    read_policy,
)
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.site_data import SiteData
from fedrel.files import ScratchFolder, sealed, write_text

Ints = npt.NDArray[np.int64]

VALIDATION = 3  # the split of the published sentences (D_v), beside TRAIN, DEV and TEST

Triple = tuple[str, str, str]  # head, relation, tail


@dataclass(frozen=True)
class Prepared:
    """What `fedrel site prepare` reports."""

    held: int  # sentences, or documents, to train on
    left_out: int  # because their triple has no number that all sites agree on
    objections: list[str]  # the rules of site.toml for which the site would refuse the experiment


def prepare_site(folder: SiteFolder, progress: Progress | None = None) -> Prepared:
    """Read the site's own files with the published artefacts, and save them as columns in the site's folder."""
    folder.check()
    policy = read_policy(folder.path)
    check_names(policy, folder.path)
    artefacts = Artefacts(folder.artefacts)
    artefacts.check()
    config = _with_own_encoder(artefacts, policy.data)
    own = Part(TRAIN, own_files(folder.path, policy.data), policy.data.format, policy.data.source_field)
    folder.seal.unlink(missing_ok=True)
    shutil.rmtree(folder.site_data, ignore_errors=True)
    text = read_columns([own], artefacts, folder.site_data / "corpus", progress)
    rows, left_out = trainable(text, artefacts)
    if not len(rows):
        problem = "nothing to train on was found in the site's files"
        raise UserError(problem, file=folder.path / SITE_TOML, hint="check data.files and data.format")
    _check_size(len(rows), folder, artefacts)
    held = only_own_rows(rows, folder.number, folder.sites)
    site_data = prepare_site_data(text, held, artefacts, config, folder.site_data, progress)
    site_data.save(folder.site_data)
    tensors = _tensors(config, site_data)
    check_tensors(policy, tensors, folder.path)
    write_text(folder.tensors, json.dumps(sealed({"tensors": tensors})))
    if artefacts.sizes:
        write_text(folder.sizes_file, json.dumps(sealed({"sizes": artefacts.sizes})))
    else:
        folder.sizes_file.unlink(missing_ok=True)
    write_text(folder.path / "config.json", config.model_dump_json())
    write_text(folder.seal, json.dumps(artefacts.fingerprints, indent=1))
    return Prepared(len(rows), left_out, objections(policy, config))


def _check_size(held: int, folder: SiteFolder, artefacts: Artefacts) -> None:
    """Fail if the site holds more than was agreed: the coordinator would not let it take part."""
    most = artefacts.sizes[folder.number] if artefacts.sizes else None
    if most is not None and held > most:
        problem = f"holds {held:,} to train on, but at most {most:,} were agreed for {folder.name}"
        hint = "name fewer files in data.files, or agree on another size (`sizes` in federation.toml) and publish"
        raise UserError(problem, file=folder.path, hint=hint)


def _tensors(config: Config, site_data: SiteData) -> list[str]:
    """The names of all tensors of the experiment's model, trained or not."""
    kind = extractor_kind(config.extractor.kind)
    model = kind.build(config.extractor, site_data.inputs, len(site_data.text.relations), config.seed)
    return [name for name, _ in model.named_parameters()]


def trainable(text: Corpus, artefacts: Artefacts) -> tuple[Ints, int]:
    """The rows to train on, once each, and how many are left out.

    Where triples are sent as numbers, those that the published knowledge base does not have are left out.
    """
    found = text.without_duplicates(text.rows(TRAIN))
    if not sends_triple_numbers(artefacts.config):
        return found, 0
    published = len(published_triples(artefacts.knowledge_base))
    kept = found[text.require(SentenceCorpus).triple[found] < published]
    return kept, len(found) - len(kept)


def only_own_rows(rows: Ints, number: int, names: Sequence[str]) -> Partition:
    """A partition as one site knows it: its own rows, and none of the others."""
    bounds = np.zeros(len(names) + 1, np.int64)
    bounds[number + 1 :] = len(rows)
    return Partition(np.asarray(rows, np.int64), bounds, tuple(names))


def own_files(folder: Path, data: OwnFiles) -> list[Path]:
    """The files that site.toml names, each once, in order."""
    found: dict[Path, None] = {}
    for pattern in data.files:
        path = folder / pattern
        try:
            patterned = [] if Path(pattern).is_absolute() else sorted(folder.glob(pattern))
        except ValueError as error:
            problem = f"data.files: {pattern!r} is not a pattern: {error}"
            raise UserError(
                problem, file=folder / SITE_TOML, hint="as in text/*.txt or text/**/*.txt"
            ) from error
        matches = [path] if path.exists() else patterned
        if not matches:
            problem = f"data.files: nothing is called {pattern!r}"
            raise UserError(problem, file=folder / SITE_TOML, hint="paths are relative to the site's folder")
        found |= dict.fromkeys(matches)
    if not found:
        hint = 'name the site\'s text, as files = ["text/*.txt"]'
        raise UserError("data.files is empty", file=folder / SITE_TOML, hint=hint)
    return list(found)


def _with_own_encoder(artefacts: Artefacts, own: OwnFiles) -> Config:
    """The published experiment with the site's own copy of the encoder, which must be the same one."""
    config, section = artefacts.config, artefacts.config.extractor
    changed = extractor_kind(section.kind).at_site(section, artefacts.folder, own.encoder)
    return config.model_copy(update={"extractor": changed})


@dataclass(frozen=True)
class Part:
    """Files of one format, for one split."""

    split: int
    files: Sequence[Path]
    format: str
    source_field: str = "source"


def read_columns(
    parts: Sequence[Part], artefacts: Artefacts, folder: Path, progress: Progress | None = None
) -> Corpus:
    """Write these files, then the published sentences of D_v, as columns to `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if extractor_kind(artefacts.config.extractor.kind).unit == "documents":
        return DocumentCorpus.build(_documents(parts, artefacts), folder, artefacts.relations, progress)
    with ScratchFolder(folder.parent) as first:
        instances = _instances(parts, artefacts)
        corpus = SentenceCorpus.build(instances, Path(first) / "x", artefacts.relations, progress)
        return renumbered(corpus, artefacts.knowledge_base, folder)


def prepare_site_data(
    text: Corpus,
    held: Partition,
    artefacts: Artefacts,
    config: Config,
    folder: Path,
    progress: Progress | None = None,
) -> SiteData:
    """The columns as the experiment's model reads them; a transformer's pieces are saved in `folder`."""
    section, published = config.extractor, artefacts.folder
    inputs = extractor_kind(section.kind).published_inputs(section, text, published, folder, progress)
    return SiteData(
        text=text,
        inputs=inputs,
        partition=held,
        validation=text.rows(VALIDATION),
        watched=np.zeros(0, np.int64),
        truth_known=False,
    )


def published_triples(kb: KnowledgeBase | None) -> list[Triple]:
    """A knowledge base's triples; the position of one is its number."""
    facts = kb.facts if kb else {}
    return [(head, relation, tail) for (head, tail), found in facts.items() for relation in found]


def renumbered(corpus: SentenceCorpus, kb: KnowledgeBase | None, folder: Path) -> SentenceCorpus:
    """The same corpus in another folder, numbered by the knowledge base."""
    triples = published_triples(kb)
    known_entities = (entity for head, _, tail in triples for entity in (head, tail))
    entities = _numbers(known_entities, corpus.entities)
    relations = {name: number for number, name in enumerate(corpus.relations)}
    own_entity = _looked_up(entities, corpus.entities)

    own_pairs = [(head, tail) for head, tail in own_entity[corpus.pairs].tolist()]
    known_pairs = [(entities[head], entities[tail]) for head, _, tail in triples]
    pairs = _numbers(known_pairs, own_pairs)
    own_pair = _looked_up(pairs, own_pairs)

    own_triples = list(
        zip(own_pair[corpus.triples[:, 0]].tolist(), corpus.triples[:, 1].tolist(), strict=True)
    )
    known = ((pairs[pair], relations[t[1]]) for pair, t in zip(known_pairs, triples, strict=True))
    numbers = _numbers(known, own_triples)
    own_triple = _looked_up(numbers, own_triples)

    names = dict(zip(corpus.entities, corpus.names, strict=True))
    changes: dict[str, Any] = {
        "entities": list(entities),
        "names": [kb.name(e) if kb and e in kb.names else names[e] for e in entities],
        "pairs": np.array(list(pairs)).reshape(-1, 2),
        "pair": own_pair[corpus.pair],
        "triples": np.array(list(numbers)).reshape(-1, 2),
        "triple": own_triple[corpus.triple],
    }
    return corpus.copy(folder, changes)


def _instances(parts: Sequence[Part], artefacts: Artefacts) -> Iterator[tuple[int, Instance]]:
    for part in parts:
        if part.format == TEXT:
            found = _aligned(part.files, artefacts)
        else:
            found = _read(part, {"source": part.source_field}, artefacts)
        for instance in found:
            yield part.split, instance
    for instance in artefacts.validation():
        yield VALIDATION, instance


def _aligned(files: Sequence[Path], artefacts: Artefacts) -> Iterator[Instance]:
    if artefacts.knowledge_base is None:
        problem = "raw text needs a knowledge base to be labelled with, and none was published"
        raise UserError(problem, hint="label the text yourself and name its format")
    reading = artefacts.reading
    return align(files, artefacts.knowledge_base, na_rate=reading.na_rate, seed=reading.na_seed)


def _documents(parts: Sequence[Part], artefacts: Artefacts) -> Iterator[tuple[int, Document]]:
    for part in parts:
        reading = artefacts.reading
        options = {"pair_types": reading.pair_types, "directions": reading.directions}
        for document in _read(part, options, artefacts):
            yield part.split, document


def _read(part: Part, options: Mapping[str, Any], artefacts: Artefacts) -> Iterator[Any]:
    """The rows of a part's files; the format's reader gets those of the options that it has."""
    chosen = reader(part.format)
    taken = {name: value for name, value in options.items() if name in chosen.options()}
    for file in part.files:
        yield from chosen.read(file, relations=artefacts.relations, **taken)


def _numbers(known: Iterable[Any], found: Iterable[Any]) -> dict[Any, int]:
    """Numbers for what is known, in its order, and then for what else was found, sorted."""
    order = dict.fromkeys(known)
    order |= dict.fromkeys(sorted(set(found) - order.keys()))
    return {key: number for number, key in enumerate(order)}


def _looked_up(numbers: Mapping[Any, int], keys: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.fromiter((numbers[key] for key in keys), np.int64, len(keys))
