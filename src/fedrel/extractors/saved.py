"""A trained extractor as a folder, and what it says about new text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.config.schema import Config
from fedrel.data.vectors import Vocabulary
from fedrel.files import write_tensors, write_text

if TYPE_CHECKING:
    from fedrel.tensors.weights import Weights


FORMAT = 2
ENCODER = "encoder"


def save_model(
    folder: Path,
    config: Config,
    weights: Weights,
    vocabulary: Vocabulary | None,
    relations: Sequence[str],
    pairs: Mapping[str, Any] | None = None,
) -> None:
    """Write the model: weights as safetensors, everything else as text; an encoder as Hugging Face has it.

    `pairs` says how documents' pairs are chosen, for a model of documents.
    """
    from fedrel.methods.registry import method

    about = {
        "format": FORMAT,
        "method": config.method,
        "head": method(config.method, config.methods).test_head,
        "extractor": config.extractor.model_dump(
            mode="json", exclude={"vectors", "train_words", "encoder", "frozen_layers", "lora_rank"}
        ),
        "relations": list(relations),
    }
    if pairs is not None:
        about["pairs"] = pairs
    if vocabulary is not None:
        write_text(folder / "vocabulary.txt", "".join(f"{word}\n" for word in vocabulary.words))
    else:
        weights = _export(folder / ENCODER, config, weights, len(relations))
    write_tensors(folder / "weights.safetensors", weights, {})
    write_text(folder / "config.json", json.dumps(about, indent=2, ensure_ascii=False))


def _export(folder: Path, config: Config, weights: Weights, relations: int) -> Weights:
    """Write the encoder; what is left of the weights is what stands above it."""
    from fedrel.extractors.registry import extractor
    from fedrel.extractors.transformer.pretrained import Pretrained

    network = extractor(config.extractor, 0, relations, seed=config.seed)
    assert isinstance(network, Pretrained)
    network.load(weights)
    network.export(folder)
    return {name: tensor for name, tensor in weights.items() if not name.startswith(("encoder.", "words."))}
