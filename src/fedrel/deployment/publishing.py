"""Publishing an experiment: artefacts for the sites, and the coordinator's own labelled text as columns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrel.data.align import KnowledgeBase, read_kb, write_jsonl
from fedrel.data.column_files import check_sums, write_sums
from fedrel.data.load import Dataset
from fedrel.data.partition import Partition
from fedrel.data.readers import reader
from fedrel.data.relations import RelationMap, read_relations
from fedrel.data.store import DEV, TEST, Progress
from fedrel.deployment.artefacts import FILES, FORMAT, MANIFEST, Artefacts, agreed_part, digest, over
from fedrel.deployment.experiment import Experiment, Shared
from fedrel.deployment.folders import CoordinatorFolder
from fedrel.deployment.site_preparation import Part, prepare_site_data, published_triples, read_columns
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.site_data import SiteData
from fedrel.files import ScratchFolder, read_sealed, write_text
from fedrel.runs.prepare import Preparation


@dataclass(frozen=True)
class CoordinatorData:
    """What a coordinator begins a run with: its own sentences, and what it published."""

    ready: Preparation  # its partition names the sites; what they hold, they report themselves
    triples: int  # how many triples have a number that all agreed on
    artefacts: Mapping[str, str]  # fingerprints by name


def publish_experiment(
    folder: CoordinatorFolder, experiment: Experiment, progress: Progress | None = None
) -> Artefacts:
    """Write the artefacts for the sites, and the coordinator's own labelled text as columns."""
    sites = folder.federation.sites
    artefacts = publish(experiment, folder.artefacts, folder.federation.agreed)
    shutil.rmtree(folder.preparation, ignore_errors=True)
    shared, config = experiment.shared, experiment.config
    parts = [Part(DEV, shared.dev, shared.format), Part(TEST, shared.test, shared.format)]
    text = read_columns(parts, artefacts, folder.preparation / "corpus", progress)
    for name, split in (("dev", DEV), ("test", TEST)):
        if not len(text.rows(split)):
            raise UserError(f"shared.{name} has nothing to evaluate on", hint="check its files")
    nothing = np.zeros(0, np.int64)
    of_sites = Partition(nothing, np.zeros(len(sites) + 1, np.int64), tuple(sites))  # none of their rows
    own = prepare_site_data(text, of_sites, artefacts, config, folder.preparation, progress)
    dataset = Dataset(text, nothing, text.rows(DEV), text.rows(TEST))
    ready = Preparation(dataset, own)
    triples = len(published_triples(artefacts.knowledge_base))
    save_coordinator(folder.preparation, CoordinatorData(ready, triples, artefacts.fingerprints))
    return artefacts


def check_published(folder: CoordinatorFolder, experiment: Experiment) -> None:
    """Fail if an experiment is not the one that was published."""
    if not (folder.preparation / "coordinator.json").exists():
        raise UserError("nothing was published", file=folder.path, hint="run `fedrel coordinator publish`")
    artefacts = Artefacts(folder.artefacts)
    pairs = {"": (agreed_part(experiment.config), agreed_part(artefacts.config))}
    pairs["shared."] = (experiment.shared.reading.model_dump(), artefacts.reading.model_dump())
    for prefix, (wanted, published) in pairs.items():
        if different := _first_difference(wanted, published):
            problem = f"{prefix}{different} is not as it was published"
            hint = "run `fedrel coordinator publish` and give the artefacts to the sites again"
            raise UserError(problem, file=folder.artefacts, hint=hint)


_AGAIN = "run `fedrel coordinator publish` again; what the sites prepared stays valid"


def save_coordinator(folder: Path, coordinator: CoordinatorData) -> None:
    """Save it for the process in which the coordinator runs."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = coordinator.ready
    ready.site_data.save(folder)
    np.save(folder / "dev.npy", ready.dataset.dev)
    np.save(folder / "test.npy", ready.dataset.test)
    rest = {"triples": coordinator.triples, "artefacts": dict(coordinator.artefacts)}
    write_text(folder / "coordinator.json", json.dumps(rest, ensure_ascii=False))
    write_sums(folder)


def open_coordinator(folder: Path, extractor: str) -> CoordinatorData:
    """Open what `save_coordinator` saved, for a kind of extractor."""
    check_sums(folder, _AGAIN)
    rest = read_sealed(folder / "coordinator.json", "what a coordinator has prepared", _AGAIN)
    if "words" in rest:
        problem = "was written by an earlier version of fedrel"
        raise UserError(problem, file=folder, hint=_AGAIN)
    site_data = SiteData.load(folder, extractor)
    dev, test = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("dev", "test"))
    nothing = np.zeros(0, np.int64)
    ready = Preparation(Dataset(site_data.text, nothing, dev, test), site_data)
    return CoordinatorData(ready, rest["triples"], rest["artefacts"])


def publish(experiment: Experiment, folder: Path, sizes: Sequence[int | None] = ()) -> Artefacts:
    """Write an experiment's artefacts to a folder, in place of those that are there.

    `sizes` are the most that each site may say it holds; None where nothing was agreed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with ScratchFolder(folder.parent) as name:
        part = Path(name) / "new"
        part.mkdir()
        _write(experiment, part)
        if any(sizes):
            _write_json(part / "sizes.json", list(sizes))
        manifest: dict[str, Any] = {"format": FORMAT, "artefacts": {}}
        for artefact, files in FILES.items():
            found = {file: digest(part / file) for file in files if (part / file).exists()}
            if found:
                manifest["artefacts"][artefact] = {"sha256": over(found), "files": found}
        _write_json(part / MANIFEST, manifest)
        if folder.exists():
            folder.rename(Path(name) / "old")
        part.rename(folder)
    return Artefacts(folder)


def _write(experiment: Experiment, folder: Path) -> None:
    shared, section = experiment.shared, experiment.config.extractor
    kb = read_kb(shared.knowledge_base) if shared.knowledge_base else None
    if kb is not None:
        _write_knowledge_base(kb, folder / "knowledge_base.tsv")
    relations = _relations(shared, kb)
    _write_json(folder / "relations.json", {relation: number for number, relation in enumerate(relations)})
    if shared.validation:
        read = reader(shared.format).read
        found = (one for path in shared.validation for one in read(path, relations=relations))
        write_jsonl(found, folder / "validation.jsonl")
    config = agreed_part(experiment.config)
    config["training"]["rounds"] = (
        experiment.config.training.rounds
    )  # what sites allow unless they say otherwise
    config["extractor"] |= extractor_kind(section.kind).publish(section, folder)
    about = {"config": config, "reading": shared.reading.model_dump(mode="json")}
    _write_json(folder / "config.json", about)


def _relations(shared: Shared, kb: KnowledgeBase | None) -> RelationMap:
    known = kb.relations if kb else RelationMap(())
    if shared.relations is None:
        return known if kb else reader(shared.format).relations or known
    relations = read_relations(shared.relations)
    if unknown := sorted(set(known) - set(relations)):
        problem = f"has the relation {unknown[0]!r}, which is not in the relation map"
        raise UserError(problem, file=shared.knowledge_base, hint=f"add it to {shared.relations}")
    return relations


def _write_knowledge_base(kb: KnowledgeBase, path: Path) -> None:
    """In the form that `read_kb` reads, without the comments of the coordinator's own file."""
    lines = (
        (head, "|".join(kb.names[head]), relation, tail, "|".join(kb.names[tail]))
        for (head, tail), relations in kb.facts.items()
        for relation in relations
    )
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def _write_json(path: Path, tree: Any) -> None:
    path.write_text(json.dumps(tree, indent=1, ensure_ascii=False), encoding="utf-8")


def _first_difference(wanted: Mapping[str, Any], published: Mapping[str, Any]) -> str | None:
    """The first key whose values differ, dotted."""
    for key in dict.fromkeys((*wanted, *published)):
        one, other = wanted.get(key), published.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if inner := _first_difference(one, other):
                return f"{key}.{inner}"
        elif one != other:
            return key
    return None
