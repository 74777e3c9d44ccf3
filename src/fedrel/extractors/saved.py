"""A trained extractor as a folder: weights as safetensors, everything else as text.

`config.json` says what the model is; the kind of extractor adds its own files (a vocabulary, an encoder).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.config.schema import ExtractorSection
from fedrel.errors import UserError
from fedrel.extractors.batches import Inputs
from fedrel.extractors.registry import ExtractorKind, Trained, extractor_kind
from fedrel.files import file_digest, read_sealed, read_tensors, sealed, write_tensors, write_text

if TYPE_CHECKING:
    from fedrel.extractors.base import Extractor

FORMAT = 2
_ABOUT, _WEIGHTS = "config.json", "weights.safetensors"
_REPAIR = "restore the folder from a copy, or train the model again"


def save_model(
    folder: Path,
    section: ExtractorSection,
    extractor: Extractor,
    inputs: Inputs,
    relations: Sequence[str],
    *,
    method: str,
    head: str,
    threshold: float | None = None,
    pairs: Mapping[str, Any] | None = None,
) -> None:
    """Write a trained extractor, the method that trained it, and the bag head that reads its sentences.

    `threshold` is the least probability of a fact, as it was tuned on dev. `pairs` says how documents' pairs are
    chosen, for a model of documents.
    """
    kind = extractor_kind(section.kind)
    about = {
        "format": FORMAT,
        "method": method,
        "head": head,
        "extractor": section.model_dump(mode="json", exclude=set(kind.unsaved)),
        "relations": list(relations),
    }
    if threshold is not None:
        about["threshold"] = threshold
    if pairs is not None:
        about["pairs"] = pairs
    write_tensors(folder / _WEIGHTS, kind.save(folder, extractor, inputs), {})
    about["files"] = {
        file.relative_to(folder).as_posix(): file_digest(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in (_ABOUT, _WEIGHTS)  # the weights have their own checksum
    }
    write_text(folder / _ABOUT, json.dumps(sealed(about), indent=2, ensure_ascii=False))


@dataclass(frozen=True)
class SavedModel:
    """What a model folder holds."""

    kind: ExtractorKind[Any, Any]
    trained: Trained
    relations: tuple[str, ...]
    head: str
    pairs: Mapping[str, Any]
    method: str
    threshold: float | None  # None for a model of a version that did not tune it


def open_saved(folder: Path) -> SavedModel:
    """What `save_model` left in a folder."""
    from fedrel.extractors.heads import HEADS

    if not (folder / _ABOUT).exists():
        hint = "name the folder of a finished run, or of its model"
        raise UserError(f"is not a model folder: it has no {_ABOUT}", file=folder, hint=hint)
    about = read_sealed(folder / _ABOUT, "a model's description", _REPAIR)
    weights, _ = read_tensors(folder / _WEIGHTS, "a model's weights", _REPAIR)
    try:
        _check_files(folder, about.get("files", {}))
        if about["format"] != FORMAT:
            raise UserError(f"has format {about['format']}, this version reads {FORMAT}", file=folder)
        kind, relations = _kind(about["extractor"]["kind"], folder), tuple(about["relations"])
        trained = kind.load(folder, about["extractor"], len(relations), weights)
        return SavedModel(
            kind=kind,
            trained=trained,
            relations=relations,
            head=HEADS[about["head"]].name,
            pairs=about.get("pairs", {}),
            method=str(about.get("method", "")),
            threshold=float(about["threshold"]) if "threshold" in about else None,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"is not a model folder: {error}", file=folder, hint=_REPAIR) from error


def _check_files(folder: Path, digests: Mapping[str, str]) -> None:
    """The other files of a model, which `config.json` vouches for."""
    for name, digest in digests.items():
        if not (folder / name).is_file() or file_digest(folder / name) != digest:
            problem = "is missing, or damaged: its SHA-256 is another than the model's config.json says"
            raise UserError(problem, file=folder / name, hint=_REPAIR)


def _kind(name: str, folder: Path) -> ExtractorKind[Any, Any]:
    try:
        return extractor_kind(name)
    except UserError as error:
        hint = f"load the plug-in that the model was trained with, or {error.hint}"
        raise UserError(
            f"the model's extractor is not here: {error.problem}", file=folder, hint=hint
        ) from error
