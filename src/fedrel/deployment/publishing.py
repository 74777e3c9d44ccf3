"""Publishing: the artefacts of an experiment as a folder that the coordinator hands to the sites."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from fedrel.data.align import write_jsonl
from fedrel.data.kb import KnowledgeBase, read_kb
from fedrel.data.readers import reader
from fedrel.data.relations import RelationMap, read_relations
from fedrel.deployment.artefacts import FILES, FORMAT, MANIFEST, Artefacts, agreed_part, digest, over
from fedrel.deployment.experiment import Experiment, Shared
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind


def publish(experiment: Experiment, folder: Path) -> Artefacts:
    """Write the artefacts of an experiment in place of those that are there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        part = Path(name) / "new"
        part.mkdir()
        _write(experiment, part)
        manifest: dict[str, Any] = {"format": FORMAT, "artefacts": {}}
        for artefact, files in FILES.items():
            found = {file: digest(part / file) for file in files if (part / file).exists()}
            if found:
                manifest["artefacts"][artefact] = {"sha256": over(found), "files": found}
        _json(part / MANIFEST, manifest)
        if folder.exists():
            folder.rename(Path(name) / "old")
        part.rename(folder)
    return Artefacts(folder)


def _write(experiment: Experiment, folder: Path) -> None:
    shared, section = experiment.shared, experiment.config.extractor
    kb = read_kb(shared.knowledge_base) if shared.knowledge_base else None
    if kb is not None:
        _knowledge_base(kb, folder / "knowledge_base.tsv")
    relations = _relations(shared, kb)
    _json(folder / "relations.json", {relation: number for number, relation in enumerate(relations)})
    if shared.validation:
        read = reader(shared.format).read
        found = (one for path in shared.validation for one in read(path, relations=relations))
        write_jsonl(found, folder / "validation.jsonl")
    config = agreed_part(experiment.config)
    config["extractor"] |= extractor_kind(section.kind).publish(section, folder)
    about = {"config": config, "reading": shared.reading.model_dump(mode="json")}
    _json(folder / "config.json", about)


def _relations(shared: Shared, kb: KnowledgeBase | None) -> RelationMap:
    known = kb.relations if kb else RelationMap(())
    if shared.relations is None:
        return known if kb else reader(shared.format).relations or known
    relations = read_relations(shared.relations)
    if strange := sorted(set(known) - set(relations)):
        problem = f"has the relation {strange[0]!r}, which is not in the relation map"
        raise UserError(problem, file=shared.knowledge_base, hint=f"add it to {shared.relations}")
    return relations


def _knowledge_base(kb: KnowledgeBase, path: Path) -> None:
    """As `read_kb` reads it; comments and compression are the coordinator's own."""
    lines = (
        (head, "|".join(kb.names[head]), relation, tail, "|".join(kb.names[tail]))
        for (head, tail), relations in kb.facts.items()
        for relation in relations
    )
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def _json(path: Path, tree: Any) -> None:
    path.write_text(json.dumps(tree, indent=1, ensure_ascii=False), encoding="utf-8")
