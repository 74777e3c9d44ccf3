"""The artefacts: what all must agree on, in a folder that the coordinator publishes and every site checks.

An artefact is one or two files; its fingerprint is a SHA-256. All artefacts are public: the experiment, the
relation map, the vocabulary of public vectors or the name and fingerprint of a public encoder, the knowledge
base, the labelled sentences that the coordinator gives to every site (FedED's D_v), and how much each site may say
that it holds, where that was agreed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrel.config.config_sections import PrivacySection
from fedrel.config.schema import Config
from fedrel.data.align import KnowledgeBase, read_kb
from fedrel.data.readers.opennre import JSONLines
from fedrel.data.relations import RelationMap, read_relations
from fedrel.data.sentences import Instance
from fedrel.deployment.experiment import AWAY, Reading, check_only_installed
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind

FORMAT = 1
MANIFEST = "manifest.json"
FILES = {  # by artefact, in the order in which they are listed and compared
    "config": ("config.json",),
    "relations": ("relations.json",),
    "vocabulary": ("words.json", "vectors.npy"),
    "encoder": ("encoder.json",),
    "knowledge_base": ("knowledge_base.tsv",),
    "validation": ("validation.jsonl",),
    "sizes": ("sizes.json",),
}
_AGAIN = "get the folder from the coordinator again (`fedrel coordinator publish` writes it)"


@dataclass(frozen=True)
class Artefacts:
    """A published folder."""

    folder: Path

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """The SHA-256 of each artefact, as the manifest has it."""
        return {name: str(about["sha256"]) for name, about in self._manifest["artefacts"].items()}

    @property
    def fingerprint(self) -> str:
        """One fingerprint over all artefacts."""
        return over(self.fingerprints)

    @property
    def files(self) -> dict[str, dict[str, str]]:
        """By artefact, its files with the SHA-256 that the manifest has for each."""
        return {name: dict(about["files"]) for name, about in self._manifest["artefacts"].items()}

    def check(self) -> None:
        """Fail if the folder's files are not exactly those that its manifest lists."""
        for name, known in FILES.items():
            for file in known:
                if self._listed(file) is None and (self.folder / file).exists():
                    problem = f"{name}: {file} is there, but was not published with the others"
                    raise UserError(problem, file=self.folder, hint=f"delete it, or {_AGAIN}")
        for name, files in self.files.items():
            for file, expected in files.items():
                path = self.folder / file
                if not path.is_file():
                    raise UserError(f"{name}: {file} is missing", file=self.folder, hint=_AGAIN)
                if digest(path) != expected:
                    problem = f"{name}: {file} is not the file that was published (its SHA-256 differs)"
                    raise UserError(problem, file=self.folder, hint=_AGAIN)
            if over(files) != self.fingerprints[name]:
                raise UserError(f"{name}: the manifest contradicts itself", file=self.folder, hint=_AGAIN)

    @cached_property
    def config(self) -> Config:
        """The experiment, with names instead of paths for vectors and encoder; no class to import."""
        tree = self._experiment["config"]
        check_only_installed(tree, self.folder / "config.json")
        about = {"data": AWAY, "evaluation": {"task": "documents"}}
        documents = extractor_kind(tree["extractor"]["kind"]).unit == "documents"
        return Config.model_validate(tree | (about if documents else {}))

    @cached_property
    def reading(self) -> Reading:
        """How every site reads its files."""
        return Reading.model_validate(self._experiment["reading"])

    @cached_property
    def relations(self) -> RelationMap:
        """The classes, in order."""
        return read_relations(self.folder / "relations.json")

    @cached_property
    def knowledge_base(self) -> KnowledgeBase | None:
        """The knowledge base that raw text is labelled with, if there is one."""
        path = self._listed("knowledge_base.tsv")
        return read_kb(path) if path else None

    def validation(self) -> Iterator[Instance]:
        """The labelled sentences that every site gets (D_v)."""
        path = self._listed("validation.jsonl")
        return JSONLines().read(path, relations=self.relations) if path else iter(())

    @cached_property
    def sizes(self) -> list[int | None]:
        """Of every site, by number, the most that it may say it holds; nothing where no sizes were agreed."""
        path = self._listed("sizes.json")
        return list(_read(path)) if path else []

    def _listed(self, file: str) -> Path | None:
        """The path of a file that the manifest lists; None for one that it does not list, which is not read."""
        return self.folder / file if any(file in files for files in self.files.values()) else None

    @cached_property
    def _experiment(self) -> dict[str, Any]:
        return dict(_read(self.folder / "config.json"))

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        path = self.folder / MANIFEST
        if not path.exists():
            raise UserError("holds no published artefacts", file=self.folder, hint=_AGAIN)
        manifest = _read(path)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise UserError(f"is not a manifest of format {FORMAT}", file=path, hint=_AGAIN)
        artefacts = manifest.get("artefacts")
        if not isinstance(artefacts, dict) or not all(_fits(*one) for one in artefacts.items()):
            raise UserError("does not list artefacts as this version knows them", file=path, hint=_AGAIN)
        return manifest


def _fits(name: str, about: object) -> bool:
    """Whether a manifest's entry has the right form, and lists only files of that artefact."""
    match about:
        case {"sha256": str(), "files": dict() as files}:
            return set(files) <= set(FILES.get(name, ())) and all(
                isinstance(one, str) for one in files.values()
            )
    return False


_AGREED: dict[str, tuple[str, ...]] = {  # the parts of a config that all must agree on, without these keys
    "seed": (),
    "method": (),
    "methods": (),
    "extractor": ("vectors", "encoder"),
    "training": ("rounds", "device"),
    "privacy": (),
}


_NO_PRIVACY = PrivacySection().model_dump(mode="json")


def agreed_part(config: Config | Mapping[str, Any]) -> dict[str, Any]:
    """The part of a config that the coordinator and all sites must agree on, as a JSON tree.

    The paths of vectors and encoder differ between machines: their fingerprints are compared instead. The
    number of rounds is for the coordinator to choose, within each site's limit. A tree may come from anywhere:
    nothing that it names is opened or imported.
    """
    tree = config.model_dump(mode="json") if isinstance(config, Config) else config
    agreed = {}
    for name, left_out in _AGREED.items():
        part = tree.get(name)
        if isinstance(part, Mapping):
            part = {key: value for key, value in part.items() if key not in left_out}
        if name != "privacy" or part not in (None, _NO_PRIVACY):  # versions without the section know no other
            agreed[name] = part
    return agreed


def differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The names of the artefacts that differ."""
    return [name for name in dict.fromkeys((*FILES, *mine, *theirs)) if mine.get(name) != theirs.get(name)]


def over(parts: Mapping[str, str]) -> str:
    """One fingerprint for several, given by name; for a single one, itself."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    return hashlib.sha256(json.dumps(sorted(parts.items())).encode()).hexdigest()


def digest(path: Path) -> str:
    """A file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot be read: {error}", file=path, hint=_AGAIN) from error
