"""A trained extractor as a folder, and what it says about new text."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedrel.config import Config, PCNNSection
from fedrel.data.instances import Instance
from fedrel.data.vectors import Vocabulary
from fedrel.errors import UserError
from fedrel.files import write_tensors, write_text

if TYPE_CHECKING:
    from fedrel.extractors.base import Extractor
    from fedrel.federation.weights import Weights

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Support:
    """A sentence that a prediction rests on, and its own probability for the relation."""

    text: str
    head: tuple[int, int]  # characters
    tail: tuple[int, int]
    source: str
    probability: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """A fact that the model reads out of all sentences that mention a pair."""

    head: str  # its id
    head_name: str
    relation: str
    tail: str
    tail_name: str
    probability: float
    sentences: tuple[Support, ...]


def save_model(
    folder: Path, config: Config, weights: Weights, vocabulary: Vocabulary, relations: Sequence[str]
) -> None:
    """Write the model: weights as safetensors, everything else as text."""
    from fedrel.methods.base import method

    about = {
        "format": FORMAT,
        "method": config.method,
        "head": method(config.method, config.methods).test_head,
        "extractor": config.extractor.model_dump(mode="json", exclude={"vectors"}),
        "relations": list(relations),
    }
    write_text(folder / "vocabulary.txt", "".join(f"{word}\n" for word in vocabulary.words))
    write_tensors(folder / "weights.safetensors", weights, {})
    write_text(folder / "config.json", json.dumps(about, indent=2, ensure_ascii=False))


def load_model(folder: str | Path) -> Model:
    """Open a model folder.

    model = fedrel.load_model("runs/demo/lazy-mil/seed-1/model")
    """
    from fedrel.extractors.bags import HEADS
    from fedrel.prepare import extractor

    folder = Path(folder)
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise UserError(f"has format {about['format']}, this version reads {FORMAT}", file=folder)
        relations, head = list(about["relations"]), HEADS[about["head"]].name
        vocabulary = Vocabulary(
            tuple((folder / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1])
        )
        section = PCNNSection.model_validate(about["extractor"])
        weights = load_file(folder / "weights.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise UserError(f"is not a model folder: {error}", file=folder) from error
    network = extractor(section, len(vocabulary), len(relations), seed=0)
    network.load(weights)
    return Model(network, vocabulary, relations, head)


class Model:
    """A trained extractor with its vocabulary, its relations and its way to pool a pair's sentences."""

    def __init__(
        self, extractor: Extractor, vocabulary: Vocabulary, relations: Sequence[str], head: str
    ) -> None:
        self.extractor, self.vocabulary, self.relations, self.head = extractor, vocabulary, relations, head

    def predict(self, instances: Iterable[Instance], *, threshold: float = 0.5) -> list[Prediction]:
        """The relations of each pair with a probability of at least `threshold`, surest first.

        All sentences that mention a pair are pooled, wherever they stand in the input. The instances' own
        relations are not looked at.
        """
        import torch

        from fedrel.data.bags import SCORED_AT_ONCE, batch_of, by_pair, slices
        from fedrel.data.columns import build
        from fedrel.extractors.bags import HEADS, sentence_probabilities

        found: list[Prediction] = []
        with tempfile.TemporaryDirectory(prefix="fedrel-") as scratch, torch.inference_mode():
            # Columns on disk: the input may be larger than memory.
            corpus = build(((0, _unlabelled(one)) for one in instances), Path(scratch) / "input", ["NA"])
            lookup = self.vocabulary.lookup(corpus.words)
            for part in slices(by_pair(corpus, corpus.rows(0)), SCORED_AT_ONCE):
                batch = batch_of(corpus, lookup, part)
                pooled = HEADS[self.head].probabilities(self.extractor, batch).numpy()
                single = sentence_probabilities(self.extractor, batch).numpy()
                for bag, relation in np.argwhere(pooled >= threshold):
                    if self.relations[relation] == "NA":
                        continue
                    span = slice(part.bounds[bag], part.bounds[bag + 1])
                    sentences = [
                        Support(
                            text=corpus.text_of(row),
                            head=tuple(corpus.head_span[row].tolist()),
                            tail=tuple(corpus.tail_span[row].tolist()),
                            source=corpus.sources[int(corpus.source[row])],
                            probability=float(probability),
                        )
                        for row, probability in zip(part.rows[span], single[span, relation], strict=True)
                    ]
                    first = part.rows[part.bounds[bag]]
                    head, tail = corpus.pairs[corpus.pair[first]].tolist()
                    found.append(
                        Prediction(
                            head=corpus.entities[head],
                            head_name=corpus.names[head],
                            relation=self.relations[relation],
                            tail=corpus.entities[tail],
                            tail_name=corpus.names[tail],
                            probability=float(pooled[bag, relation]),
                            sentences=tuple(sorted(sentences, key=lambda one: -one.probability)),
                        )
                    )
        return sorted(found, key=lambda one: -one.probability)


def _unlabelled(instance: Instance) -> Instance:
    return replace(instance, relation="NA", expresses=None)
