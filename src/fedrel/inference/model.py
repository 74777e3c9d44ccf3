"""A trained extractor as a folder, and what it says about new text."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedrel.config.schema import DocumentSection, PCNNSection, TransformerSection
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.vectors import Vocabulary
from fedrel.errors import UserError
from fedrel.extractors.inputs import Inputs
from fedrel.extractors.pcnn.words import WordInputs
from fedrel.extractors.saved import ENCODER, FORMAT
from fedrel.inference.document_model import DocumentModel

if TYPE_CHECKING:
    from fedrel.extractors.base import Extractor
    from fedrel.extractors.document.network import DocumentTransformer
    from fedrel.tensors.weights import Weights


ReadCorpus = Callable[[SentenceCorpus], Inputs]


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


def load_model(folder: str | Path) -> Model:
    """Open the folder of a model that reads sentences.

    model = fedrel.load_model("runs/demo/lazy-mil/seed-1/model")
    """
    model = open_model(folder)
    if not isinstance(model, Model):
        raise UserError("is a model of documents", file=folder, hint="open it by load_document_model")
    return model


def load_document_model(folder: str | Path) -> DocumentModel:
    """Open the folder of a model that reads documents.

    model = fedrel.load_document_model("runs/cdr/fedlcc/seed-1/model")
    """
    model = open_model(folder)
    if not isinstance(model, DocumentModel):
        raise UserError("is a model of sentences", file=folder, hint="open it by load_model")
    return model


def open_model(folder: str | Path) -> Model | DocumentModel:
    """Open a model folder, whichever it is."""
    from fedrel.extractors.heads import HEADS

    folder = Path(folder)
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise UserError(f"has format {about['format']}, this version reads {FORMAT}", file=folder)
        relations, head = list(about["relations"]), HEADS[about["head"]].name
        weights = load_file(folder / "weights.safetensors")
        kind, settings = about["extractor"]["kind"], {**about["extractor"], "encoder": str(folder / ENCODER)}
        if kind == "document":
            own = DocumentSection.model_validate(settings)
            return DocumentModel(_document(own, weights, len(relations)), own, relations, about["pairs"])
        if kind == "transformer":
            read = TransformerSection.model_validate(settings)
            return Model(*_transformer(read, weights, len(relations)), relations, head)
        words = (folder / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1]
        section, vocabulary = PCNNSection.model_validate(about["extractor"]), Vocabulary(tuple(words))
        network = _pcnn(section, weights, len(vocabulary), len(relations))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise UserError(f"is not a model folder: {error}", file=folder) from error
    return Model(network, lambda corpus: WordInputs(corpus, vocabulary.lookup(corpus.words)), relations, head)


def _pcnn(section: PCNNSection, weights: Weights, words: int, relations: int) -> Extractor:
    from fedrel.extractors.registry import extractor

    network = extractor(section, words, relations, seed=0)
    network.load(weights)
    return network


def _transformer(
    section: TransformerSection, weights: Weights, relations: int
) -> tuple[Extractor, ReadCorpus]:
    """The exported encoder under the saved classifier, and how it reads a corpus."""
    import torch

    from fedrel.extractors.registry import extractor
    from fedrel.extractors.transformer.pieces import tokenise

    network = extractor(section, 0, relations, seed=0)
    state = {name.removeprefix("classifier."): torch.from_numpy(tensor) for name, tensor in weights.items()}
    network.classifier.load_state_dict(state)
    return network, lambda corpus: tokenise(corpus, section, folder=corpus.folder.parent / "pieces")


def _document(section: DocumentSection, weights: Weights, relations: int) -> DocumentTransformer:
    """The exported encoder under the saved layers."""
    import torch

    from fedrel.extractors.document.network import document_transformer

    network = document_transformer(section, relations, torch.Generator())
    above = {name: torch.from_numpy(tensor) for name, tensor in weights.items()}
    _, unexpected = network.load_state_dict(above, strict=False)
    if unexpected:
        raise ValueError(f"it has no layer for {unexpected[0]!r}")
    return network


class Model:
    """A trained extractor, how it reads text, its relations and its way to pool a pair's sentences."""

    def __init__(self, extractor: Extractor, read: ReadCorpus, relations: Sequence[str], head: str) -> None:
        self.extractor, self.relations, self.head = extractor, relations, head
        self._read = read

    def predict(self, instances: Iterable[Instance], *, threshold: float = 0.5) -> list[Prediction]:
        """The relations of each pair with a probability of at least `threshold`, surest first.

        All sentences that mention a pair are pooled, wherever they stand in the input. The instances' own
        relations are not looked at.
        """
        import torch

        from fedrel.data.bags import SCORED_AT_ONCE, slices
        from fedrel.extractors.heads import HEADS, sentence_probabilities

        found: list[Prediction] = []
        with tempfile.TemporaryDirectory(prefix="fedrel-") as scratch, torch.inference_mode():
            # Columns on disk: the input may be larger than memory.
            corpus = SentenceCorpus.build(
                ((0, _unlabelled(one)) for one in instances), Path(scratch) / "input", ["NA"]
            )
            inputs = self._read(corpus)
            for part in slices(corpus.bags_by_pair(corpus.rows(0)), SCORED_AT_ONCE):
                batch = inputs.batch(part)
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
